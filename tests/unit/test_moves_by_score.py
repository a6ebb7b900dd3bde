"""A replica leaves a zone whose score has fallen: never by one reading, and only for a clearly better one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.pools import (
    Cause,
    Cooldown,
    Offering,
    PoolMemory,
    PurchaseOption,
    Reading,
    Scope,
    Survey,
)
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.requirements import Requirements
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.placement.plan import plan
from spotrelay.plane.serving import moves, steps
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec
from tests.unit.cases import NOW, a_replica, an_instance, seen_of
from tests.unit.test_moves import FLEETS, three
from tests.unit.worlds import (
    Troubled,
    active,
    dry,
    reclaim,
    serving,
    settle,
    warn,
)

READY = ReplicaState.READY
SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND
SPEC = replace(demo_spec(), move_on_score=True)
A5, B5, A6, B6 = SPEC.pools
HOUR = seconds(3600)
REASON = "us-east-1a scores 2 for Spot, and another zone 5 or more"


def known(
    now: Mapping[str, int], *before: Mapping[str, int], every_s: float = 3600, **facts: Any
) -> PoolMemory:
    """Scores by the zones' letters: of the last survey, and of those before it, the newest first."""
    at = facts.pop("at", NOW)
    readings = [
        Reading(at - seconds(number * every_s), {f"us-east-1{zone}": score for zone, score in found.items()})
        for number, found in enumerate((now, *before))
    ]
    asked = facts.pop("asked", SPEC.asked)
    survey = Survey("demo", asked, at, SPEC.pools, scores=readings[0].scores, earlier=tuple(readings[1:]))
    return PoolMemory(survey=replace(survey, **facts))


FALLEN = {"a": 2, "b": 5}
"""All replicas are in the first of the two zones."""


def decide(*replicas: Replica, spec: ServiceSpec = SPEC, pools: PoolMemory | None = None) -> list[Step]:
    """What the stage decides about these replicas, three if none is named: instances run and are healthy."""
    fleet = replicas or three()
    seen = seen_of(
        *fleet,
        instances=[an_instance(r.id) for r in fleet if r.instance_id],
        health={r.id: TargetState.HEALTHY for r in fleet if r.state is READY},
        pools=pools or known(FALLEN, FALLEN),
    )
    return list(moves.decide(spec, seen, NOW))


def moved(actions: Collection[Step]) -> list[int]:
    """The IDs of the replicas that are to move by score."""
    return [a.replica.id for a in actions if a.name == "Replace" and a.creates[0].min_score is not None]


# Whether anything moves.


def test_one_leaves_a_zone_that_has_fallen() -> None:
    """The first of those in the worst zone; its replacement goes where the score is clearly better."""
    assert decide() == [steps.replace(a_replica(1, READY), NOW, REASON, 1, min_score=5)]


@pytest.mark.parametrize(
    ("now", "before", "moves_"),
    [
        ({"a": 2, "b": 5}, {"a": 2, "b": 5}, True),
        ({"a": 1, "b": 4}, {"a": 1, "b": 9}, True),
        ({"a": 2, "b": 5}, {"a": 3, "b": 9}, False),  # low in one reading
        ({"a": 3, "b": 9}, {"a": 2, "b": 9}, False),
        ({"a": 2, "b": 5}, {"a": 2, "b": 4}, False),  # clearly better in one reading
        ({"a": 2, "b": 4}, {"a": 2, "b": 9}, False),
        ({"a": 1, "b": 4}, {"a": 2, "b": 4}, False),  # by three in one reading, by two in the other
        ({"a": 2}, {"a": 2, "b": 9}, False),  # nobody knows
        ({"a": 2, "b": 9}, {"a": 2}, False),
        ({"b": 9}, {"a": 2, "b": 9}, False),
        ({"a": 2, "b": 9}, {"b": 9}, False),
    ],
)
def test_two_readings_must_agree(now: dict[str, int], before: dict[str, int], moves_: bool) -> None:
    """That the zone is low, and that another is better by three: a score is a snapshot."""
    assert bool(decide(pools=known(now, before))) == moves_


def test_one_reading_moves_nothing() -> None:
    """Neither alone, nor with another one of just before, such as a deployment's."""
    assert decide(pools=known(FALLEN)) == []
    assert decide(pools=known(FALLEN, FALLEN, FALLEN, every_s=600)) == []
    assert decide(pools=known(FALLEN, FALLEN, FALLEN, every_s=timing.SCORES_LAST_S / 2))


