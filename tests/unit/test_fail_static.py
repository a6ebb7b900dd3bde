"""What is seen decides only if it is credible: damage and wrong answers take nothing away that serves."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import Instance, InstanceState, TargetState
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import LaunchTemplate, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import changes, reconcile, steps, strength
from spotrelay.plane.serving.holding import overridable
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.steps import HoldBack, Step
from tests.examples import demo_spec, on_demand_pool
from tests.unit.cases import LONG_AGO, NOW, POOL, a_replica, an_instance, losing, rows_of, seen_of

READY, STARTING, DRAINING = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING
HEALTHY, UNHEALTHY = TargetState.HEALTHY, TargetState.UNHEALTHY
SERVES = "serves, and nothing on record knew it"
ON_DEMAND = on_demand_pool("us-east-1a", "g5.xlarge")


def ours(id_: int, **facts: Any) -> Instance:
    """An instance that we launched, long ago: EC2's own tag and ours say so."""
    return an_instance(id_, **{"launch_template_id": "lt-1", "launch_id": "launch-1", **facts})


def decide(seen: Observation, spec: ServiceSpec | None = None) -> list[Step]:
    """The tick's decision."""
    return reconcile.decide(spec or demo_spec(), seen, NOW)


def vouched_for(seen: Observation, spec: ServiceSpec) -> Observation:
    """The same, with a person's word for all that is held back."""
    return replace(seen, vouched=overridable(decide(seen, spec)))


def whole(count: int = 3) -> Observation:
    """All as it should be."""
    ids = range(1, count + 1)
    return seen_of(
        *(a_replica(i, READY) for i in ids),
        instances=[ours(i) for i in ids],
        health=dict.fromkeys(ids, HEALTHY),
    )


def without(seen: Observation, *instances: str, unhealthy: bool = False) -> Observation:
    """What EC2 shows without these instances, and the load balancer perhaps, too."""
    left = {i: seen.instances[i] for i in seen.instances.keys() - set(instances)}
    health = {i: UNHEALTHY if unhealthy and i in instances else state for i, state in seen.health.items()}
    return replace(seen, instances=left, health=health)


# The service's own entry in the table.


def test_a_lost_counter_is_raised_and_takes_nobody_away() -> None:
    """The entry with the highest ID is gone, the rows aren't: they count, and the entry is mended."""
    seen = whole()
    lost = replace(seen, rows=replace(seen.rows, highest_id=0, serving=0))
    assert decide(lost) == [steps.raise_highest_id(3), steps.recount()]
    assert decide(replace(lost, ended_id=7)) == [steps.raise_highest_id(7), steps.recount()], (
        "what ended had an ID, too"
    )


def test_a_service_that_never_had_a_replica_has_lost_no_id() -> None:
    """A first tick finds nothing to mend: its first replica is number one."""
    assert decide(Observation(Rows()), demo_spec(replicas=0)) == []


def test_ids_come_from_the_instances_tags_after_a_restored_table() -> None:
    """Rows of yesterday know lower IDs than today's instances bear: those were given, and aren't again."""
    seen = whole()
    tagged = {i.id: replace(i, highest_id=40 + n) for n, i in enumerate(seen.instances.values())}
    assert decide(replace(seen, instances=tagged))[0] == steps.raise_highest_id(42)


def test_a_wrong_count_of_who_serves_is_mended() -> None:
    """By a tick that read every row; a few rows can't tell."""
    seen = whole()
    wrong = replace(seen, rows=replace(seen.rows, serving=1))
    assert decide(wrong) == [steps.recount()]
    assert decide(replace(wrong, rows=replace(wrong.rows, is_whole=False))) == []


# Rows that got lost.


def test_an_emptied_table_takes_every_serving_instance_in() -> None:
    """All three go on serving, with new rows, and not one is launched or ended."""
    seen = replace(whole(), rows=rows_of(highest_id=9))
    assert decide(seen) == [steps.take_in(NOW, i, READY, SERVES, 1) for i in seen.instances.values()]
    assert decide(seen, demo_spec(replicas=4))[-1] == steps.request(
        NOW, 1, "fewer replicas than wanted", PurchaseOption.SPOT, 1
    )


