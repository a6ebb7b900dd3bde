"""One seed, one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lab.sim import scenario
from lab.sim.course import play
from lab.sim.faults import Pair
from lab.sim.rules import Violation
from lab.sim.timeline import Timeline, describe
from lab.sim.world import Build, SimWorld, production


@dataclass(frozen=True, slots=True)
class SimResult:
    """The result of a run."""

    seed: int
    violation: Violation | None
    hits: Counter[Pair]
    """Faults injected."""
    calls: int
    """Calls of ports that were made."""
    overlaps: int
    """How often an invocation was overtaken within a call."""
    simulated_s: float
    timeline: Sequence[str] = ()
    """Each call."""
    story: Sequence[str] = ()
    """What happened, in sentences."""


def run(
    seed: int,
    *,
    replicas: int = 5,
    minutes: float | None = None,
    build: Build = production,
    trace: bool = False,
) -> SimResult:
    """Simulate what the seed says, for `minutes` of misfortune instead of the one or two that it draws.

    `trace` adds a timeline, and changes nothing else.
    """
    timeline = Timeline() if trace else None
    drawn = scenario.draw(seed, replicas, minutes)
    if timeline is not None:
        story = f"{drawn.faults_s / 60:.1f} minutes of faults, then they end, and all must come to rest"
        timeline.tell(0, story)
        timeline.lines += [f"{name}: {describe(getattr(drawn, name))}" for name in drawn.__slots__]
    world = SimWorld(drawn, timeline, build)
    play(world)
    violation = next(iter(world.checker.violations), None)
    if timeline is not None and violation is not None:
        timeline.lines.append(f"VIOLATION at {violation}")
        timeline.story.append(f"VIOLATION at {violation}")
    return SimResult(
        seed,
        violation,
        world.plan.hits,
        world.gate.calls,
        world.scheduler.switches,
        world.scheduler.now,
        timeline.lines if timeline else (),
        timeline.story if timeline else (),
    )
