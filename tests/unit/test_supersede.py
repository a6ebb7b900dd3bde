"""What should be replaced and needn't go at once: the new one first, then the drain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.pools import OPTIONS, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import LaunchIntent
from spotrelay.plane.core.spec import OnRebalance, ReadinessProbe
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import changes, reconcile, steps, supersede
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec
from tests.unit.cases import (
    LONG_AGO,
    NOW,
    RECENTLY,
    a_replica,
    an_instance,
    losing,
    needless,
    replacing,
    seen_of,
    without,
)

PROBED = replace(demo_spec(replicas=1), readiness_probe=ReadinessProbe("/", {}, failure_threshold_s=180))
READY, STARTING = ReplicaState.READY, ReplicaState.STARTING
RECOMMENDED, UNHEALTHY = "rebalance recommendation", "unhealthy for 60 s"
DUE = NOW - seconds(timing.UNHEALTHY_REPLACED_S)


def decide(*replicas: Replica, wanted: int | None = None, surge: int = 1, **seen: Any) -> list[Step]:
    """The tick's decision for a service that follows recommendations; who answers its checks is healthy."""
    superseded = [r for r in replicas if r.replaced_by in {s.id for s in replicas}]
    count = len(replicas) - len(superseded) if wanted is None else wanted
    spec = replace(demo_spec(replicas=count), on_rebalance=OnRebalance.REPLACE, surge=surge)
    health = {r.id: _health(r) for r in replicas}
    instances = [an_instance(r.id) for r in replicas if r.instance_id]
    return reconcile.decide(
        spec, seen_of(*replicas, **{"instances": instances, "health": health, **seen}), NOW
    )


def _health(replica: Replica) -> TargetState:
    if replica.state is not READY:
        return TargetState.INITIAL
    return TargetState.HEALTHY if replica.unhealthy_since is None else TargetState.UNHEALTHY


def ill(id_: int, **facts: Any) -> Replica:
    """One that hasn't answered for long enough."""
    return a_replica(id_, READY, **{"unhealthy_since": DUE, **facts})


def starting(id_: int) -> Replica:
    """One that is on its way."""
    return a_replica(id_, STARTING, since_s=5, entered=RECENTLY)


# Recommendations.


def test_a_recommendation_launches_first_and_drains_last() -> None:
    """The replacement comes up beside the replica, which goes once the other serves."""
    old = a_replica(1, READY, rebalance_at=NOW)
    assert decide(old) == [steps.replace(old, NOW, RECOMMENDED, 1)]
    superseded = replace(old, replaced_by=2)
    assert decide(superseded, starting(2)) == []
    new = a_replica(2, READY, reason=RECOMMENDED)
    assert decide(superseded, new) == [steps.drain(superseded, NOW, RECOMMENDED)]


def test_all_that_are_recommended_to_leave_are_replaced_together() -> None:
    """EC2 takes a pool's instances together, so `surge` doesn't hold their replacements back."""
    old = [a_replica(i, READY, since_s=3600 - i, rebalance_at=NOW) for i in (1, 2, 3)]
    assert decide(*old) == [steps.replace(r, NOW, RECOMMENDED, 1) for r in old]
    first = replace(old[0], replaced_by=4)
    successor = replace(starting(4), reason=RECOMMENDED, replaces=1)
    assert decide(first, old[1], successor) == [steps.replace(old[1], NOW, RECOMMENDED, 1)]


def test_recommendations_cannot_churn_the_fleet() -> None:
    """None that is new itself is replaced: a fleet takes ten minutes at least to be replaced again."""
    fresh = [a_replica(i, READY, since_s=599, rebalance_at=NOW) for i in (1, 2)]
    old = a_replica(3, READY, since_s=600, rebalance_at=NOW)
    assert decide(*fresh, old) == [steps.replace(old, NOW, RECOMMENDED, 1)]


RETIRED = "instance-retirement, not before 2026-12-05 09:00 UTC"


