"""Replays random days of a recording, as SkyServe's evaluation did, to compare the baselines with what it
published.

    .venv/bin/python scripts/replay_windows.py TRACES_DIR [WINDOWS]

Prints each policy's mean availability and cost over the windows, and how far a mean of ten windows, which is
what was published, may be off: two standard errors. docs/replay.md has the outcome beside the published
figures.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean, stdev

from lab.replay.baselines import BASELINES
from lab.replay.run import run
from lab.replay.settings import ReplaySettings
from lab.replay.traces import PoolTrace, Trace, load

WINDOW_S = 86_400.0
PUBLISHED_WINDOWS = 10
REPLICAS = 3


def window(trace: Trace, start: float) -> Trace:
    """A day of the trace, as a trace of its own."""

    def cut(pool: PoolTrace) -> PoolTrace:
        at_start = [held for at, held in pool.capacity if at <= start][-1]
        later = [(at - start, held) for at, held in pool.capacity if start < at < start + WINDOW_S]
        return replace(pool, capacity=((0.0, at_start), *later))

    return replace(trace, pools=tuple(map(cut, trace.pools)), duration_s=WINDOW_S)


def main(folder: str, windows: str = "200") -> None:
    """Replay and print."""
    trace = load(Path(folder), REPLICAS)
    chance = Random(0)  # noqa: S311 - to be repeated
    starts = [chance.uniform(0, trace.duration_s - WINDOW_S) for _ in range(int(windows))]
    for policy in ("optimal", *BASELINES):
        results = [
            run(window(trace, start), policy, ReplaySettings(replicas=REPLICAS, seed=seed))
            for seed, start in enumerate(starts)
        ]
        columns = [[100 * r.availability for r in results], [100 * r.cost for r in results]]
        print(
            f"{policy:18}",
            " / ".join(
                f"{mean(column):6.2f} ± {2 * stdev(column) / sqrt(PUBLISHED_WINDOWS):4.1f}"
                for column in columns
            ),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
