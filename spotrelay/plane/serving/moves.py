"""Replicas that move: to cheaper Spot, or out of zones where Spot is hardly to be had any more.

The replacement first, then the drain, one at a time.

A replica that moves serves, and would go on to. So everything else comes first, a move begins only where
nothing else is going on, and one that isn't launched at once is given up. From then on it is a replacement
like any other, see `supersede`; if what was to move is lost meanwhile, it comes in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain, islice

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.pools import CapacityPool, PriceKind, Survey
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.placement.plan import plan
from spotrelay.plane.serving import rollout, steps
from spotrelay.plane.serving.observation import Observation, cold_start
from spotrelay.plane.serving.steps import Step

NO_CHEAPER = "no cheaper Spot was to be had"

NO_BETTER = "no Spot was to be had in a zone that scores better"


def give_up(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:  # noqa: ARG001
    """End what was requested for a move and isn't being launched: no pool had room, or the brake holds it."""
    for replica in seen.known:
        is_waiting = replica.state is ReplicaState.REQUESTED and replica.launch_id not in seen.rows.intents
        if is_waiting and replica.moves_in(seen.rows):
            yield steps.end(replica, now, NO_CHEAPER if replica.max_price is not None else NO_BETTER)


def may_move(spec: ServiceSpec) -> bool:
    """Whether the service file lets replicas move at all."""
    return spec.move_on_score or spec.rebalance_cost is not None


def decide(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """Move one replica, if all else is well: by scores before prices, because capacity comes first."""
    if may_move(spec) and _is_calm(spec, seen, now):
        yield from islice(chain(_by_score(spec, seen, now), _by_price(spec, seen, now)), 1)


def _by_score(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """Move the replicas in the worst zones to where Spot has been clearly likelier for as long.

    A score is a snapshot, and no promise: a zone must have been low, and the other one better, in every
    survey of the time that counts.
    """
    survey = _survey(spec, seen, now) if spec.move_on_score else None
    if survey is None:
        return
    low = [
        (lasting[1], replica, pool)
        for replica, pool in _movable(seen, now)
        if (lasting := survey.lasting(pool.zone, timing.SCORES_LAST_S)) and lasting[1] <= timing.MOVE_SCORE
    ]
    for score, replica, pool in sorted(low, key=lambda each: (each[0], each[1].id)):
        least = score + timing.MOVE_SCORE_GAIN
        if plan(spec, replica.purchase_option, seen.pools, now, min_score=least).steps:
            reason = f"{pool.zone} scores {score} for Spot, and another zone {least} or more"
            version = rollout.proven(spec, seen.rows, replica)
            yield steps.replace(replica, now, reason, version, min_score=least)


def _by_price(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """Move the dearest replicas for which Spot is so much cheaper elsewhere that it pays."""
    survey = _survey(spec, seen, now)
    if survey is None or spec.rebalance_cost is None:
        return
    priced = [
        (survey.spot_prices[pool], replica)
        for replica, pool in _movable(seen, now)
        if pool in survey.spot_prices
    ]
    for price, replica in sorted(priced, key=lambda each: (-each[0], each[1].id)):
        most = worth(spec, spec.rebalance_cost, replica, price)
        if plan(spec, replica.purchase_option, seen.pools, now, max_price=most).steps:
            reason = f"costs {price:g} USD an hour, and cheaper Spot at most {most:g}"
            yield steps.replace(
                replica, now, reason, rollout.proven(spec, seen.rows, replica), max_price=most
            )


def worth(spec: ServiceSpec, share: float, replica: Replica, price: float) -> float:
    """The most that Spot may cost elsewhere, USD per hour, for a move to pay.

    That is less than the replica's own price by the share of it, and by so much that an hour of it pays for
    running double: for as long as the replica took to start, and the drain takes.
    """
    start = min(cold_start(replica), seconds(spec.initial_delay_s))
    double_s = start.total_seconds() + spec.longest_drain_s + timing.DRAIN_SETTLE_S
    # Of the price elsewhere p: (price - p) * pays within >= p * double.
    return round(price * min(1 - share, 1 / (1 + double_s / timing.MOVE_PAYS_WITHIN_S)), 6)


def _is_calm(spec: ServiceSpec, seen: Observation, now: datetime) -> bool:
    """Whether nothing else is going on: as many as wanted serve, each for good, and no stage had to act."""
    rows = seen.rows
    replicas = [r for r in rows.replicas.values() if not r.stands_by]
    return (
        seen.as_read is None
        and spec.surge > 0
        and not rows.intents
        and not rows.backoff.failures
        and len(replicas) == spec.replicas
        and all(r.stays and not r.is_fallback and not rollout.is_old(spec, r) for r in replicas)
        # Of what the load balancer doesn't know the last that was known holds. A move waits until it does.
        and all(seen.health_of(r) is TargetState.HEALTHY for r in replicas)
        and not any(_was_just_tried(r, now) for r in replicas)
    )


def _was_just_tried(replica: Replica, now: datetime) -> bool:
    tried_at = replica.move_tried_at
    return tried_at is not None and now - tried_at < seconds(timing.MOVE_AFTER_S)


def _movable(seen: Observation, now: datetime) -> Iterator[tuple[Replica, CapacityPool]]:
    """Replicas on Spot that have been ready for long enough, each with its pool."""
    for replica in seen.rows.replicas.values():
        if (
            replica.offering is not None
            and replica.purchase_option.is_scored
            and replica.purchase_option.price_kind is PriceKind.MARKET
            # An adopted one may be on-demand where the service wants Spot.
            and replica.offering.purchase_option is replica.purchase_option
            and now - replica.since >= seconds(timing.MOVE_AFTER_S)
        ):
            yield replica, replica.offering.pool


def _survey(spec: ServiceSpec, seen: Observation, now: datetime) -> Survey | None:
    """The last survey; None if it is old, or was asked for others."""
    survey = seen.pools.survey
    if survey is None or survey.asked != spec.asked:
        return None
    return survey if now - survey.at <= seconds(timing.SURVEY_OLD_S) else None
