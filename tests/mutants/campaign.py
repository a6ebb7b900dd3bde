"""Tries many mutants, and adds up who was caught by whom."""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.mutants import children, trial
from tests.mutants.children import Job
from tests.mutants.mutant import Mutant, unchanged
from tests.mutants.sites import modules
from tests.mutants.trial import SPEND_S, Seeds, Stage

EQUIVALENT = Path(__file__).with_name("equivalent.toml")


class ObjectionError(Exception):
    """A stage objects to the code as it is, so that what it says about mutants means nothing."""


@dataclass(slots=True)
class Verdict:
    """What the stages said about a mutant; a stage that it didn't come to isn't there."""

    mutant: Mutant
    said: dict[Stage, str | None] = field(default_factory=dict)
    spent_s: float = 0.0

    @property
    def is_caught(self) -> bool:
        """Whether any stage noticed it."""
        return any(said is not None for said in self.said.values())


@dataclass(frozen=True, slots=True)
class Score:
    """How many of some mutants were caught."""

    mutants: int
    by_simulation: int
    caught: int

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> Score:
        """Add them up."""
        seen = sum(v.said.get(Stage.SIMULATION) is not None for v in verdicts)
        return cls(len(verdicts), seen, sum(v.is_caught for v in verdicts))

    @property
    def simulation_percent(self) -> float:
        """Caught by the simulation alone."""
        return 100 * self.by_simulation / self.mutants if self.mutants else 100.0

    @property
    def percent(self) -> float:
        """Caught by the simulation, or by a unit or contract test."""
        return 100 * self.caught / self.mutants if self.mutants else 100.0


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a campaign."""

    verdicts: Sequence[Verdict]
    equivalent: Mapping[str, str]
    """By ID, those that are known to change nothing, and why."""

    @property
    def counted(self) -> list[Verdict]:
        """All but the equivalent ones."""
        return [v for v in self.verdicts if v.mutant.id not in self.equivalent]

    @property
    def survivors(self) -> list[Verdict]:
        """Those that nothing noticed."""
        return [v for v in self.counted if not v.is_caught]

    @property
    def refuted(self) -> list[Verdict]:
        """Those that were called equivalent and are caught."""
        return [v for v in self.verdicts if v.mutant.id in self.equivalent and v.is_caught]


def known_equivalent() -> dict[str, str]:
    """The mutants that are known to change nothing: ID → why."""
    reasons: dict[str, str] = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return reasons


def campaign(
    mutants: Sequence[Mutant],
    stages: Sequence[Stage],
    *,
    seeds: Seeds = trial.SEEDS,
    every_stage: bool = False,
    known: Mapping[str, Verdict] | None = None,
    processes: int = 1,
    progress: Callable[[Sequence[Verdict]], None] = lambda _: None,
) -> list[Verdict]:
    """Try each mutant by one stage after the other until one notices it, or by `every_stage`.

    Of `known` ones (by ID) the verdict counts. `progress` hears about once a second of those that are done.

    Raises:
        ObjectionError: a stage objects to the code without a mistake.
    """
    # One that fewer stages were asked about is no verdict of `every_stage`.
    known = {i: v for i, v in (known or {}).items() if not every_stage or len(v.said) == len(stages)}
    verdicts = {m.id: known.get(m.id) or Verdict(m) for m in mutants}
    done = [verdict for id_, verdict in verdicts.items() if id_ in known]
    control = unchanged(modules()[0])
    jobs = deque(_job(control, stage, seeds) for stage in stages)
    jobs.extend(_job(m, stages[0], seeds) for m in mutants if m.id not in known)
    for ended in children.run(jobs, processes, lambda: progress(done)):
        mutant, stage = ended.key
        if mutant is control:
            if ended.answer is not None:
                raise ObjectionError(f"{stage} objects to the code as it is: {ended.answer}")
            continue
        verdict = verdicts[mutant.id]
        verdict.said[stage] = ended.answer
        verdict.spent_s += ended.spent_s
        following = stages[len(verdict.said) :]
        if following and (every_stage or ended.answer is None):
            jobs.appendleft(_job(mutant, following[0], seeds))
        else:
            done.append(verdict)
    return list(verdicts.values())


def _job(mutant: Mutant, stage: Stage, seeds: Seeds) -> Job[tuple[Mutant, Stage]]:
    if stage is Stage.SIMULATION:
        return Job((mutant, stage), partial(trial.simulated, mutant, seeds), SPEND_S[stage])
    return Job((mutant, stage), partial(trial.tested, mutant), SPEND_S[stage])
