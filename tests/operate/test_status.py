"""What a status says of a fleet, and how it judges."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spotrelay.core.desired import ScaleRequest, Source
from spotrelay.core.pools import (
    CapacityPool,
    Cause,
    Cooldown,
    Offering,
    PoolMemory,
    PurchaseOption,
    Scope,
    Survey,
)
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.requirements import Requirements
from spotrelay.core.rows import Backoff, Rows
from spotrelay.core.timing import seconds
from spotrelay.operate.snapshot import Alarm, AlarmState, Part, ServiceSnapshot
from spotrelay.operate.status import Judgement, status
from tests.examples import demo_spec
from tests.operate.replicas import POOL, START, replica

NOW = START + seconds(3600)

SPEC = demo_spec()


def survey(**more: Any) -> PoolMemory:
    """A pool at 0.4 on Spot and 1.0 on-demand."""
    found = Survey("chat", Requirements(), START, (POOL,), {"g5.xlarge": 1.0}, {POOL: 0.4}, {})
    return PoolMemory(more.pop("cooldowns", ()), found)


def seen(*replicas: Replica, **more: Any) -> ServiceSnapshot:
    """A snapshot of a service that should have three replicas; ended ones are history."""
    rows = Rows(replicas={r.id: r for r in replicas if not r.state.is_ended}, **more.pop("rows", {}))
    ended = tuple(sorted((r for r in replicas if r.state.is_ended), key=lambda r: -r.id))
    facts: dict[str, Any] = {"spec": SPEC, "rows": rows, "history": ended, "memory": survey()} | more
    return ServiceSnapshot("chat", "us-east-1", NOW, **facts)


def on(id_: int, state: ReplicaState = ReplicaState.READY, **more: Any) -> Replica:
    """A replica with an instance."""
    entered = more.pop("entered", {"REQUESTED": 0, "PROVISIONING": 1, "STARTING": 2, "READY": 60})
    if state is not ReplicaState.READY and "entered" not in more:
        entered = {**entered, str(state): 3000}
    return replica(id_, state, entered=entered, instance_id=f"i-{id_}", **more)


def starting(id_: int, **more: Any) -> Replica:
    """One that is on its way."""
    entered: dict[str, float] = {"REQUESTED": 3500, "PROVISIONING": 3501, "STARTING": 3502}
    return replica(id_, ReplicaState.STARTING, entered=entered, instance_id=f"i-{id_}", **more)


def test_as_many_as_desired_are_whole() -> None:
    """Three of three, with what they cost and what on-demand would."""
    found = status(seen(on(1), on(2), on(3)))
    assert (found.judgement, found.ready, found.desired, found.why) == (Judgement.WHOLE, 3, 3, "")
    assert found.usd_per_hour == pytest.approx(1.2)
    assert found.share_saved == pytest.approx(0.6)
    assert found.serving_since == START + seconds(60)
    assert found.is_whole


def test_what_is_missing_is_told_with_the_reason() -> None:
    """One was lost, its replacement starts."""
    lost = on(3, ReplicaState.DRAINING, warned_at=START + seconds(3490), replaced_by=4)
    lost = replace(lost, reason="interruption warning")
    found = status(seen(on(1), on(2), lost, starting(4, replaces=3)))
    assert found.judgement is Judgement.NOT_WHOLE
    assert "1 missing: 1 starting" in found.why
    assert "replica 3 was lost at" in found.why
    assert not found.is_whole


def test_a_replica_that_was_warned_and_serves_counts_as_serving() -> None:
    """Clients get their answers: the fleet is whole until it leaves."""
    warned = on(3, warned_at=START + seconds(3590), replaced_by=4)
    found = status(seen(on(1), on(2), warned, starting(4, replaces=3)))
    assert found.judgement is Judgement.WHOLE
    assert [row.state for row in found.replicas] == ["READY", "READY", "WARNED", "STARTING"]


def test_one_that_does_not_answer_is_missing() -> None:
    """It is ready by its state, and in nobody's rotation."""
    found = status(seen(on(1), on(2), on(3, unhealthy_since=NOW)))
    assert "1 missing: 1 ready but not answering" in found.why


def test_what_ec2_answered_is_quoted() -> None:
    """Nothing comes, because every pool refused: its own words are in the line."""
    words = "spot in 3 of 3 pools (rested); EC2: InsufficientInstanceCapacity: no g5.xlarge"
    waiting = replica(3, ReplicaState.REQUESTED, entered={"REQUESTED": 3000}, launch=words)
    waiting = replace(waiting, offering=None)
    found = status(seen(on(1), on(2), waiting))
    assert "replica 3: InsufficientInstanceCapacity: no g5.xlarge" in found.why
    assert found.replicas[-1].note == "InsufficientInstanceCapacity: no g5.xlarge"


def test_where_ec2_was_not_asked_the_reason_is_short() -> None:
    """A table's line has no room for every pool that rests: `explain` has all."""
    words = "no pool to ask; left out: us-east-1a/g5.xlarge (cools), us-east-1b/g5.xlarge (cools)"
    waiting = replica(3, ReplicaState.REQUESTED, entered={"REQUESTED": 3000}, launch=words)
    found = status(seen(on(1), on(2), replace(waiting, offering=None)))
    assert found.replicas[-1].note == "no pool to ask"


