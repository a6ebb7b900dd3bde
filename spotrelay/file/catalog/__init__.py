"""EC2's instance types: what a service file's `resources` are matched against, and what advice chooses from.

All that have an accelerator (`accelerators.json`), where AWS offers those (`offerings.json`), and the types
without one that a service may run on or name (`processors.json`). The data is AWS's own answer to
DescribeInstanceTypes and DescribeInstanceTypeOfferings as the moto project publishes it (Apache-2.0);
`python -m spotrelay.file.catalog.refresh` renews it. What AWS's API doesn't tell of an accelerator is in
`chips.toml`. What types with one cost on-demand, in one region and on one day, is in `list_prices.json`. All
is part of the package so that nothing here needs AWS or a network. Standard library only, and for synth and
the operator only: functions ask EC2 itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from spotrelay.file.catalog.chips import Chip, all_chips
from spotrelay.file.catalog.hosts import COLUMNS as HOST_COLUMNS
from spotrelay.file.catalog.hosts import Host
from spotrelay.plane.core.accelerators import ALIASES, comparable
from spotrelay.plane.core.instance_types import InstanceType

__all__ = [
    "Chip",
    "Host",
    "InstanceType",
    "ListPrices",
    "accelerator_names",
    "all_chips",
    "all_types",
    "find_accelerator",
    "find_type",
    "host_of",
    "list_prices",
    "memory_bytes",
    "offered",
    "origin",
    "regions",
]

ACCELERATED, PLAIN, OFFERED = "accelerators.json", "processors.json", "offerings.json"
"""The data files: with an accelerator, one line for each type; without, one for each family; and where those
with an accelerator are offered, one line for each."""

PRICED = "list_prices.json"
"""What types with an accelerator cost on-demand."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the data came from."""

    source: str
    date: str
    """The day it was taken over, ISO 8601."""
    licence: str


@dataclass(frozen=True, slots=True)
class ListPrices:
    """What AWS asked for instances on one day in one region: on-demand, Linux, USD an hour."""

    region: str
    usd: Mapping[str, float]
    """By type; what isn't there is unknown."""
    origin: Origin


@cache
def _document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(resources.files(__package__).joinpath(name).read_text("utf-8"))
    return document


@cache
def all_types() -> tuple[InstanceType, ...]:
    """Every type: by accelerator, count, vCPU and name; those without one last, by family and size."""
    accelerated = (
        InstanceType(**{key: value for key, value in row.items() if key not in HOST_COLUMNS})
        for row in _accelerated_rows()
    )
    return (*accelerated, *_plain_types())


@cache
def _accelerated_rows() -> tuple[dict[str, Any], ...]:
    document = _document(ACCELERATED)
    return tuple(dict(zip(document["columns"], row, strict=True)) for row in document["types"])


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


@cache
def _hosts() -> dict[str, Host]:
    return {row["name"]: Host(**{key: row[key] for key in HOST_COLUMNS}) for row in _accelerated_rows()}


def host_of(name: str) -> Host:
    """What a type with an accelerator has beside it.

    Raises:
        KeyError: no such type.
    """
    return _hosts()[name]


def offered(name: str) -> Mapping[str, tuple[str, ...]]:
    """Region → IDs of the zones in which AWS offers a type with an accelerator. Nothing for others."""
    return {region: tuple(zones) for region, zones in _document(OFFERED)["types"].get(name, {}).items()}


@cache
def regions() -> tuple[str, ...]:
    """Every region that has a type with an accelerator, sorted."""
    return tuple(sorted({region for zones in _document(OFFERED)["types"].values() for region in zones}))


def memory_bytes(type_: InstanceType) -> int:
    """Of one accelerator of the type, or of the share of one."""
    chip = all_chips().get(type_.accelerator)
    if chip and chip.memory_gib:
        return int(chip.memory_gib.value * 1024**3)
    return type_.accelerator_memory_mib * 1024**2


def origin() -> Origin:
    """Where the data came from, and when."""
    document = _document(ACCELERATED)
    return Origin(document["source"], document["date"], document["licence"])


def list_prices() -> ListPrices:
    """The copy that is part of the package. Prices change: whoever shows them shows their date."""
    document = _document(PRICED)
    origin = Origin(document["source"], document["date"], document["licence"])
    return ListPrices(document["region"], document["usd_per_hour"], origin)


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
