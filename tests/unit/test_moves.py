"""A replica moves to Spot that is far cheaper: only where all is well, one at a time, and never for worse."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.pools import Cause, Cooldown, Offering, PoolMemory, PurchaseOption, Scope, Survey
from spotrelay.plane.core.ports import Throttled
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.requirements import Requirements
from spotrelay.plane.core.rows import Backoff, LaunchIntent
from spotrelay.plane.core.spec import OnRebalance, OnUpdate, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.placement.launching import FALLBACK_DELAY_S
from spotrelay.plane.placement.plan import plan
from spotrelay.plane.serving import changes, moves, reconcile, steps
from spotrelay.plane.serving.steps import NEEDLESS, Step
from tests.examples import demo_spec
from tests.unit.cases import NOW, a_replica, an_instance, rows_of, seen_of
from tests.unit.worlds import Troubled, active, counted, dry, reclaim, rows, serving, settle, warn

READY = ReplicaState.READY
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
SPEC = replace(demo_spec(), rebalance_cost=0.2)
A5, B5, A6, B6 = SPEC.pools
HOUR = seconds(timing.MOVE_AFTER_S)
PRICES = {A5: 1.0, B5: 0.9, A6: 0.7, B6: 0.95}


def known(prices: dict[Any, float] | None = None, **facts: Any) -> PoolMemory:
    """What a survey found Spot to cost just now: one pool is 30 % cheaper than the one of all replicas."""
    of = {"asked": SPEC.asked, "at": NOW, **facts}
    return PoolMemory(
        survey=Survey("demo", of["asked"], of["at"], SPEC.pools, {}, prices or PRICES, of.get("scores", {}))
    )


def decide(
    *replicas: Replica,
    spec: ServiceSpec = SPEC,
    pools: PoolMemory | None = None,
    health: TargetState = TargetState.HEALTHY,
    backoff: Backoff | None = None,
    intents: Collection[LaunchIntent] = (),
) -> list[Step]:
    """What a tick decides about these replicas, three if none is named: their instances run."""
    fleet = replicas or (a_replica(1, READY), a_replica(2, READY), a_replica(3, READY))
    seen = seen_of(
        *fleet,
        instances=[an_instance(r.id) for r in fleet if r.instance_id],
        health={r.id: health for r in fleet if r.state is READY},
        backoff=backoff,
        intents=intents,
        pools=pools or known(),
    )
    return reconcile.decide(spec, seen, NOW)


def moved(actions: Collection[Step]) -> list[int]:
    """The IDs of the replicas that are to move."""
    return [a.replica.id for a in actions if a.name == "Replace" and a.creates[0].max_price is not None]


LIMITS: dict[str, dict[str, Any]] = {
    "by price": {"max_price": 0.8, "min_score": None},
    "by score": {"max_price": None, "min_score": 5},
}
"""What a move may lead to. Once it is decided, both go the same way."""

by_either = pytest.mark.parametrize("limit", LIMITS.values(), ids=list(LIMITS))


def limit_of(replica: Replica) -> dict[str, Any]:
    """What its launch is held to."""
    return {"max_price": replica.max_price, "min_score": replica.min_score}


def three(**facts: Any) -> tuple[Replica, Replica, Replica]:
    """Three that serve, the last of them with these facts."""
    return a_replica(1, READY), a_replica(2, READY), a_replica(3, READY, **facts)


# Whether anything moves, and what.


def test_one_moves_where_spot_is_cheaper_by_the_share() -> None:
    """The first of those equally dear; its replacement may cost 80 % of its own price."""
    assert decide() == [
        steps.replace(
            a_replica(1, READY), NOW, "costs 1 USD an hour, and cheaper Spot at most 0.8", 1, max_price=0.8
        )
    ]
    assert decide(pools=known({**PRICES, A6: 0.8})), "exactly by the share"
    assert decide(pools=known({**PRICES, A6: 0.81})) == []


def test_the_dearest_that_has_somewhere_to_go_moves_first() -> None:
    """Whatever its ID; one that is dearer and too young, or of no known price, doesn't keep it back."""
    dear = a_replica(3, READY, offering=Offering(B5, SPOT))
    fleet = a_replica(1, READY), a_replica(2, READY), dear
    prices = {A5: 1.0, B5: 1.2, A6: 0.7}
    assert moved(decide(*fleet, pools=known(prices))) == [3]
    young = a_replica(3, READY, since_s=timing.MOVE_AFTER_S - 1, offering=Offering(B5, SPOT))
    assert moved(decide(*fleet[:2], young, pools=known(prices))) == [1]
    unknown = a_replica(3, READY, offering=Offering(B6, SPOT))
    assert moved(decide(*fleet[:2], unknown, pools=known(prices))) == [1]


