"""Rows and outcomes that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab.benchmarks.figures import Figure, Row, Tell
from lab.benchmarks.running import Outcome

CALLS = Figure("calls", 10, "calls", "per batch", at_most=12, tolerance=0)
RATIO = Figure("ratio", 2.0, "x", at_most=2.5, tolerance=0.1)
RATE = Figure("rate", 5.0, "x", at_least=4, tolerance=0.1, higher_is_better=True)
WALL = Figure("wall", 0.25, "s")
"""Not guarded: a time."""


def silent(done: float, of: float, doing: str) -> None:
    """Shows nothing."""


def a_row(name: str = "made-up") -> Row:
    """A row that measures nothing."""

    def measure(_tell: Tell) -> Sequence[Figure]:
        return ()

    return Row(name, "A row", 1, measure)


def measured(*figures: Figure, row: str = "made-up", error: str = "", skipped: str = "") -> Outcome:
    """What came of a row."""
    return Outcome(a_row(row), 1.0, figures, error, skipped)


def valued(figure: Figure, value: float) -> Figure:
    """The figure with another value."""
    return replace(figure, value=value)