def test_launches_that_are_held_are_told() -> None:
    """Replicas failed in a row: until when nothing is launched."""
    backoff = Backoff(3, NOW + seconds(600), 1)
    found = status(seen(on(1), rows={"backoff": backoff}))
    assert "replicas failed 3 times in a row" in found.why
    assert "and none is coming" in found.why


def test_an_operators_number_counts() -> None:
    """Two were asked for, until later: two are whole."""
    request = ScaleRequest(2, NOW + seconds(60))
    found = status(seen(on(1), on(2), rows={"requests": {Source.OPERATOR: request}}))
    assert (found.judgement, found.desired, found.desired_by) == (Judgement.WHOLE, 2, "operator")


def test_none_wanted_and_none_there_is_fine() -> None:
    """A service that is scaled to none has nothing to mend."""
    found = status(seen(spec=replace(SPEC, replicas=0)))
    assert (found.judgement, found.is_whole) == (Judgement.NONE, True)


def test_what_could_not_be_read_is_not_judged() -> None:
    """Without rows nobody knows; without alarms everything else is told."""
    lacking = status(seen(missing={Part.ROWS: "missing dynamodb:Query"}))
    assert lacking.judgement is Judgement.UNKNOWN
    assert "dynamodb:Query" in lacking.why
    rest = status(seen(on(1), on(2), on(3), missing={Part.ALARMS: "missing cloudwatch:DescribeAlarms"}))
    assert rest.judgement is Judgement.WHOLE
    assert rest.missing == ("alarms: missing cloudwatch:DescribeAlarms",)


def test_a_failure_shows_its_reason_and_old_ones_do_not_drown_the_rest() -> None:
    """Of six, the last three of this hour are shown; the others are counted."""
    failed = [
        replica(id_, ReplicaState.FAILED, entered={"REQUESTED": 0, "FAILED": at})
        for id_, at in enumerate((-7200, 100, 200, 300, 400, 500), 10)
    ]
    failed = [replace(r, reason=f"not ready in 20 min ({r.id})") for r in failed]
    found = status(seen(on(1), on(2), on(3), *failed))
    assert [row.note for row in found.failed] == [f"not ready in 20 min ({id_})" for id_ in (13, 14, 15)]
    assert found.failed_before == 3


def test_a_price_that_nobody_knows_is_none() -> None:
    """Rather than an on-demand price that is taken for Spot's, or a sum of some."""
    elsewhere = replace(on(3), offering=Offering(CapacityPool("us-east-1", "us-east-1b", "g6.xlarge"), SPOT))
    found = status(seen(on(1), on(2), elsewhere))
    assert found.usd_per_hour is None
    assert found.share_saved is None
    assert found.replicas[-1].usd_per_hour is None


SPOT = PurchaseOption.SPOT


def test_a_shared_instance_is_paid_once() -> None:
    """Each of four replicas has a quarter of its price."""
    shared = [replace(on(id_), instance_id=f"i-1:{8080 + id_}", slots=4) for id_ in (2, 3, 4)]
    found = status(seen(replace(on(1), slots=4), *shared))
    assert found.usd_per_hour == pytest.approx(0.4)


def test_a_standby_costs_nothing_and_is_not_missing() -> None:
    """It is stopped."""
    standby = replace(on(9, ReplicaState.STANDBY), is_standby=True)
    found = status(seen(on(1), on(2), on(3), standby))
    assert found.usd_per_hour == pytest.approx(1.2)
    assert found.replicas[-1].state == "STANDBY"
    found = status(seen(on(1), on(2), standby))
    assert "and none is coming" in found.why


def test_losses_pools_and_alarms_are_counted() -> None:
    """Of the last day; a pool that cools with the reason and until when; alarms that ring."""
    warned = replace(
        on(4, ReplicaState.TERMINATED, warned_at=START + seconds(2990)), reason="interruption warning"
    )
    cooldown = Cooldown(
        Scope.of(Offering(POOL, SPOT)), Cause.LOSS, START, NOW + timedelta(minutes=5), "interruption warning"
    )
    alarms = (Alarm("NotWhole", AlarmState.ALARM, NOW), Alarm("Elb5xx", AlarmState.OK, NOW))
    found = status(seen(on(1), on(2), on(3), warned, alarms=alarms, memory=survey(cooldowns=(cooldown,))))
    assert (found.lost, found.lost_unwarned) == (1, 0)
    assert found.cooling == ("us-east-1a/g5.xlarge until 01:05 (interruption warning)",)
    assert found.alarms == ("NotWhole",)


def test_serving_since_is_the_end_of_the_last_pause() -> None:
    """One served until it left, nobody did for a while, then another: since then."""
    before = on(1, ReplicaState.TERMINATED, entered={"PROVISIONING": 0, "READY": 10, "DRAINING": 100})
    before = replace(before, entered={**before.entered, ReplicaState.TERMINATED: START + seconds(130)})
    after = on(2, entered={"PROVISIONING": 150, "READY": 200})
    assert seen(before, after).serving_since == START + seconds(200)
    overlapping = on(2, entered={"PROVISIONING": 50, "READY": 90})
    assert seen(before, overlapping).serving_since == START + seconds(10)
    assert seen(before).serving_since is None


def test_it_is_json() -> None:
    """All of it, with times that a script can read."""
    found = json.loads(json.dumps(status(seen(on(1), on(2), on(3))).to_json()))
    assert found["judgement"] == "WHOLE"
    assert found["at"] == "2026-01-01T01:00:00.000+00:00"
    assert found["replicas"][0]["pool"] == "us-east-1a/g5.xlarge"