def test_a_reading_between_counts() -> None:
    """Low, high, low again: that isn't two in a row, however short the rise was."""
    assert decide(pools=known(FALLEN, {"a": 3, "b": 5}, FALLEN, every_s=1500)) == []


def test_without_the_setting_nothing_moves() -> None:
    """It is off by default, and `rebalance_cost` doesn't turn it on."""
    assert decide(spec=demo_spec()) == []
    assert decide(spec=replace(demo_spec(), rebalance_cost=0.2)) == []


def test_a_replica_has_been_ready_for_an_hour() -> None:
    """Like one that moves by price; and on-demand stays."""
    fresh = [a_replica(id_, READY, since_s=timing.MOVE_AFTER_S - 1) for id_ in (1, 2)]
    assert decide(*fresh, a_replica(3, READY))[0].replica.id == 3
    base = a_replica(3, READY, purchase_option=ON_DEMAND, offering=Offering(A5, ON_DEMAND))
    assert decide(*fresh, base, spec=replace(SPEC, base_on_demand=1)) == []


def test_the_worst_zone_is_left_first() -> None:
    """Not the first replica; and what is in a good zone stays."""
    spec = replace(SPEC, subnets={**SPEC.subnets, "subnet-c": "us-east-1c"})
    worst = a_replica(3, READY, offering=Offering(replace(A5, zone="us-east-1c"), SPOT))
    good = a_replica(1, READY, offering=Offering(B5, SPOT))
    scores = {"a": 2, "b": 9, "c": 1}
    pools = known(scores, scores, asked=spec.asked)
    (move,) = decide(good, a_replica(2, READY), worst, spec=spec, pools=pools)
    assert (move.replica.id, move.creates[0].min_score) == (3, 4)
    assert decide(good, replace(good, id=2), replace(good, id=3), pools=pools) == []


@pytest.mark.parametrize("what", FLEETS)
def test_nothing_moves_while_anything_else_goes_on(what: str) -> None:
    """The same as for a move by price: less than calm is no time to leave a zone."""
    assert decide(*FLEETS[what]) == []


def test_an_old_survey_says_nothing() -> None:
    """Two hours at most, and about what the service asks for now."""
    old = NOW - seconds(timing.SURVEY_OLD_S)
    assert decide(pools=known(FALLEN, FALLEN, at=old))
    assert decide(pools=known(FALLEN, FALLEN, at=old - seconds(1))) == []
    others = Requirements(instance_types=("g5.xlarge",))
    assert decide(pools=known(FALLEN, FALLEN, asked=others)) == []
    assert decide(pools=PoolMemory()) == []


def test_nothing_moves_to_where_anything_speaks_against_it() -> None:
    """What cools, or is above the cap, isn't better, whatever its zone scores."""
    until = NOW + seconds(1)
    cooling = tuple(
        Cooldown(Scope.of(Offering(p, SPOT)), Cause.LOSS, NOW, until, "warning") for p in (B5, B6)
    )
    assert decide(pools=replace(known(FALLEN, FALLEN), cooldowns=cooling)) == []
    assert decide(pools=replace(known(FALLEN, FALLEN), cooldowns=cooling[:1]))
    dear = known(
        FALLEN,
        FALLEN,
        on_demand_prices={"g5.xlarge": 1.0, "g6.xlarge": 1.0},
        spot_prices={B5: 0.7, B6: 0.7},
    )
    assert decide(spec=replace(SPEC, max_price_share=0.6), pools=dear) == []


def test_scores_come_before_prices() -> None:
    """One moves, though both settings would move one: where there is no capacity the price is no use."""
    spec = replace(SPEC, rebalance_cost=0.2)
    prices = {A5: 1.0, A6: 1.0, B5: 0.5, B6: 0.5}
    (move,) = decide(spec=spec, pools=known(FALLEN, FALLEN, spot_prices=prices))
    assert (move.creates[0].min_score, move.creates[0].max_price) == (5, None)
    (move,) = decide(spec=spec, pools=known({"a": 5, "b": 5}, spot_prices=prices))
    assert (move.creates[0].min_score, move.creates[0].max_price) == (None, 0.8)


# What is launched.