def test_without_the_setting_nothing_moves() -> None:
    """It is off by default."""
    assert decide(spec=demo_spec()) == []


def test_a_replica_has_been_ready_for_an_hour() -> None:
    """One that has just come stays, so that no price that jumps to and fro makes it jump, too."""
    fresh = timing.MOVE_AFTER_S - 1
    assert decide(*(a_replica(id_, READY, since_s=fresh) for id_ in (1, 2, 3))) == []


def test_nothing_moves_while_the_load_balancer_does_not_know_who_serves() -> None:
    """What was known of them holds, which is no reason to begin something that can wait."""
    assert decide(health=TargetState.UNAVAILABLE) == []


def test_what_runs_on_demand_stays() -> None:
    """The on-demand base is no Spot, though Spot in its pool has a price; the others may still move."""
    spec = replace(SPEC, base_on_demand=1)
    base = a_replica(1, READY, purchase_option=ON_DEMAND, offering=Offering(A5, ON_DEMAND))
    assert moved(decide(base, a_replica(2, READY), a_replica(3, READY), spec=spec)) == [2]
    assert decide(base, spec=replace(spec, replicas=1)) == []


def test_what_was_adopted_on_demand_stays() -> None:
    """What comes after it is Spot, but it costs what on-demand costs, which a survey doesn't say."""
    adopted = replace(a_replica(1, READY, offering=Offering(A5, ON_DEMAND)), is_adopted=True)
    assert moved(decide(adopted, a_replica(2, READY), a_replica(3, READY))) == [2]


# An hour's saving pays for running double.


@pytest.mark.parametrize(
    ("start_s", "drain_s", "most"),
    [
        (100, 0, 0.8),  # a slow start isn't what decides
        (1180, 0, 0.75),  # 1200 s double: an hour at 0.75 saves 0.25, and costs 0.75 / 3
        (880, 300, 0.75),
        (5000, 80, 2 / 3),  # no start takes longer than one is given
    ],
)
def test_an_hour_pays_for_running_double(start_s: float, drain_s: float, most: float) -> None:
    """The longer two of them run, the cheaper must the new one be."""
    slow = a_replica(1, READY)
    started = {ReplicaState.PROVISIONING: slow.since - seconds(start_s), READY: slow.since}
    spec = replace(SPEC, drain_s=drain_s, initial_delay_s=1700)
    assert moves.worth(spec, 0.2, replace(slow, entered=started), 1.0) == pytest.approx(most)


def test_a_start_that_costs_more_than_an_hour_saves_prevents_the_move() -> None:
    """Half an hour's start: a third cheaper would pay, 30 % doesn't."""
    fleet = three()
    slow = [
        replace(r, entered={**r.entered, ReplicaState.PROVISIONING: r.since - seconds(1800)}) for r in fleet
    ]
    spec = replace(SPEC, initial_delay_s=3600)
    assert decide(*slow, spec=spec) == []
    assert moved(decide(*slow, spec=spec, pools=known({**PRICES, A6: 0.6}))) == [1]


# What the survey must be.


def test_an_old_survey_says_nothing() -> None:
    """Two hours at most, and about what the service asks for now."""
    old = NOW - seconds(timing.SURVEY_OLD_S)
    assert decide(pools=known(at=old))
    assert decide(pools=known(at=old - seconds(1))) == []
    assert decide(pools=known(asked=Requirements(instance_types=("g5.xlarge",)))) == []
    assert decide(pools=PoolMemory()) == []


