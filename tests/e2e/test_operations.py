"""What the demo's stories don't show: launches that AWS throttles, and replicas that we end ourselves."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from lab.demo.operator import Operator
from lab.local.environment import REGION
from spotrelay.operator.cli.app import app
from spotrelay.plane.core import timing
from spotrelay.plane.core.held import Override
from spotrelay.plane.core.names import TAG_SERVICE, Metric
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.events.ticks import Tick, TickKind
from tests.e2e.conftest import WARNING_S, Rescaled
from tests.e2e.stand import SERVICE, WITHIN_S, Stand

LOOKED_AT_S = 36.0
"""Six of the schedule's compressed minutes; ticks that follow each other in seconds would be twelve more."""


def _act_as(stand: Stand, monkeypatch: pytest.MonkeyPatch, name: str, *rights: str) -> None:
    """Have commands run as a person who has these rights."""
    keys = stand.assume(name, *rights).get_credentials()
    assert keys is not None
    monkeypatch.setenv("AWS_ENDPOINT_URL", stand.cloud.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(keys.access_key))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(keys.secret_key))
    monkeypatch.setenv("AWS_SESSION_TOKEN", str(keys.token))


def test_a_throttled_launch_is_made_up_for(stand: Stand) -> None:
    """When EC2 throttles the launch of a replacement, a tick launches it, and there is only one."""
    victim = stand.watch.look().ready[0]
    assert victim.instance_id
    # Twice: the first is repeated within the same invocation.
    stand.cloud.inject_fault("CreateFleet", "RequestLimitExceeded", count=2, status=503)
    before = stand.count(Metric.LAUNCH_ERRORS, SERVICE)
    stand.cloud.warn(victim.instance_id)
    stand.until_state(victim.id, ReplicaState.TERMINATED)
    seen = stand.whole(stand.spec.replicas)
    assert len(seen.replacements(victim.id)) == 1
    assert stand.count(Metric.LAUNCH_ERRORS, SERVICE) == before + 1


def test_fewer_replicas_and_more_again(rescaled: Rescaled) -> None:
    """A replica too many is drained and terminated by us; one too few is launched under a new ID."""
    (dropped,) = {r.id for r in rescaled.before.ready} - {r.id for r in rescaled.fewer.ready}
    assert rescaled.fewer.replicas[dropped].warned_at is None
    assert rescaled.instance_states[dropped] in ("shutting-down", "terminated")
    assert max(rescaled.more.replicas) == max(rescaled.before.replicas) + 1


