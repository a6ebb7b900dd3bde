"""`spotrelay recommend --service`, as an operator meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from spotrelay.operator.cli.app import app
from spotrelay.plane.accounting.days import Day, PoolDay
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.days import DynamoDays
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, service_parameter
from spotrelay.plane.core.pools import Survey
from tests.contract.conftest import TABLE, make_table
from tests.examples import demo_spec

REGION = "us-east-1"


class Region:
    """A region with a control plane and one service, `demo`."""

    def __init__(self) -> None:
        clients = Clients(boto3.Session("testing", "testing", region_name=REGION))
        table = make_table(clients)
        self.store = DynamoStore(table)
        self.days = DynamoDays(Table(clients, TABLE))
        ssm: Any = clients.ssm
        document = json.dumps({"table": TABLE, "tick_queue_url": "https://sqs.us-east-1.amazonaws.com/0/q"})
        ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=document, Type="String")
        spec = json.dumps(demo_spec().to_dict())
        ssm.put_parameter(Name=service_parameter("demo"), Value=spec, Type="String")

    def note(self, age_days: int, **pools: PoolDay) -> None:
        """A day of so long ago; pools by their type, in zone a."""
        now = datetime.now(UTC)
        date = now.date() - timedelta(age_days)
        named = {f"us-east-1a/{name.replace('_', '.')}": one for name, one in pools.items()}
        self.days.note(Day("demo", date, now, pools=named, scores={"us-east-1a": {1: 8}}))


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[Region]:
    """A made-up region, whatever this machine's AWS configuration says."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        yield Region()


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["recommend", *arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


ASKED = ("--service", "demo", "--region", REGION)


def test_a_service_is_judged_by_its_own_days(region: Region) -> None:
    """Pools with their figures, then each type with its reason; days of before the time don't count."""
    region.note(1, g5_xlarge=PoolDay(0.4, 2, 1, 3, 20.0), g6_xlarge=PoolDay(0.3))
    region.note(40, g5_xlarge=PoolDay(0.4, 9, 9, 9, 9.0))
    code, out, err = run(*ASKED)
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "POOL HOURS LAUNCHED LOST REFUSED SPOT USD/h SCORE" in lines
    assert "us-east-1a/g5.xlarge 20.0 2 1 3 0.400 8.0" in lines
    assert "us-east-1a/g6.xlarge 0.0 0 0 0 0.300 8.0" in lines
    assert "g5.xlarge: ran 20 h at 0.400 USD an hour, lost 1." in lines
    assert "g6.xlarge: not used yet." in lines
    told = json.loads(run(*ASKED, "--json", "--since", "60d")[1])
    assert [(one["instance_type"], one["verdict"], one["lost"]) for one in told["types"]] == [
        ("g5.xlarge", "earned its place", 10),
        ("g6.xlarge", "spare", 0),
    ]


def test_prices_of_another_question_are_not_used(region: Region) -> None:
    """A survey that answered for other types says nothing of these."""
    region.note(1, g5_xlarge=PoolDay(2.0, 2, 0, 0, 20.0))
    asked = demo_spec().asked
    for wanted, verdict in ((asked, "Drop"), (type(asked)(instance_types=("p4d.24xlarge",)), "Earned")):
        survey = Survey("demo", wanted, datetime.now(UTC), (), {"g5.xlarge": 1.0})
        region.store.note_survey(survey)
        assert verdict in run(*ASKED)[1]


def test_a_service_without_days_says_when_there_will_be_some(region: Region) -> None:
    """It was deployed just now."""
    code, out, _ = run(*ASKED)
    assert code == 0
    assert out.startswith("no day of demo is kept since ")
    assert "the hourly survey writes them" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "30d"), "--since goes with --service: name one, or remove it"),
        ((*ASKED, "--model", "llama3-8b"), "remove the others, or --service"),
        ((*ASKED, "--offline"), "remove the others, or --service"),
        ((*ASKED, "--rank", "speed"), "remove the others, or --service"),
        ((*ASKED, "--write", "chat.yaml"), "remove the others, or --service"),
        ((*ASKED, "--region", "eu-west-1"), "a service runs in one region, and --region names us-east-1 and"),
        (("--service", "dem", "--region", REGION), "demo"),
        ((*ASKED, "--since", "soon"), "--since"),
    ],
)
def test_what_cannot_be_asked_is_said(region: Region, arguments: tuple[str, ...], said: str) -> None:
    """In one line, with the remedy."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