def test_what_is_taken_in_counts_towards_the_on_demand_base() -> None:
    """Two on-demand instances are the base of two: what is requested beside them is bought on Spot."""
    taken = [ours(i, offering=ON_DEMAND) for i in (1, 2)]
    seen = replace(seen_of(instances=taken, health={1: HEALTHY, 2: HEALTHY}), rows=rows_of(highest_id=9))
    requested = decide(seen, replace(demo_spec(), base_on_demand=2))[-1]
    assert requested == steps.request(NOW, 1, "fewer replicas than wanted", PurchaseOption.SPOT, 1)


def test_one_lost_row_is_made_again() -> None:
    """Its instance is taken in, and no replacement launched."""
    seen = whole()
    rows = rows_of(*(r for r in seen.rows.replicas.values() if r.id != 2))
    assert decide(replace(seen, rows=rows)) == [steps.take_in(NOW, seen.instances["i-2"], READY, SERVES, 1)]


def test_an_orphan_that_does_not_answer_yet_gets_its_time() -> None:
    """In rotation and not healthy: it may just be starting, and is judged like any other that does."""
    seen = seen_of(instances=[ours(7)], health={7: UNHEALTHY})
    (action, *_) = decide(seen)
    assert action == steps.take_in(NOW, ours(7), STARTING, "in rotation, and nothing on record knew it", 1)


@pytest.mark.parametrize("health", [{}, {7: TargetState.DRAINING}, {7: TargetState.UNUSED}])
def test_an_orphan_that_does_not_serve_is_drained(health: dict[int, TargetState]) -> None:
    """It gets a row in DRAINING, after its grace, and is ended as every replica is: not at once."""
    old = ours(7, launched_at=NOW - seconds(timing.ORPHAN_GRACE_S))
    fresh = ours(8, launched_at=NOW - seconds(timing.ORPHAN_GRACE_S - 0.001))
    seen = seen_of(instances=[old, fresh], health=health)
    assert decide(seen, demo_spec(replicas=0)) == [steps.take_in(NOW, old, DRAINING, reconcile.ORPHAN, 1)]
    for since_s, ends in ((timing.DRAIN_SETTLE_S - 0.001, False), (timing.DRAIN_SETTLE_S, True)):
        row = a_replica(7, DRAINING, since_s=since_s)
        drained = decide(seen_of(row, instances=[old]), demo_spec(replicas=0))
        assert [a.name for a in drained] == (["Terminate"] if ends else [])


def test_an_orphan_is_not_drained_on_an_answer_that_shows_nothing() -> None:
    """Rows got lost, and the load balancer shows nobody at all: then each may serve. With others it tells."""
    one, orphan = demo_spec(replicas=1), ours(7)
    why = "the load balancer doesn't show any instance at all"
    held = [a for a in decide(seen_of(instances=[orphan]), one) if a.name in ("HoldBack", "TakeIn")]
    assert held == [steps.hold_back(HoldBack("i-7 is left alone", why, then="it is drained and terminated"))]
    rising = seen_of(a_replica(1, STARTING), instances=[ours(1), orphan], health={1: UNHEALTHY})
    vouched = vouched_for(seen_of(instances=[orphan]), one)
    for seen in (rising, vouched):
        assert steps.take_in(NOW, orphan, DRAINING, reconcile.ORPHAN, 1) in decide(seen, one)


def test_an_orphan_is_not_drained_on_an_answer_that_lacks_our_own() -> None:
    """The load balancer shows not even a ready replica: then it may serve. A person may know better."""
    seen = seen_of(a_replica(1, READY), instances=[ours(1), ours(7)], health={})
    one = demo_spec(replicas=1)
    held = [a for a in decide(seen, one) if a.name in ("HoldBack", "TakeIn")]
    why = "the load balancer doesn't show replica 1 either, which is ready"
    assert held == [steps.hold_back(HoldBack("i-7 is left alone", why, then="it is drained and terminated"))]
    orphan = steps.take_in(NOW, ours(7), DRAINING, reconcile.ORPHAN, 1)
    assert orphan in decide(vouched_for(seen, one), one)
    assert orphan in decide(replace(seen, health={"i-1": HEALTHY}), one)


