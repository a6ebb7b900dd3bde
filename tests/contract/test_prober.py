"""`ports.Prober` as a function in the service's network, and the queue for what no retry would mend."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import boto3
import pytest
from botocore.config import Config
from botocore.response import StreamingBody
from botocore.stub import Stubber

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.dead_letters import MeasuredQueue, SqsDeadLetters
from spotrelay.plane.aws.prober import COUNT_TIMEOUT_S, MEASURE_TIMEOUT_S, FunctionProber
from spotrelay.plane.core.answers import Answers, BusyEvidence, Trouble, Work
from spotrelay.plane.core.ports import Denied, Throttled, Unavailable
from spotrelay.plane.core.scaling import Ongoing, OngoingTarget
from spotrelay.plane.core.spec import ReadinessProbe
from spotrelay.plane.memory import MemoryProber, MemoryTelemetry
from tests.examples import demo_spec

SPEC = replace(
    demo_spec(), readiness_probe=ReadinessProbe("/v1/chat/completions", {"max_tokens": 1}, 7, {"x-key": "1"})
)

TARGET = OngoingTarget(target=8.0, metrics=("running", "waiting"), path="/stats")


@pytest.fixture
def functions(clients: Clients) -> Iterator[Stubber]:
    """Answers for Lambda's calls."""
    with Stubber(clients.lambda_) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def _body(text: str) -> StreamingBody:
    return StreamingBody(io.BytesIO(text.encode()), len(text.encode()))


def test_the_service_s_prober_is_asked(functions: Stubber, clients: Clients) -> None:
    """The function of the service gets every address with the probe's path and data, and says who answers."""
    request = {
        "urls": {
            "i-1": "http://10.0.0.1:8081/v1/chat/completions",
            "i-2": "http://10.0.0.2:8081/v1/chat/completions",
        },
        "post_data": {"max_tokens": 1},
        "headers": {"x-key": "1"},
        "timeout_s": 7,
    }
    functions.add_response(
        "invoke",
        {"StatusCode": 200, "Payload": _body('{"answering": ["i-2"], "refusing": ["i-1"]}')},
        {"FunctionName": "spotrelay-probe-demo", "Payload": json.dumps(request)},
    )
    prober = FunctionProber(clients)
    found = prober.ask(SPEC, {"i-1": "10.0.0.1", "i-2": "10.0.0.2"}, {"i-1"})
    assert found == Answers(frozenset({"i-2"}), frozenset({"i-1"}))


def test_why_a_replica_is_not_ready_is_put_into_words(functions: Stubber, clients: Clients) -> None:
    """The status that it refuses with; or that it crashes, which is told apart, and what it said last."""
    told = {"status": {"i-1": "404 Not Found"}, "crashing": {"i-2": [3, "a\nb"]}}
    answer = json.dumps({"answering": [], "refusing": ["i-1"], **told})
    functions.add_response("invoke", {"StatusCode": 200, "Payload": _body(answer)})
    found = FunctionProber(clients).ask(SPEC, {"i-1": "10.0.0.1", "i-2": "10.0.0.2"})
    assert found.trouble == {
        "i-1": Trouble("answers its probe with 404 Not Found"),
        "i-2": Trouble("crashes: 3 starts have failed. It said last:\na\nb", is_crash=True),
    }


def test_who_serves_is_asked_what_it_has_to_do(functions: Stubber, clients: Clients) -> None:
    """In the same call, at its own port and the evidence's path: the function asks those that are silent."""
    busy = BusyEvidence(limit=2, finished=("done",), ongoing=("running", "waiting"), path="/stats")
    request = {
        "urls": {
            "i-1": "http://10.0.0.1:8081/v1/chat/completions",
            "i-2": "http://10.0.0.2:8081/v1/chat/completions",
        },
        "post_data": {"max_tokens": 1},
        "headers": {"x-key": "1"},
        "timeout_s": 7,
        "count": {
            "urls": {"i-1": "http://10.0.0.1:8081/stats"},
            "finished": ["done"],
            "ongoing": ["running", "waiting"],
            "timeout_s": COUNT_TIMEOUT_S,
        },
    }
    answer = '{"answering": ["i-2"], "refusing": [], "work": {"i-1": [7.0, 3.0]}}'
    functions.add_response(
        "invoke",
        {"StatusCode": 200, "Payload": _body(answer)},
        {"FunctionName": "spotrelay-probe-demo", "Payload": json.dumps(request)},
    )
    found = FunctionProber(clients).ask(
        replace(SPEC, busy=busy), {"i-1": "10.0.0.1", "i-2": "10.0.0.2"}, {"i-1"}
    )
    assert found == Answers(frozenset({"i-2"}), work={"i-1": Work(7.0, 3.0)})