@pytest.mark.parametrize("why_not", ["cools", "scores low", "has no price", "is above the cap"])
@pytest.mark.parametrize("fallback", [True, False])
def test_nothing_moves_to_a_pool_that_anything_speaks_against(why_not: str, fallback: bool) -> None:
    """Also where on-demand can't stand in, and such a pool would be asked as a last resort."""
    spec = replace(SPEC, on_demand_fallback=fallback)
    pools = known()
    if why_not == "cools":
        scope = Scope.of(Offering(A6, SPOT))
        until = NOW + seconds(1)
        pools = replace(pools, cooldowns=(Cooldown(scope, Cause.LOSS, NOW, until, "warning"),))
    elif why_not == "scores low":
        cheap_zone = {B6: 0.7, A5: 1.0}
        pools = known(cheap_zone, scores={"us-east-1a": 9, "us-east-1b": timing.LOW_SCORE})
    elif why_not == "has no price":
        pools = known({A5: 1.0})
    else:
        survey = known().survey
        assert survey is not None
        capped = replace(survey, on_demand_prices={"g5.xlarge": 3.0, "g6.xlarge": 1.0})
        spec, pools = replace(spec, max_price_share=0.6), PoolMemory(survey=capped)
    assert decide(spec=spec, pools=pools) == []


def test_a_move_is_no_last_resort() -> None:
    """A pool that began to cool after the decision isn't asked by the launch either."""
    until = NOW + seconds(1)
    cooling = Cooldown(Scope.of(Offering(A6, SPOT)), Cause.LOSS, NOW, until, "warning")
    pools = replace(known(), cooldowns=(cooling,))
    assert plan(SPEC, SPOT, pools, NOW, is_last_resort=True, max_price=0.8).steps == ()
    assert plan(SPEC, SPOT, pools, NOW, is_last_resort=True).steps != ()


@by_either
def test_what_moves_is_launched_by_itself(limit: dict[str, Any]) -> None:
    """A launch has one limit: no other replica gets it, and no move is launched without."""
    one, other, _ = three()
    lost = steps.drain(other, NOW, "lost")
    decided: list[Step] = [
        steps.replace(one, NOW, "dear", 1, **limit),
        lost,
        steps.replace(lost.row, NOW, "lost", 1),
    ]
    commits = changes._packed("demo", SPEC, seen_of(*three()).rows, decided)
    none = dict.fromkeys(limit)
    assert [[limit_of(r) for step in one for r in step.creates] for one in commits] == [[limit], [none]]


# Only where all is well.


def resumed(state: ReplicaState) -> Replica:
    """What was resumed a second ago, or is given back since."""
    return a_replica(4, state, is_standby=True, is_fallback=True, purchase_option=ON_DEMAND, since_s=1)


FLEETS: dict[str, tuple[Replica, ...]] = {
    "one is warned": three(warned_at=NOW),
    "one starts": (*three()[:2], a_replica(3, ReplicaState.STARTING, since_s=5)),
    "one drains": (*three(), a_replica(4, ReplicaState.DRAINING, since_s=1)),
    "one too many": (*three(), a_replica(4, READY)),
    "one too few": three()[:2],
    "a fallback serves": (
        *three()[:2],
        a_replica(4, READY, is_fallback=True, purchase_option=ON_DEMAND, since_s=1),
    ),
    "a standby was resumed": (*three()[:2], resumed(READY)),
    "a standby is being resumed": (*three(), resumed(ReplicaState.PROVISIONING)),
    "a standby goes back": (*three(), resumed(ReplicaState.DRAINING)),
    "one doesn't answer": three(unhealthy_since=NOW - seconds(1)),
    "one is superseded": (replace(three()[0], replaced_by=4), *three()[1:], a_replica(4, READY, since_s=1)),
    "a move was just tried": three(move_tried_at=NOW - HOUR + seconds(1)),
}


def stage(*replicas: Replica, spec: ServiceSpec = SPEC) -> list[int]:
    """The IDs of the replicas that are to move, whatever other stages would do."""
    healthy = {r.id: TargetState.HEALTHY for r in replicas if r.state is READY}
    return moved(list(moves.decide(spec, seen_of(*replicas, health=healthy, pools=known()), NOW)))


@pytest.mark.parametrize("what", FLEETS)
def test_nothing_moves_while_anything_else_goes_on(what: str) -> None:
    """Whatever it is, and also if no other stage does anything about it at the moment."""
    assert stage(*FLEETS[what]) == []
    assert moved(decide(*FLEETS[what])) == []


def test_standbys_are_no_reason_to_stay() -> None:
    """They serve nobody, and are none of the replicas that are wanted."""
    standby = a_replica(4, ReplicaState.STANDBY, is_standby=True, purchase_option=ON_DEMAND)
    assert stage(*three(), standby) == [1]


