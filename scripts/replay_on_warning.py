"""When a warned replica should leave the rotation: the replay with each answer, over several seeds.

    .venv/bin/python scripts/replay_on_warning.py DIR...

Prints docs/replay.md's tables, one per recording: for each `on_warning` the share of time with all replicas
available and with all in rotation, the seconds in 30 days with nobody in rotation, and the cost over the
optimal cost; means over the seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from lab.replay.result import Result
from lab.replay.run import PRODUCTION, run
from lab.replay.settings import ReplaySettings
from lab.replay.traces import load
from spotrelay.plane.core.spec import OnWarning

REPLICAS = 3

SEEDS = range(5)
"""Which of the equal pools is chosen decides whether all replicas are in one: a seed alone says little."""

CASES: Sequence[tuple[float, float]] = ((90, 30), (90, 60), (90, 90), (120, 30), (180, 30), (300, 30))
"""Cold start and drain, in seconds."""


def main(folders: list[str]) -> int:
    """Print the tables."""
    if not folders:
        print(__doc__)
        return 2
    for folder in folders:
        trace = load(Path(folder), REPLICAS)
        print(f"\n| {trace.name}: cold start, drain |" + "".join(f" `{when}` |" for when in OnWarning))
        print("|---|" + "---|" * len(OnWarning))
        for cold_start_s, drain_s in CASES:
            cells = []
            for when in OnWarning:
                settings = [
                    ReplaySettings(REPLICAS, cold_start_s, seed=seed, on_warning=when, drain_s=drain_s)
                    for seed in SEEDS
                ]
                cells.append(_cell([run(trace, PRODUCTION, one) for one in settings]))
            print(
                f"| {cold_start_s:g} s, {drain_s:g} s |" + "".join(f" {cell} |" for cell in cells), flush=True
            )
    return 0


def _cell(results: Sequence[Result]) -> str:
    return (
        f"{mean(r.availability for r in results):.3%}, {mean(r.in_rotation for r in results):.2%}, "
        f"{mean(r.zero_s_per_30d for r in results):,.0f} s, "
        f"{mean(r.cost / r.optimal_cost for r in results):.3f}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
