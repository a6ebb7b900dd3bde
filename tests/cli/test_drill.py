"""`spotrelay drill`, before anything is interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
import typer
from botocore.exceptions import ClientError
from moto import mock_aws
from typer.testing import CliRunner

from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.drill import _end, _in_words, _question
from spotrelay.operator.drill import Plan, Verdict
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.aws.requests import Requests, ServedRequests
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, service_parameter
from spotrelay.plane.core.rows import Changes
from tests.contract.conftest import TABLE, make_table
from tests.examples import demo_spec
from tests.operate.replicas import replica

REGION = "us-east-1"
FUNCTION = "SpotRelay-drill"


def deploy(region: str = REGION, function: str | None = FUNCTION) -> DynamoStore:
    """A control plane with the service `demo`, which has no replica yet."""
    clients = Clients(boto3.Session("testing", "testing", region_name=region))
    ssm: Any = clients.ssm
    claim = {"table": TABLE, "tick_queue_url": "https://q"}
    claim |= {"drill_function": function} if function else {}
    ssm.put_parameter(Name=CONTROL_PLANE_PARAMETER, Value=json.dumps(claim), Type="String")
    document = json.dumps(demo_spec().to_dict())
    ssm.put_parameter(Name=service_parameter("demo"), Value=document, Type="String")
    return DynamoStore(make_table(clients))


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An account of moto's, and nothing of this machine's own AWS configuration."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield


def run(*options: str, region: str = REGION, answer: str = "") -> tuple[int, str]:
    """Exit code and output of a drill of `demo`."""
    result = CliRunner().invoke(app, ["drill", "demo", "--region", region, *options], input=answer)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--replicas", "0"], "--replicas: expected 1 to 5, got 0"),
        (["--replicas", "6"], "--replicas: expected 1 to 5, got 6"),
        (["--json"], "--json needs --yes"),
    ],
)
def test_arguments_that_cannot_be(options: list[str], said: str) -> None:
    """They are told in one line, with exit code 2."""
    deploy()
    code, output = run(*options)
    assert code == 2
    assert said in output


@pytest.mark.parametrize(
    ("region", "name"),
    [
        ("cn-north-1", "Beijing"),
        ("cn-northwest-1", "Ningxia"),
        ("ap-southeast-3", "Jakarta"),
        ("ap-northeast-3", "Osaka"),
        ("me-central-1", "UAE"),
    ],
)
def test_regions_without_the_action(region: str, name: str) -> None:
    """Where FIS can't interrupt Spot instances the command says so, and asks nobody."""
    deploy(region)
    code, output = run("--yes", region=region)
    assert code == 2
    assert f"can't interrupt Spot instances in {region} ({name})" in output


def test_a_control_plane_of_before_drills() -> None:
    """It has no function for them: the remedy is to deploy it again."""
    deploy(function=None)
    code, output = run("--yes")
    assert code == 1
    assert "has no function for drills: deploy the control plane again" in output


def test_a_fleet_that_is_not_whole() -> None:
    """Nothing is interrupted, and the line says what is missing; exit code 1."""
    deploy()
    code, output = run("--yes")
    assert code == 1
    assert "demo: the fleet isn't whole: 0 of 3 replicas serve" in output


def _whole(store: DynamoStore) -> None:
    rows = tuple(replace(replica(n, instance_id=f"i-{n}"), service="demo") for n in (1, 2, 3))
    store.commit(Changes("demo", highest_id=(0, 3), serving=(0, 3), create=rows))


def test_failures_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that failed just now would be taken for the drill's; --keep-going says that this is fine."""
    _whole(deploy())
    monkeypatch.setattr(ServedRequests, "between", lambda *_: Requests(100, 7))
    code, output = run("--yes")
    assert code == 1
    assert "7 of 100 requests failed in the last 5 minutes" in output
    code, output = run("--keep-going", answer="n\n")
    assert code == 1
    assert "EC2 will take 1 of 3 replicas back" in output
    assert output.rstrip().endswith("Aborted!")


def test_a_permission_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can't see failed requests can't stop because of them: exit code 3 names the action."""
    _whole(deploy())

    def denied(*_: object) -> None:
        message = "User x is not authorized to perform: cloudwatch:GetMetricData"
        with translated():
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": message}}, "GetMetricData")

    monkeypatch.setattr(ServedRequests, "between", denied)
    code, output = run("--yes")
    assert code == 3
    assert "you may not do cloudwatch:GetMetricData" in output


@pytest.mark.parametrize(
    ("problems", "code"),
    [((), 0), (("1 of 5 requests failed",), 1), (("failed: x is not authorized to perform: y:Z",), 3)],
)
def test_the_exit_code_is_the_verdict(problems: tuple[str, ...], code: int) -> None:
    """0 for PASS, 1 for FAIL, 3 where it failed because the role of FIS may not."""
    found = Verdict("demo", (), None, 0.0, problems)
    if code == 0:
        _end(found)
        return
    with pytest.raises(typer.Exit) as caught:
        _end(found)
    assert caught.value.exit_code == code


def test_the_question_says_what_remains() -> None:
    """How many go, which, how many remain, and what it costs."""
    plan = Plan(demo_spec(), (replica(1, instance_id="i-1"),), 2)
    assert _question(plan).splitlines() == [
        "demo: EC2 will take 1 of 3 replicas back, as in an interruption:",
        f"  replica 1, {replica(1).offering}, i-1",
        "2 remain. Fault Injection Service charges about 0.20 USD.",
    ]
    assert "None remains" in _question(Plan(demo_spec(), plan.victims, 0))


def test_the_verdict_says_how_far_cloudwatch_knows() -> None:
    """Problems are listed, and that the count of requests is a minute late."""
    shown = _in_words(Verdict("demo", (), Requests(5, 1), 0.0, ("1 of 5 requests failed",)))
    assert shown.splitlines()[1:] == [
        "  1 of 5 requests failed",
        "Requests are as far as CloudWatch knows them: it is a minute late.",
    ]
