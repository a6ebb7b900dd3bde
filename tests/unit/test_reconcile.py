"""The level-triggered path: an observation in, actions out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.pools import Cause, PurchaseOption
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Backoff, LaunchIntent, has_lost_its_ids
from spotrelay.plane.core.spec import ReadinessProbe, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import changes, observation, reconcile, steps
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec
from tests.unit.cases import (
    LONG_AGO,
    NOW,
    RECENTLY,
    a_replica,
    an_instance,
    decide,
    losing,
    replacing,
    rows_of,
    seen_of,
    without,
)

FALLBACK = steps.request(NOW, 1, "Spot isn't ready", PurchaseOption.ON_DEMAND, 1, is_fallback=True)


def test_a_fleet_at_rest_needs_nothing() -> None:
    """Nothing to do is nothing done."""
    replica = a_replica(1, ReplicaState.READY)
    assert decide(replica, instances=(an_instance(1),), health={1: TargetState.HEALTHY}) == []


@pytest.mark.parametrize(
    ("position", "after"),
    [
        (1, ["Replace"]),
        (2, ["Replace"]),
        (3, ["Replace"]),
        (4, ["Request"]),
        (5, ["Request"]),
        (6, ["Request"]),
        (7, ["Request"]),
        (8, []),
        (9, []),
        (10, []),
    ],
)
def test_a_stage_sees_what_those_before_it_did(
    monkeypatch: pytest.MonkeyPatch, position: int, after: list[str]
) -> None:
    """A stage of one's own may stand anywhere after the first: it reads the rows so far.

    Those after it read what it left: what it drains is replaced or made up for, by whichever comes next.
    """
    serves, rising = a_replica(1, ReplicaState.READY), a_replica(2, ReplicaState.STARTING)
    looks = []

    def drains(_: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
        looks.append(seen)
        yield steps.drain(seen.rows.replicas[1], NOW, "by hand")

    monkeypatch.setattr(
        reconcile, "STAGES", (*reconcile.STAGES[:position], drains, *reconcile.STAGES[position:])
    )
    healthy = dict.fromkeys((1, 2), TargetState.HEALTHY)
    actions = decide(serves, rising, instances=[an_instance(1), an_instance(2)], health=healthy)
    assert [a.name for a in actions] == ["MarkReady", "Drain", *after]
    (seen,) = looks
    assert seen.rows.replicas == {1: serves, 2: rising.to(ReplicaState.READY, NOW)}
    assert seen.read.replicas == {1: serves, 2: rising}


def test_a_stage_knows_which_rows_were_only_just_created() -> None:
    """Their IDs aren't final, and nothing more may be decided about them by the same tick."""
    lost = a_replica(1, ReplicaState.READY)
    rows = seen_of(lost)
    seen = rows.with_rows(changes.after(demo_spec(), rows.rows, losing(lost, "lost"), NOW))
    again = seen.with_rows(seen.rows)
    for later in (seen, again):
        assert list(later.rows.replicas) == [1, 10]
        assert [(r.id, r.state) for r in later.known] == [(1, ReplicaState.DRAINING)]
        assert later.read.replicas == {1: lost}


def test_missing_replicas_are_requested() -> None:
    """0 of 3 there: 3 requested."""
    assert decide(wanted=3) == [steps.request(NOW, 3, "fewer replicas than wanted", PurchaseOption.SPOT, 1)]


def test_a_requested_replica_without_an_open_launch_is_launched() -> None:
    """What an earlier run left without an instance is taken up, once its back-off is over."""
    due = a_replica(1, ReplicaState.REQUESTED, retry_at=NOW)
    waiting = a_replica(2, ReplicaState.REQUESTED, retry_at=NOW + seconds(1))
    assert decide(due, waiting) == [steps.launch(due)]


def test_an_open_launch_is_left_alone() -> None:
    """A replica whose launch another invocation is busy with is not launched a second time."""
    intent = LaunchIntent("L1", "demo", (1,), NOW - seconds(5))
    replica = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    assert decide(replica, intents=(intent,)) == []


def test_a_launch_that_was_never_recorded_is_adopted() -> None:
    """After a crash between CreateFleet and the record, the tag tells whose the instance is."""
    intent = LaunchIntent("L1", "demo", (1, 2), NOW - seconds(30))
    waiting = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    other = a_replica(2, ReplicaState.REQUESTED, launch_id="L1")
    instance = an_instance(7, launch_id="L1", launched_at=NOW - seconds(28), launch_template_id="lt-1")
    assert decide(waiting, other, instances=(instance,), intents=(intent,)) == [
        steps.adopt(waiting, NOW, instance)
    ]


@pytest.mark.parametrize("template", [None, "lt-foreign"])
def test_two_tags_make_no_instance_ours(template: str | None) -> None:
    """Who may tag an instance names service and intent: it gets no request, and isn't ended."""
    intent = LaunchIntent("L1", "demo", (1,), NOW - seconds(30))
    waiting = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    foreign = an_instance(7, launch_id="L1", launched_at=NOW - seconds(28), launch_template_id=template)
    assert decide(waiting, instances=[foreign], intents=[intent]) == []