def test_what_ends_anyway_is_not_taken_in() -> None:
    """Warned, or ending: EC2 looks after it. What stopped instead costs its disk, and is ended."""
    gone = [ours(i, state=s) for i, s in ((1, InstanceState.SHUTTING_DOWN), (2, InstanceState.TERMINATED))]
    assert decide(seen_of(instances=gone), demo_spec(replicas=0)) == []
    assert decide(seen_of(instances=[ours(3)], warned=[3]), demo_spec(replicas=0)) == []
    serving = seen_of(instances=[ours(3)], warned=[3], health={3: HEALTHY})
    (taken_in,) = decide(serving, demo_spec(replicas=1))
    assert taken_in.name == "TakeIn", "it serves until then, and must be out in time"
    stopped = ours(4, state=InstanceState.STOPPED)
    assert decide(seen_of(instances=[stopped]), demo_spec(replicas=0)) == [
        steps.take_in(NOW, stopped, DRAINING, reconcile.ORPHAN, 1)
    ]


def test_an_on_demand_orphan_comes_back_as_what_it_was() -> None:
    """As one of the base as long as that is missing, and as a fallback otherwise."""
    orphans = [ours(i, offering=offering) for i, offering in ((1, POOL), (2, ON_DEMAND), (3, ON_DEMAND))]
    seen = seen_of(instances=orphans, health=dict.fromkeys((1, 2, 3), HEALTHY))

    def fallbacks(spec: ServiceSpec, seen: Observation = seen) -> list[bool]:
        return [a.creates[0].is_fallback for a in decide(seen, spec) if a.name == "TakeIn"]

    assert fallbacks(demo_spec()) == [False, True, True]
    assert fallbacks(replace(demo_spec(), base_on_demand=1)) == [False, False, True]
    assert fallbacks(demo_spec(use_spot=False)) == [False, False, False]
    based = a_replica(4, READY, purchase_option=PurchaseOption.ON_DEMAND, offering=ON_DEMAND)
    there = replace(seen, rows=rows_of(based), instances={**seen.instances, "i-4": ours(4)})
    assert fallbacks(replace(demo_spec(replicas=4), base_on_demand=1), there) == [False, True, True]


def test_a_foreign_instance_with_our_tag_is_left_alone() -> None:
    """Anybody can set our tags: neither from our template nor on record, it is held back and told about."""
    for facts in ({"launch_template_id": "lt-other"}, {"launch_template_id": None}, {"launch_id": None}):
        seen = seen_of(instances=[ours(7, **facts)], health={7: HEALTHY})
        (action,) = decide(seen, demo_spec(replicas=0))
        assert action.holds_back
        assert action.holds_back.what == "i-7 is left alone"
        assert "terminate it" in action.holds_back.remedy
        recorded = replace(seen, recorded=frozenset({"i-7"}))
        assert [a.name for a in decide(recorded, demo_spec(replicas=0))] == ["TakeIn"], "the table knows it"


def test_what_came_from_the_on_demand_template_is_ours() -> None:
    """An orphan may be of either template. Spot is never launched from on-demand's: such is foreign."""
    spec = replace(demo_spec(replicas=0), on_demand_template=LaunchTemplate("lt-2", "5"))
    for facts, action in (
        ({"launch_template_id": "lt-2", "offering": ON_DEMAND}, "TakeIn"),
        ({"launch_template_id": "lt-1", "offering": ON_DEMAND}, "TakeIn"),
        ({"launch_template_id": "lt-1"}, "TakeIn"),
        ({"launch_template_id": "lt-2"}, "HoldBack"),
        ({"launch_template_id": "lt-other", "offering": ON_DEMAND}, "HoldBack"),
    ):
        seen = seen_of(instances=[ours(7, **facts)], health={7: HEALTHY})
        assert [a.name for a in decide(seen, spec)] == [action], facts


