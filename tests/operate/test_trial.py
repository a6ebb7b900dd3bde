"""A trial on the page: what may be sent, what is told of the answer, and where it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from spotrelay.messages import harmless
from spotrelay.operator.page import trial
from spotrelay.operator.page.trial import BadTrialError, asked, events
from spotrelay.operator.request import Bounds, Entrance, Request
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ReadinessProbe, ServiceSpec
from spotrelay.plane.view.snapshot import ServiceSnapshot
from tests.cli.test_request import CHAT, DONE, Server, answering
from tests.examples import demo_spec
from tests.operate.replicas import START, replica

SPEC = replace(demo_spec(), readiness_probe=CHAT)
OTHER = replace(SPEC, readiness_probe=ReadinessProbe("/generate", {"inputs": "?"}, headers={"X-Team": "a"}))


@pytest.fixture
def server() -> Iterator[Server]:
    """A service that answers."""
    with answering() as made:
        yield made


def seen(server: Server, spec: ServiceSpec = SPEC) -> ServiceSnapshot:
    """The service at this server, with one replica."""
    rows = Rows(replicas={2: replica(2, instance_id="i-0123456789abcdef0")})
    return ServiceSnapshot("chat", "us-east-1", START, replace(spec, address=server.address), rows)


def told(server: Server, request: Request | None = None) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """Its head, its pieces and its end."""
    begun, *pieces, end = events(seen(server), request or asked(SPEC, {"prompt": "Hello"}))
    return begun, [piece["text"] for piece in pieces], end


def test_of_a_chat_only_the_prompt_is_asked() -> None:
    """Model, path and headers are the probe's, and the answer is a stream."""
    made = asked(SPEC, {"prompt": "Hello", "path": "/elsewhere", "method": "DELETE"})
    assert (made.method, made.path, made.is_chat) == ("POST", "/v1/chat/completions", True)
    assert json.loads(made.body or b"")["messages"] == [{"role": "user", "content": "Hello"}]


def test_of_any_other_service_method_path_and_body_are_asked() -> None:
    """With the headers of its probe."""
    made = asked(OTHER, {"method": "POST", "path": "/generate", "body": "{}"})
    assert (made.body, made.headers) == (b"{}", {"Content-Type": "application/json", "X-Team": "a"})
    got = asked(OTHER, {"method": "GET", "path": "/health", "body": "not sent"})
    assert got == Request("GET", "/health", headers={"X-Team": "a"})


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"path": "//evil.example/"}, "begins with one /"),
        ({"path": "http://evil.example/"}, "begins with one /"),
        ({"path": "@evil.example/"}, "begins with one /"),
        ({"path": ":80@evil.example/"}, "begins with one /"),
        ({"path": ""}, "begins with one /"),
        ({"path": "/a\r\nHost: evil.example"}, "begins with one /"),
        ({"method": "DELETE"}, "one of GET, POST"),
        ({"method": 3}, "not a trial's form"),
        ({"body": "x" * trial.MOST_SENT}, "more than 64 KiB"),
        ({"key": "a\r\nHost: evil.example"}, "no key has"),
    ],
)
def test_what_may_not_be_sent_is_refused(said: dict[str, Any], why: str) -> None:
    """No address, header or other method comes from a form, and nothing without bounds."""
    with pytest.raises(BadTrialError, match=why):
        asked(OTHER, {"method": "POST", "path": "/generate", **said})


def test_a_chat_needs_a_prompt() -> None:
    """An empty one is a mistake, and costs a GPU's time."""
    with pytest.raises(BadTrialError, match="empty"):
        asked(SPEC, {"prompt": " "})


def test_a_stream_is_told_as_it_comes(server: Server) -> None:
    """Who answered, each piece with its time, and at the end how many there were; the key is sent along."""
    begun, *pieces, end = events(seen(server), asked(SPEC, {"prompt": "Hello"}), "k3y")
    assert (begun["status"], begun["replica"]) == (200, None)
    assert [piece["text"] for piece in pieces] == ["Still ", "here, naïve."]
    assert (end["pieces"], end["problem"]) == (2, None)
    assert 0 <= end["first_s"] <= end["after_s"]
    (sent,) = server.seen
    assert sent[2]["Authorization"] == "Bearer k3y"


