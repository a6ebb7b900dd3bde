"""Many seeds, on several processors."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from lab.sim.faults import PAIRS, Pair
from lab.sim.run import run

CHUNK = 100
"""Seeds that a process runs before it reports: half a second's worth."""

FEW = 200
"""Seeds not worth a second process."""

GARBAGE_AFTER = 100_000
"""New objects before a garbage collection: runs make few cycles, and collecting takes a tenth of the time."""


@dataclass(slots=True)
class Summary:
    """The results of some seeds."""

    seeds: int = 0
    processes: int = 1
    elapsed_s: float = 0.0
    calls: int = 0
    """Calls of ports."""
    overlaps: int = 0
    """How often an invocation was overtaken within a call."""
    simulated_s: float = 0.0
    hits: Counter[Pair] = field(default_factory=Counter)
    """Faults injected."""
    violations: list[tuple[int, str]] = field(default_factory=list)
    """Seed, and the violation."""

    @property
    def never_hit(self) -> list[Pair]:
        """Pairs of call and fault that were never tried."""
        return [pair for pair in PAIRS if not self.hits[pair]]

    @property
    def per_core(self) -> float:
        """Runs per second and processor."""
        return self.seeds / self.elapsed_s / self.processes if self.elapsed_s else 0.0

    def add(self, other: Summary) -> None:
        """Add the results of other seeds."""
        self.seeds += other.seeds
        self.calls += other.calls
        self.overlaps += other.overlaps
        self.simulated_s += other.simulated_s
        self.hits.update(other.hits)
        self.violations = sorted([*self.violations, *other.violations])


def campaign(
    seeds: range,
    replicas: int,
    *,
    minutes: float | None = None,
    processes: int | None = None,
    progress: Callable[[Summary], None] = lambda _: None,
) -> Summary:
    """Run all seeds, see `run`; `progress` gets the results so far."""
    began = time.monotonic()
    if processes is None:
        processes = (os.cpu_count() or 1) if len(seeds) > FEW else 1
    total = Summary(processes=processes)
    for part in _parts(seeds, replicas, minutes, processes):
        total.add(part)
        total.elapsed_s = time.monotonic() - began
        progress(total)
    return total


def _parts(seeds: range, replicas: int, minutes: float | None, processes: int) -> Iterator[Summary]:
    size = CHUNK if minutes is None else max(round(CHUNK / minutes), 1)
    chunks = [seeds[start : start + size] for start in range(0, len(seeds), size)]
    if processes == 1:
        yield from (_run(chunk, replicas, minutes) for chunk in chunks)
        return
    with ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(_run, chunk, replicas, minutes) for chunk in chunks]):
            yield done.result()


def _run(seeds: range, replicas: int, minutes: float | None) -> Summary:
    """One after the other, in this process."""
    usual = gc.get_threshold()
    gc.set_threshold(GARBAGE_AFTER)
    try:
        summary = Summary(len(seeds))
        for seed in seeds:
            result = run(seed, replicas=replicas, minutes=minutes)
            summary.calls += result.calls
            summary.overlaps += result.overlaps
            summary.simulated_s += result.simulated_s
            summary.hits.update(result.hits)
            if result.violation is not None:
                summary.violations.append((seed, str(result.violation)))
    finally:
        gc.set_threshold(*usual)
    return summary