def test_a_removed_service_drains_its_orphans_and_leaves_the_foreign() -> None:
    """Nothing serves any more; a launch that was under way is ended, what isn't ours isn't, nor awaited."""
    document: dict[str, Any] = {"rows": replace(rows_of(), document=demo_spec())}
    seen = replace(seen_of(instances=[ours(7)]), **document)
    assert [a.creates[0].state for a in reconcile.retire(seen, NOW) if a.name == "TakeIn"] == [DRAINING]
    assert not reconcile.is_gone(seen)
    foreign = replace(seen_of(instances=[ours(7, launch_template_id=None)]), **document)
    assert [a.name for a in reconcile.retire(foreign, NOW)] == ["HoldBack"]
    assert reconcile.is_gone(foreign)


def test_what_is_dead_leaves_the_rotation_without_a_row() -> None:
    """Its row may have ended before the load balancer heard of it. What is alive is another matter."""
    for state, health, out in (
        (InstanceState.TERMINATED, UNHEALTHY, True),
        (InstanceState.STOPPED, TargetState.UNUSED, True),
        (InstanceState.TERMINATED, TargetState.DRAINING, False),
        (InstanceState.PENDING, UNHEALTHY, False),
    ):
        fresh = ours(7, state=state, launched_at=NOW)
        actions = decide(seen_of(instances=[fresh], health={7: health}), demo_spec(replicas=0))
        assert actions == ([steps.take_out("i-7")] if out else [])
    assert decide(seen_of(health={7: UNHEALTHY}), demo_spec(replicas=0)) == [], "nothing says that it is dead"


# Instances that EC2 doesn't show.


def test_one_that_answers_is_kept_though_ec2_does_not_show_it() -> None:
    """The load balancer sees it healthy: DescribeInstances is wrong, or its tags were changed."""
    (action,) = decide(without(whole(), "i-2"))
    assert action.holds_back
    assert (action.holds_back.what, action.holds_back.remedy) == ("replica 2 is kept", ""), (
        "an operator can say that it is right"
    )


def test_one_that_answers_again_counts_again() -> None:
    """Also while EC2 doesn't show it: it serves, and is no reason for a replacement."""
    ill = a_replica(2, READY, unhealthy_since=LONG_AGO)
    seen = whole()
    seen = without(replace(seen, rows=rows_of(*{**seen.rows.replicas, 2: ill}.values())), "i-2")
    noted, held = decide(seen)
    assert held.holds_back
    assert noted == steps.note_health(ill, None)


def test_one_that_is_shown_again_is_no_longer_missing_whatever_else_is_found() -> None:
    """Both are in its row: that it is there, and that it doesn't answer."""
    row = a_replica(2, READY, missing_since=LONG_AGO)
    seen = whole()
    seen = replace(seen, rows=rows_of(*{**seen.rows.replicas, 2: row}.values()))
    seen = replace(seen, health={**seen.health, "i-2": UNHEALTHY})
    left = changes.after(demo_spec(), seen.rows, decide(seen), NOW).replicas[2]
    assert left == replace(row, missing_since=None, unhealthy_since=NOW)


def test_one_that_nobody_sees_is_gone_after_half_a_minute() -> None:
    """Missing in EC2 and not healthy: noted at first, and a loss after 30 s."""
    seen = without(whole(), "i-2", unhealthy=True)
    row = seen.rows.replicas[2]
    is_ill = steps.note_health(row, NOW)
    assert decide(seen) == [is_ill, steps.note_missing(is_ill.row, NOW)]
    for missing_s, is_gone in ((timing.MISSING_S - 0.001, False), (timing.MISSING_S, True)):
        ill = a_replica(2, READY, unhealthy_since=NOW, missing_since=NOW - seconds(missing_s))
        since = replace(seen, rows=rows_of(*{**seen.rows.replicas, 2: ill}.values()))
        assert decide(since) == (losing(ill, "instance gone") if is_gone else [])