def test_nobody_is_asked_who_may_be_heard_too_late(functions: Stubber, clients: Clients) -> None:
    """With less time than the answer may take, the next tick asks: this one has to end by itself."""
    with clients.in_use(31), pytest.raises(Unavailable, match="time is left"):
        FunctionProber(clients).ask(SPEC, {"i-1": "10.0.0.1"})


def test_nobody_to_ask(functions: Stubber, clients: Clients) -> None:
    """Without a probe everybody is taken to answer, and without addresses nobody; neither takes a call."""
    prober = FunctionProber(clients)
    assert prober.ask(replace(SPEC, readiness_probe=None), {"i-1": "10.0.0.1"}).answering == {"i-1"}
    assert prober.ask(SPEC, {}) == Answers()


def test_the_same_function_reads_what_replicas_have_to_do(functions: Stubber, clients: Clients) -> None:
    """It gets each one's own port, the metrics' names and their path, and says of whom it knows what."""
    request = {
        "urls": {"i-1": "http://10.0.0.1:8081/stats", "i-2": "http://10.0.0.2:9000/stats"},
        "metrics": ["running", "waiting"],
        "timeout_s": MEASURE_TIMEOUT_S,
    }
    functions.add_response(
        "invoke",
        {"StatusCode": 200, "Payload": _body('{"ongoing": {"i-2": 3.0}, "unknown": {"i-1": "late"}}')},
        {"FunctionName": "spotrelay-probe-demo", "Payload": json.dumps(request)},
    )
    addresses = {"i-1": ("10.0.0.1", 8081), "i-2": ("10.0.0.2", 9000)}
    found = FunctionProber(clients).ongoing("demo", TARGET, addresses)
    assert found == Ongoing({"i-2": 3.0}, {"i-1": "late"})


def test_what_cannot_be_read_in_time_or_of_nobody(functions: Stubber, clients: Clients) -> None:
    """Without replicas there is no call; with less time than it may take none either."""
    assert FunctionProber(clients).ongoing("demo", TARGET, {}) == Ongoing()
    with clients.in_use(31), pytest.raises(Unavailable, match="time is left"):
        FunctionProber(clients).ongoing("demo", TARGET, {"i-1": ("10.0.0.1", 80)})


def test_the_ports_in_memory_tell_as_they_are_told() -> None:
    """Who is silent is unknown, who has nothing to do has none."""
    prober = MemoryProber()
    prober.requests["i-1"] = 3.0
    prober.silent.add("i-2")
    found = prober.ongoing("demo", TARGET, dict.fromkeys(("i-1", "i-2", "i-3"), ("10.0.0.1", 80)))
    assert (found.requests, set(found.unknown)) == ({"i-1": 3.0, "i-3": 0.0}, {"i-2"})


