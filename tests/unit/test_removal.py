"""The function that holds up the end of a service's stack, against an EC2 and a CloudFormation of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, cast

import pytest

from lambdas import removal
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, TAG_SERVICE, service_parameter
from tests.unit.invocations import Context

DOCUMENT = service_parameter("chat")
LIMIT_S = 600.0


@dataclass
class World:
    """What AWS says of the service `chat`, look by look; the last answer stays."""

    looks: list[Sequence[Mapping[str, str]]]
    """Of each look the pages of instances: ID → state."""
    parameters: set[str] = field(default_factory=lambda: {CONTROL_PLANE_PARAMETER})
    filters: list[Any] = field(default_factory=list)
    now_s: float = 0.0

    def wait(self) -> None:
        """What the function does for a removal."""
        removal.ServiceEnd("chat", cast("Any", self), cast("Any", self), self.sleep, lambda: self.now_s).wait(
            LIMIT_S
        )

    def sleep(self, duration_s: float) -> None:
        """Let time pass."""
        self.now_s += duration_s

    def get_parameters(self, *, Names: list[str]) -> dict[str, Any]:  # noqa: N803 - boto3's
        """SSM: those of the parameters that exist."""
        return {"Parameters": [{"Name": name} for name in Names if name in self.parameters]}

    def get_paginator(self, _: str) -> World:
        """EC2: the world pages by itself."""
        return self

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        """EC2: the pages of the next look."""
        self.filters = request["Filters"]
        for page in self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]:
            instances = [{"InstanceId": id_, "State": {"Name": state}} for id_, state in page.items()]
            yield {"Reservations": [{"Instances": instances}]}


def test_it_waits_until_the_last_instance_has_ended() -> None:
    """Whatever page it is on; one that shuts down still has its network interface."""
    world = World([[{}, {"i-1": "running"}], [{"i-1": "shutting-down"}], [{}]])
    world.looks[:0] = [world.looks[0]] * 10
    world.wait()
    assert world.now_s == 11 * removal.POLL_S + removal.POLL_S
    assert {"Name": f"tag:{TAG_SERVICE}", "Values": ["chat"]} in world.filters
    (states,) = (f["Values"] for f in world.filters if f["Name"] == "instance-state-name")
    assert "terminated" not in states
    assert len(states) == 5


def test_a_launch_that_was_under_way_is_waited_for() -> None:
    """Nothing is there at first: EC2 may only not show it yet."""
    world = World([[{}], [{}], [{"i-1": "pending"}], [{}]])
    world.wait()
    assert world.looks == [[{}]]
    assert world.now_s >= removal.LAUNCHED_WITHIN_S


def test_a_service_that_stays_is_not_waited_for() -> None:
    """The document is there: a deployment is rolled back, and only this resource goes."""
    world = World([[{"i-1": "running"}]], parameters={DOCUMENT, CONTROL_PLANE_PARAMETER})
    world.wait()
    assert world.now_s == 0


def test_out_of_time_it_says_which_are_left_and_what_to_do() -> None:
    """Ten of them by name, in an answer that CloudFormation takes."""
    world = World([[{f"i-{n:017x}": "running" for n in range(12)}]])
    with pytest.raises(removal.StillThereError) as caught:
        world.wait()
    told = str(caught.value)
    assert LIMIT_S - removal.POLL_S <= world.now_s <= LIMIT_S
    assert told.startswith("chat still has 12 instances: i-00000000000000000 (running), ")
    assert " and 2 more. " in told
    for remedy in ("delete this stack again", "HeldBack", "spotrelay retire chat", TAG_SERVICE):
        assert remedy in told
    assert len(told) < 2000


def test_without_a_control_plane_it_says_so_at_once() -> None:
    """Nobody would end them: a person must, and gets the command."""
    world = World([[{"i-1": "running"}]], parameters=set())
    with pytest.raises(removal.StillThereError, match=r"--instance-ids i-1, then delete this stack again"):
        world.wait()
    assert world.now_s == 0


# What CloudFormation hears.


@pytest.fixture
def answers() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Where CloudFormation takes answers, and what it got: the body, and the content type that was sent."""
    got: list[dict[str, Any]] = []

    class Bucket(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            got.append({**body, "content type": self.headers["Content-Type"]})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Bucket) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/answer", got
        finally:
            server.shutdown()
            thread.join()


def event(kind: str, url: str) -> dict[str, Any]:
    """What CloudFormation sends."""
    return {
        "RequestType": kind,
        "ResponseURL": url,
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": "Replicas",
        "ResourceProperties": {"Service": "chat"},
    }


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_a_deployment_is_answered_at_once(kind: str, answers: tuple[str, list[dict[str, Any]]]) -> None:
    """With an ID that never changes: another would make CloudFormation delete the one before."""
    url, got = answers
    removal.handler(event(kind, url), cast("Any", Context()))
    assert got == [
        {
            "Status": "SUCCESS",
            "Reason": "",
            "PhysicalResourceId": "replicas-of-chat",
            "StackId": "stack",
            "RequestId": "request",
            "LogicalResourceId": "Replicas",
            "content type": "",
        }
    ]


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (removal.StillThereError("chat still has 1 instances"), "chat still has 1 instances"),
        (RuntimeError("AccessDenied"), "Nobody knows whether chat still has instances: RuntimeError"),
    ],
)
def test_whatever_happens_is_told(
    trouble: Exception,
    told: str,
    answers: tuple[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CloudFormation would wait for an hour for an answer that never comes."""
    limits: list[float] = []

    def wait(_: removal.ServiceEnd, within_s: float) -> None:
        limits.append(within_s)
        raise trouble

    monkeypatch.setattr(removal.ServiceEnd, "wait", wait)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    url, got = answers
    removal.handler(event("Delete", url), cast("Any", Context()))
    (answer,) = got
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith(told)
    assert limits == [900 - removal.MARGIN_S]