def test_what_ec2_announces_is_met_ahead() -> None:
    """The replacement comes up beside it, whatever the file says of recommendations, as surge lets it.

    A fallback goes when Spot is back, and what starts or doesn't serve waits until the next survey tells.
    """
    old = [a_replica(i, READY, since_s=3600 - i) for i in (1, 2)]
    announced = {str(r.instance_id): RETIRED for r in old}
    told = f"EC2 announces {RETIRED}"
    assert decide(*old, announced=announced) == [steps.replace(old[0], NOW, told, 1)]
    assert decide(*old, announced={str(old[1].instance_id): RETIRED}) == [steps.replace(old[1], NOW, told, 1)]
    assert decide(*old, announced={"i-another": RETIRED}) == []
    superseded = replace(old[0], replaced_by=3)
    assert decide(superseded, old[1], starting(3), announced=announced) == []
    new = a_replica(3, READY, reason=told)
    assert decide(superseded, old[1], new) == [steps.drain(superseded, NOW, told)]
    spec = replace(demo_spec(replicas=2), on_rebalance=OnRebalance.IGNORE)
    instances, health = [an_instance(r.id) for r in old], {r.id: _health(r) for r in old}
    seen = seen_of(*old, instances=instances, health=health, announced=announced)
    assert reconcile.decide(spec, seen, NOW) == [steps.replace(old[0], NOW, told, 1)]
    standing = replace(old[0], is_fallback=True, purchase_option=PurchaseOption.ON_DEMAND)
    stays = decide(standing, old[1], wanted=1, announced={str(standing.instance_id): RETIRED})
    assert not any(action.name == "Replace" for action in stays)


def test_recommendations_leave_the_surge_to_others() -> None:
    """While what EC2 is about to take is replaced, one that doesn't answer needn't wait for it."""
    advised = a_replica(1, READY, rebalance_at=NOW, replaced_by=4)
    successor = replace(starting(4), reason=RECOMMENDED, replaces=1)
    sick = [ill(i, since_s=100 + i) for i in (2, 3)]
    assert decide(advised, *sick, successor) == [steps.replace(sick[1], NOW, UNHEALTHY, 1)]
    by_another = replace(successor, reason=UNHEALTHY)
    assert decide(advised, *sick, by_another) == []


def test_surge_counts_whatever_is_active() -> None:
    """One too many for another reason, and no replica is superseded until it is gone."""
    old = [a_replica(i, READY, rebalance_at=NOW) for i in (1, 2)]
    extra = a_replica(3, ReplicaState.REQUESTED, launch_id="launch-1")
    intent = LaunchIntent("launch-1", "demo", (3,), NOW)
    assert (
        decide(*old, extra, wanted=2, intents=[intent], health=dict.fromkeys((1, 2), TargetState.HEALTHY))
        == []
    )


def test_a_replacement_that_fails_leaves_the_replica_serving() -> None:
    """If what was to take over never comes up, the replica counts again and may be superseded again."""
    old = a_replica(1, READY, rebalance_at=NOW, replaced_by=2)
    assert decide(old) == [steps.replace(old, NOW, RECOMMENDED, 1)]


def test_a_successor_that_is_warned_takes_nobody_over() -> None:
    """It serves, and goes soon: what it was to replace stays, and its own replacement comes."""
    old = a_replica(1, READY, rebalance_at=NOW, replaced_by=2)
    warned = a_replica(2, READY, warned_at=NOW, replaced_by=3)
    assert not [a for a in decide(old, warned, wanted=1) if a.name == "Drain" and a.replica.id == 1]


def test_a_warned_replica_is_not_superseded() -> None:
    """It has its replacement already, also while it serves on; and so has one that this tick finds warned."""
    serving_on = a_replica(1, READY, rebalance_at=NOW, warned_at=NOW, replaced_by=2)
    assert decide(serving_on, starting(2)) == []
    found = steps.serve_on(
        a_replica(1, READY, rebalance_at=NOW), NOW, "interruption warning, found by the tick", NOW
    )
    assert decide(found.replica, warned=(1,)) == [found, replacing(found)]
    alone = replace(serving_on, replaced_by=None)
    assert not [a for a in decide(alone, a_replica(2, READY), wanted=3) if a.name == "Replace"]


def test_nothing_is_superseded_while_more_are_there_than_wanted() -> None:
    """One of them goes anyway: perhaps the one that should be left, and another launch is saved."""
    old = [a_replica(i, READY, rebalance_at=NOW, since_s=3600 - i) for i in (1, 2)]
    assert decide(*old, wanted=1, surge=2) == [steps.drain(old[1], NOW, "more replicas than wanted")]
    assert decide(*old, wanted=2, surge=2) == [steps.replace(r, NOW, RECOMMENDED, 1) for r in old]


# Silence.