def test_what_a_model_thinks_is_told_too(server: Server) -> None:
    """Otherwise a reasoning model would seem to be silent for its first seconds."""
    server.pieces = (
        b'data: {"choices": [{"delta": {"reasoning_content": "Hm.", "content": null}}]}\n\n',
        DONE,
    )
    assert told(server)[1] == ["Hm."]


def test_who_answered_is_named_where_the_answer_tells() -> None:
    """A replica by its instance's ID, with its pool; any other word as it is."""
    there = seen(Server())
    assert trial._who("i-0123456789abcdef0:8081", there) == "replica 2 in us-east-1a/g5.xlarge/spot"
    assert trial._who("web\x1b[0m-3", there) == harmless("web\x1b[0m-3")
    assert trial._who(None, there) is None


def test_an_answer_that_is_not_whole_is_called_so(server: Server) -> None:
    """Though its status was 200: what came is shown, and why there is no more."""
    server.pieces, server.is_cut = server.pieces[:2], True
    _, pieces, end = told(server)
    assert pieces == ["Still ", "here, naïve."]
    assert "isn't whole after 2 pieces: the connection ended" in end["problem"]


def test_a_refusal_has_the_servers_words_after_ours(server: Server) -> None:
    """What it means comes first; of a page of HTML there is nothing to read."""
    server.status, server.content_type = 503, "text/plain"
    server.pieces = (b"model is loading",)
    assert told(server)[2]["problem"].startswith(
        "503: no replica is in rotation, or the server says it is full"
    )
    assert told(server)[2]["problem"].endswith("It said: model is loading")
    server.status, server.pieces = 401, (b"<html>",)
    assert told(server)[2]["problem"] == (
        "401: an API key is asked for, or this one isn't known: docs/networking.md, API keys"
    )


def test_an_answer_without_an_end_is_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many bytes, or so long; what came is shown."""
    server.content_type, server.pieces = "text/plain", (b"x" * 700,) * 9
    for bounds, why in (
        (Bounds(size=2048), "it is longer than 2 KiB, and the rest was left"),
        (Bounds(longest_s=0), "it takes longer than 0 s, and the rest was left"),
    ):
        monkeypatch.setattr(trial, "BOUNDS", bounds)
        _, pieces, end = told(server, Request("GET", "/"))
        assert set("".join(pieces)) == {"x"}
        assert why in end["problem"]


def test_what_is_no_text_is_told_by_its_size(server: Server) -> None:
    """A picture's bytes are nothing to read."""
    server.content_type, server.pieces = "image/png", (b"\x89PNG",)
    assert told(server, Request("GET", "/"))[1] == ["[4 bytes of image/png]"]


def test_who_cannot_be_reached_is_told_in_one_event() -> None:
    """An internal load balancer, from a machine outside of its network."""
    own = "internal-chat-1.us-east-1.elb.amazonaws.com.invalid"
    (end,) = events(seen(replace(Server(), port=1)), Request("GET", "/"))
    assert "can't be connected to" in end["problem"]
    assert not Entrance.at(f"http://{own}").is_internal, "nobody else's name is taken for a balancer's"
    assert Entrance.at("http://internal-chat-1.us-east-1.elb.amazonaws.com").is_internal


def test_the_local_cloud_is_asked_by_the_balancers_name(server: Server) -> None:
    """Its endpoint stands for every load balancer, whose own names nobody resolves."""
    there = seen(server)
    spec = replace(SPEC, address="http://chat-1.us-east-1.elb.amazonaws.com")
    list(events(replace(there, spec=spec), Request("GET", "/"), "", server.address))
    assert server.seen[0][2]["Host"] == "chat-1.us-east-1.elb.amazonaws.com"
