"""`spotrelay override`, as an operator meets it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from spotrelay.operator.cli import override as command
from spotrelay.operator.cli.app import app
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.core.held import Answer, Held, HeldBack, Override
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, service_parameter
from spotrelay.plane.events.ticks import TickKind, parse_tick
from tests.contract.conftest import TABLE, make_table

REGION = "us-east-1"
SINCE = datetime(2026, 11, 24, 7, 0, 1, 500_000, tzinfo=UTC)
ONE = HeldBack("replica 3 is kept", "EC2 doesn't show i-3, and it answers its checks", "it goes", SINCE)
TWO = HeldBack("i-9 is left alone", "the load balancer doesn't show any instance at all", "it ends", SINCE)


class Region:
    """A region with a control plane that holds two things back of its service, `chat`."""

    def __init__(self) -> None:
        session = boto3.Session("testing", "testing", region_name=REGION)
        self.sqs: Any = session.client("sqs")
        self.ssm: Any = session.client("ssm")
        self.store = DynamoStore(make_table(Clients(session)))
        self.queue_url = self.sqs.create_queue(QueueName="ticks")["QueueUrl"]
        document = json.dumps({"table": TABLE, "tick_queue_url": self.queue_url})
        self.ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=document, Type="String")
        self.ssm.put_parameter(Name=service_parameter("chat"), Value="{}", Type="String")
        self.store.note_held("chat", Held((ONE, TWO)))
        self.looks = 0
        self.says: Answer | None = Answer(SINCE, (ONE.what, TWO.what))
        """What the second look finds, with the time of the override that was sent."""
        self.sent: list[Override] = []

    def take(self) -> None:
        """What the command sent by now."""
        messages = self.sqs.receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=10)
        ticks = [parse_tick(message["Body"]) for message in messages.get("Messages", [])]
        assert all((tick.service, tick.kind) == ("chat", TickKind.OVERRIDE) for tick in ticks)
        self.sent += [tick.override for tick in ticks]

    def look(self, _s: float) -> None:
        """While the command waits: the tick comes, and by the second look has answered."""
        self.take()
        self.looks += 1
        (given,) = self.sent
        assert given.given_at
        if self.says and self.looks > 1:
            answer = Answer(given.given_at, self.says.done, self.says.lapsed)
            self.store.note_held("chat", Held((), answer))


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[Region]:
    """A region in an emulated AWS, whatever this machine's configuration says."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    with mock_aws():
        region = Region()
        monkeypatch.setattr(time, "sleep", region.look)
        yield region


def run(name: str = "chat", *options: str, answer: str | None = None) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    arguments = ["override", name, "--region", REGION, *options]
    result = CliRunner().invoke(app, arguments, input=answer, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_what_is_shown_is_what_is_sent(region: Region) -> None:
    """The operator reads what, why, since when and what will be done, and the message has exactly that."""
    before = datetime.now(UTC)
    code, out, err = run(answer="y\n")
    assert (code, err) == (0, "")
    assert out == (
        "The control plane of us-east-1 holds back for chat:\n"
        "- replica 3 is kept, since 2026-11-24 07:00:01 UTC:"
        " EC2 doesn't show i-3, and it answers its checks.\n"
        "  If you say that this is true, it goes.\n"
        "- i-9 is left alone, since 2026-11-24 07:00:01 UTC:"
        " the load balancer doesn't show any instance at all.\n"
        "  If you say that this is true, it ends.\n"
        "It will carry this out if it still holds back this and nothing else.\n"
        "Go on? [y/N]: y\n"
        "Carried out; no longer: replica 3 is kept\n"
        "Carried out; no longer: i-9 is left alone\n"
    )
    (given,) = region.sent
    assert given.held == {ONE, TWO}
    assert given.given_at
    assert before <= given.given_at <= datetime.now(UTC)


def test_what_came_of_it_may_be_nothing(region: Region) -> None:
    """What lapsed is told with the reason, and is a failure."""
    region.says = Answer(SINCE, (), "it wasn't given for this: replica 4 is kept, because EC2 is odd")
    code, out, err = run("chat", "--yes")
    assert code == 1
    assert "Carried out" not in out
    assert err == (
        "spotrelay override: not carried out:"
        " it wasn't given for this: replica 4 is kept, because EC2 is odd;"
        " look again with `spotrelay override chat`\n"
    )


def test_without_an_answer_the_log_is_named(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control plane that is slow: it was told, and the log will say what became of it."""
    region.says = None
    monkeypatch.setattr(command, "ANSWERED_WITHIN_S", 0.05)
    region.store.note_held("chat", Held((ONE,), Answer(SINCE - timedelta(days=1), ("another's",))))
    code, out, err = run("chat", "--yes")
    region.take()
    assert (code, err, len(region.sent)) == (0, "", 1)
    assert out.endswith("Told, and no answer yet: `spotrelay logs chat` will have it.\n")


def test_where_nothing_is_held_back_nothing_is_sent(region: Region) -> None:
    """The command says so, and where the rest is: what has a remedy of its own."""
    region.store.note_held("chat", Held((), Answer(SINCE)))
    code, out, err = run("chat", "--yes")
    region.take()
    assert (code, out, region.sent) == (2, "", [])
    assert err == (
        "spotrelay override: nothing is held back for chat in us-east-1 that an override lets go on,"
        " so nothing is sent: `spotrelay logs chat` shows the rest, with its remedy\n"
    )


def test_a_service_that_isnt_there_has_nothing(region: Region) -> None:
    """A name that was mistyped: the nearest one is named."""
    code, _, err = run("chta", "--yes")
    assert code == 2
    assert err == "spotrelay override: no service chta is deployed in us-east-1; did you mean chat?\n"


def test_a_service_whose_document_is_missing_has_what_is_held_back(region: Region) -> None:
    """It isn't deployed, and that is what is held back."""
    region.ssm.delete_parameter(Name=service_parameter("chat"))
    assert run("chat", "--yes")[0] == 0
    assert [given.held for given in region.sent] == [{ONE, TWO}]


@pytest.mark.parametrize("answer", ["\n", "", "n\n"])
def test_nothing_is_sent_without_a_yes(region: Region, answer: str) -> None:
    """A mere Enter, a closed standard input and a no leave everything as it is."""
    code, _, err = run(answer=answer)
    region.take()
    assert (code, region.sent) == (1, [])
    assert "Aborted" in err