def test_what_an_earlier_version_s_template_made_is_adopted() -> None:
    """Its launch was never recorded, and another template has been deployed since."""
    intent = LaunchIntent("L1", "demo", (1,), NOW - seconds(30))
    waiting = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    instance = an_instance(7, launch_id="L1", launched_at=NOW - seconds(28), launch_template_id="lt-0")
    earlier = {0: replace(demo_spec(), version=0, launch_template_id="lt-0")}
    seen = seen_of(waiting, instances=[instance], intents=[intent])
    for known, adopted in (
        (earlier, [steps.adopt(waiting, NOW, instance), steps.close_intent("L1")]),
        ({}, []),
    ):
        rows = replace(seen.rows, earlier=known)
        assert reconcile.decide(demo_spec(replicas=1), replace(seen, rows=rows), NOW) == adopted


def test_an_adoption_waits_until_whoever_launched_has_had_its_time() -> None:
    """Until then the launch's own record may come; from then on nobody else's will."""
    waiting = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    instance = an_instance(7, launch_id="L1", launched_at=NOW, launch_template_id="lt-1")
    for age_s, adopted in (
        (timing.ADOPT_AFTER_S - 0.001, []),
        (timing.ADOPT_AFTER_S, [steps.adopt(waiting, NOW, instance), steps.close_intent("L1")]),
    ):
        intent = LaunchIntent("L1", "demo", (1,), NOW - seconds(age_s))
        assert decide(waiting, instances=[instance], intents=[intent]) == adopted


def test_a_warned_instance_is_not_adopted() -> None:
    """EC2 takes it back anyway: the replica that waits for one is launched anew."""
    intent = LaunchIntent("L1", "demo", (1,), NOW - seconds(30))
    waiting = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    instance = an_instance(7, launch_id="L1", launched_at=NOW - seconds(28))
    assert decide(waiting, instances=[instance], intents=[intent], warned=[7]) == []


def test_an_adopted_instance_is_not_taken_in_as_well() -> None:
    """Old enough for both: it belongs to the replica that it was launched for."""
    launched_at = NOW - seconds(timing.ORPHAN_GRACE_S)
    intent = LaunchIntent("L1", "demo", (1,), launched_at)
    waiting = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    instance = an_instance(7, launch_id="L1", launch_template_id="lt-1", launched_at=launched_at)
    actions = decide(waiting, instances=[instance], intents=[intent], health={7: TargetState.HEALTHY})
    assert actions == [steps.adopt(waiting, NOW, instance), steps.close_intent("L1")]


def test_an_expired_launch_is_closed_and_then_repeated() -> None:
    """A launch that left no instance is given up and, by the next tick, made anew."""
    intent = LaunchIntent("L1", "demo", (1,), NOW - seconds(timing.INTENT_EXPIRES_S))
    replica = a_replica(1, ReplicaState.REQUESTED, launch_id="L1")
    assert decide(replica, intents=(intent,)) == [steps.close_intent("L1")]
    assert decide(replica) == [steps.launch(replica)]


def test_an_intent_that_nobody_seems_to_wait_for_is_left_alone() -> None:
    """It may be newer than the rows, which are read one after the other; when it is old, it is closed."""
    stale = a_replica(1, ReplicaState.REQUESTED, retry_at=NOW + seconds(60))
    for intent, expected in (
        (LaunchIntent("launch-9", "demo", (1, 2), NOW - seconds(5)), []),
        (LaunchIntent("launch-9", "demo", (1, 2), LONG_AGO), [steps.close_intent("launch-9")]),
    ):
        assert decide(stale, intents=(intent,)) == expected


def test_rows_that_are_newer_than_the_highest_id_are_not_known_yet() -> None:
    """What is created while the rows are read counts from the next tick on; an old row says: IDs got lost."""
    old, new = a_replica(9, ReplicaState.READY), a_replica(10, ReplicaState.REQUESTED, since_s=5)
    rows = rows_of(old, new)
    assert observation.known(replace(rows, highest_id=9), NOW).replicas == {9: old}
    assert not has_lost_its_ids(replace(rows, highest_id=9), NOW)
    assert observation.known(replace(rows, highest_id=8), NOW).replicas == {9: old, 10: new}
    assert has_lost_its_ids(replace(rows, highest_id=8), NOW)


def test_ids_are_lost_if_a_row_above_them_is_old_or_has_an_instance() -> None:
    """Either is enough: a row waits long for Spot, and a launch takes longer than the rows' reading."""
    young = a_replica(10, ReplicaState.REQUESTED, since_s=5)
    launched = a_replica(10, ReplicaState.PROVISIONING, since_s=1, entered=RECENTLY)
    waiting = a_replica(10, ReplicaState.REQUESTED, since_s=timing.LEASE_S + 0.001)
    reading = a_replica(10, ReplicaState.REQUESTED, since_s=timing.LEASE_S)
    for row, is_lost in ((young, False), (reading, False), (launched, True), (waiting, True)):
        assert has_lost_its_ids(replace(rows_of(row), highest_id=9), NOW) is is_lost


