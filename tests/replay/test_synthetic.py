"""The market that is made up."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from statistics import correlation, mean

from lab.replay.synthetic import MOST, REGIONS, ZONES, generate
from lab.replay.traces import Trace

STEP_S = 600


def has_capacity(trace: Trace) -> dict[str, list[float]]:
    """By zone: 1.0 or 0.0 at each step."""
    steps = [at * STEP_S for at in range(int(trace.duration_s // STEP_S))]
    answer = {}
    for pool in trace.pools:
        times = [at for at, _ in pool.capacity]
        held = [pool.capacity[bisect_right(times, step) - 1][1] for step in steps]
        answer[pool.pool.zone] = [float(h > 0) for h in held]
    return answer


def test_a_seed_makes_one_market_and_another_seed_another() -> None:
    """Whoever quotes a figure can name the seed."""
    assert generate(7, days=2) == generate(7, days=2)
    assert generate(7, days=2).pools != generate(8, days=2).pools


def test_a_longer_market_begins_like_a_shorter_one() -> None:
    """More days are more of the same, not another draw."""
    short, long = generate(3, days=2), generate(3, days=5)
    for a, b in zip(short.pools, long.pools, strict=True):
        assert a.capacity == tuple((at, held) for at, held in b.capacity if at < short.duration_s)


def test_it_is_a_trace_like_any_other() -> None:
    """Nine pools; from 0.0, changes only, in order, before the end, within bounds; and it says what it is."""
    trace = generate(1, days=3)
    assert [p.pool.zone for p in trace.pools] == [region + zone for region in REGIONS for zone in ZONES]
    for pool in trace.pools:
        times = [at for at, _ in pool.capacity]
        levels = [held for _, held in pool.capacity]
        assert times[0] == 0.0
        assert times == sorted(set(times))
        assert times[-1] < trace.duration_s
        assert all(a != b for a, b in pairwise(levels))
        assert set(levels) <= set(range(MOST + 1))
    assert "no recording" in trace.notes[0]


def test_zones_of_a_region_fail_together_more_than_those_of_different_ones() -> None:
    """The correlation that the recordings have, over a long time: 0.2 to 0.6 within, 0 to 0.2 across."""
    zones = has_capacity(generate(0, days=120))
    pairs = [(a, b) for a in zones for b in zones if a < b]
    within = mean(correlation(zones[a], zones[b]) for a, b in pairs if a[:-1] == b[:-1])
    across = mean(correlation(zones[a], zones[b]) for a, b in pairs if a[:-1] != b[:-1])
    assert 0.2 < within < 0.6
    assert 0.0 < across < 0.2


def test_there_are_poor_zones_and_good_ones_and_hardly_ever_nothing() -> None:
    """Shares of time with capacity as in the recordings; nothing anywhere for a few percent at most."""
    zones = has_capacity(generate(0, days=120))
    shares = sorted(mean(held) for held in zones.values())
    assert 0.17 < shares[0] < 0.6
    assert 0.6 < shares[-1] < 0.95
    nothing = mean(float(not any(now)) for now in zip(*zones.values(), strict=True))
    assert 0.0 < nothing < 0.04