@pytest.mark.parametrize(
    ("replicas", "missing", "believed"),
    [(1, 1, True), (2, 2, False), (3, 1, True), (3, 2, False), (4, 2, True), (5, 3, False)],
)
def test_half_of_them_at_once_is_not_believed(replicas: int, missing: int, believed: bool) -> None:
    """More than half of the ready ones missing is a wrong answer, even if the load balancer agrees."""
    seen = whole(replicas)
    long_ago: dict[str, Any] = {"unhealthy_since": NOW, "missing_since": LONG_AGO}
    ill = {i: replace(r, **long_ago) for i, r in seen.rows.replicas.items() if i <= missing}
    seen = replace(seen, rows=rows_of(*{**seen.rows.replicas, **ill}.values()))
    seen = without(seen, *(f"i-{i}" for i in ill), unhealthy=True)
    actions = decide(seen, demo_spec(replicas=replicas))
    gone = [a.replica.id for a in actions if a.name == "Drain"]
    assert gone == (list(ill) if believed else [])
    held = [a.holds_back for a in actions if a.holds_back]
    assert len(held) == (0 if believed else missing)
    vouched = decide(vouched_for(seen, demo_spec(replicas=replicas)), demo_spec(replicas=replicas))
    assert [a.replica.id for a in vouched if a.name == "Drain"] == list(ill)


@pytest.mark.parametrize(("unhealthy_since", "is_kept"), [(None, True), (LONG_AGO, False)])
def test_what_the_load_balancer_doesnt_know_holds(unhealthy_since: datetime | None, is_kept: bool) -> None:
    """EC2 doesn't show it and the load balancer doesn't know: it is as it was when that last knew."""
    seen = without(whole(), "i-1", unhealthy=True)
    row = replace(seen.rows.replicas[1], missing_since=LONG_AGO, unhealthy_since=unhealthy_since)
    seen = replace(
        seen,
        rows=rows_of(*{**seen.rows.replicas, 1: row}.values()),
        health={**seen.health, "i-1": TargetState.UNAVAILABLE},
    )
    actions = decide(seen, demo_spec())
    assert [a.replica.id for a in actions if a.name == "Drain"] == ([] if is_kept else [1])


def test_a_word_is_for_what_it_names() -> None:
    """Two aren't shown, and a person says that one of them is gone: the other one is kept."""
    seen, spec = without(whole(), "i-1", "i-2"), demo_spec()
    one, other = overridable(decide(seen, spec))
    actions = decide(replace(seen, vouched=[one]), spec)
    assert [a.replica.id for a in actions if a.name == "Drain"] == [1]
    assert overridable(actions) == [other]


def test_an_empty_answer_removes_nobody() -> None:
    """DescribeInstances shows nothing at all: everything is kept, and told about."""
    seen = whole(5)
    assert [a.name for a in decide(replace(seen, instances={}), demo_spec(replicas=5))] == ["HoldBack"] * 5
    vouched = decide(vouched_for(replace(seen, instances={}), demo_spec(replicas=5)), demo_spec(replicas=5))
    assert [a.reason for a in vouched if a.name == "Drain"] == ["instance gone"] * 5


@pytest.mark.parametrize("state", [ReplicaState.PROVISIONING, STARTING, READY, DRAINING])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_an_empty_answer_ends_nothing_that_starts_or_leaves(state: ReplicaState, replicas: int) -> None:
    """Whatever a replica was doing, and whether it is alone: an instance that one answer lacks is there."""
    rows = [a_replica(i, state, since_s=90, entered=_recently(state)) for i in range(1, replicas + 1)]
    for ago_s in (0, 3, 3 * timing.MISSING_S):
        noted = [replace(r, missing_since=NOW - seconds(ago_s)) if ago_s else r for r in rows]
        actions = decide(seen_of(*noted), demo_spec(replicas=0 if state is DRAINING else replicas))
        assert not [a for a in actions if a.name in ("Drain", "End", "Fail", "Request", "Terminate")], ago_s
        assert [a.holds_back.what for a in actions if a.holds_back] == [
            f"replica {r.id} is kept" for r in rows
        ]