def test_a_standbys_row_counts_by_its_age_alone() -> None:
    """It has its instance from the beginning: what is read meanwhile looks as if IDs were lost."""
    for since_s, is_lost in ((5, False), (timing.LEASE_S, False), (timing.LEASE_S + 0.001, True)):
        standby = a_replica(10, ReplicaState.PROVISIONING, since_s=since_s, is_standby=True)
        assert has_lost_its_ids(replace(rows_of(standby), highest_id=9), NOW) is is_lost


def test_a_running_instance_starts_and_a_healthy_one_is_ready() -> None:
    """PROVISIONING → STARTING → READY, without any event."""
    fresh = a_replica(1, ReplicaState.PROVISIONING, since_s=5)
    starting = a_replica(2, ReplicaState.STARTING)
    actions = decide(
        fresh, starting, instances=(an_instance(1), an_instance(2)), health={2: TargetState.HEALTHY}
    )
    assert actions == [steps.start(fresh, NOW), steps.mark_ready(starting, NOW)]


def test_a_started_replica_that_is_out_of_rotation_is_registered() -> None:
    """A registration that got lost is repeated, but not past a readiness probe."""
    starting = a_replica(1, ReplicaState.STARTING, since_s=5, entered=RECENTLY)
    assert decide(starting, instances=(an_instance(1),)) == [steps.register(starting)]
    probed = replace(demo_spec(replicas=1), readiness_probe=ReadinessProbe("/v1", {}))
    seen = seen_of(starting, instances=[an_instance(1, address="10.0.0.1")])
    assert reconcile.decide(probed, seen, NOW) == []
    assert {r: i.address for r, i in reconcile.awaiting_probe(probed, seen).items()} == {1: "10.0.0.1"}
    warned = replace(seen, warned={"i-1": NOW})
    assert reconcile.awaiting_probe(probed, warned).keys() == {1}, "it may serve until EC2 takes it"


def test_who_serves_is_asked_again() -> None:
    """Replicas in rotation that EC2 doesn't take back, where the file says how long silence may last."""
    replicas = [
        a_replica(1, ReplicaState.READY),
        a_replica(2, ReplicaState.READY, unhealthy_since=NOW),
        a_replica(3, ReplicaState.STARTING),
        a_replica(4, ReplicaState.READY, warned_at=NOW),
        a_replica(5, ReplicaState.READY),
        a_replica(6, ReplicaState.READY),
        a_replica(7, ReplicaState.READY),
    ]
    instances = [an_instance(r.id, address=f"10.0.0.{r.id}") for r in replicas[:5]]
    instances += [an_instance(6), an_instance(7, InstanceState.TERMINATED, address="10.0.0.7")]
    seen = replace(seen_of(*replicas, instances=instances), warned={"i-5": NOW})
    spec = demo_spec(replicas=7)
    for threshold_s, asked in ((180, [1]), (None, [])):
        probe = ReadinessProbe("/", {}, failure_threshold_s=threshold_s)
        assert list(reconcile.watched(replace(spec, readiness_probe=probe), seen)) == asked
    assert not reconcile.watched(spec, seen)


def test_a_replica_that_never_becomes_ready_has_failed() -> None:
    """After its initial delay it is given up, and its successor waits for the back-off; on-demand doesn't."""
    late = a_replica(1, ReplicaState.PROVISIONING)
    fail = steps.fail(late, NOW, "not ready 1200 s after its instance booted")
    assert decide(late, instances=(an_instance(1, InstanceState.PENDING),)) == [fail, FALLBACK]
    late = a_replica(1, ReplicaState.STARTING)
    fail = steps.fail(late, NOW, fail.reason)
    judged = {state: decide(late, instances=(an_instance(1),), health={1: state}) for state in TargetState}
    assert judged.pop(TargetState.HEALTHY) == [steps.mark_ready(late, NOW)]
    assert judged.pop(TargetState.DRAINING) == [steps.register(late)], "nobody judges one that was taken out"
    assert judged.pop(TargetState.INITIAL) == judged.pop(TargetState.UNAVAILABLE) == []
    assert all(actions == [fail, FALLBACK] for actions in judged.values())


def test_what_dies_at_birth_has_failed() -> None:
    """An instance that ends before it was ready, untaken, meets the brake; its row has EC2's words."""
    full = "Client.VolumeLimitExceeded: Volume limit exceeded"
    for state in (ReplicaState.PROVISIONING, ReplicaState.STARTING):
        born = a_replica(1, state, entered=RECENTLY)
        died = an_instance(1, InstanceState.TERMINATED, state_reason=full)
        reason = f"instance terminated: {full}, before it was ready"
        assert decide(born, instances=(died,)) == [steps.fail(born, NOW, reason), FALLBACK]
        outage = replace(died, state_reason="Server.InternalError: Internal error on launch")
        fail, _ = decide(born, instances=(outage,))
        assert fail.name == "Fail"
        assert fail.is_ec2s
    served = a_replica(1, ReplicaState.READY)
    assert decide(served, instances=(died,)) == losing(served, f"instance terminated: {full}")


