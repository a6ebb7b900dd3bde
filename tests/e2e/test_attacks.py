"""Events and messages forged by somebody of the account whom IAM lets send them, and do nothing else."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import boto3
import pytest

from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.replica import Replica, ReplicaState
from tests.e2e.clients import Clients
from tests.e2e.leaks import SECRET_PARAMETER
from tests.e2e.stand import WARNING, Stand, event

STATE_CHANGE = "EC2 Instance State-change Notification"

CHANGES = {"CreateFleet", "TerminateInstances", "RegisterTargets", "DeregisterTargets"}
"""What a function does to a fleet."""


@pytest.fixture(scope="module")
def insider(deployed: Stand) -> boto3.Session:
    """Somebody of the account who may send messages to any queue, and events to any bus."""
    return deployed.assume("insider", "sqs:SendMessage", "events:PutEvents")


@pytest.fixture
def victims(stand: Stand) -> Iterator[Sequence[Replica]]:
    """All replicas, which serve. What was forged about them is ended: a tick would do so, minutes later."""
    victims = stand.watch.look().ready
    yield victims
    kept = {r.id for r in stand.watch.look().ready}
    if ids := [str(v.instance_id) for v in victims if v.id not in kept]:
        stand.operator.session.client("ec2").terminate_instances(InstanceIds=ids)


@pytest.fixture
def clients(stand: Stand) -> Iterator[Clients]:
    """Clients of the service, from before the attack on."""
    with Clients(stand) as clients:
        yield clients


def test_nobody_but_aws_sends_aws_s_events(stand: Stand, insider: boto3.Session) -> None:
    """An event in EC2's name is refused by the bus, and one in another's reaches no queue of ours."""
    before, ignored = _fleet(stand), stand.count(Metric.SIGNALS_IGNORED)
    detail = {"instance-id": stand.watch.look().ready[0].instance_id, "instance-action": "terminate"}
    answer = insider.client("events", endpoint_url=stand.cloud.endpoint).put_events(
        Entries=[
            {"Source": source, "DetailType": WARNING, "Detail": json.dumps(detail)}
            for source in ("aws.ec2", "mine.ec2")
        ]
    )
    assert [entry.get("ErrorCode") for entry in answer["Entries"]] == [
        "NotAuthorizedForSourceException",
        None,
    ]
    # What came before it has been processed when this one, which isn't for us, has been.
    stand.deliver(event("EC2 Instance Got A Promotion", {}))
    stand.eventually(lambda: stand.count(Metric.SIGNALS_IGNORED) > ignored, "an ignored signal is counted")
    assert stand.count(Metric.SIGNALS_IGNORED) == ignored + 1
    assert _fleet(stand) == before


def test_forged_warnings_cost_a_replacement_each_and_no_request(
    stand: Stand, insider: boto3.Session, victims: Sequence[Replica], clients: Clients
) -> None:
    """All replicas at once, three times each, one with an hour-old warning, and then said to be gone.

    Nothing is cut, nothing terminated, and nothing replaced a second time.
    """
    since, hour_ago = stand.last_call(), datetime.now(UTC) - timedelta(hours=1)
    forged = [
        event(WARNING, {"instance-id": v.instance_id, "instance-action": "terminate"}, at)
        for v, at in zip(victims, (hour_ago, None, None), strict=True)
    ]
    _send(stand, insider, "SignalQueueUrl", forged * 3)
    stand.watch.until(
        lambda seen: (
            len(seen.ready) == len(victims)
            and all(seen.replicas[v.id].state is ReplicaState.DRAINING for v in victims)
        ),
        "every victim drains, and as many others serve",
        90,
    )
    ends = [event(STATE_CHANGE, {"instance-id": v.instance_id, "state": "terminated"}) for v in victims]
    _send(stand, insider, "SignalQueueUrl", ends)
    seen = stand.watch.until(
        lambda seen: all(seen.replicas[v.id].state.is_ended for v in victims), "their rows end", 90
    )
    clients.were_served()
    assert [len(seen.replacements(v.id)) for v in victims] == [1] * len(victims)
    assert _states(stand, victims) == {"running"}
    assert "TerminateInstances" not in _called(stand, "OnSignalRole", since)


def test_forged_ticks_change_nothing(stand: Stand, insider: boto3.Session, clients: Clients) -> None:
    """A removal that wasn't, an override of what is in order, and whatever else a message can say."""
    before, since = _fleet(stand), stand.last_call()
    document = {"operation": "Delete", "name": f"/spotrelay/services/{stand.service}", "type": "String"}
    forged: list[object] = [
        {"service": stand.service, "kind": "removed"},
        {"source": "aws.ssm", "detail-type": "Parameter Store Change", "detail": document},
        {"service": stand.service, "kind": "leave"},
        {"service": stand.service, "kind": "tick", "due": "9999-12-31T23:59:59+00:00"},
    ]
    nonsense: list[object] = [
        [],
        {"service": stand.service, "kind": "terminate"},
        {"service": f"..{SECRET_PARAMETER}", "kind": "removed"},
        {"service": "x" * 5000},
    ]
    _send(stand, insider, "TickQueueUrl", map(json.dumps, [*forged, *nonsense]))
    # By itself: one that comes while another tick is at work is refused, and comes again a minute later.
    override = {"service": stand.service, "kind": "override"}
    _send(stand, insider, "TickQueueUrl", [json.dumps(override)])
    set_aside = stand.dead_letters()
    assert sorted(m["Body"] for m in set_aside) == sorted(map(json.dumps, nonsense))
    clients.were_served()
    assert _fleet(stand) == before
    assert not _called(stand, "ReconcileRole", since) & CHANGES


def _send(stand: Stand, sender: boto3.Session, queue: str, bodies: Iterable[str]) -> None:
    """Put messages into a queue, which an output names, and wait until none is left there."""
    sqs, url = sender.client("sqs", endpoint_url=stand.cloud.endpoint), stand.outputs[queue]
    for body in bodies:
        sqs.send_message(QueueUrl=url, MessageBody=body)
    stand.nothing_waits(url)


def _fleet(stand: Stand) -> dict[int, ReplicaState]:
    """Every replica that there ever was, and what has become of it."""
    return {r.id: r.state for r in stand.watch.look().replicas.values()}


def _states(stand: Stand, replicas: Collection[Replica]) -> set[str]:
    """The states of their instances."""
    ids = {r.instance_id for r in replicas}
    return {str(i["state"]) for i in stand.cloud.instances() if i["instance_id"] in ids}


def _called(stand: Stand, role: str, since: int) -> set[str]:
    return {call["action"] for call in stand.calls(role, since)}