def _recently(state: ReplicaState) -> dict[ReplicaState, datetime]:
    """Launched so long ago that EC2 should show it, and for ten seconds what it is now."""
    launched_at = NOW - seconds(timing.VISIBLE_WITHIN_S + 30)
    before = dict.fromkeys((ReplicaState.REQUESTED, ReplicaState.PROVISIONING), launched_at)
    return {state: NOW - seconds(10), **before}


def test_an_instance_that_ec2_has_not_come_to_show_is_waited_for() -> None:
    """EC2 may not show what it launched a minute and a half ago: nothing is missing yet."""
    for state in (ReplicaState.PROVISIONING, STARTING):
        launched = dict.fromkeys(
            (ReplicaState.REQUESTED, ReplicaState.PROVISIONING, state), NOW - seconds(90)
        )
        young = a_replica(1, state, since_s=90, entered=launched)
        assert decide(seen_of(young, instances=[]), demo_spec(replicas=1)) == []


def test_what_the_load_balancer_calls_healthy_is_ready_though_ec2_does_not_show_it() -> None:
    """Its row is behind, and EC2's answer lacks it: it serves all the same, and is counted as serving."""
    starting = [a_replica(i, STARTING, since_s=90, entered=_recently(STARTING)) for i in (1, 2, 3)]
    actions = decide(seen_of(*starting, health=dict.fromkeys((1, 2, 3), HEALTHY)))
    assert [a.replica.id for a in actions if a.name == "MarkReady"] == [1, 2, 3]
    assert {a.name for a in actions} == {"MarkReady", "HoldBack"}


def test_one_of_those_that_start_is_gone_after_half_a_minute() -> None:
    """While EC2 shows the others: noted at first, then lost and replaced. Shown again, it isn't missing."""
    rows = [a_replica(i, STARTING, since_s=90, entered=_recently(STARTING)) for i in (1, 2, 3)]
    seen = seen_of(*rows, instances=[ours(1), ours(2)], health=dict.fromkeys((1, 2), UNHEALTHY))
    assert decide(seen) == [steps.note_missing(rows[2], NOW)]
    noted = replace(rows[2], missing_since=NOW - seconds(timing.MISSING_S))
    since = replace(seen, rows=rows_of(*rows[:2], noted))
    assert decide(since) == losing(noted, "instance gone")
    shown = replace(since, instances={**since.instances, "i-3": ours(3, address=None)})
    assert decide(shown)[0] == steps.note_missing(noted, None)


def test_what_is_missing_has_the_time_of_its_start() -> None:
    """All that start are missing: when they should be ready by now, they are given up like any other."""
    spec = demo_spec(replicas=1)
    over_s = spec.initial_delay_s + timing.BOOT_S
    for ago_s, is_gone in ((over_s, False), (over_s + 1, True)):
        began_at = NOW - seconds(ago_s)
        row = a_replica(1, STARTING, since_s=ago_s, missing_since=began_at)
        row = replace(row, entered={**_recently(STARTING), STARTING: began_at})
        assert (losing(row, "instance gone") == decide(seen_of(row), spec)) is is_gone


@pytest.mark.parametrize("health", [None, TargetState.DRAINING, TargetState.UNUSED, TargetState.INITIAL])
def test_the_last_one_that_serves_does_not_end_on_absence(health: TargetState | None) -> None:
    """Neither EC2 nor the load balancer shows it, for however long: it stays until another one serves."""
    one = demo_spec(replicas=1)
    row = a_replica(1, READY, missing_since=LONG_AGO, unhealthy_since=LONG_AGO)
    seen = seen_of(row, health={} if health is None else {1: health})
    held, replaced = decide(seen, one)
    assert held.holds_back
    assert replaced.name == "Replace"
    beside = seen_of(
        replace(row, replaced_by=2), a_replica(2, READY, replaces=1), instances=[ours(2)], health={2: HEALTHY}
    )
    assert [a.replica.id for a in decide(beside, one) if a.name == "Drain"] == [1]