def test_what_ec2_takes_back_at_birth_is_a_loss() -> None:
    """With a warning or by EC2's own word afterwards it is replaced at once, and where it was cools."""
    born = a_replica(1, ReplicaState.STARTING, entered=RECENTLY)
    taken = an_instance(
        1, InstanceState.TERMINATED, state_reason="Server.SpotInstanceTermination: Spot instance termination"
    )
    reason = f"instance terminated: {taken.state_reason}"
    assert decide(born, instances=(taken,)) == losing(born, reason, cool_pool=True)
    gone = an_instance(1, InstanceState.TERMINATED)
    lost = losing(born, "instance terminated", warned_at=NOW, cool_pool=True)
    assert decide(born, instances=(gone,), warned=(1,)) == lost
    warned = replace(born, warned_at=NOW)
    drain, *_ = decide(warned, instances=(an_instance(1, InstanceState.TERMINATED),))
    assert drain.name == "Drain"


def test_a_replica_has_its_whole_initial_delay() -> None:
    """It is late after its last moment, not in it, and its time begins when the instance has booted."""
    spec = demo_spec()
    last_s = spec.initial_delay_s + timing.BOOT_S
    for state in (ReplicaState.PROVISIONING, ReplicaState.STARTING):
        for age_s, is_late in ((last_s, False), (last_s + 0.001, True)):
            assert reconcile.is_overdue(spec, a_replica(1, state, since_s=age_s), NOW) is is_late
    launched = {ReplicaState.PROVISIONING: NOW - seconds(last_s + 600), ReplicaState.STARTING: NOW}
    assert not reconcile.is_overdue(spec, a_replica(1, ReplicaState.STARTING, entered=launched), NOW)


@pytest.mark.parametrize(("others", "kind"), [(2, "Drain"), (1, "ServeOn")])
def test_a_lost_warning_is_found(others: int, kind: str) -> None:
    """EC2's request status shows a marked instance, event or no event; it leaves or serves on as with one."""
    rows = [a_replica(i, ReplicaState.READY) for i in range(1, others + 2)]
    (action, replacement, *rest) = decide(
        *rows,
        instances=[an_instance(r.id) for r in rows],
        health={r.id: TargetState.HEALTHY for r in rows},
        warned=[1],
        warned_at=NOW - seconds(9),
        wanted=3,
    )
    assert action.name == kind
    assert action.name in ("Drain", "ServeOn")
    assert (action.replica.id, action.row.warned_at) == (1, NOW - seconds(9))
    assert replacement == replacing(action)
    assert action.reason == "interruption warning, found by the tick"
    assert action.teaches is Cause.LOSS
    assert [a.name for a in rest] == ([] if others == 2 else ["Request"])


def test_one_that_is_found_warned_is_not_put_back_into_rotation() -> None:
    """What becomes of it its warning decides; that its health turned is for the next tick to note."""
    rows = [a_replica(i, ReplicaState.READY) for i in (1, 2, 3)]
    health = {1: TargetState.DRAINING, 2: TargetState.HEALTHY, 3: TargetState.HEALTHY}
    found = decide(*rows, instances=[an_instance(r.id) for r in rows], health=health, warned=[1])
    assert [a.name for a in found if a.before and a.before.id == 1] == ["Drain", "Replace"]
    health[1] = TargetState.UNHEALTHY
    found = decide(*rows, instances=[an_instance(r.id) for r in rows], health=health, warned=[1])
    assert [a.name for a in found if a.before and a.before.id == 1] == ["Drain", "Replace"]


def test_those_that_are_found_warned_together_do_not_rely_on_each_other() -> None:
    """Neither on those whose row says it already, nor on one whose instance is gone."""
    rows = [a_replica(i, ReplicaState.READY) for i in (1, 2, 3)]
    there = [an_instance(r.id) for r in rows]
    seen: dict[str, Any] = {"health": dict.fromkeys((1, 2, 3), TargetState.HEALTHY)}
    found = decide(*rows, instances=there, warned=[1, 2], **seen)
    assert [a.name for a in found] == ["ServeOn", "ServeOn", "Replace", "Replace"]
    known = [replace(rows[0], warned_at=NOW, replaced_by=9), *rows[1:]]
    found = decide(*known, instances=there, warned=[1, 2], **seen)
    assert found[0] == steps.serve_on(rows[1], NOW, "interruption warning, found by the tick", NOW)
    assert not [a for a in found if a.name == "Drain"]
    gone = [an_instance(1, InstanceState.TERMINATED), *there[1:]]
    both = decide(*rows, instances=gone, warned=[2], **seen)
    assert [a.name for a in both] == ["Drain", "ServeOn", "Replace", "Replace"]


