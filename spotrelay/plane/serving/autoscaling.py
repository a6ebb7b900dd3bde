"""How many replicas the load asks for, and when their number follows it.

It is SkyServe's rule: a number that differs from the present one counts once it has done so for the delay.
What isn't known holds: no replica goes because nobody could measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil

from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Rows, ScaleRequest
from spotrelay.plane.core.scaling import LOAD_KNOWN_S, Load, Needed, OngoingTotal, Scaling
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving.observation import counted

ROUNDING = 1e-9
"""A sum of hundreds of requests over 60 s comes out this much too high: no reason for one more replica."""

SILENCE_MIN = 5
"""At rest, CloudWatch is asked in every fifth minute whether it knows of a minute without requests:
`spotrelay status` tells of a load that has been unknown for ten."""


def needed(scaling: Scaling, before: ScaleRequest, rows: Rows, now: datetime) -> Needed:
    """What has to be known of the requests. What is decided is the same as if all were known.

    A request finds no replica only while none is registered. One that has served for as long as requests
    count says that there were none of those; unless somebody else deregistered it meanwhile. A service that
    went to sleep has no others.

    That there were no requests is of interest where a replica could go, where more replicas wait for their
    delay to be over, and where it is on record that the load isn't known. See `is_open`, too.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: see `Scaling.bounds`.
    """
    if not scaling.counts_requests:
        return Needed(routed=False, unserved=False, silence=False)
    replicas = rows.replicas.values()
    was_served = any(r.serves and now - r.since >= seconds(LOAD_KNOWN_S) for r in replicas)
    is_asleep = before.replicas == 0 and not any(ReplicaState.READY in r.entered for r in replicas)
    is_moving = before.rising_since is not None or before.unknown_since is not None
    return Needed(
        routed=not is_asleep,
        unserved=not was_served,
        silence=before.replicas > scaling.bounds(now).least or is_moving or now.minute % SILENCE_MIN == 0,
    )


def is_open(before: ScaleRequest, decided: ScaleRequest, load: Load) -> bool:
    """Whether it is to be decided once more, with `Needed.silence`.

    Requests of some minutes ago ask for more, and perhaps there have been none since.
    """
    return load.is_silence_presumed and decided != before


def decide(
    scaling: Scaling, before: ScaleRequest, load: Load, serving: Sequence[str], now: datetime
) -> ScaleRequest:
    """The number that counts from now on, and since when the load has been asking for another.

    `before` is what was decided last, `serving` has the instance type of each replica that serves, in the
    order in which they stay.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: see `Scaling.bounds`.
    """
    asked = [*_asked_for(scaling, load, serving)]
    measured = replace(load, is_rate_partial=load.is_rate_partial and not load.is_silence_presumed)
    is_unknown = serving and None in _asked_for(scaling, measured, serving)
    unknown_since = (before.unknown_since or now) if is_unknown else None
    return replace(_decided(scaling, before, asked, now), unknown_since=unknown_since)


def _decided(
    scaling: Scaling, before: ScaleRequest, asked: Sequence[int | None], now: datetime
) -> ScaleRequest:
    bounds = scaling.bounds(now)
    held = replace(before, replicas=bounds.clip(before.replicas))
    known = [number for number in asked if number is not None]
    wanted = bounds.clip(max(known, default=0))
    if wanted > held.replicas:
        since = before.rising_since or now
        is_due = held.replicas == 0 or now - since >= seconds(scaling.upscale_delay_s)
        return ScaleRequest(wanted, None) if is_due else ScaleRequest(held.replicas, None, rising_since=since)
    if len(known) < len(asked):
        # Perhaps more are needed: what waits to go starts to wait anew, what waits to come goes on waiting.
        return replace(held, falling_since=None)
    if wanted < held.replicas:
        since = before.falling_since or now
        is_due = now - since >= seconds(scaling.downscale_delay_s)
        return (
            ScaleRequest(wanted, None) if is_due else ScaleRequest(held.replicas, None, falling_since=since)
        )
    return ScaleRequest(held.replicas, None)


def with_ongoing(load: Load, total: OngoingTotal | None, now: datetime) -> Load:
    """The load with the requests that the replicas told, unless that was too long ago."""
    if total is None or now - total.at > seconds(LOAD_KNOWN_S):
        return load
    return replace(load, ongoing=total.requests, is_ongoing_partial=total.unknown > 0)


def begun(spec: ServiceSpec, rows: Rows) -> ScaleRequest:
    """What counts before anything was decided, or if that got lost.

    As many as are there, or as the file begins with if that is more: the load may need what is there.
    """
    there = sum(not r.is_fallback for r in counted(rows)) - spec.overprovision
    return ScaleRequest(max(spec.replicas, there), None)


def serving_types(spec: ServiceSpec, scaling: Scaling, rows: Rows) -> list[str]:
    """The instance type of each replica that serves, as they stay: the on-demand base, then the strongest."""
    types = {r.id: r.offering.pool.instance_type for r in rows.replicas.values() if r.serves and r.offering}
    ids = sorted(types, key=lambda id_: -scaling.qps(types[id_]))
    steady = [i for i in ids if rows.replicas[i].purchase_option.fallback is None]
    base = [i for i in steady if not rows.replicas[i].is_fallback][: spec.base_on_demand]
    return [types[i] for i in (*base, *(i for i in ids if i not in base))]


def _asked_for(scaling: Scaling, load: Load, serving: Sequence[str]) -> Iterator[int | None]:
    """What each target asks for; None: its load isn't known."""
    if scaling.counts_requests:
        rate, target = load.requests_per_s, scaling.target_qps_per_replica
        if rate is None:
            yield None
        elif target is not None:
            yield _by_rate(rate, [scaling.qps(type_) for type_ in serving], target)
        else:
            # What else is measured is of replicas: where there are none, requests must wake the first.
            yield int(rate > 0)
        if load.is_rate_partial:
            yield None
    if metric := scaling.metric:
        if metric.is_total or not serving:
            yield _divided(load.metric, metric.target) if metric.is_total else None
        else:
            yield _divided(None if load.metric is None else load.metric * len(serving), metric.target)
    if ongoing := scaling.ongoing:
        # Those of nobody say nothing of the requests to come.
        yield _divided(load.ongoing, ongoing.target) if serving else None
        if load.is_ongoing_partial:
            yield None


def _divided(value: float | None, by: float) -> int | None:
    return None if value is None else ceil(value / by - ROUNDING)


def _by_rate(rate: float, serving: Iterable[float], usual: float) -> int:
    """As many as have the rate: first those that serve, as they stay; others are taken for weak."""
    left, number = rate, 0
    for qps in serving:
        if left <= ROUNDING:
            break
        left, number = left - qps, number + 1
    return number + max(ceil(left / usual - ROUNDING), 0)