def test_one_that_starts_and_may_answer_does_not_end_on_absence() -> None:
    """Nobody knows of its health, as after it came back: it stays until another one answers."""
    row = a_replica(1, ReplicaState.STARTING, missing_since=LONG_AGO)
    for health, held in ((TargetState.UNAVAILABLE, True), (TargetState.INITIAL, False)):
        actions = decide(seen_of(row, health={1: health}), demo_spec(replicas=1))
        assert any(a.holds_back for a in actions) is held
        assert any(a.name == "Drain" for a in actions) is not held
    others = [a_replica(i, READY) for i in (2, 3)]
    known = {1: TargetState.UNAVAILABLE, 2: HEALTHY, 3: HEALTHY}
    beside = seen_of(row, *others, instances=[ours(2), ours(3)], health=known)
    assert [a.replica.id for a in decide(beside, demo_spec(replicas=3)) if a.name == "Drain"] == [1]


def test_the_last_one_ends_on_a_word_of_ec2_or_the_load_balancer_or_a_person() -> None:
    """EC2 says that it ended, the load balancer that what EC2 doesn't show is ill, or a person says so."""
    row = a_replica(1, READY, missing_since=LONG_AGO, unhealthy_since=LONG_AGO)
    ended = seen_of(row, instances=[ours(1, state=InstanceState.TERMINATED)])
    vouched = vouched_for(seen_of(row), demo_spec(replicas=1))
    for seen in (ended, seen_of(row, health={1: UNHEALTHY}), vouched):
        assert [a.replica.id for a in decide(seen, demo_spec(replicas=1)) if a.name == "Drain"] == [1]


def test_a_missing_one_that_is_warned_drains_with_its_warning() -> None:
    """EC2 took it: no guard delays what it announced itself, nor is its pool's loss forgotten."""
    warned = a_replica(2, READY, warned_at=LONG_AGO, unhealthy_since=LONG_AGO, replaced_by=9)
    seen = without(whole(), "i-2", unhealthy=True)
    seen = replace(seen, rows=rows_of(*{**seen.rows.replicas, 2: warned}.values()))
    (drain, *_) = decide(seen)
    assert drain == steps.drain(warned, NOW, "instance gone", warned_at=LONG_AGO, is_gone=True)


def test_a_missing_one_that_ec2_spared_goes_on() -> None:
    """Its tag is lost, it answers, and EC2 says that it doesn't take it back: its old warning is no end."""
    row = a_replica(1, READY, warned_at=LONG_AGO)
    spared = seen_of(row, health={1: HEALTHY}, spared=frozenset({"i-1"}))
    assert [step.name for step in decide(spared, demo_spec(replicas=1)) if step.takes_out] == []
    taken = replace(spared, spared=frozenset())
    assert [step.name for step in decide(taken, demo_spec(replicas=1)) if step.takes_out] == ["Drain"]


def test_a_drained_one_ends_when_it_is_nowhere() -> None:
    """Neither EC2 nor the load balancer shows it: it is over. While it is in rotation it is taken out."""
    row = a_replica(1, DRAINING)
    assert decide(seen_of(row), demo_spec(replicas=0)) == [steps.note_missing(row, NOW)]
    for missing_s, ends in ((timing.MISSING_S - 0.001, False), (timing.MISSING_S, True)):
        noted = replace(row, missing_since=NOW - seconds(missing_s))
        assert decide(seen_of(noted), demo_spec(replicas=0)) == (
            [steps.end(noted, NOW, "test")] if ends else []
        )
    for health in (HEALTHY, UNHEALTHY):
        actions = decide(seen_of(row, health={1: health}), demo_spec(replicas=0))
        assert actions[0] == steps.take_out("i-1")


# Warnings that aren't followed by a reclaim.