def test_who_serves_on_is_looked_at_by_every_tick() -> None:
    """It leaves once the others are enough, or when its time has come; then it gets no second replacement."""
    serving_on = a_replica(1, ReplicaState.READY, warned_at=NOW - seconds(20), replaced_by=4)
    others = [a_replica(i, ReplicaState.READY) for i in (2, 3)]
    coming = a_replica(4, ReplicaState.STARTING, since_s=5, entered=RECENTLY)
    health = {1: TargetState.HEALTHY, 2: TargetState.HEALTHY, 3: TargetState.HEALTHY, 4: TargetState.INITIAL}
    seen: dict[str, Any] = {"instances": [an_instance(i) for i in (1, 2, 3, 4)], "warned": [1], "wanted": 3}
    leave = steps.drain(serving_on, NOW, "interruption warning", warned_at=serving_on.warned_at)
    assert decide(serving_on, *others, coming, health=health, **seen) == [leave]
    ill = replace(others[0], unhealthy_since=NOW)
    assert (
        decide(serving_on, ill, others[1], coming, health={**health, 2: TargetState.UNHEALTHY}, **seen) == []
    )
    late = replace(serving_on, warned_at=NOW - seconds(70))
    (action,) = decide(late, ill, others[1], coming, health={**health, 2: TargetState.UNHEALTHY}, **seen)
    assert action.name == "Drain"


def test_who_serves_on_and_stops_answering_leaves() -> None:
    """Its failed check is noted like any other's, and with the next tick it is no use in rotation."""
    serving_on = a_replica(1, ReplicaState.READY, warned_at=NOW - seconds(20), replaced_by=4)
    seen: dict[str, Any] = {"instances": [an_instance(1)], "warned": [1], "wanted": 0}
    ill = replace(serving_on, unhealthy_since=NOW)
    leaves = steps.drain(ill, NOW, "interruption warning", warned_at=serving_on.warned_at)
    assert decide(serving_on, health={1: TargetState.UNHEALTHY}, **seen) == [
        steps.note_health(serving_on, NOW)
    ]
    assert decide(ill, health={1: TargetState.UNHEALTHY}, **seen) == [leaves]


def test_the_very_last_ones_stay_though_this_tick_finds_all_ill() -> None:
    """A load balancer that shows nobody for a moment takes nobody out of rotation."""
    warned = [
        a_replica(i, ReplicaState.READY, warned_at=NOW - seconds(88), replaced_by=i + 3) for i in (1, 2)
    ]
    actions = decide(*warned, instances=[an_instance(1), an_instance(2)], warned=[1, 2], wanted=0)
    assert {a.name for a in actions} == {"NoteHealth"}


@pytest.mark.parametrize("state", [ReplicaState.PROVISIONING, ReplicaState.STARTING])
def test_a_replica_that_is_warned_while_it_starts_goes_on(state: ReplicaState) -> None:
    """Beside its replacement, while nobody else serves: it may be ready long before EC2 takes it."""
    rising = a_replica(1, state, since_s=5, entered={**RECENTLY, state: NOW - seconds(5)})
    actions = decide(rising, instances=[an_instance(1)], warned=[1])
    goes_on = steps.serve_on(rising, NOW, "interruption warning, found by the tick", NOW)
    assert [a.name for a in actions if a not in (goes_on, replacing(goes_on))] == ["Start"] * (
        state is ReplicaState.PROVISIONING
    ) or ["Register"]
    enough = [a_replica(i, ReplicaState.READY) for i in (2, 3)]
    health = dict.fromkeys((2, 3), TargetState.HEALTHY)
    instances = [an_instance(i) for i in (1, 2, 3)]
    leaves = decide(*enough, rising, instances=instances, health=health, warned=[1], wanted=2)
    assert [a.replica.id for a in leaves if a.name == "Drain"] == [1], "as many as wanted serve"


def test_a_warned_replica_that_the_load_balancer_calls_healthy_serves_on() -> None:
    """Its row still says that it starts; the load balancer sends it requests, and nobody else serves."""
    rising = a_replica(1, ReplicaState.STARTING, since_s=5, entered=RECENTLY)
    actions = decide(rising, instances=[an_instance(1)], health={1: TargetState.HEALTHY}, warned=[1])
    assert [a.name for a in actions] == ["MarkReady", "ServeOn", "Replace"]
    warned = replace(rising, warned_at=NOW, replaced_by=2)
    actions = decide(warned, instances=[an_instance(1)], health={1: TargetState.HEALTHY}, wanted=0)
    assert actions[0] == steps.mark_ready(warned, NOW)


