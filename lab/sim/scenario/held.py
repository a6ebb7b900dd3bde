"""Operators who override what is held back: whether a run has one, and whether it is about that record."""

from __future__ import annotations

from random import Random

from lab.sim.faults import OF_HELD, PAIRS, Pair

TARGETED = 0.05
"""The share of runs that are about the record of what is held back."""

SHARE = 0.2
"""The share of the other runs with an operator who overrides, beside those that draw that misfortune."""

_PAIRS = tuple(pair for pair in PAIRS if pair[0] in OF_HELD)


def target(seed: int) -> Pair | None:
    """The call and fault that a run is about, if that is of what is held back."""
    random = Random(f"{seed}-held")  # noqa: S311 - to be repeated
    return random.choice(_PAIRS) if random.random() < TARGETED else None


def looks(seed: int) -> bool:
    """Whether a run has an operator who overrides, whatever else it draws."""
    return Random(f"{seed}-operators").random() < SHARE  # noqa: S311 - to be repeated
