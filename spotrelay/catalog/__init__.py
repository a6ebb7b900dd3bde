"""EC2's instance types: what a service file's `resources` are matched against.

All that have an accelerator (`accelerators.json`), and those without one that a service may run on or name
(`processors.json`). The data is AWS's own answer to DescribeInstanceTypes as the moto project publishes it
(Apache-2.0); `python -m spotrelay.catalog.refresh` renews it. It is part of the package so that nothing here
needs AWS or a network. Standard library only, and for synth only: functions ask EC2 itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from spotrelay.core.accelerators import ALIASES, comparable
from spotrelay.core.instance_types import InstanceType

__all__ = ["InstanceType", "accelerator_names", "all_types", "find_accelerator", "find_type", "origin"]

ACCELERATED, PLAIN = "accelerators.json", "processors.json"
"""The data files: with an accelerator, one line for each type; without, one for each family."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the data came from."""

    source: str
    date: str
    """The day it was taken over, ISO 8601."""
    licence: str


def _document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(resources.files(__package__).joinpath(name).read_text("utf-8"))
    return document


@cache
def all_types() -> tuple[InstanceType, ...]:
    """Every type: by accelerator, count, vCPU and name; those without one last, by family and size."""
    document = _document(ACCELERATED)
    accelerated = (
        InstanceType(**dict(zip(document["columns"], row, strict=True))) for row in document["types"]
    )
    return (*accelerated, *_plain_types())


def _plain_types() -> Iterator[InstanceType]:
    for family, arch, sizes in _document(PLAIN)["types"]:
        for size, (vcpus, memory_mib) in sizes.items():
            yield InstanceType(
                name=f"{family}.{size}",
                accelerator="",
                accelerator_count=0,
                accelerator_memory_mib=0,
                manufacturer="",
                vcpus=vcpus,
                memory_mib=memory_mib,
                arch=arch,
                spot=True,
                bare_metal=False,
            )


def origin() -> Origin:
    """Where the data came from, and when."""
    document = _document(ACCELERATED)
    return Origin(document["source"], document["date"], document["licence"])


@cache
def _by_name() -> dict[str, InstanceType]:
    return {type_.name: type_ for type_ in all_types()}


def find_type(name: str) -> InstanceType | None:
    """The type of that name, or None where the catalog has none."""
    return _by_name().get(name)


@cache
def accelerator_names() -> tuple[str, ...]:
    """Our names of all accelerators, sorted."""
    return tuple(sorted({type_.accelerator for type_ in all_types()} - {""}))


@cache
def _accelerators() -> dict[str, str]:
    return {**ALIASES, **{comparable(name): name for name in accelerator_names()}}


def find_accelerator(name: str) -> str | None:
    """Our name for what somebody calls `name` (`A10g`, `RTXPRO6000`), or None where no type has it."""
    return _accelerators().get(comparable(name))
