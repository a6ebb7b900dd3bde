"""What `spotrelay status` asks of AWS."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.options import Where
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, service_parameter
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from tests.contract.conftest import TABLE, make_table
from tests.examples import demo_spec, spot_pool

REGION = "us-east-1"
ADDRESS = "http://demo.us-east-1.elb.amazonaws.com"


def deployed(session: boto3.Session, count: int) -> None:
    """A region with a control plane and a service, `demo`, of so many replicas, and as many that ended."""
    clients = Clients(session)
    store = DynamoStore(make_table(clients))
    queue_url = clients.sqs.create_queue(QueueName="ticks")["QueueUrl"]
    spec = replace(demo_spec(replicas=count), address=ADDRESS)
    for name, value in (
        (CONTROL_PLANE_PARAMETER, {"table": TABLE, "tick_queue_url": queue_url}),
        (service_parameter("demo"), spec.to_dict()),
    ):
        clients.ssm.put_parameter(Name=name, Value=json.dumps(value), Type="String")
    for first in range(1, 2 * count + 1, Changes.MAX_ROWS):
        ids = range(first, min(first + Changes.MAX_ROWS, 2 * count + 1))
        create = tuple(_replica(id_, has_ended=id_ <= count) for id_ in ids)
        store.commit(Changes("demo", highest_id=(first - 1, ids[-1]), create=create))


def _replica(id_: int, *, has_ended: bool) -> Replica:
    now = datetime.now(UTC)
    state = ReplicaState.TERMINATED if has_ended else ReplicaState.READY
    requested = Replica.requested("demo", id_, 1, now, reason="wanted")
    return replace(
        requested,
        state=state,
        entered={**requested.entered, state: now},
        offering=spot_pool("us-east-1a", "g5.xlarge"),
        instance_id=f"i-{id_:017x}",
    )


@pytest.fixture(autouse=True)
def _hermetic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty account, and nothing of this machine's own AWS configuration."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    with mock_aws():
        yield


def _calls(monkeypatch: pytest.MonkeyPatch, count: int) -> tuple[Counter[str], dict[str, Any]]:
    """Which calls a status of so many replicas makes, and what it says."""
    session = boto3.Session("testing", "testing", region_name=REGION)
    deployed(session, count)
    calls: Counter[str] = Counter()

    def note(model: Any, **_: Any) -> None:
        calls[f"{model.service_model.service_name}.{model.name}"] += 1

    looking = boto3.Session("testing", "testing", region_name=REGION)
    looking.events.register("before-call", note)
    monkeypatch.setattr(Where, "session", lambda _: looking)
    result = CliRunner().invoke(app, ["status", "demo", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return calls, json.loads(result.stdout)


def test_a_service_that_was_removed_is_not_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing of it but its history: it is said so, and a script sees it."""
    session = boto3.Session("testing", "testing", region_name=REGION)
    deployed(session, 3)
    clients = Clients(session)
    clients.ssm.delete_parameter(Name=service_parameter("demo"))
    store = DynamoStore(Table(clients, TABLE))
    monkeypatch.setattr(Where, "session", lambda _: session)
    assert CliRunner().invoke(app, ["status", "demo"]).exit_code == 0, "its replicas are still there"
    ended = [
        replace(r, state=ReplicaState.TERMINATED, entered={**r.entered, ReplicaState.TERMINATED: r.since})
        for r in store.load("demo").replicas.values()
    ]
    store.commit(Changes("demo", update=tuple(ended)))
    result = CliRunner().invoke(app, ["status", "demo"])
    assert result.exit_code not in (0, 1)
    assert "demo was removed: spotrelay history demo shows what it had" in result.output


@pytest.mark.parametrize("count", [3, 100])
def test_as_many_calls_for_a_hundred_replicas_as_for_three(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Rows are read by the page and never one by one, nor is anything else asked for each replica."""
    calls, document = _calls(monkeypatch, count)
    (found,) = document["services"]
    assert (len(found["replicas"]), found["judgement"], found["missing"]) == (count, "WHOLE", 0)
    assert found["not_read"] == []
    assert found["address"] == ADDRESS
    assert calls == {
        "ssm.GetParameters": 2,  # where the control plane is, and the service's document
        "dynamodb.GetItem": 3,  # the service's entry, what pools have taught, and the survey
        "dynamodb.Query": 2,  # its replicas, and those that ended
        "cloudwatch.DescribeAlarms": 1,
    }