def test_one_that_answers_no_probe_for_long_is_replaced() -> None:
    """After the file's time and not before; where the file says none, silence means nothing."""
    old, late = (a_replica(1, READY, silent_since=NOW - seconds(s)) for s in (180, 179.9))
    seen = seen_of(old, instances=[an_instance(1)], health={1: TargetState.HEALTHY})
    assert reconcile.decide(PROBED, seen, NOW) == [steps.replace(old, NOW, supersede.SILENT, 1)]
    assert reconcile.decide(demo_spec(replicas=1), seen, NOW) == []
    seen = seen_of(late, instances=[an_instance(1)], health={1: TargetState.HEALTHY})
    assert reconcile.decide(PROBED, seen, NOW) == []


def test_one_that_answers_no_probe_serves_until_its_successor_does() -> None:
    """It may only be busy, and still serves."""
    old = a_replica(1, READY, silent_since=NOW - seconds(999), replaced_by=2)
    assert decide(old, starting(2)) == []
    assert decide(old, a_replica(2, READY, reason=supersede.SILENT)) == [
        steps.drain(old, NOW, supersede.SILENT)
    ]


# Health.


def test_a_failed_check_is_noted_and_gets_time() -> None:
    """A busy moment is no loss: a minute of it brings a replacement, and a good check forgives."""
    well = a_replica(1, READY)
    assert decide(well, health={1: TargetState.UNHEALTHY}) == [steps.note_health(well, NOW)]
    assert decide(ill(1, unhealthy_since=DUE + seconds(0.001))) == []
    assert decide(ill(1)) == [steps.replace(ill(1), NOW, UNHEALTHY, 1)]
    assert decide(ill(1), health={1: TargetState.HEALTHY}) == [steps.note_health(ill(1), None)]


def test_an_unhealthy_replica_stays_until_its_successor_serves() -> None:
    """It is spread over when none is healthy, and may recover: so it goes last."""
    old, new = ill(1, replaced_by=2), a_replica(2, READY, reason=UNHEALTHY)
    assert decide(old, starting(2)) == []
    assert decide(old, replace(new, unhealthy_since=NOW)) == []
    assert decide(old, new) == [steps.drain(old, NOW, UNHEALTHY)]


def test_a_successor_that_turns_ill_goes_while_the_other_serves() -> None:
    """Nothing comes in its place: what it was to replace gets another one, and no version is given up."""
    old = a_replica(1, READY, rebalance_at=NOW, replaced_by=2)
    assert decide(old, ill(2, unhealthy_since=DUE + seconds(1))) == [], "it gets its time"
    assert decide(old, ill(2)) == [needless(steps.drain(ill(2), NOW, UNHEALTHY))]
    recovering = replace(ill(2), state=STARTING)
    assert decide(old, recovering) == []


def test_of_two_that_do_not_answer_the_older_one_makes_room() -> None:
    """While it is there no other may come in place of the newer one, whatever is deployed as the repair."""
    long_ago = NOW - seconds(timing.UNHEALTHY_GIVEN_UP_S)
    old, well = ill(1, replaced_by=2), a_replica(3, READY, since_s=3600)
    assert decide(old, ill(2), well) == [steps.drain(old, NOW, UNHEALTHY)]
    assert decide(ill(2), well) == [steps.replace(ill(2), NOW, UNHEALTHY, 1)], "the next tick"
    assert decide(old, ill(2, unhealthy_since=DUE + seconds(1)), well) == [], "it may recover"
    assert decide(ill(1, replaced_by=2, unhealthy_since=DUE + seconds(1)), ill(2), well) == []
    assert decide(old, ill(2)) == [], "nobody serves: both may, late"
    older = ill(1, replaced_by=2, unhealthy_since=long_ago)
    assert decide(older, ill(2)) == [steps.drain(older, NOW, UNHEALTHY)]
    assert decide(older, ill(2, unhealthy_since=DUE + seconds(1))) == []


def test_a_successor_of_the_same_version_need_not_stay_first() -> None:
    """Its version has served: only one of another version may turn ill soon after it got ready."""
    old = a_replica(1, READY, rebalance_at=NOW, replaced_by=2)
    new = a_replica(2, READY, since_s=0, reason=RECOMMENDED)
    assert decide(old, new) == [steps.drain(old, NOW, RECOMMENDED)]
    assert decide(old, replace(new, version=2)) == []


