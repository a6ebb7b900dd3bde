"""`spotrelay scale`, as an operator meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from spotrelay.operator.cli.app import app
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, service_parameter
from spotrelay.plane.core.rows import Desired, ScaleRequest, Source
from spotrelay.plane.core.scaling import Scaling
from spotrelay.plane.view.words import asked_in_words
from tests.contract.conftest import TABLE, make_table
from tests.examples import demo_spec

REGION = "us-east-1"
NOW = datetime(2026, 11, 22, 19, 40, 30, tzinfo=UTC)


class Region:
    """A region with a control plane and one service, `demo`, of three replicas."""

    def __init__(self) -> None:
        clients = Clients(boto3.Session("testing", "testing", region_name=REGION))
        self.store = DynamoStore(make_table(clients))
        self._sqs: Any = clients.sqs
        self._queue_url = clients.sqs.create_queue(QueueName="ticks")["QueueUrl"]
        document = json.dumps({"table": TABLE, "tick_queue_url": self._queue_url})
        self.ssm: Any = clients.ssm
        self.ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=document, Type="String")
        spec = json.dumps(demo_spec().to_dict())
        self.ssm.put_parameter(Name=service_parameter("demo"), Value=spec, Type="String")

    def told(self) -> list[dict[str, str]]:
        """What the tick queue holds."""
        messages = self._sqs.receive_message(QueueUrl=self._queue_url, MaxNumberOfMessages=10)
        return [json.loads(message["Body"]) for message in messages.get("Messages", [])]

    def asked(self) -> ScaleRequest | None:
        """What is on record."""
        return self.store.load("demo").requests.get(Source.OPERATOR)


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[Region]:
    """A made-up region, whatever this machine's AWS configuration says."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    with mock_aws():
        yield Region()


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["scale", *arguments, "--region", REGION], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(("text", "lasts_s"), [("90m", 5400), ("2h", 7200), ("1d", 86_400), ("7d", 604_800)])
def test_a_request_is_stored_shown_and_told(region: Region, text: str, lasts_s: int) -> None:
    """The number is on record until its time, the operator reads what follows, and a tick comes at once."""
    before = datetime.now(UTC)
    code, out, err = run("demo", "5", "--for", text)
    assert (code, err) == (0, "")
    asked = region.asked()
    assert asked
    assert asked.replicas == 5
    assert asked.until
    lasts = timedelta(seconds=lasts_s)
    assert before + lasts <= asked.until <= datetime.now(UTC) + lasts
    assert out.startswith("demo: 5 replicas until ")
    assert out.endswith(" UTC (operator), then 3 again as the service file says\n")
    assert region.told() == [{"service": "demo", "kind": "tick"}]


def test_the_number_is_shown(region: Region) -> None:
    """Without a number nothing is changed; what counts is shown, be it the file's or an operator's."""
    assert run("demo") == (0, "demo: 3 replicas, as the service file says\n", "")
    run("demo", "0", "--for", "1m", "--yes")
    told = region.told()
    code, out, _ = run("demo")
    assert code == 0
    assert out.startswith("demo: 0 replicas until ")
    assert (len(told), region.told()) == (1, [])


def test_none_at_all_is_asked_for_twice(region: Region) -> None:
    """A 0 that slipped in ends nothing: not without a yes, so not from a script that doesn't say it."""
    code, out, _ = run("demo", "0", "--for", "1m")
    assert code == 1
    assert "demo: end all of its replicas? Nobody answers its clients then. [y/N]" in out
    assert region.asked() is None
    assert region.told() == []


def test_a_reset_lets_the_service_file_count(region: Region) -> None:
    """The request is gone, and a tick comes at once."""
    run("demo", "5", "--for", "2h")
    assert region.told()
    assert run("demo", "--reset") == (0, "demo: 3 replicas, as the service file says\n", "")
    assert region.asked() is None
    assert region.told() == [{"service": "demo", "kind": "tick"}]