def test_a_warned_replica_that_starts_leaves_when_its_time_is_over() -> None:
    """Not for being late itself: EC2 ends it. If its instance is gone, for that reason and no other."""
    for ago_s, leaves in ((109, False), (110, True)):
        rising = a_replica(1, ReplicaState.STARTING, entered=dict.fromkeys(RECENTLY, NOW - seconds(9000)))
        rising = replace(rising, warned_at=NOW - seconds(ago_s), replaced_by=2)
        actions = decide(rising, instances=[an_instance(1)], health={1: TargetState.UNHEALTHY})
        assert [a.reason for a in actions if a.name in ("Drain", "Fail")] == ["interruption warning"] * leaves
        assert reconcile.late(demo_spec(), rows_of(rising), {"i-1"}, NOW) == []
    rising = a_replica(1, ReplicaState.STARTING, since_s=5, entered=RECENTLY, warned_at=NOW)
    drain = steps.drain(rising, NOW, "instance terminated", warned_at=NOW, cool_pool=True, is_gone=True)
    request = steps.request(NOW, 1, "fewer replicas than wanted", PurchaseOption.SPOT, 1)
    terminated = an_instance(1, InstanceState.TERMINATED)
    assert decide(rising, instances=[terminated]) == [drain, without(drain), request]


@pytest.mark.parametrize("state", [InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED])
def test_a_lost_instance_is_found(state: InstanceState) -> None:
    """An instance that is going or gone is replaced without any event."""
    replica = a_replica(1, ReplicaState.READY)
    assert decide(replica, instances=(an_instance(1, state),)) == losing(replica, f"instance {state}")


def test_an_instance_that_ec2_does_not_show_yet_is_waited_for() -> None:
    """DescribeInstances may lag behind CreateFleet."""
    young = a_replica(1, ReplicaState.PROVISIONING, since_s=5)
    assert decide(young) == []
    goes_on = steps.serve_on(young, NOW, "interruption warning, found by the tick", NOW)
    told_of = [goes_on, replacing(goes_on)]
    assert decide(young, warned=[1]) == told_of, "that EC2 takes it back is known all the same"


def test_a_drained_instance_is_terminated_once_its_requests_are_done() -> None:
    """Ours to terminate: as soon as the load balancer let go of it, or when its time is over."""
    done = a_replica(1, ReplicaState.DRAINING, since_s=30)
    busy = a_replica(2, ReplicaState.DRAINING, since_s=30)
    overdue = a_replica(3, ReplicaState.DRAINING, since_s=600)
    actions = decide(
        done,
        busy,
        overdue,
        instances=(an_instance(1), an_instance(2), an_instance(3)),
        health={2: TargetState.DRAINING, 3: TargetState.DRAINING},
        wanted=0,
    )
    assert [a.terminates for a in actions if a.name == "Terminate"] == ["i-1", "i-3"]


def test_what_was_taken_out_late_has_its_time_all_the_same() -> None:
    """Its row drains for longer than its requests take, and the load balancer has only just begun to."""
    spec = demo_spec()
    since_s = spec.drain_s + timing.DRAIN_SETTLE_S + 1
    late, runs = a_replica(1, ReplicaState.DRAINING, since_s=since_s), [an_instance(1)]
    assert decide(late, health={1: TargetState.HEALTHY}, instances=runs, wanted=0) == [steps.take_out("i-1")]
    assert decide(late, health={1: TargetState.DRAINING}, instances=runs, wanted=0) == []
    assert [a.name for a in decide(late, instances=runs, wanted=0)] == ["Terminate"], (
        "the load balancer has let go of it"
    )
    unused = decide(late, health={1: TargetState.UNUSED}, instances=runs, wanted=0)
    assert [a.name for a in unused] == ["TakeOut", "Terminate"], "nobody sends it anything"


UNHURRIED = replace(demo_spec(replicas=0), drain_s=30.0, drain_unhurried_s=300.0)
SERVED = {ReplicaState.READY: LONG_AGO}


@pytest.mark.parametrize(
    ("facts", "lasts_s"),
    [
        pytest.param({}, 300 + 20, id="unhurried"),
        pytest.param(
            {"warned_at": NOW - seconds(timing.NOTICE_S + timing.RECLAIM_GRACE_S)}, 30 + 20, id="spared"
        ),
        pytest.param({"entered": {}}, 30 + 20, id="never-served"),
    ],
)
@pytest.mark.parametrize("health", [TargetState.DRAINING, None])
def test_each_way_out_has_its_time(facts: dict[str, Any], lasts_s: float, health: TargetState | None) -> None:
    """An old version that nobody takes away finishes what takes minutes; who has nothing to finish ends soon.

    The load balancer shows both as draining for the longest time, even if they are idle: that is no reason to
    pay for one that had less.
    """

    def is_ended(since_s: float, spec: ServiceSpec = UNHURRIED) -> bool:
        leaving = a_replica(1, ReplicaState.DRAINING, since_s=since_s)
        leaving = replace(
            leaving, **{**facts, "entered": {**facts.get("entered", SERVED), **leaving.entered}}
        )
        seen = seen_of(leaving, instances=[an_instance(1)], health={1: health} if health else {})
        return any(a.name == "Terminate" for a in reconcile.decide(spec, seen, NOW))

    if health is None:
        assert is_ended(timing.DRAIN_SETTLE_S), "the load balancer has let go of it"
        return
    assert not is_ended(lasts_s - 1)
    # Only where its time is the longest of all, `draining` may mean that it was taken out late.
    assert is_ended(lasts_s * (2 if lasts_s > 300 else 1))
    before = replace(UNHURRIED, drain_unhurried_s=None)
    assert not is_ended(2 * 50 - 1, before)
    assert is_ended(2 * 50, before), "a document of before: as `drain_seconds` for all"