def test_a_prober_that_fails_says_nothing_about_replicas(functions: Stubber, clients: Clients) -> None:
    """An error of the function's is no "not ready": it is raised, with the function's words."""
    functions.add_response(
        "invoke",
        {
            "StatusCode": 200,
            "FunctionError": "Unhandled",
            "Payload": _body('{"errorMessage": "Task timed out"}'),
        },
    )
    with pytest.raises(Unavailable, match=r"spotrelay-probe-demo: .*Task timed out"):
        FunctionProber(clients).ask(SPEC, {"i-1": "10.0.0.1"})


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("TooManyRequestsException", 429, Throttled),
        ("EC2ThrottledException", 502, Throttled),
        ("ResourceNotReadyException", 502, Unavailable),
        ("ResourceConflictException", 409, Unavailable),
        ("CodeArtifactUserPendingException", 409, Unavailable),
        ("CodeArtifactUserDeletedException", 409, Unavailable),
        ("ENINotReadyException", 502, Unavailable),
        ("SubnetIPAddressLimitReachedException", 502, Unavailable),
        ("ServiceException", 500, Unavailable),
        ("ResourceNotFoundException", 404, Denied),
    ],
)
def test_a_prober_that_cannot_be_asked(
    functions: Stubber, clients: Clients, code: str, status: int, error: type[Exception]
) -> None:
    """A throttled call is a throttle, a function that sleeps doesn't answer, a missing one is a mistake."""
    functions.add_client_error("invoke", code, "no", status)
    with pytest.raises(error):
        FunctionProber(clients).ask(SPEC, {"i-1": "10.0.0.1"})


class Functions:
    """A session whose Lambda answers once as many calls as expected are under way: of two instances one."""

    def __init__(self, expected: int) -> None:
        self.sizes: list[int] = []
        self._under_way = threading.Barrier(expected, timeout=30)

    def client(self, service: str, config: Config) -> Functions:
        """The client."""
        return self

    def invoke(self, FunctionName: str, Payload: str) -> dict[str, Any]:  # noqa: N803 - AWS's names
        """As the prober's function answers."""
        urls = list(json.loads(Payload)["urls"])
        self.sizes.append(len(urls))
        self._under_way.wait()
        if "metrics" in json.loads(Payload):
            answer = {"ongoing": dict.fromkeys(urls[:1], 1.0), "unknown": dict.fromkeys(urls[1:], "no")}
            return {"StatusCode": 200, "Payload": _body(json.dumps(answer))}
        answering = [id_ for id_ in urls if int(id_.removeprefix("i-")) % 2]
        return {"StatusCode": 200, "Payload": _body(json.dumps({"answering": answering}))}


def test_many_are_asked_in_several_calls_at_the_same_time() -> None:
    """More instances than one function can hold connections to are asked by several, side by side."""
    functions = Functions(expected=3)
    prober = FunctionProber(Clients(cast("boto3.Session", functions)))
    answering = prober.ask(SPEC, {f"i-{n}": "10.0.0.1" for n in range(1001)}).answering
    assert sorted(functions.sizes) == [1, 500, 500]
    assert answering == {f"i-{n}" for n in range(1, 1001, 2)}


def test_what_is_set_aside_says_why(aws: Clients) -> None:
    """A message set aside keeps its body and carries its queue and the reason, cut where it is endless."""
    url = aws.sqs.create_queue(QueueName="dead")["QueueUrl"]
    SqsDeadLetters(aws, url).set_aside("{", "not JSON " * 1000, "ticks")
    (message,) = aws.sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert message["Body"] == "{"
    said = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
    assert said["why"].startswith("not JSON not JSON")
    assert said["source"] == "ticks"


def test_a_queue_that_cannot_be_asked_fails_nothing(aws: Clients) -> None:
    """To keep it in use is one call to it; a survey goes on without it, and that is on record."""
    telemetry = MemoryTelemetry()
    url = aws.sqs.create_queue(QueueName="kept")["QueueUrl"]
    calls: list[str] = []
    aws.sqs.meta.events.register("before-call.sqs", lambda model, **_: calls.append(model.name))
    MeasuredQueue(aws, url, telemetry).keep_in_use()
    assert (calls, telemetry.records) == (["GetQueueAttributes"], [])
    MeasuredQueue(aws, url + "-gone", telemetry).keep_in_use()
    assert [event for event, _ in telemetry.records] == ["queue_not_asked"]


def test_pages_of_metrics_are_read_by_fewer_in_a_call() -> None:
    """Each may be a mebibyte, and the function has 256; what all of them say is one answer."""
    functions = Functions(expected=3)
    prober = FunctionProber(Clients(cast("boto3.Session", functions)))
    found = prober.ongoing("demo", TARGET, {f"i-{n}": ("10.0.0.1", 80) for n in range(201)})
    assert sorted(functions.sizes) == [1, 100, 100]
    assert (len(found.requests), len(found.unknown)) == (3, 198)