def test_an_operator_asks_for_fewer_replicas_for_a_while(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`spotrelay scale`, with no more rights than docs/commands.md lists; the file's number comes back."""
    rights = ("ssm:GetParameters", "sqs:SendMessage", "dynamodb:BatchGetItem", "dynamodb:UpdateItem")
    _act_as(stand, monkeypatch, "scales", *rights)

    def scale(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["scale", SERVICE, *arguments, "--region", REGION])
        assert done.exit_code == 0, done.output
        return done.output

    replicas = stand.spec.replicas
    assert scale(str(replicas - 1), "--for", "1h").startswith(f"{SERVICE}: {replicas - 1} replicas until ")
    fewer = stand.whole(replicas - 1)
    assert stand.spec.replicas == replicas, "the document is as it was deployed"
    assert "(operator)" in scale()
    assert scale("--reset") == f"{SERVICE}: {replicas} replicas, as the service file says\n"
    assert max(stand.whole(replicas).replicas) == max(fewer.replicas) + 1


def test_an_operator_says_that_an_instance_is_gone(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """`spotrelay override`, with no more rights than docs/commands.md lists: it goes, and no other does."""
    gone, *others = stand.watch.look().ready
    assert gone.instance_id
    ec2 = stand.operator.session.client("ec2")
    tag = {"Key": TAG_SERVICE, "Value": SERVICE}
    ec2.delete_tags(Resources=[gone.instance_id], Tags=[tag])
    _act_as(stand, monkeypatch, "overrides", "ssm:GetParameters", "sqs:SendMessage", "dynamodb:GetItem")
    arguments = ["override", SERVICE, "--region", REGION, "--yes"]
    give_up_at_s = time.monotonic() + WITHIN_S
    while (done := CliRunner().invoke(app, arguments)).exit_code and time.monotonic() < give_up_at_s:
        assert "nothing is held back" in done.output
        time.sleep(1)
    assert f"Carried out; no longer: replica {gone.id} is kept" in done.output
    stand.until_state(gone.id, ReplicaState.DRAINING)
    ec2.create_tags(Resources=[gone.instance_id], Tags=[tag])
    stand.until_state(gone.id, ReplicaState.TERMINATED)
    seen = stand.whole(stand.spec.replicas)
    assert {r.id for r in others} <= {r.id for r in seen.ready}


def test_a_persons_word_that_was_set_aside_is_carried_out_once_it_is_moved_back(stand: Stand) -> None:
    """An override that no function took is a dead letter; moved back as the runbook says, it is obeyed."""
    gone, *others = stand.watch.look().ready
    assert gone.instance_id
    ec2, store = stand.operator.session.client("ec2"), stand.operator.store
    tag = {"Key": TAG_SERVICE, "Value": SERVICE}
    ec2.delete_tags(Resources=[gone.instance_id], Tags=[tag])
    stand.eventually(lambda: bool(store.held(SERVICE).back), "it is held back")
    given = Override(frozenset(store.held(SERVICE).back), datetime.now(UTC))
    word = Tick(SERVICE, kind=TickKind.OVERRIDE, override=given).to_json()
    sqs: Any = stand.operator.session.client("sqs")
    ticks, dead = (stand.outputs[name] for name in ("TickQueueUrl", "DeadLetterQueueUrl"))

    def take(url: str) -> list[str]:
        """What is there now; it is received, and stays."""
        got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
        return [message["Body"] for message in got.get("Messages", [])]

    def arn(url: str) -> str:
        return str(
            sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        )

    def is_answered() -> bool:
        answer = Operator(stand.operator.deployment).store.held(SERVICE).answer
        return answer is not None and (answer.given_at, answer.lapsed) == (given.given_at, "")

    with stand.nobody_takes(arn(ticks)):
        stand.eventually(lambda: bool(take(ticks)), "ticks wait")
        sqs.send_message(QueueUrl=ticks, MessageBody=word)
        # Each look counts as an attempt.
        stand.eventually(lambda: word not in take(ticks) and word in take(dead), "it is a dead letter")
    assert not is_answered()
    sqs.start_message_move_task(SourceArn=arn(dead), DestinationArn=arn(ticks))
    stand.until_state(gone.id, ReplicaState.DRAINING)
    stand.eventually(is_answered, "its giver hears so")
    assert take(dead) == []
    ec2.create_tags(Resources=[gone.instance_id], Tags=[tag])
    stand.until_state(gone.id, ReplicaState.TERMINATED)
    seen = stand.whole(stand.spec.replicas)
    assert {r.id for r in others} <= {r.id for r in seen.ready}


@pytest.mark.slow
def test_a_warning_that_is_retracted(stand: Stand) -> None:
    """What EC2 spared is ended in its time, and nobody looks at it every few seconds till then.

    Nobody waits for its minutes: its row says that it was warned so much earlier.
    """
    victim = stand.watch.look().ready[0]
    assert victim.instance_id
    stand.cloud.warn(victim.instance_id)
    stand.until_state(victim.id, ReplicaState.DRAINING)
    stand.cloud.retract(victim.instance_id)
    stand.watch.until(lambda seen: len(seen.ready) == stand.spec.replicas, "a replacement serves", WITHIN_S)
    _warned_earlier(stand, victim.id, WARNING_S + timing.ENDS_WITHIN_S)
    stand.two_ticks_end()  # what was announced before that has come
    since, started = stand.last_call(), time.monotonic()
    time.sleep(LOOKED_AT_S)
    ticks = sum(call["action"] == "DescribeTargetHealth" for call in stand.calls("ReconcileRole", since))
    # One more than fits, for where the first and the last fall.
    assert ticks <= (time.monotonic() - started) / stand.cloud.settings()["schedule_s"] + 1
    row = stand.watch.look().replicas[victim.id]
    assert row.state is ReplicaState.DRAINING, "too late to have seen anything"
    _warned_earlier(stand, victim.id, timing.RECLAIM_GRACE_S)
    stand.until_state(victim.id, ReplicaState.TERMINATED)
    stand.whole(stand.spec.replicas)


def _warned_earlier(stand: Stand, replica_id: int, by_s: float) -> None:
    def write() -> None:
        row = stand.watch.look().replicas[replica_id]
        assert row.warned_at
        earlier = row.but(warned_at=row.warned_at - timing.seconds(by_s))
        stand.operator.store.commit(Changes(SERVICE, update=(earlier,)))

    stand.written(write)


@pytest.mark.slow
@pytest.mark.timeout(5 * WITHIN_S)
def test_what_dies_at_birth_meets_the_brake(stand: Stand) -> None:
    """Replacements that end before they run are failures, with EC2's words, and not launched every second."""
    victim = stand.watch.look().ready[0]
    assert victim.instance_id
    stand.cloud.let_die("Client.VolumeLimitExceeded", 2)
    since = stand.last_call()
    stand.cloud.warn(victim.instance_id)
    stand.until_state(victim.id, ReplicaState.TERMINATED)
    held_s = timing.backoff_s(2, timing.FAILURE_FIRST_S, timing.FAILURE_MAX_S)
    seen = stand.whole(stand.spec.replicas, held_s + WITHIN_S)
    failed = [r for r in seen.replicas.values() if r.state is ReplicaState.FAILED]
    assert len(failed) == 2
    assert all("Client.VolumeLimitExceeded: Volume limit exceeded" in r.reason for r in failed)
    launches = [call for call in stand.calls("OnSignalRole", since) if call["action"] == "CreateFleet"]
    launches += [call for call in stand.calls("ReconcileRole", since) if call["action"] == "CreateFleet"]
    # The first, its fallback, and one more for each of the two failures at most.
    assert len(launches) <= 4