def test_one_that_recovers_goes_as_soon_as_it_is_one_too_many() -> None:
    """Both serve by then: the older one goes, unless the others are fewer than wanted."""
    old, new = a_replica(1, READY, replaced_by=2), a_replica(2, READY, reason=UNHEALTHY)
    assert decide(old, new) == [steps.drain(old, NOW, UNHEALTHY)]
    others = [ill(3, unhealthy_since=NOW), a_replica(4, READY)]
    assert decide(old, new, *others) == [], "the third of three doesn't answer: it is needed"
    assert decide(old, starting(2)) == []


def test_of_two_that_were_replaced_one_goes_while_the_other_is_needed() -> None:
    """Each that goes leaves one fewer that serves."""
    old = [a_replica(i, READY, replaced_by=i + 2) for i in (1, 2)]
    new = [a_replica(i, READY, reason=UNHEALTHY) for i in (3, 4)]
    assert decide(*old, *new) == [steps.drain(r, NOW, UNHEALTHY) for r in old]
    assert decide(*old, *new, ill(5, unhealthy_since=NOW)) == [steps.drain(old[0], NOW, UNHEALTHY)]


def test_one_that_was_to_be_replaced_and_is_needed_holds_up_nobody() -> None:
    """It fills the surge for as long as another one doesn't answer: so that one goes first, as it is."""
    needed, new = a_replica(1, READY, replaced_by=3), a_replica(3, READY)
    actions = decide(needed, ill(2), new, wanted=2)
    assert actions[0] == needless(steps.drain(ill(2), NOW, UNHEALTHY))


def test_a_replacement_that_is_lost_comes_again_for_whom_it_was() -> None:
    """The one that it was for is due to go: with it there are as many as wanted, and still one is missed."""
    due = a_replica(1, READY, rebalance_at=NOW, replaced_by=4)
    lost = starting(4)
    actions = decide(due, a_replica(2, READY), a_replica(3, READY), lost, wanted=3, warned=[4])
    assert [a.replica.id for a in actions if a.name == "Replace"] == [4]


def test_one_that_was_just_found_ill_stays_while_it_may_be_needed() -> None:
    """A load balancer that shows nobody but the new one for a moment ends nothing that serves."""
    old, other = a_replica(1, READY, replaced_by=3), a_replica(2, READY)
    health = {1: TargetState.UNHEALTHY, 2: TargetState.UNHEALTHY, 3: TargetState.HEALTHY}
    actions = decide(old, other, a_replica(3, READY), wanted=2, health=health)
    assert {a.name for a in actions} == {"NoteHealth"}


def test_many_unhealthy_are_replaced_a_few_at_a_time() -> None:
    """Perhaps it isn't theirs: no more than `surge` are replaced at once."""
    sick = [ill(i, since_s=100 + i) for i in (1, 2, 3)]
    well = a_replica(4, READY, since_s=3600)
    assert decide(well, *sick) == [steps.replace(sick[2], NOW, UNHEALTHY, 1)]
    assert decide(well, *sick, surge=2) == [
        steps.replace(sick[2], NOW, UNHEALTHY, 1),
        steps.replace(sick[1], NOW, UNHEALTHY, 1),
    ]
    replaced = replace(sick[2], replaced_by=5)
    assert decide(well, *sick[:2], replaced, starting(5)) == []


@pytest.mark.parametrize("option", OPTIONS.values())
def test_an_unhealthy_replica_is_replaced_however_it_was_bought(option: PurchaseOption) -> None:
    """On-demand fails, too; only a fallback has no replacement of its own to wait for."""
    sick = ill(1, purchase_option=option)
    assert decide(sick) == [steps.replace(sick, NOW, UNHEALTHY, 1)]


def test_an_unhealthy_fallback_goes_after_three_minutes() -> None:
    """It never gets a replacement of its own: whether another one is wanted follows from what Spot lacks."""
    well = a_replica(2, READY, since_s=3600)
    for unhealthy_s, goes in ((timing.UNHEALTHY_GIVEN_UP_S, False), (timing.UNHEALTHY_GIVEN_UP_S + 1, True)):
        since = NOW - seconds(unhealthy_s)
        sick = ill(1, is_fallback=True, purchase_option=PurchaseOption.ON_DEMAND, unhealthy_since=since)
        rest = a_replica(3, ReplicaState.REQUESTED, attempts=1, retry_at=NOW + seconds(9))
        health = {1: TargetState.UNHEALTHY, 2: TargetState.HEALTHY}
        drains = [a for a in decide(sick, well, rest, wanted=2, health=health) if a.name == "Drain"]
        assert drains == ([steps.drain(sick, NOW, "unhealthy for 180 s")] if goes else [])