def test_what_is_still_shown_as_draining_may_come_back() -> None:
    """A standby that is resumed on its way back, or a replica that somebody took out, waits for no delay."""
    draining = {1: TargetState.DRAINING}
    rising = a_replica(1, ReplicaState.STARTING, since_s=5)
    seen = seen_of(rising, instances=[an_instance(1, address="10.0.0.1")], health=draining)
    assert steps.register(rising) in reconcile.decide(demo_spec(replicas=1), seen, NOW)
    probed = replace(demo_spec(replicas=1), readiness_probe=ReadinessProbe("/", {}))
    assert list(reconcile.awaiting_probe(probed, seen)) == [1]
    ready = a_replica(1, ReplicaState.READY, unhealthy_since=NOW)
    seen = seen_of(ready, instances=[an_instance(1)], health=draining)
    assert steps.register(ready) in reconcile.decide(demo_spec(replicas=1), seen, NOW)


def test_a_removed_service_ends_in_a_hurry() -> None:
    """Somebody waits for its stack to go: nobody has more time than `drain_seconds`, long answers or not."""
    for since_s, ends in ((49, []), (50, ["Terminate"])):
        leaving = a_replica(1, ReplicaState.DRAINING, since_s=since_s)
        leaving = replace(leaving, entered={**SERVED, **leaving.entered})
        seen = seen_of(leaving, instances=[an_instance(1)], health={1: TargetState.DRAINING})
        seen = replace(seen, rows=replace(seen.rows, document=UNHURRIED))
        assert [a.name for a in reconcile.retire(seen, NOW)] == ends


@pytest.mark.parametrize("noted", [True, False])
def test_a_warned_instance_is_never_terminated(noted: bool) -> None:
    """Whether the row or only EC2 knows of the warning: EC2's own interruption may make the hour free."""
    replica = a_replica(1, ReplicaState.DRAINING, warned_at=NOW if noted else None)
    actions = decide(
        replica,
        instances=(an_instance(1),),
        warned=[] if noted else [1],
        wanted=0,
    )
    assert not [a for a in actions if a.name == "Terminate"]


def test_a_warned_instance_that_was_stopped_instead_is_terminated() -> None:
    """EC2 has had its way; what is left of the instance costs us its disk and serves nobody."""
    replica = a_replica(1, ReplicaState.DRAINING, warned_at=NOW - seconds(130))
    (action,) = decide(replica, instances=(an_instance(1, InstanceState.STOPPED),), wanted=0)
    assert action.name == "Terminate"


def test_an_instance_that_ec2_may_have_spared_is_not_ended_at_once() -> None:
    """After its two minutes EC2 has five more: only then is it ours to end."""
    for ago_s, ends in ((121, False), (240, False), (420, True)):
        replica = a_replica(1, ReplicaState.DRAINING, warned_at=NOW - seconds(ago_s))
        actions = decide(replica, instances=(an_instance(1),), wanted=0)
        assert [a.name for a in actions] == (["Terminate"] if ends else [])


def test_a_draining_replica_in_rotation_is_taken_out_again() -> None:
    """A registration that raced the drain is undone."""
    replica = a_replica(1, ReplicaState.DRAINING, warned_at=NOW, since_s=3)
    actions = decide(replica, instances=(an_instance(1),), health={1: TargetState.HEALTHY}, wanted=0)
    assert actions == [steps.take_out("i-1")]


def test_a_drained_replica_ends_with_its_instance() -> None:
    """DRAINING → TERMINATED once EC2 says that it is gone."""
    replica = a_replica(1, ReplicaState.DRAINING)
    terminated = an_instance(1, InstanceState.TERMINATED)
    assert decide(replica, instances=(terminated,), wanted=0) == [steps.end(replica, NOW, "test")]
    late = decide(replica, instances=(terminated,), health={1: TargetState.UNHEALTHY}, wanted=0)
    assert late == [steps.take_out("i-1"), steps.end(replica, NOW, "test")], "the load balancer notices last"


def test_surplus_is_taken_from_what_serves_least() -> None:
    """Scaling down gives up the replica farthest from serving, then the newest."""
    ready = [a_replica(i, ReplicaState.READY) for i in (1, 2)]
    starting = a_replica(3, ReplicaState.STARTING, since_s=5, entered=RECENTLY)
    actions = decide(
        *ready,
        starting,
        instances=tuple(an_instance(i) for i in (1, 2, 3)),
        health={1: TargetState.HEALTHY, 2: TargetState.HEALTHY, 3: TargetState.INITIAL},
        wanted=1,
    )
    assert actions == [steps.drain(r, NOW, "more replicas than wanted") for r in (starting, ready[1])]