def test_a_warned_instance_is_left_to_ec2_until_it_was_spared_for_certain() -> None:
    """Five minutes after its time, and only if EC2 doesn't mark it any more, it is ours to end."""
    over_s = timing.NOTICE_S + timing.RECLAIM_GRACE_S
    for ago_s, ends in ((over_s - 0.001, False), (over_s, True)):
        row = a_replica(1, DRAINING, since_s=ago_s - 60, warned_at=NOW - seconds(ago_s))
        seen = seen_of(row, instances=[ours(1)])
        actions = decide(seen, demo_spec(replicas=0))
        assert [a.name for a in actions] == (["Terminate"] if ends else [])
        assert decide(replace(seen, warned={"i-1": NOW}), demo_spec(replicas=0)) == []


def test_so_is_one_that_several_share() -> None:
    """As long as EC2 marks it, none of its rows ends before it: they are what is known of it."""
    warned_at = NOW - seconds(timing.NOTICE_S + timing.RECLAIM_GRACE_S)
    first, second = (a_replica(i, DRAINING, since_s=300, warned_at=warned_at) for i in (1, 2))
    second = replace(second, instance_id="i-1:8082")
    seen = seen_of(first, second, instances=[ours(1), replace(ours(1), id="i-1:8082")])
    spec = demo_spec(replicas=0)
    assert decide(replace(seen, warned={"i-1": NOW, "i-1:8082": NOW}), spec) == []
    assert [a.name for a in decide(seen, spec)] == ["End"]


def test_a_warning_during_another_drain_is_noted() -> None:
    """From then on EC2 ends the instance, and it costs nothing to let it."""
    row = a_replica(1, DRAINING, since_s=600)
    seen = seen_of(row, instances=[ours(1)], warned=[1], warned_at=NOW - seconds(5))
    assert decide(seen, demo_spec(replicas=0)) == [steps.note_warning(row, NOW - seconds(5))]


def test_ticks_come_by_the_minute_for_what_nobody_ends() -> None:
    """A minute after a spared instance's time, or after a drain that AWS won't let end, nobody hurries."""
    soon = NOW + seconds(timing.TICK_IN_TRANSITION_S)
    spec = demo_spec(replicas=0)
    spared_s = timing.NOTICE_S + timing.ENDS_WITHIN_S
    stuck_s = spec.drain_s + timing.DRAIN_SETTLE_S + timing.ENDS_WITHIN_S
    for ago_s, due in ((spared_s - 0.001, soon), (spared_s, None)):
        row = a_replica(1, DRAINING, since_s=ago_s, warned_at=NOW - seconds(ago_s))
        assert strength.next_look(spec, seen_of(row), NOW) == due
    for ago_s, due in ((stuck_s - 0.001, soon), (stuck_s, None)):
        assert strength.next_look(spec, seen_of(a_replica(1, DRAINING, since_s=ago_s)), NOW) == due
    for ago_s, due in ((spared_s - 0.001, soon), (spared_s, None)):
        serving_on = a_replica(1, READY, warned_at=NOW - seconds(ago_s))
        assert strength.next_look(spec, seen_of(serving_on), NOW) == due, "EC2 spared the last one"


@pytest.mark.parametrize(
    ("other", "health", "warned", "answer"),
    [
        (READY, HEALTHY, (), True),
        (STARTING, HEALTHY, (), True),
        (READY, UNHEALTHY, (), False),
        (READY, None, (), False),
        (DRAINING, HEALTHY, (), False),
        (READY, HEALTHY, (2,), False),
    ],
)
def test_the_load_balancer_says_who_else_serves(
    other: ReplicaState, health: TargetState | None, warned: tuple[int, ...], answer: bool
) -> None:
    """Another one serves that is healthy, active and not warned, whatever its row says of being ready."""
    one = a_replica(1, READY)
    seen = seen_of(
        one, a_replica(2, other), health={1: HEALTHY} | ({2: health} if health else {}), warned=warned
    )
    assert seen.stays_without(one) is answer
