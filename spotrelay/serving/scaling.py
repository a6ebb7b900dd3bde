"""How many replicas the load asks for, and when their number follows it.

It is SkyServe's rule: a number that differs from the present one counts once it has done so for the delay.
What isn't known holds: no replica goes because nobody could measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil

from spotrelay.core.desired import ScaleRequest
from spotrelay.core.rows import Rows
from spotrelay.core.scaling import Load, OngoingTotal, Scaling
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.serving.observation import counted

ROUNDING = 1e-9
"""A sum of hundreds of requests over 60 s comes out this much too high: no reason for one more replica."""

ONGOING_KNOWN_S = 300
"""What replicas told longer ago is as good as unknown, as it is of what the load balancer counts. They are
asked once a minute."""


def decide(
    scaling: Scaling, before: ScaleRequest, load: Load, serving: Sequence[str], now: datetime
) -> ScaleRequest:
    """The number that counts from now on, and since when the load has been asking for another.

    `before` is what was decided last, `serving` has the instance type of each replica that serves.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: see `Scaling.bounds`.
    """
    asked = [*_asked_for(scaling, load, serving)]
    unknown_since = (before.unknown_since or now) if serving and None in asked else None
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
    if total is None or now - total.at > seconds(ONGOING_KNOWN_S):
        return load
    return replace(load, ongoing=total.requests, is_ongoing_partial=total.unknown > 0)


def begun(spec: ServiceSpec, rows: Rows) -> ScaleRequest:
    """What counts before anything was decided, or if that got lost.

    As many as are there, or as the file begins with if that is more: the load may need what is there.
    """
    there = sum(not r.is_fallback for r in counted(rows)) - spec.overprovision
    return ScaleRequest(max(spec.replicas, there), None)


def serving_types(rows: Rows) -> list[str]:
    """The instance type of each replica that serves."""
    return [r.offering.pool.instance_type for r in rows.replicas.values() if r.serves and r.offering]


def _asked_for(scaling: Scaling, load: Load, serving: Sequence[str]) -> Iterator[int | None]:
    """What each target asks for; None: its load isn't known."""
    if scaling.target_qps_per_replica is not None:
        rate = load.requests_per_s
        yield None if rate is None else _by_rate(scaling, rate, serving, scaling.target_qps_per_replica)
        if load.is_rate_partial:
            yield None
    elif scaling.counts_requests:
        # What else is measured is measured of replicas: where there are none, requests must wake the first.
        yield None if load.requests_per_s is None else int(load.requests_per_s > 0)
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


def _by_rate(scaling: Scaling, rate: float, serving: Iterable[str], usual: float) -> int:
    """As many as have the rate: first those that serve, the strongest first; others are taken for weak."""
    by_type = scaling.qps_by_instance_type
    if not by_type:
        return ceil(rate / usual - ROUNDING)
    left, number = rate, 0
    for qps in sorted((by_type.get(type_, usual) for type_ in serving), reverse=True):
        if left <= ROUNDING:
            break
        left, number = left - qps, number + 1
    return number + max(ceil(left / usual - ROUNDING), 0)
