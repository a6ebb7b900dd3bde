"""`ports.Ticker`, and the message that SQS carries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest
from botocore.stub import ANY, Stubber

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.ticker import SqsAnnouncer, SqsTicker
from spotrelay.plane.core.held import HeldBack, Override
from spotrelay.plane.events.ticks import MalformedTickError, Tick, TickKind, parse_tick
from spotrelay.plane.memory import MemoryTicker
from tests.contract.rows import NOW

DUE = NOW + timedelta(microseconds=1)
QUEUE = "https://sqs.us-east-1.amazonaws.com/000000000000/ticks"
LEAVES = "https://sqs.us-east-1.amazonaws.com/000000000000/leaves"


@pytest.fixture
def sqs(clients: Clients) -> Iterator[Stubber]:
    """Answers for SQS's calls."""
    with Stubber(clients.sqs) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def test_a_tick_arrives_as_sent(aws: Clients) -> None:
    """What was scheduled is what the receiver parses, the announced time to the microsecond."""
    url = aws.sqs.create_queue(QueueName="ticks")["QueueUrl"]
    ticker = SqsTicker(aws, url, LEAVES)
    ticker.schedule("demo")
    ticker.schedule("llama3", DUE)
    messages = aws.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    received = {parse_tick(message["Body"]) for message in messages}
    assert received == {Tick("demo"), Tick("llama3", DUE)}


def test_what_is_no_tick_arrives_as_sent(aws: Clients) -> None:
    """It is a message of its own kind about the service, and serves no announced tick.

    Who leaves is looked at from a queue of its own: ticks wait for replicas that don't answer.
    """
    ticks, leaves = (aws.sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("ticks", "leaves"))
    ticker = SqsTicker(aws, ticks, leaves)
    for schedule, kind, url in (
        (ticker.schedule_leave, TickKind.LEAVE, leaves),
        (partial(ticker.schedule_override, override=Override()), TickKind.OVERRIDE, ticks),
    ):
        schedule("demo", delay_s=0)
        (message,) = aws.sqs.receive_message(QueueUrl=url)["Messages"]
        aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        assert json.loads(message["Body"]) == {"service": "demo", "due": None, "kind": kind}
        assert parse_tick(message["Body"]) == Tick("demo", kind=kind)


def test_what_an_override_is_given_for_arrives_as_sent(aws: Clients) -> None:
    """An override that has to wait is sent again with all that it was given for, to the microsecond."""
    url = aws.sqs.create_queue(QueueName="ticks")["QueueUrl"]
    held = {HeldBack(f"replica {n} is kept", 'EC2 "shows" it not', "it goes", DUE) for n in range(3)}
    given = Override(frozenset(held), DUE)
    SqsTicker(aws, url, LEAVES).schedule_override("demo", given, 0)
    (message,) = aws.sqs.receive_message(QueueUrl=url)["Messages"]
    assert parse_tick(message["Body"]) == Tick("demo", kind=TickKind.OVERRIDE, override=given)


def test_what_is_announced_arrives_as_sent(aws: Clients) -> None:
    """Each instance with its words, in a tick that serves no announced one."""
    url = aws.sqs.create_queue(QueueName="ticks")["QueueUrl"]
    told = {"i-2": "system-reboot", "i-1": "instance-stop, not before 2026-12-05 09:00 UTC"}
    SqsAnnouncer(aws, url).announce("demo", told)
    (message,) = aws.sqs.receive_message(QueueUrl=url)["Messages"]
    tick = parse_tick(message["Body"])
    assert (tick.service, tick.due, tick.kind, dict(tick.announced)) == ("demo", None, TickKind.TICK, told)
    memory = MemoryTicker()
    memory.announce("demo", told)
    assert memory.announced == [("demo", told)]


@pytest.mark.parametrize("kind", TickKind)
def test_every_kind_arrives_as_sent(kind: TickKind) -> None:
    """What is written is what is read, for whatever a message asks."""
    assert parse_tick(Tick("demo", DUE, kind).to_json()) == Tick("demo", DUE, kind)


def test_a_message_without_a_kind_is_a_tick() -> None:
    """As a version before this one has sent it, or a person does."""
    assert parse_tick('{"service": "demo"}') == Tick("demo", None, TickKind.TICK)


def test_the_schedule_is_everybodys_tick() -> None:
    """EventBridge's scheduled event, as it is, stands for every service's tick."""
    event = {"version": "0", "source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}
    assert parse_tick(json.dumps(event)) == Tick(None)


def test_a_deployed_service_is_ticked() -> None:
    """Parameter Store's event about a runtime document stands for that service's tick."""
    event = {
        "source": "aws.ssm",
        "detail-type": "Parameter Store Change",
        "detail": {"operation": "Update", "name": "/spotrelay/services/llama3", "type": "String"},
    }
    assert parse_tick(json.dumps(event)) == Tick("llama3")


@pytest.mark.parametrize("operation", ["Create", "Update", "Delete", "LabelParameterVersion"])
def test_a_deleted_document_tells_a_removal(operation: str) -> None:
    """Only the event of its deletion says that a service was removed; every other one is a tick."""
    event = {
        "source": "aws.ssm",
        "detail-type": "Parameter Store Change",
        "detail": {"operation": operation, "name": "/spotrelay/services/llama3", "type": "String"},
    }
    kind = TickKind.REMOVED if operation == "Delete" else TickKind.TICK
    assert parse_tick(json.dumps(event)) == Tick("llama3", kind=kind)


DELAYS = pytest.mark.parametrize(
    ("delay_s", "sent"),
    [(0, 0), (0.001, 1), (2.5, 3), (3.0, 3), (900, 900), (900.1, 900), (5000, 900), (-1, 0)],
)


@DELAYS
def test_delays_that_sqs_takes(sqs: Stubber, clients: Clients, delay_s: float, sent: int) -> None:
    """A delay becomes whole seconds, never too early, never more than SQS takes."""
    sqs.add_response("send_message", {}, {"QueueUrl": QUEUE, "MessageBody": ANY, "DelaySeconds": sent})
    SqsTicker(clients, QUEUE, LEAVES).schedule("demo", delay_s=delay_s)


@DELAYS
def test_delays_of_a_look_that_sqs_takes(sqs: Stubber, clients: Clients, delay_s: float, sent: int) -> None:
    """The same goes for the look at who must leave, and for an override."""
    for queue in (LEAVES, QUEUE):
        sqs.add_response("send_message", {}, {"QueueUrl": queue, "MessageBody": ANY, "DelaySeconds": sent})
    SqsTicker(clients, QUEUE, LEAVES).schedule_leave("demo", delay_s)
    SqsTicker(clients, QUEUE, LEAVES).schedule_override("demo", Override(), delay_s)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "tick",
        "[]",
        "null",
        "{}",
        '{"service": null}',
        '{"service": ""}',
        '{"service": 7}',
        '{"service": "demo", "due": "soon"}',
        '{"service": "demo", "due": 7}',
        '{"service": "demo", "kind": "remove"}',
        '{"service": "demo", "kind": null}',
        '{"service": "demo", "kind": ["tick"]}',
        '{"source": "aws.ssm"}',
        '{"source": "aws.ssm", "detail": {"operation": "Delete"}}',
        '{"source": "aws.ssm", "detail": []}',
        '{"service": "demo", "due": "2026-11-21T07:00:00"}',
    ],
)
def test_what_is_no_tick(body: str) -> None:
    """A message that isn't a tick is malformed, and the error shows it."""
    with pytest.raises(MalformedTickError) as raised:
        parse_tick(body)
    assert body in str(raised.value)
