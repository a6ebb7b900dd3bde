"""What all pools together could hold and what that costs, for the oracle and for who chooses with hindsight;
and when they hold nothing, for on-demand may run out then, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.replay.settings import ReplaySettings
    from lab.replay.traces import PoolTrace, Trace


def usable_share(pools: Iterable[PoolTrace], replicas: int, start: float, end: float) -> float:
    """Share of `replicas` that the pools together could hold, averaged from `start` to `end`."""
    usable = sum(
        min(replicas, held) * (min(until, end) - max(since, start))
        for since, until, held in _together(pools, end)
        if until > start
    )
    return usable / (replicas * (end - start))


def least_price(pools: Sequence[PoolTrace], replicas: int, start: float, end: float) -> float:
    """What the usable share costs if it is in the cheapest pools at each instant, in mean Spot prices."""
    paid = sum(
        price * (min(until, end) - max(since, start))
        for since, until, price in _cheapest(pools, replicas, end)
        if until > start
    )
    return paid / (replicas * (end - start))


def dry_spells(trace: Trace, settings: ReplaySettings) -> list[tuple[float, float]]:
    """From when until when on-demand can't be had: a share `on_demand_dry` of the spells without any Spot.

    A spell is dry as a whole or not at all, from the warnings on that announce it: what EC2 takes back then,
    others have asked for. A spell that is dry at one share is dry at every larger one.
    """
    chance = Random(f"{settings.seed} which spell is dry")  # noqa: S311 - to be repeated
    return [
        (begin - settings.warning_s, end)
        for begin, end, held in _together(trace.pools, trace.duration_s)
        if held == 0 and chance.random() < settings.on_demand_dry
    ]


def _cheapest(pools: Sequence[PoolTrace], replicas: int, end: float) -> Iterator[tuple[float, float, float]]:
    """Spans in which nothing changes, up to `end`, and what up to `replicas` instances cost in each."""
    held = [0.0] * len(pools)
    prices = [0.0] * len(pools)
    changes = [(at, n, held, float(value)) for n, pool in enumerate(pools) for at, value in pool.capacity]
    changes += [(at, n, prices, value) for n, pool in enumerate(pools) for at, value in pool.prices]
    moments = [
        (at, list(same))
        for at, same in groupby(sorted(changes, key=itemgetter(0)), itemgetter(0))
        if at < end
    ]
    untils = [*(at for at, _ in moments[1:]), end]
    for (since, same), until in zip(moments, untils, strict=True):
        for _, n, kind, value in same:
            kind[n] = value
        cost, missing = 0.0, float(replicas)
        for price, room in sorted(zip(prices, held, strict=True)):
            cost += price * min(room, missing)
            missing -= min(room, missing)
        yield since, until, cost


def _together(pools: Iterable[PoolTrace], end: float) -> Iterator[tuple[float, float, int]]:
    """Spans in which nothing changes, up to `end`, and the instances that all pools hold in each."""
    changes: dict[float, int] = {}
    for pool in pools:
        before = 0
        for at, held in pool.capacity:
            changes[at] = changes.get(at, 0) + held - before
            before = held
    moments = sorted(at for at in changes if at < end)
    held = 0
    for since, until in zip(moments, [*moments[1:], end], strict=True):
        held += changes[since]
        yield since, until, held
