"""How much of a service the market could have carried: for the oracle, and for who chooses with hindsight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.replay.traces import PoolTrace


def usable_share(pools: Iterable[PoolTrace], replicas: int, start: float, end: float) -> float:
    """Share of `replicas` that the pools together could hold, averaged from `start` to `end`."""
    usable = sum(
        min(replicas, held) * (min(until, end) - max(since, start))
        for since, until, held in _together(pools, end)
        if until > start
    )
    return usable / (replicas * (end - start))


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
