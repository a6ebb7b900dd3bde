"""Instances that host several replicas, drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

SHARE = 0.25
"""The share of runs with shared instances, of those with neither standbys nor moves."""

MOST = 4
"""Replicas that an instance hosts, at most."""

NONE: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Sharing:
    """How many replicas the instances of a run's services host."""

    slots: tuple[Mapping[str, int], ...] = (NONE,)
    """By instance type, as in the document; what versions have, in turn."""

    def slots_of(self, version: int) -> Mapping[str, int]:
        """What a version has."""
        return self.slots[(version - 1) % len(self.slots)]

    @property
    def has_any(self) -> bool:
        """Whether any version shares instances."""
        return any(self.slots)


def draw(seed: int, types: tuple[str, ...]) -> Sharing:
    """A seed's, from a generator of its own: the rest of the run doesn't depend on it."""
    random = Random(f"{seed}-slots")  # noqa: S311 - to be repeated, not to be unpredictable
    if random.random() >= SHARE:
        return Sharing()
    shared = random.choice((types, types, types[:1], types[1:]))
    first = {type_: random.randint(2, MOST) for type_ in shared}
    later = {type_: random.randint(2, MOST) for type_ in shared}
    return Sharing(random.choice(((first,), (first,), (first, NONE), (first, later))))
