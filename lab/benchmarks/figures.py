"""What a row of the benchmark brings: figures, each with its target and with how far it may drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Figure:
    """One number.

    `at_most` or `at_least` is its target. A `tolerance` puts it under guard: `make bench-check` fails once it
    is worse than the baseline by more than this share of it. Only counts and ratios are guarded, because they
    are the same on every machine, or nearly.
    """

    name: str
    """Unique in its row."""
    value: float
    unit: str
    what: str = ""
    """One line, for whoever reads the table."""
    at_most: float | None = None
    at_least: float | None = None
    tolerance: float | None = None
    higher_is_better: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the target, if there is one, is reached."""
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    @property
    def target(self) -> str:
        """The target in words."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_least is not None else ""


class Tell(Protocol):
    """Shows how far a row is."""

    def __call__(self, done: float, of: float, doing: str) -> None:
        """`done` of `of`, and what is being done."""
        ...


class Skipped(Exception):  # noqa: N818 - it is no error
    """This machine can't measure the row; the text says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the benchmark, measured in a process of its own whose standard output goes nowhere."""

    name: str
    """What `make bench ROW=…` calls it."""
    title: str
    takes_s: float
    """Roughly, on two processors: the progress bar begins with it."""
    measure: Callable[[Tell], Sequence[Figure]]
    """A function of a module, so that another process finds it."""


REPEATS = 9
"""Runs of each contestant whose median counts; seven would do, two more cost little."""


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the pairs' ratios: what disturbs the machine for a while disturbs both of a pair."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))
