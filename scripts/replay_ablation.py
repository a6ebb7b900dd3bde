"""What each part of the placement policy is worth: the replay with one part taken away at a time.

    .venv/bin/python scripts/replay_ablation.py DIR...

Prints docs/placement.md's table: availability and cost over the optimal cost, per recording.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from lab.replay import production
from lab.replay.run import run
from lab.replay.settings import ReplaySettings
from lab.replay.traces import Trace, load
from spotrelay.plane.core import timing
from spotrelay.plane.core.pools import Cause, PoolMemory
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.placement import cooldowns
from spotrelay.plane.serving import strength

SETTINGS = ReplaySettings(cold_start_s=180.0)

Change = tuple[object, str, object]
"""Whose attribute, which, and what it is instead."""

_spec_of = production.spec_of


def _without_fallback(*what: object) -> ServiceSpec:
    return replace(_spec_of(*what), on_demand_fallback=False)  # type: ignore[arg-type]  # as it is called


def _loss_cools(first_s: float, longest_s: float) -> Change:
    lengths = cooldowns._LENGTHS
    changed = {**lengths, Cause.LOSS: type(lengths[Cause.LOSS])(first_s, longest_s)}
    return cooldowns, "_LENGTHS", changed


WITHOUT: Mapping[str, Sequence[Change]] = {
    "the policy as it is": (),
    "a fallback only for what was refused": ((strength, "_is_covered", lambda *_: True),),
    "a fallback with every warning": ((strength, "_is_covered", lambda *_: False),),
    "fallbacks go as soon as Spot is ready": ((timing, "STAY_MAX_S", 0.0),),
    "losses don't cool": (_loss_cools(0.001, 0.001),),
    "losses cool for 30 min, not doubled": (_loss_cools(1800.0, 1800.0),),
    "no pool memory at all": ((PoolMemory, "cooling", lambda *_: None),),
    "no on-demand": ((production, "spec_of", _without_fallback),),
}


@contextmanager
def changed(changes: Sequence[Change]) -> Iterator[None]:
    """The policy with something else in it."""
    before = [(target, name, getattr(target, name)) for target, name, _ in changes]
    for target, name, value in changes:
        setattr(target, name, value)
    try:
        yield
    finally:
        for target, name, value in before:
            setattr(target, name, value)


def main(folders: list[str]) -> int:
    """Print the table."""
    if not folders:
        print(__doc__)
        return 2
    traces: list[Trace] = [load(Path(folder), SETTINGS.replicas) for folder in folders]
    print("| |" + "".join(f" {t.name} |" for t in traces) + "\n|---|" + "---|" * len(traces))
    for name, changes in WITHOUT.items():
        cells = []
        for trace in traces:
            with changed(changes):
                result = run(trace, "spotrelay", SETTINGS)
            cells.append(
                f" {result.availability:.2%} / {result.cost / result.optimal_cost:.3f}"
                f" / {result.losses_per_day:.1f} |"
            )
        print(f"| {name} |" + "".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