def test_standbys_stay() -> None:
    """However dear Spot is in their pool: they are on-demand, and stopped."""
    standby = a_replica(4, ReplicaState.STANDBY, is_standby=True, purchase_option=ON_DEMAND)
    cheap = [replace(r, offering=Offering(A6, SPOT)) for r in three()]
    assert stage(*cheap, standby) == []


def test_nothing_moves_beside_what_another_stage_does() -> None:
    """A recommendation is followed first; the move comes when that is over."""
    advised = three(rebalance_at=NOW)
    spec = replace(SPEC, on_rebalance=OnRebalance.REPLACE, surge=5)
    actions = decide(*advised, spec=spec)
    assert [a.replica.id for a in actions if a.name == "Replace"] == [3]
    assert moved(actions) == []


def test_nothing_moves_while_a_version_is_rolled_out_or_fails() -> None:
    """Nor while a launch is open, or where nothing may run beside."""
    spec = replace(SPEC, on_update=OnUpdate.ROLLING, version=2, surge=5)
    newer = [replace(r, version=2) for r in three()]
    assert moved(decide(*newer, spec=spec)) == [1]
    stopped = Backoff(failures=9, version=2)
    held = [*newer[:2], replace(newer[2], version=1)]
    assert moved(decide(*held, spec=spec, backoff=stopped)) == []
    assert (stage(*newer, spec=spec), stage(*held, spec=spec)) == ([1], [])
    assert moved(decide(backoff=Backoff(failures=1, version=1, until=NOW))) == []
    assert moved(decide(intents=[LaunchIntent("launch-1", "demo", (7,), NOW)])) == []
    assert moved(decide(spec=replace(SPEC, surge=0))) == []


def test_a_move_is_tried_again_after_an_hour() -> None:
    """Of any replica: what refused one would refuse the next."""
    tried = three(move_tried_at=NOW - HOUR)
    assert moved(decide(*tried)) == [1]


# A move that comes to nothing.


def requested(**facts: Any) -> Replica:
    """What was requested for replica 3 to move, and isn't being launched."""
    return a_replica(4, ReplicaState.REQUESTED, since_s=5, **{"replaces": 3, "max_price": 0.8, **facts})


MOVING = three(replaced_by=4, move_tried_at=NOW - seconds(5))


@pytest.mark.parametrize("attempts", [0, 1])
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (LIMITS["by price"], "no cheaper Spot was to be had"),
        (LIMITS["by score"], "no Spot was to be had in a zone that scores better"),
    ],
)
def test_a_move_that_is_not_launched_at_once_ends(attempts: int, limit: dict[str, Any], reason: str) -> None:
    """Refused, throttled or held by the brake: it neither waits nor gets a fallback."""
    waiting = requested(attempts=attempts, **limit)
    assert decide(*MOVING, waiting) == [steps.end(waiting, NOW, reason)]


def test_a_replacement_for_another_reason_waits_as_ever() -> None:
    """It was refused, and what it replaces still serves: it is no move, and is launched again."""
    (launch,) = decide(*MOVING, requested(max_price=None, attempts=1))
    assert launch.name == "Launch"


def test_one_that_is_being_launched_is_let_be() -> None:
    """Its intent is open: EC2 may be answering just now."""
    waiting = requested(launch_id="launch-1")
    assert decide(*MOVING, waiting, intents=[LaunchIntent("launch-1", "demo", (4,), NOW)]) == []


@by_either
def test_what_was_to_move_is_lost_and_the_move_becomes_its_replacement(limit: dict[str, Any]) -> None:
    """Then it is launched wherever there is Spot, for any price, and gets its fallback like any other."""
    gone = replace(MOVING[2], warned_at=NOW - seconds(1))
    actions = decide(*MOVING[:2], gone, requested(attempts=1, **limit))
    assert not [a for a in actions if a.name == "End"]
    (launch,) = (a for a in actions if a.name == "Launch")
    assert [limit_of(r) for r in launch.launches] == [dict.fromkeys(limit)]
    assert [a.creates[0].is_fallback for a in actions if a.name == "Request"] == [True]