def test_a_lone_unhealthy_fallback_stays_until_another_answers() -> None:
    """A load balancer without a healthy target sends requests to all, and it may serve them late.

    Another fallback is requested beside it, and isn't dropped while it starts.
    """
    sick = ill(
        1,
        is_fallback=True,
        purchase_option=PurchaseOption.ON_DEMAND,
        unhealthy_since=NOW - seconds(timing.UNHEALTHY_GIVEN_UP_S + 1),
    )
    refused = a_replica(2, ReplicaState.REQUESTED, attempts=1, retry_at=NOW + seconds(9))
    beside = steps.request(NOW, 1, "Spot isn't ready", PurchaseOption.ON_DEMAND, 1, is_fallback=True)
    alone = {1: TargetState.UNHEALTHY}
    assert decide(sick, refused, wanted=1, health=alone) == [beside]
    assert decide(sick, refused, wanted=1, surge=0, health=alone) == [], "no room beside it"
    for state, health in ((STARTING, TargetState.INITIAL), (READY, TargetState.HEALTHY)):
        other = a_replica(
            3, state, is_fallback=True, purchase_option=PurchaseOption.ON_DEMAND, entered=RECENTLY
        )
        decided = decide(sick, refused, other, wanted=1, health={**alone, 3: health})
        assert decided == ([steps.drain(sick, NOW, "unhealthy for 180 s")] if state is READY else [])


@pytest.mark.parametrize("is_fallback", [False, True])
def test_what_the_load_balancer_does_not_know_changes_no_row(is_fallback: bool) -> None:
    """`unavailable` is an error of ELB's own: who answered goes on doing so, and who didn't gets no worse."""
    facts: dict[str, Any] = {"is_fallback": is_fallback, "purchase_option": PurchaseOption.ON_DEMAND}
    unknown = {1: TargetState.UNAVAILABLE, 2: TargetState.HEALTHY}
    refused = a_replica(3, ReplicaState.REQUESTED, attempts=1, retry_at=NOW + seconds(9))
    for since in (None, NOW - seconds(timing.UNHEALTHY_GIVEN_UP_S + 1)):
        one = a_replica(1, READY, unhealthy_since=since, **facts)
        actions = decide(one, a_replica(2, READY), refused, wanted=3 - is_fallback, health=unknown)
        assert not [a for a in actions if a.name in ("NoteHealth", "Drain")]


def test_nothing_is_superseded_by_a_service_that_ignores_recommendations() -> None:
    """Health counts all the same."""
    old = a_replica(1, READY, rebalance_at=LONG_AGO)
    seen = seen_of(old, ill(2), instances=[an_instance(1), an_instance(2)], health={1: TargetState.HEALTHY})
    seen = replace(seen, health={**seen.health, "i-2": TargetState.UNHEALTHY})
    assert reconcile.decide(demo_spec(replicas=2), seen, NOW) == [steps.replace(ill(2), NOW, UNHEALTHY, 1)]


def test_what_goes_is_not_superseded_as_well() -> None:
    """A replica that EC2 recommends to leave and that is lost drains: it has its replacement by that."""
    lost, other = (a_replica(i, READY, rebalance_at=NOW) for i in (1, 2))
    instances = [an_instance(1, InstanceState.TERMINATED), an_instance(2)]
    assert decide(lost, other, surge=3, instances=instances) == [
        *losing(lost, "instance terminated"),
        steps.replace(other, NOW, RECOMMENDED, 1),
    ]


def test_the_replacement_of_what_serves_on_counts_towards_the_surge() -> None:
    """It comes in addition, as a drained one's does: while it makes one too many, nothing is superseded."""
    rows = [a_replica(1, READY), a_replica(2, READY, rebalance_at=NOW), a_replica(3, READY)]
    spec = replace(demo_spec(replicas=2), on_rebalance=OnRebalance.REPLACE, surge=1)
    for loss in (
        steps.serve_on(rows[0], NOW, "interruption warning", NOW),
        steps.drain(rows[0], NOW, "lost"),
    ):
        for after, expected in (
            (replacing(loss), []),
            (without(loss), [steps.replace(rows[1], NOW, RECOMMENDED, 1)]),
        ):
            seen = seen_of(*rows)
            seen = seen.with_rows(changes.after(spec, seen.rows, [loss, after], NOW))
            assert list(supersede.decide(spec, seen, NOW)) == expected