def test_one_too_many_that_is_just_becoming_ready_is_drained() -> None:
    """It needn't come into its own first; both are one change of its row, see `test_written`."""
    kept = [a_replica(i, ReplicaState.READY) for i in (1, 2, 3)]
    extra = a_replica(4, ReplicaState.STARTING)
    there = tuple(an_instance(r.id) for r in (*kept, extra))
    healthy = dict.fromkeys((1, 2, 3, 4), TargetState.HEALTHY)
    assert decide(*kept, extra, instances=there, health=healthy, wanted=3) == [
        steps.mark_ready(extra, NOW),
        steps.drain(extra.to(ReplicaState.READY, NOW), NOW, "more replicas than wanted"),
    ]


def test_launches_are_held_after_replicas_that_never_became_ready() -> None:
    """A service that dies while starting doesn't burn money as fast as it can; on-demand stands in for it."""
    held = Backoff(3, NOW + seconds(1), version=1)
    assert decide(wanted=1, backoff=held) == [FALLBACK]
    request = steps.request(NOW, 1, "fewer replicas than wanted", PurchaseOption.SPOT, 1)
    assert decide(wanted=1, backoff=replace(held, until=NOW)) == [request, FALLBACK]
    assert decide(wanted=1, backoff=replace(held, version=0)) == [request], "the version before failed"


def test_a_crash_loop_stops_until_there_is_a_new_version() -> None:
    """After five failures in a row no Spot is launched, however long it lasts, until a version comes."""
    looping = Backoff(timing.CRASH_LOOP_FAILURES, LONG_AGO, version=1)
    waiting = a_replica(1, ReplicaState.REQUESTED)
    actions = decide(waiting, wanted=2, backoff=looping)
    assert actions == [steps.request(NOW, 2, FALLBACK.reason, PurchaseOption.ON_DEMAND, 1, is_fallback=True)]
    request = steps.request(NOW, 1, "fewer replicas than wanted", PurchaseOption.SPOT, 1)
    assert decide(wanted=1, backoff=replace(looping, version=0)) == [request]


def test_a_removed_service_ends_without_replacements() -> None:
    """When a stack is destroyed its instances go, and nothing new comes."""
    ready, waiting = a_replica(1, ReplicaState.READY), a_replica(2, ReplicaState.REQUESTED)
    assert reconcile.retire(seen_of(ready, waiting, instances=[an_instance(1)]), NOW) == [
        steps.drain(ready, NOW, "service removed"),
        steps.end(waiting, NOW, "service removed"),
    ]
    draining = a_replica(1, ReplicaState.DRAINING)
    (action,) = reconcile.retire(seen_of(draining, instances=[an_instance(1)]), NOW)
    assert action.name == "Terminate"
    (action,) = reconcile.retire(seen_of(draining, instances=[an_instance(1)], warned=[1]), NOW)
    assert action.name == "NoteWarning", "EC2 ends it"
    warned = replace(draining, warned_at=NOW)
    assert reconcile.retire(seen_of(warned, instances=[an_instance(1)]), NOW) == [], "as its row says"
    ended = an_instance(1, InstanceState.TERMINATED)
    assert reconcile.retire(seen_of(draining, instances=[ended]), NOW) == [steps.end(draining, NOW, "test")]
    assert reconcile.retire(seen_of(draining), NOW) == [steps.note_missing(draining, NOW)]
    missing = [a_replica(i, ReplicaState.DRAINING, missing_since=LONG_AGO) for i in (1, 2, 3)]
    assert reconcile.retire(seen_of(*missing), NOW) == [steps.end(row, NOW, "test") for row in missing]


OUT = ["TakeOut"]


@pytest.mark.parametrize(("since_s", "after"), [(1, OUT), (99, OUT), (100, [*OUT, "Terminate"])])
def test_what_drains_is_not_believed_to_be_out_where_what_is_ready_is_not_shown(
    since_s: float, after: list[str]
) -> None:
    """An answer without the ready one says nothing of the other: it may be in rotation, and is taken out."""
    drains = a_replica(2, ReplicaState.DRAINING, since_s=since_s)
    fleet = (a_replica(1, ReplicaState.READY), drains)
    instances = [an_instance(1), an_instance(2)]
    spec = replace(demo_spec(replicas=1), drain_s=30.0)

    def about_it(health: dict[int, TargetState]) -> list[str]:
        actions = reconcile.decide(spec, seen_of(*fleet, instances=instances, health=health), NOW)
        return [a.name for a in actions if a.name in ("TakeOut", "Terminate")]

    assert about_it({}) == after
    assert about_it({1: TargetState.HEALTHY}) == (["Terminate"] if since_s >= timing.DRAIN_SETTLE_S else [])