def test_only_better_zones_are_asked() -> None:
    """As scored for as long as counts, also where the launch is a last resort."""
    pools = known(FALLEN, FALLEN)
    (step,) = plan(SPEC, SPOT, pools, NOW, min_score=5, is_last_resort=True).steps
    assert set(step.pools) == {B5, B6}
    cooling = Cooldown(Scope.of(Offering(B5, SPOT)), Cause.LOSS, NOW, NOW + seconds(1), "warning")
    made = plan(SPEC, SPOT, replace(pools, cooldowns=(cooling,)), NOW, min_score=5, is_last_resort=True)
    assert [step.pools for step in made.steps] == [(B6,)]
    made = plan(SPEC, SPOT, known(FALLEN, {"a": 2, "b": 4}), NOW, min_score=5, is_last_resort=True)
    assert made.steps == ()
    assert made.left_out[B5] == "scored 4: no move to less than 5"
    unknown = plan(SPEC, SPOT, PoolMemory(), NOW, min_score=5)
    assert unknown.left_out[B5] == "has no lasting score: no move to less than 5"


# The whole way.


def falling_world(*readings: dict[str, int]) -> tuple[Troubled, Controller, str]:
    """Three that have served for an hour in one zone; then scores fall there, in so many hourly surveys."""
    world, controller = serving(demo_spec())
    world.services.specs["demo"] = SPEC
    world.clock.advance(timing.MOVE_AFTER_S)
    (zone,) = {r.offering.pool.zone for r in active(world) if r.offering}
    now = world.clock.now()
    own, other = ("a", "b") if zone == "us-east-1a" else ("b", "a")  # what fell is the replicas' zone
    found = known(*({own: one["a"], other: one["b"]} for one in readings), at=now).survey
    assert found
    world.store.note_survey(found)
    return world, controller, zone


def test_a_move_makes_before_it_breaks() -> None:
    """Three serve at any moment, the new one is in the other zone, and the next one moves an hour later."""
    world, controller, zone = falling_world(FALLEN, FALLEN)
    controller.tick("demo")
    (launch,) = world.fleet.launches
    assert (launch.count, {p.zone for p in launch.pools} & {zone}) == (1, set())
    for _ in range(40):
        settle(world, controller, rounds=1)
        assert sum(r.stays for r in active(world)) >= 3
        assert len(active(world)) <= 4
    assert [r.id for r in active(world)] == [2, 3, 4]
    ended = next(r for r in world.store.history("demo", 9) if r.id == 1)
    assert ended.reason == REASON.replace("us-east-1a", zone)
    world.clock.advance(timing.MOVE_AFTER_S - 40 * timing.TICK_IN_TRANSITION_S)
    settle(world, controller, rounds=40)
    assert [r.id for r in active(world)] == [3, 4, 5]


def test_one_reading_leads_to_no_launch() -> None:
    """However low it is, and for as long as nobody asks again."""
    world, controller, _ = falling_world({"a": 1, "b": 9})
    settle(world, controller, rounds=40)
    assert world.fleet.launches == []


# Low scores and launches.


@pytest.mark.parametrize("others_after_s", [[], [100.0, 250.0]])
def test_low_scores_alone_hold_spot_back_for_minutes_not_for_hours(others_after_s: list[float]) -> None:
    """Where only a zone with a low score has Spot, EC2 is asked for it there about every five minutes.

    However many wait for it, and however far apart their tries are.
    """
    world, controller = serving()
    low = {Offering(p, SPOT) for p in (A5, A6)}
    scores = {"us-east-1a": 1, "us-east-1b": 9}
    world.store.note_survey(
        Survey("demo", demo_spec().asked, world.clock.now(), demo_spec().pools, scores=scores)
    )
    dry(world, SPOT)
    lost, *others = active(world)
    controller.handle([*warn(world, lost), *reclaim(world, lost)])
    began, tries = world.clock.now(), []
    due = {began + seconds(after_s): other for after_s, other in zip(others_after_s, others, strict=False)}
    while world.clock.now() - began < 4 * HOUR:
        before = len(world.fleet.launches)
        for at in [at for at in due if at <= world.clock.now()]:
            other = due.pop(at)
            controller.handle([*warn(world, other), *reclaim(world, other)])
        settle(world, controller, rounds=1)
        if low & {Offering(p, r.purchase_option) for r in world.fleet.launches[before:] for p in r.pools}:
            tries.append(world.clock.now())
    gaps = [(later - sooner).total_seconds() for sooner, later in pairwise([began, *tries])]
    assert max(gaps) <= timing.RETRY_RESTING_S + timing.RETRY_MAX_S
    world.fleet.capacity.update(dict.fromkeys(low, 9))
    settle(world, controller, rounds=round(max(gaps) / timing.TICK_IN_TRANSITION_S) + 60)
    assert all(r.purchase_option is SPOT and r.serves for r in active(world))