def replaced(*replicas: Replica, warned: Collection[int], spec: ServiceSpec = SPEC) -> list[Step]:
    """What a tick replaces that finds some replicas warned."""
    seen = seen_of(
        *replicas,
        instances=[an_instance(r.id) for r in replicas],
        health={r.id: TargetState.HEALTHY for r in replicas if r.state is READY},
        warned=warned,
        pools=known(),
    )
    return [a for a in reconcile.decide(spec, seen, NOW) if a.name == "Replace"]


def test_a_loss_beside_a_lost_move_is_what_gets_the_replacement() -> None:
    """Of the two only the one that served is missed."""
    rising = a_replica(4, ReplicaState.PROVISIONING, since_s=100, replaces=3, max_price=0.8)
    assert [a.replica.id for a in replaced(*MOVING, rising, warned=(2, 4))] == [2]
    # What was to move stays, so that two are left: as many as wanted from now on.
    assert replaced(*MOVING, rising, warned=(2, 4), spec=replace(SPEC, replicas=2)) == []


@by_either
def test_a_lost_move_says_why_nothing_comes_in_its_place(limit: dict[str, Any]) -> None:
    """As many as wanted are left: what was to move stays."""
    rising = a_replica(4, ReplicaState.PROVISIONING, since_s=100, replaces=3, **limit)
    seen = seen_of(
        *MOVING,
        rising,
        instances=[an_instance(id_) for id_ in (1, 2, 3, 4)],
        health=dict.fromkeys((1, 2, 3), TargetState.HEALTHY),
        warned=(4,),
    )
    assert [a.replica.id for a in reconcile.decide(SPEC, seen, NOW) if a.name == "GoWithout"] == [4]


@by_either
def test_what_was_to_move_is_lost_together_with_what_was_to_come(limit: dict[str, Any]) -> None:
    """Then one is missing, and one replacement comes for the two."""
    rising = a_replica(4, ReplicaState.PROVISIONING, since_s=100, replaces=3, **limit)
    actions = replaced(*MOVING, rising, warned=(3, 4))
    assert [(a.replica.id, limit_of(a.creates[0])) for a in actions] == [(4, dict.fromkeys(limit))]


# The whole way.


def moving_world(spec: ServiceSpec = SPEC) -> tuple[Troubled, Controller]:
    """Three that have served for an hour in one pool, and another has become cheaper."""
    world, controller = serving(replace(spec, rebalance_cost=None))
    settle_in(world, spec)
    return world, controller


def settle_in(world: Troubled, spec: ServiceSpec) -> None:
    """The setting is deployed, an hour has passed, and prices are known by which all are too dear but one."""
    world.services.specs["demo"] = spec
    world.clock.advance(timing.MOVE_AFTER_S)
    (pool,) = {r.offering.pool for r in active(world) if r.offering}
    prices = dict.fromkeys(SPEC.pools, 0.95) | {pool: 1.0, cheap(world): 0.7}
    world.store.note_survey(Survey("demo", SPEC.asked, world.clock.now(), SPEC.pools, {}, prices))


def cheap(world: Troubled) -> Any:
    """The pool that is cheap: none that any replica is in."""
    used = {r.offering.pool for r in active(world) if r.offering}
    return next(pool for pool in reversed(SPEC.pools) if pool not in used)


def test_a_move_makes_before_it_breaks() -> None:
    """Only the cheap pool is asked, three serve at any moment, and the next one moves an hour later."""
    world, controller = moving_world()
    target = cheap(world)
    controller.tick("demo")
    (launch,) = world.fleet.launches
    assert (launch.pools, launch.count, launch.max_prices) == ((target,), 1, {})
    for _ in range(40):
        settle(world, controller, rounds=1)
        assert sum(r.stays for r in active(world)) >= 3
        assert len(active(world)) <= 4
    assert [r.id for r in active(world)] == [2, 3, 4], "one has moved, and an hour hasn't passed for the next"
    ended = next(r for r in world.store.history("demo", 9) if r.id == 1)
    assert ended.reason == "costs 1 USD an hour, and cheaper Spot at most 0.8"
    world.clock.advance(timing.MOVE_AFTER_S - 40 * timing.TICK_IN_TRANSITION_S)
    settle(world, controller, rounds=40)
    assert [r.id for r in active(world)] == [3, 4, 5]


