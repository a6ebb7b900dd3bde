"""What all pools together could hold, for the oracle and for who chooses with hindsight; and when they hold
nothing, for on-demand may run out then, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
