"""Replicas that move to cheaper Spot: the replacement first, then the drain, one at a time.

A replica that moves serves, and would go on to. So everything else comes first, a move begins only where
nothing else is going on, and one that isn't launched at once is given up. From then on it is a replacement
like any other, see `supersede`; if what was to move is lost meanwhile, it comes in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from spotrelay.core import timing
from spotrelay.core.pools import CapacityPool, PurchaseOption
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.placement.plan import plan
from spotrelay.serving import rollout
from spotrelay.serving.actions import End, Replace
from spotrelay.serving.observation import Observation, cold_start


def give_up(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[End]:  # noqa: ARG001
    """End what was requested for a move and isn't being launched: no pool had room, or the brake holds it."""
    for replica in seen.known:
        is_waiting = replica.state is ReplicaState.REQUESTED and replica.launch_id not in seen.rows.intents
        if is_waiting and replica.moves_in(seen.rows):
            yield End(replica, "no cheaper Spot was to be had")


def decide(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Replace]:
    """Move the dearest replica for which Spot is so much cheaper elsewhere that it pays, if any."""
    if spec.rebalance_cost is None or not _is_calm(spec, seen, now):
        return
    prices = _prices(spec, seen, now)
    priced = [
        (prices[replica.offering.pool], replica)
        for replica in seen.rows.replicas.values()
        if replica.offering is not None
        and replica.offering.pool in prices
        and replica.purchase_option is PurchaseOption.SPOT
        # An adopted one may be on-demand where the service wants Spot.
        and replica.offering.purchase_option is PurchaseOption.SPOT
        and now - replica.since >= seconds(timing.MOVE_AFTER_S)
    ]
    for price, replica in sorted(priced, key=lambda each: (-each[0], each[1].id)):
        most = worth(spec, spec.rebalance_cost, replica, price)
        if plan(spec, PurchaseOption.SPOT, seen.pools, now, max_price=most).steps:
            reason = f"costs {price:g} USD an hour, and cheaper Spot at most {most:g}"
            yield Replace(replica, reason, rollout.proven(spec, seen.rows, replica), most)
            return


def worth(spec: ServiceSpec, share: float, replica: Replica, price: float) -> float:
    """The most that Spot may cost elsewhere, USD per hour, for a move to pay.

    That is less than the replica's own price by the share of it, and by so much that an hour of it pays for
    running double: for as long as the replica took to start, and the drain takes.
    """
    start = min(cold_start(replica), seconds(spec.initial_delay_s))
    double_s = start.total_seconds() + spec.drain_s + timing.DRAIN_SETTLE_S
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
        and not any(_was_just_tried(r, now) for r in replicas)
    )


def _was_just_tried(replica: Replica, now: datetime) -> bool:
    tried_at = replica.move_tried_at
    return tried_at is not None and now - tried_at < seconds(timing.MOVE_AFTER_S)


def _prices(spec: ServiceSpec, seen: Observation, now: datetime) -> dict[CapacityPool, float]:
    """What Spot costs by the last survey, USD per hour; nothing if that is old, or was asked for others."""
    survey = seen.pools.survey
    is_useful = survey is not None and survey.asked == spec.asked
    if survey is None or not is_useful or now - survey.at > seconds(timing.SURVEY_OLD_S):
        return {}
    return dict(survey.spot_prices)