def test_a_refused_move_is_given_up_for_an_hour_and_never_leads_to_on_demand() -> None:
    """A second later its row ends; nothing else is launched, and nobody is asked again for an hour."""
    world, controller = moving_world()
    dry(world, SPOT)
    controller.tick("demo")
    assert len(world.fleet.launches) == 1
    assert FALLBACK_DELAY_S in [delay_s for _, _, delay_s in world.ticker.scheduled]
    settle(world, controller, rounds=1)
    assert [r.id for r in active(world)] == [1, 2, 3]
    settle(world, controller, rounds=40)
    assert [launch.purchase_option for launch in world.fleet.launches] == [SPOT]
    world.clock.advance(timing.MOVE_AFTER_S)
    controller.tick("demo")
    assert len(world.fleet.launches) == 2


def test_a_move_that_was_throttled_is_given_up_too() -> None:
    """It isn't asked for again and again like what is missing."""
    world, controller = moving_world()
    world.refuse("fleet.launch", Throttled("slow down"))
    controller.tick("demo")
    settle(world, controller, rounds=10)
    assert ([r.id for r in active(world)], world.fleet.launches) == ([1, 2, 3], [])


def test_what_is_lost_in_the_middle_of_a_move_leaves_what_was_to_move() -> None:
    """The new one is warned, or ends, before it is ready: nothing is requested in its place."""
    for is_told in (True, False):
        world, controller = moving_world()
        controller.tick("demo")
        new = active(world)[-1]
        signals = [*warn(world, new), *reclaim(world, new)]
        if is_told:
            controller.handle(signals)
        assert counted(world) == ([1, 2, 3] if is_told else [1, 2, 3, 4])
        settle(world, controller, rounds=20)
        assert ([r.id for r in active(world)], len(world.fleet.launches)) == ([1, 2, 3], 1)
        (lost,) = world.store.history("demo", 1)
        assert (lost.id, lost.reason.endswith(NEEDLESS)) == (4, is_told)


def test_what_has_moved_and_is_lost_keeps_others_from_moving() -> None:
    """Its replacement knows of the move: no other follows it for the rest of the hour."""
    tried_at = NOW - seconds(1800)
    gone = a_replica(4, READY, since_s=1700, move_tried_at=tried_at)
    (replacement,) = (
        r
        for delta in changes.written(
            "demo", SPEC, rows_of(*MOVING[:2], gone), [steps.replace(gone, NOW, "gone", 1)]
        )
        for r in delta.creates
    )
    assert (replacement.move_tried_at, replacement.max_price) == (tried_at, None)


def test_a_move_that_never_gets_ready_is_no_failure_of_the_version() -> None:
    """Five in a row would stop all launches, and nothing that serves has failed."""
    world, controller = moving_world()
    controller.tick("demo")
    new = active(world)[-1]
    assert new.instance_id is not None
    world.fleet.enter(InstanceState.TERMINATED, [new.instance_id])
    settle(world, controller, rounds=20)
    assert [r.id for r in active(world)] == [1, 2, 3]
    assert rows(world).backoff == Backoff()
    assert next(r for r in world.store.history("demo", 1)).state is ReplicaState.FAILED


def test_another_loss_is_replaced_as_ever_in_the_middle_of_a_move() -> None:
    """At once and wherever there is Spot; what was to move stays until three others serve."""
    world, controller = moving_world()
    controller.tick("demo")
    lost = active(world)[1]
    controller.handle(warn(world, lost))
    assert len(world.fleet.launches[-1].pools) > 1
    controller.handle(reclaim(world, lost))
    for _ in range(40):
        settle(world, controller, rounds=1)
        assert sum(r.stays for r in active(world)) >= 2
    assert sum(r.stays for r in active(world)) == 3
    assert all(r.purchase_option is SPOT for r in active(world))


def test_pools_that_cannot_be_recalled_hold_nothing_up() -> None:
    """A tick does everything else, and fails in the end; a service without the setting asks only to count."""
    world, controller = moving_world()
    reclaim(world, active(world)[0])
    world.refuse("store.recall", Throttled("slow down"))
    with pytest.raises(Throttled):
        controller.tick("demo")
    assert [r.id for r in active(world)] == [2, 3, 4]
    settle(world, controller, rounds=40)
    world.calls.clear()
    world.services.specs["demo"] = demo_spec()
    controller.tick("demo")
    assert world.calls[-2:] == ["store.release", "store.recall"]
    assert world.calls.count("store.recall") == 1
