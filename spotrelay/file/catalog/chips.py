"""What AWS's API doesn't tell of an accelerator: speed, precisions, links. Each value with its source.

The data is `chips.toml`. What isn't in it is unknown, never guessed. Standard library only.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib import resources
from typing import Any, Generic, TypeVar

DATA = "chips.toml"

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value was read."""

    url: str
    date: date
    """The day on which it was checked."""
    says: str
    """What it says there, in its own figures."""


@dataclass(frozen=True, slots=True)
class Fact(Generic[V]):
    """A value with its source."""

    value: V
    source: Source


@dataclass(frozen=True, slots=True)
class Chip:
    """One accelerator. None, and a precision that is missing, means that nobody could confirm a value."""

    name: str
    """Ours; see `spotrelay.plane.core.accelerators`."""
    architecture: Fact[str]
    compute_capability: Fact[str] | None = None
    """NVIDIA's number of what its programs can do."""
    precisions: Fact[tuple[str, ...]] | None = None
    """What the matrix units compute in."""
    bandwidth_gb_s: Fact[float] | None = None
    """Of its memory, GB/s."""
    nvlink_gb_s: Fact[float] | None = None
    """To the other accelerators of the instance, both directions together, GB/s; 0: there is no NVLink."""
    nvswitch: Fact[bool] | None = None
    """Whether each reaches each other one at that rate."""
    memory_gib: Fact[float] | None = None
    """Where AWS's API is wrong."""
    tflops: Mapping[str, Fact[float]] = field(default_factory=dict)
    """Precision → dense TFLOP/s, of integers TOP/s."""

    def computes_in(self, precision: str) -> bool:
        """Whether its matrix units are known to."""
        return self.precisions is not None and precision in self.precisions.value

    def rate(self, precision: str) -> float | None:
        """Dense TFLOP/s; None where unknown."""
        known = self.tflops.get(precision)
        return known.value if known else None

    @property
    def bandwidth(self) -> float | None:
        """GB/s; None where unknown."""
        return self.bandwidth_gb_s.value if self.bandwidth_gb_s else None

    @property
    def nvlink(self) -> float | None:
        """GB/s, 0 without one; None where unknown."""
        return self.nvlink_gb_s.value if self.nvlink_gb_s else None


def document() -> dict[str, Any]:
    """The data file as it stands."""
    return tomllib.loads(resources.files(__package__).joinpath(DATA).read_text("utf-8"))


@cache
def all_chips() -> Mapping[str, Chip]:
    """Every accelerator by our name."""
    told = document()
    sources = {key: Source(**values) for key, values in told["sources"].items()}

    def fact(pair: list[Any]) -> Fact[Any]:
        value, key = pair
        return Fact(tuple(value) if isinstance(value, list) else value, sources[key])

    chips = {}
    for name, values in told["chips"].items():
        facts = {key: fact(pair) for key, pair in values.items() if key != "tflops"}
        shared = {key: fact(pair) for key, pair in told["architectures"][facts["architecture"].value].items()}
        rates = {precision: fact(pair) for precision, pair in values.get("tflops", {}).items()}
        chips[name] = Chip(name=name, **shared, **facts, tflops=rates)
    return chips
