"""Every EC2 instance type with an accelerator: what a service file's `resources` are matched against.

The data (`accelerators.json`) is AWS's own answer to DescribeInstanceTypes as the moto project publishes it
(Apache-2.0); `python -m spotrelay.catalog.refresh` renews it. It is part of the package so that nothing here
needs AWS or a network. Standard library only, and for synth only: functions ask EC2 itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from spotrelay.core.accelerators import ALIASES, comparable
from spotrelay.core.instance_types import InstanceType

__all__ = ["InstanceType", "accelerator_names", "all_types", "find_accelerator", "find_type", "origin"]

DATA_FILE = "accelerators.json"


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
