"""Every EC2 instance type with an accelerator: what a service file's `resources` are matched against.

The data (`accelerators.json`) is AWS's own answer to DescribeInstanceTypes as the moto project publishes it
(Apache-2.0); `python -m spotrelay.catalog.refresh` renews it. It is part of the package so that nothing here
needs AWS or a network. Standard library only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from spotrelay.catalog.names import ALIASES, comparable

__all__ = ["InstanceType", "accelerator_names", "all_types", "find_accelerator", "find_type", "origin"]

DATA_FILE = "accelerators.json"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One instance type, as AWS describes it."""

    name: str
    accelerator: str
    """Our name of the GPU or chip; see `spotrelay.catalog.names`."""
    accelerator_count: int
    """Whole accelerators on one instance; 0 where the instance has only a share of one (g6f, gr6f)."""
    accelerator_memory_mib: int
    """Of one accelerator, or of the share."""
    manufacturer: str
    vcpus: int
    memory_mib: int
    arch: str
    """`x86_64` or `arm64`."""
    network: str
    """In AWS's words, such as `Up to 10 Gigabit`."""
    efa: bool
    """Has the Elastic Fabric Adapter."""
    nvme_gb: int
    """Local SSD, all disks together."""
    spot: bool
    """Sold as Spot at all."""
    bare_metal: bool

    @property
    def memory_gib(self) -> float:
        """Host memory."""
        return self.memory_mib / 1024

    @property
    def is_nvidia(self) -> bool:
        """Runs CUDA; other makes match a service only if it names them."""
        return self.manufacturer == "NVIDIA"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the data came from."""

    source: str
    date: str
    """The day it was taken over, ISO 8601."""
    licence: str


@cache
def _document() -> dict[str, object]:
    text = resources.files(__package__).joinpath(DATA_FILE).read_text(encoding="utf-8")
    document: dict[str, object] = json.loads(text)
    return document


@cache
def all_types() -> tuple[InstanceType, ...]:
    """Every type, sorted by accelerator, count, vCPU and name."""
    document = _document()
    columns, rows = document["columns"], document["types"]
    assert isinstance(columns, list)  # noqa: S101 - narrows a type; the data file is ours
    assert isinstance(rows, list)  # noqa: S101
    return tuple(InstanceType(**dict(zip(columns, row, strict=True))) for row in rows)


def origin() -> Origin:
    """Where the data came from, and when."""
    document = _document()
    return Origin(str(document["source"]), str(document["date"]), str(document["licence"]))


@cache
def _by_name() -> dict[str, InstanceType]:
    return {type_.name: type_ for type_ in all_types()}


def find_type(name: str) -> InstanceType | None:
    """The type of that name, or None where no type with an accelerator has it."""
    return _by_name().get(name)


@cache
def accelerator_names() -> tuple[str, ...]:
    """Our names of all accelerators, sorted."""
    return tuple(sorted({type_.accelerator for type_ in all_types()}))


@cache
def _accelerators() -> dict[str, str]:
    return {**ALIASES, **{comparable(name): name for name in accelerator_names()}}


def find_accelerator(name: str) -> str | None:
    """Our name for what somebody calls `name` (`A10g`, `RTXPRO6000`), or None where no type has it."""
    return _accelerators().get(comparable(name))