def test_a_request_that_is_over_is_not_shown(region: Region) -> None:
    """It may still be on record, and counts no more."""
    region.store.note_request("demo", Source.OPERATOR, ScaleRequest(9, datetime.now(UTC)))
    assert run("demo")[1] == "demo: 3 replicas, as the service file says\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["5"], "for how long? Say so with --for, as in --for 2h; 5 for good belongs into the service file"),
        (["--for", "2h"], "--for needs a number of replicas before it, as in: scale NAME 5 --for 2h"),
        (["5", "--reset"], "--reset lets the service file's number count: leave out REPLICAS"),
    ],
)
def test_what_contradicts_itself_is_refused(region: Region, arguments: list[str], why: str) -> None:
    """One line says what is missing or too much; nothing is stored or told."""
    assert run("demo", *arguments) == (2, "", f"spotrelay scale: {why}\n")
    assert (region.asked(), region.told()) == (None, [])


@pytest.mark.parametrize("text", ["-1", "1001", "2.5", "many", "٣", "", "9" * 5000])
def test_a_number_that_no_service_file_could_have_is_refused(region: Region, text: str) -> None:
    """The limits are those of the service file."""
    code, _, err = run("demo", text, "--for", "2h")
    assert code == 2
    assert err == f"spotrelay scale: REPLICAS: expected a whole number from 0 to 1000, got {text!r}\n"
    assert (region.asked(), region.told()) == (None, [])


@pytest.mark.parametrize(
    "text", ["0m", "8d", "10081m", "169h", "2", "2 h", "-2h", "2w", "2h30m", "", "9" * 5000 + "d"]
)
def test_a_time_that_cant_be_meant_is_refused(region: Region, text: str) -> None:
    """Less than a tick's minute, more than a week, and what isn't understood."""
    code, _, err = run("demo", "5", "--for", text)
    assert code == 2
    assert err == (
        f"spotrelay scale: --for: expected a period such as 90m, 2h or 1d, 7d at most, got {text!r}\n"
    )
    assert (region.asked(), region.told()) == (None, [])


def test_a_service_that_is_not_deployed_is_refused(region: Region) -> None:
    """There is no number to replace: it may be a slip."""
    code, _, err = run("dmeo", "5", "--for", "2h")
    assert code == 2
    assert err == ("spotrelay scale: no service dmeo is deployed in us-east-1; did you mean demo?\n")
    assert region.store.load("dmeo").requests == {}


def test_a_document_that_cant_be_read_is_explained(region: Region) -> None:
    """The line names the parameter and the remedy."""
    region.ssm.put_parameter(Name=service_parameter("demo"), Value="{}", Type="String", Overwrite=True)
    code, _, err = run("demo")
    assert code == 1
    assert err.startswith("spotrelay scale: parameter /spotrelay/services/demo: ")
    assert "deploy the service again" in err


def test_a_table_that_is_gone_is_no_traceback(region: Region) -> None:
    """What AWS refuses to read or write is one line, in its own words."""
    document = json.dumps({"table": "gone", "tick_queue_url": "https://sqs/ticks"})
    region.ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=document, Type="String", Overwrite=True)
    code, _, err = run("demo", "5", "--for", "2h")
    assert code == 1
    assert err.startswith("spotrelay scale: ")
    assert "ResourceNotFoundException" in err


@pytest.mark.parametrize(
    ("until", "words"),
    [
        (NOW + timedelta(hours=2), "1 replica until 21:40 UTC (operator), then 3 again"),
        (NOW + timedelta(hours=5), "1 replica until 2026-11-23 00:40 UTC (operator), then 3 again"),
    ],
)
def test_the_day_is_named_if_it_is_another(until: datetime, words: str) -> None:
    """A time of day alone would be misread for one that is tomorrow."""
    wanted = Desired(1, Source.OPERATOR, until)
    assert asked_in_words(wanted, demo_spec(), NOW).startswith(words)


def test_where_the_number_follows_the_load() -> None:
    """What the load asks for is shown as such, and comes back after an operator's number."""
    spec = replace(demo_spec(), scaling=Scaling(min_replicas=1, max_replicas=4, target_qps_per_replica=2.0))
    assert asked_in_words(Desired(2, Source.LOAD, None), spec, NOW) == "2 replicas, as the load asks for"
    asked = asked_in_words(Desired(2, Source.OPERATOR, NOW + timedelta(hours=1)), spec, NOW)
    assert asked.endswith(" UTC (operator), then as many as the load asks for")
