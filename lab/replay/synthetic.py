"""Makes a Spot market up, so that a replay needs no data: seeded, and with zones that fail together.

A pool's capacity is the outcome of three things:

- *The zone's own weather.* It has Spot capacity or none, in turns. Most periods are short and a few are long
  (hyperexponential: usually of one mean, now and then of another ten times as long), as in the recordings.
- *Regional droughts.* Now and then capacity becomes scarce in a whole region: most of its zones lose theirs
  within minutes of one another, and get it back one by one. Some droughts reach other regions, too. This is
  what makes spreading over zones weaker than it looks.
- *How much there is* while there is some: a birth-and-death walk between one instance and `MOST`, which tends
  to be full. So a pool also takes one of several instances, and doesn't always have room for all.

The numbers are round ones after the V100 recordings of 2023 in github.com/skypilot-org/spot-traces: zones
with capacity for 17 to 90 % of the time, periods of half an hour to an hour in the median and of hours in
the mean, correlation of 0.2 to 0.6 between zones of a region and of 0 to 0.2 across regions, nothing
anywhere for one or two percent of the time. They are plausible, and nobody's forecast: judge a policy on
recordings of the pools that you mean to use.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from lab.replay.readers.recording import pool_in
from lab.replay.traces import PoolTrace, Trace
from lab.replay.wording import DAY_S

HOUR_S = 3600.0

REGIONS = ("us-east-1", "us-east-2", "us-west-2")
ZONES = ("a", "b", "c")
INSTANCE_TYPE = "gpu:1"

DAYS = 14.0
"""Long enough for several droughts in every region; all policies are through with it in seconds."""

MOST = 8
"""Instances that a pool holds at best: enough for some services, too few for a large one in a single zone."""

UP_S = (0.7 * HOUR_S, 2.0 * HOUR_S, 5.0 * HOUR_S)
"""A poor, a middling and a good zone's usual mean time with capacity: every region has one of each."""

DOWN_S = 0.5 * HOUR_S
"""A zone's usual mean time without."""

LONG_SHARE, LONG_FACTOR = 0.15, 10.0
"""Such a share of the periods has a mean so many times as long: the recordings' tails."""

CALM_S = 36 * HOUR_S
"""A region's mean time from one drought's end to the next drought's start."""

DROUGHT_S = 6 * HOUR_S
"""A drought's mean length."""

HIT_SHARE = 0.85
"""The chance of a zone of that region to be hit."""

SPREAD_SHARE = 0.2
"""The chance of another region to fall dry as well."""

LAG_S = 600.0
"""Mean time that a drought takes to reach a zone, and that a zone takes to recover from it."""

STEP_S = 1200.0
"""Mean time until a pool has one instance more or less."""

FILLING = 0.85
"""The chance that it is one more."""

Span = tuple[float, float]


def generate(seed: int = 0, days: float = DAYS) -> Trace:
    """A market of nine zones in three regions. A longer one of the same seed begins like a shorter one."""
    end_s = days * DAY_S
    droughts = {region: list(_droughts(seed, region, end_s)) for region in REGIONS}
    pools = []
    for region in REGIONS:
        order = _rng(seed, region, "order")
        up_means_s = sorted(UP_S, key=lambda _: order.random())
        for letter, up_s in zip(ZONES, up_means_s, strict=True):
            zone = region + letter
            dry = [*_own_weather(seed, zone, up_s, end_s), *_hits(seed, zone, droughts, end_s)]
            capacity = tuple(_capacity(_rng(seed, zone, "level"), _merged(dry), end_s))
            pools.append(PoolTrace(pool_in(zone, INSTANCE_TYPE), capacity))
    notes = (f"made up by the generator (seed {seed}), no recording",)
    return Trace(f"synthetic-{seed}", tuple(pools), end_s, notes)


def _rng(seed: int, *what: str) -> Random:
    """A source of chance for one purpose: what is drawn for one doesn't shift what another gets."""
    return Random(":".join((str(seed), *what)))  # noqa: S311  # a market, not a secret


def _exponential(rng: Random, mean_s: float) -> float:
    return rng.expovariate(1 / mean_s)


def _period(rng: Random, mean_s: float) -> float:
    """A period of a zone's own weather: seconds."""
    return _exponential(rng, mean_s * (LONG_FACTOR if rng.random() < LONG_SHARE else 1.0))


def _own_weather(seed: int, zone: str, up_s: float, end_s: float) -> Iterator[Span]:
    """When the zone has nothing for reasons of its own."""
    rng = _rng(seed, zone, "weather")
    at = 0.0
    if rng.random() < DOWN_S / (DOWN_S + up_s):  # the start is no special moment
        at = _period(rng, DOWN_S)
        yield 0.0, at
    while at < end_s:
        begin = at + _period(rng, up_s)
        at = begin + _period(rng, DOWN_S)
        yield begin, at


def _droughts(seed: int, region: str, end_s: float) -> Iterator[tuple[float, float, frozenset[str]]]:
    """Droughts that begin in this region: when, until when, and which regions they reach."""
    rng = _rng(seed, region, "droughts")
    at = 0.0
    while at < end_s:
        begin = at + _exponential(rng, CALM_S)
        at = begin + _exponential(rng, DROUGHT_S)
        spread = {other for other in REGIONS if rng.random() < SPREAD_SHARE}
        yield begin, at, frozenset(spread | {region})


def _hits(
    seed: int, zone: str, droughts: dict[str, list[tuple[float, float, frozenset[str]]]], end_s: float
) -> Iterator[Span]:
    """When droughts leave the zone without capacity."""
    for origin, all_of_it in droughts.items():
        rng = _rng(seed, zone, "droughts of", origin)
        for begin, end, regions in all_of_it:
            is_hit = rng.random() < HIT_SHARE
            first, last = begin + _exponential(rng, LAG_S), end + _exponential(rng, LAG_S)
            if zone[:-1] in regions and is_hit and first < min(last, end_s):
                yield first, last


def _merged(spans: list[Span]) -> list[Span]:
    """The same time in spans that don't touch, in order, at whole seconds."""
    merged: list[Span] = []
    for begin, end in sorted((float(round(begin)), float(round(end))) for begin, end in spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif begin < end:
            merged.append((begin, end))
    return merged


def _capacity(rng: Random, dry: list[Span], end_s: float) -> Iterator[tuple[float, int]]:
    """What the pool holds, from when on: nothing while it is dry, and a walk in between."""
    at = 0.0
    for begin, end in [*dry, (end_s, end_s)]:
        if at < min(begin, end_s):
            yield from _walk(rng, at, min(begin, end_s))
        if begin < end_s:
            yield begin, 0
        at = end


def _walk(rng: Random, at: float, until: float) -> Iterator[tuple[float, int]]:
    held = 1 + int(rng.random() * MOST)
    yield at, held
    while (at := float(round(at + 1 + _exponential(rng, STEP_S)))) < until:
        step = 1 if rng.random() < FILLING else -1
        if 1 <= held + step <= MOST:
            held += step
            yield at, held
