"""What commands print with `--json` is what docs/json.md says."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from lab import json_schemas
from spotrelay.operator import drill
from spotrelay.operator.advice.own_history import OwnHistory, PoolHistory, TypeHistory, Verdict
from spotrelay.operator.cli import up, update
from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.commands import OWN, Commands
from spotrelay.operator.cli.deploying import Limit, Reached
from spotrelay.operator.cli.down import End
from spotrelay.operator.cli.logs import Record, shown
from spotrelay.operator.cli.options import Where
from spotrelay.operator.cli.telling import SCHEMA, Teller, echo_json
from spotrelay.operator.look.cold_start import cold_starts
from spotrelay.operator.look.cost import Cost, DayCost
from spotrelay.operator.look.curves import curves
from spotrelay.operator.look.explain import explain
from spotrelay.operator.look.history import history
from spotrelay.operator.look.progress import Progress
from spotrelay.operator.look.scores import ZoneScores
from spotrelay.plane.accounting.spending import Spending
from spotrelay.plane.aws.requests import Requests
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.view.status import status
from tests.cli.test_status import REGION, deployed
from tests.cli.test_tables import _lost, _waiting
from tests.json_documents import check
from tests.operate.replicas import POOL, START, replica
from tests.operate.test_starts import STARTS
from tests.operate.test_status import NOW, on, seen

ROOT = Path(__file__).resolve().parents[2]

SEEN = seen(_lost(1, 900.0), _lost(2, 1000.0), on(3), _waiting("no capacity"))

SPENT = Spending(1.5, 0.5, 0.1, 4.0, 3.0, 1.0)

FAILED = replica(9, ReplicaState.FAILED, entered={"FAILED": 3000}, instance_id="i-9")

RISING = curves({POOL: [(START, 0.3), (NOW, 0.4)]}, (POOL,), {}, START)


def test_every_command_with_json_is_documented() -> None:
    """And no other; the page is as the script makes it."""
    with_json = {name for name in OWN if any("--json" in param.opts for param in Commands()[name].params)}
    assert {command.partition(" ")[0] for command in json_schemas.DOCUMENTS} == with_json
    made = json_schemas.PAGE.read_text(encoding="utf-8")
    assert made == json_schemas.page(), "run .venv/bin/python -m lab.json_schemas"


def test_a_new_field_is_no_change_for_who_reads() -> None:
    """Scripts must go on with it, and the schema says so; what is promised must be there."""
    for command in json_schemas.DOCUMENTS:
        made = json_schemas.schema(command)
        assert "additionalProperties" not in {*made}, command
        assert "schema" in made["required"], command
        assert made["properties"]["schema"]["const"] == SCHEMA


def _ended() -> dict[str, Any]:
    found = drill.Verdict("demo", (), Requests(100, 0), 0.0, ())
    return found.to_json() | {"losses": [loss.to_json() for loss in history(SEEN, START, None).losses]}


DOCUMENTS: dict[str, dict[str, Any]] = {
    "status": {"services": [status(SEEN).to_json()]},
    "history": history(seen(*SEEN.replicas.values(), FAILED), START, {}).to_json(),
    "cold-start": cold_starts(seen(*STARTS)).to_json(),
    "cost": Cost("demo", START, NOW, SPENT, 0.1, 0.1, (DayCost("2026-01-01", SPENT),), ()).to_json(),
    "prices": {"service": "demo", "pools": [curve.to_json() for curve in RISING]},
    "scores": {"service": "demo", "zones": [ZoneScores("us-east-1a", 7, {START: 6}).to_json()]},
    "drill": _ended(),
    "down": {"removed": [End("demo", "3 instances", "").to_json()], "kept": []},
    "recommend --service": OwnHistory(
        "demo",
        7,
        [PoolHistory("us-east-1a", "g5.xlarge", 5.0, 1, 0, 0, 0.4, None)],
        [TypeHistory("g5.xlarge", Verdict.EARNED, "it ran", 5.0, 1, 0, 0, 0.4)],
    ).to_json(),
}
"""What there is of a service that has lost replicas, in the words of its own classes."""


@pytest.mark.parametrize("command", DOCUMENTS)
def test_what_a_document_is_made_of(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Losses, failures, prices and costs, which a service at rest hasn't got."""
    echo_json(DOCUMENTS[command])
    check(command, json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("replica_id", [1, 3, 4])
def test_an_explanation(replica_id: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one that was lost, of one that serves and of one that waits."""
    found = explain(SEEN, replica_id, SPENT)
    assert found is not None
    echo_json(found.to_json())
    check("explain", json.loads(capsys.readouterr().out))


def test_a_record_of_the_log() -> None:
    """An object on one line."""
    text = shown(Record("1", NOW, {"service": "demo", "message": "scaled", "count": 3}), NOW, is_json=True)
    assert "\n" not in text
    check("logs", json.loads(text))


LOOKS = (
    ("status",),
    ("history", "demo"),
    ("cold-start", "demo"),
    ("explain", "demo", "4"),
    ("scores", "demo"),
)

REACHED = Reached(Progress("demo", 2, (), 3, 3, 3, 0, 0, True, "", ""), 7.04, "")


def test_what_became_of_a_deployment(capsys: pytest.CaptureFixture[str]) -> None:
    """Of `up`, without a load balancer of its own, and of `update`, which deployed something or nothing."""
    deployer: Any = SimpleNamespace(stacks=SimpleNamespace(find=lambda _: None))
    up._end(deployer, deployer, [REACHED], Teller(is_json=True), Limit.of(60))
    check("up", json.loads(capsys.readouterr().out))
    for document in (update.document(REACHED, 1), {"service": "demo", "version": 2, "is_deployed": False}):
        echo_json(document)
        check("update", json.loads(capsys.readouterr().out))


OFFLINE = ("--offline", "--region", "us-east-1")


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate", "services/demo.yaml", "services/llama3.yaml"),
        ("validate", "services"),
        ("recommend", "--model", "llama3-8b", *OFFLINE),
        ("recommend", "--params", "2000B", *OFFLINE),
        ("compare", "--on-demand", "p4d.24xlarge", "--spot", "g6e.xlarge*8", *OFFLINE),
        ("catalog",),
        ("catalog", "--gpu", "L4"),
    ],
)
def test_what_asks_nobody(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command itself, as it prints."""
    monkeypatch.chdir(ROOT)
    check(arguments[0], json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout))


def test_what_asks_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command itself, about a service at rest."""
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    with mock_aws():
        session = boto3.Session("testing", "testing", region_name=REGION)
        deployed(session, 3)
        monkeypatch.setattr(Where, "session", lambda _: session)
        for arguments in LOOKS:
            result = CliRunner().invoke(app, [*arguments, "--json"])
            check(arguments[0], json.loads(result.stdout))
