"""What a Spot instance costs in each pool of a recording: recorded at another time, or made up.

Recordings of capacity have no prices, and no dates. So recorded prices are of another time, and neither kind
knows that a pool which runs dry may have been the cheap one: both are models.

Prices are relative to their mean over all pools of the recording and all of its time, because costs are
relative to on-demand, which is `od_price_ratio` times that mean.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

from lab.replay.readers.recording import TraceError
from lab.replay.readers.spot_prices import PriceHistory
from lab.replay.traces import Trace
from lab.replay.wording import span
from spotrelay.plane.core.pools import CapacityPool

MADE_UP = "made-up"

SPREAD = 3.0
"""The dearest pool costs at most so many times the cheapest, as the zones and types of one GPU do on EC2."""

STEP_S = 6 * 3600.0
"""How long a price stands. Real ones have moved a few times a day since AWS smoothed them in 2017."""

STEP = 0.03
"""A step's standard deviation, as a share of the price."""

PULL = 0.05
"""A step takes back this share of the distance to the pool's own level. With `STEP` that keeps a price within
some 10 % of its level, for days above it and for days below: as much as a V100's moved in early 2020."""

Steps = Sequence[tuple[float, float]]
"""Second since the recording's start, and the price from then on."""


def made_up(trace: Trace, seed: int) -> Trace:
    """Prices that nobody paid: each pool has a level of its own, and strays slowly around it."""
    usd = {p.pool: _walk(Random(f"{seed}:{p.pool}:price"), trace.duration_s) for p in trace.pools}  # noqa: S311
    return _priced(trace, usd, f"{MADE_UP}:{seed}", f"made up (seed {seed})")


def _walk(rng: Random, end_s: float) -> list[tuple[float, float]]:
    widest = math.log(SPREAD)
    level = rng.uniform(0, widest)
    strays = rng.gauss(0, STEP / math.sqrt(2 * PULL))  # the start is no special moment
    steps, at = [], 0.0
    following = rng.uniform(0, STEP_S)  # pools don't change their prices together
    while at < end_s:
        steps.append((at, math.exp(min(max(level + strays, 0), widest))))
        strays += rng.gauss(0, STEP) - PULL * strays
        at, following = following, following + STEP_S
    return steps


def recorded(trace: Trace, histories: Sequence[PriceHistory]) -> Trace:
    """Prices of another time: since all that are used are known, for as long as the recording lasts.

    A pool of the recording gets the prices of its instance type. If the histories are all of one type, they
    are everybody's: recordings name accelerators rather than types. It gets those of its zone; a zone without
    any borrows another's: one of its own region if there is one, and the one that is used least so far.

    Raises:
        TraceError: no prices for a pool's type, or for less time than the recording lasts.
    """
    given = _assigned(trace, histories)
    begin = max(history.points[0][0] for history in given.values())
    end = max(history.points[-1][0] for history in given.values())
    known_s = max(0.0, (end - begin).total_seconds())
    if known_s < trace.duration_s:
        raise TraceError(
            f"prices: all pools have one for {span(known_s)}, from {begin:%Y-%m-%d %H:%M} on, and "
            f"{trace.name} lasts {span(trace.duration_s)}: give answers over as long a time, or a shorter "
            "recording"
        )
    usd = {}
    for pool, history in given.items():
        points = [((time - begin).total_seconds(), price) for time, price in history.points]
        before = bisect_right(points, (0.0, math.inf))
        later = [(at, price) for at, price in points[before:] if at < trace.duration_s]
        usd[pool] = [(0.0, points[before - 1][1]), *later]
    types = sorted({history.pool.instance_type for history in given.values()})
    words = f"those of {' and '.join(types)} from {begin:%Y-%m-%d} on, of another time than this capacity"
    borrowed = [f"{p.zone} with {h.pool.zone}'s" for p, h in given.items() if h.pool.zone != p.zone]
    if borrowed:
        words += f"; {', '.join(dict.fromkeys(borrowed))}"
    return _priced(trace, usd, "recorded", words)


def _assigned(trace: Trace, histories: Sequence[PriceHistory]) -> dict[CapacityPool, PriceHistory]:
    types = sorted({history.pool.instance_type for history in histories})
    used: Counter[CapacityPool] = Counter()
    given: dict[CapacityPool, PriceHistory] = {}
    zones = {history.pool.zone for history in histories}
    regions = {history.pool.region for history in histories}
    # Those with prices of their own zone or region first: then it is known what is left to borrow.
    for pool in sorted(
        (p.pool for p in trace.pools),
        key=lambda pool: (pool.zone not in zones, pool.region not in regions, pool),
    ):
        fitting = [h for h in histories if h.pool.instance_type == pool.instance_type]
        if not fitting and len(types) > 1:
            raise TraceError(
                f"prices: {trace.name} has {pool}, and the answers are of {', '.join(types)}: give those of "
                "one type, which then are every pool's"
            )
        given[pool] = min(
            fitting or histories,
            key=lambda h: (h.pool.zone != pool.zone, h.pool.region != pool.region, used[h.pool], h.pool),
        )
        used[given[pool].pool] += 1
    return given


def _priced(trace: Trace, usd: Mapping[CapacityPool, Steps], kind: str, words: str) -> Trace:
    means = {pool: _mean(steps, trace.duration_s) for pool, steps in usd.items()}
    mean = sum(means.values()) / len(means)
    apart = max(means.values()) / min(means.values())
    note = f"Spot prices are a model: {words}; pools are up to {apart:.2f} times apart"
    pools = (
        replace(p, prices=tuple((at, price / mean) for at, price in _changes(usd[p.pool])))
        for p in trace.pools
    )
    return replace(trace, pools=tuple(pools), notes=(*trace.notes, note), prices=kind)


def _mean(steps: Steps, end_s: float) -> float:
    untils = [*(at for at, _ in steps[1:]), end_s]
    return sum(price * (until - at) for (at, price), until in zip(steps, untils, strict=True)) / end_s


def _changes(steps: Steps) -> Steps:
    return [steps[0], *(step for before, step in pairwise(steps) if step[1] != before[1])]
