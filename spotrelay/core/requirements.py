"""What a service file asks of an instance, and which instance types satisfy it.

The one definition: at synth `spotrelay.service` holds it against the catalog, to tell the user what a file
amounts to; at run time the survey holds it against what EC2 describes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from spotrelay.core.instance_types import InstanceType


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of something, exactly or at least: `8` or `8+`."""

    value: int
    at_least: bool

    @classmethod
    def parse(cls, text: str) -> Amount:
        """What `str` makes of an amount.

        Raises:
            ValueError: it is no whole number above 0, with or without a plus.
        """
        written = re.fullmatch(r"([1-9][0-9]{0,6})(\+?)", text)
        if written is None:
            raise ValueError(f"{text!r} is no amount")
        return cls(int(written[1]), at_least=bool(written[2]))

    def accepts(self, offered: float) -> bool:
        """Whether what an instance type offers will do."""
        return offered >= self.value if self.at_least else offered == self.value

    def __str__(self) -> str:
        return f"{self.value}+" if self.at_least else str(self.value)


@dataclass(frozen=True, slots=True)
class Accelerators:
    """So many accelerators of one kind on each instance: `L4:1`."""

    name: str
    """Our name of it; see `spotrelay.core.accelerators`."""
    count: int

    @classmethod
    def parse(cls, text: str) -> Accelerators:
        """What `str` makes of one.

        Raises:
            ValueError: it isn't that.
        """
        name, _, count = text.rpartition(":")
        return cls(name, int(count))

    def __str__(self) -> str:
        return f"{self.name}:{self.count}"

    def are_on(self, type_: InstanceType) -> bool:
        """Whether the type has these: that kind, and exactly that many.

        Exactly: one application owns the GPUs of its instance; those beyond its number would only cost money.
        """
        return type_.accelerator == self.name and type_.accelerator_count == self.count


@dataclass(frozen=True, slots=True)
class Requirements:
    """What an instance must have; what is left at its default is not asked for.

    Types come from `instance_types` where there are any; else they are those with one of the `accelerators`;
    else, with `accelerator_memory_gb` alone, those with one NVIDIA GPU of that size.
    """

    accelerators: tuple[Accelerators, ...] = ()
    """Any of these."""
    accelerator_memory_gb: Amount | None = None
    """Of one accelerator; see `InstanceType.accelerator_memory_gb`."""
    cpus: Amount | None = None
    memory_gib: Amount | None = None
    instance_types: tuple[str, ...] = ()
    """Only these, the preferred one first."""
    exclude: tuple[str, ...] = ()
    """None of these types (`g5.xlarge`) or families (`g4dn`)."""
    zones: tuple[str, ...] = ()
    """Only in these."""
    regions: tuple[str, ...] = ()
    """Only in these."""
    arch: str = ""
    """`x86_64` or `arm64`, the image's; empty: x86_64, unless every type with the accelerators is arm64."""
    use_spot: bool = True

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, without those that are as by default: a parameter takes 4 KB."""
        values = {
            "accelerators": [str(one) for one in self.accelerators],
            "accelerator_memory_gb": self.accelerator_memory_gb and str(self.accelerator_memory_gb),
            "cpus": self.cpus and str(self.cpus),
            "memory_gib": self.memory_gib and str(self.memory_gib),
            "instance_types": list(self.instance_types),
            "exclude": list(self.exclude),
            "zones": list(self.zones),
            "regions": list(self.regions),
            "arch": self.arch,
        }
        return {name: value for name, value in values.items() if value} | {"use_spot": self.use_spot}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Requirements:
        """What `to_dict` wrote.

        Raises:
            ValueError: a requirement that this version doesn't know, or can't read. Ignoring it would launch
                what the service file rules out.
        """
        if unknown := values.keys() - {field.name for field in fields(cls)}:
            raise ValueError(f"unknown requirements: {', '.join(sorted(unknown))}")

        def amount(name: str) -> Amount | None:
            return Amount.parse(values[name]) if name in values else None

        return cls(
            accelerators=tuple(Accelerators.parse(one) for one in values.get("accelerators", ())),
            accelerator_memory_gb=amount("accelerator_memory_gb"),
            cpus=amount("cpus"),
            memory_gib=amount("memory_gib"),
            instance_types=tuple(values.get("instance_types", ())),
            exclude=tuple(values.get("exclude", ())),
            zones=tuple(values.get("zones", ())),
            regions=tuple(values.get("regions", ())),
            arch=str(values.get("arch", "")),
            use_spot=bool(values.get("use_spot", True)),
        )

    def allows_zone(self, zone: str) -> bool:
        """Whether instances may be there."""
        return not self.zones or zone in self.zones

    def allows_region(self, region: str) -> bool:
        """Whether instances may be there."""
        return not self.regions or region in self.regions


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A type that was a candidate, and that a requirement leaves out."""

    type: InstanceType
    field: str
    """The requirement, as a field of the service file's `resources`."""
    reason: str


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The answer: types to launch, types left out."""

    types: tuple[InstanceType, ...]
    excluded: tuple[Exclusion, ...]


def find(wanted: Requirements, described: Iterable[InstanceType]) -> Eligibility:
    """Every described type that satisfies all requirements, however the descriptions are ordered.

    In the order of `instance_types` where there is one; otherwise by accelerators in the order in which they
    are wanted, small before large.
    """
    candidates = tuple(_candidates(wanted, described))
    arch = wanted.arch or arch_of(candidates)
    types, excluded = [], []
    for type_ in candidates:
        exclusion = _exclusion(type_, wanted, arch)
        if exclusion:
            excluded.append(exclusion)
        else:
            types.append(type_)
    return Eligibility(tuple(types), tuple(excluded))


def arch_of(candidates: Iterable[InstanceType]) -> str:
    """One image can't serve two processor architectures: x86_64, unless every candidate is arm64."""
    archs = {type_.arch for type_ in candidates}
    return "arm64" if archs == {"arm64"} else "x86_64"


def _candidates(wanted: Requirements, described: Iterable[InstanceType]) -> Iterable[InstanceType]:
    by_name = {type_.name: type_ for type_ in described}
    if wanted.instance_types:
        return [by_name[name] for name in wanted.instance_types if name in by_name]
    ordered = sorted(by_name.values(), key=_small_first)
    if wanted.accelerators:
        return [type_ for these in wanted.accelerators for type_ in ordered if these.are_on(type_)]
    if wanted.accelerator_memory_gb:
        return [type_ for type_ in ordered if type_.is_nvidia and type_.accelerator_count == 1]
    return []


def _small_first(type_: InstanceType) -> tuple[str, int, int, str]:
    return type_.accelerator, type_.accelerator_count, type_.vcpus, type_.name


def _exclusion(type_: InstanceType, wanted: Requirements, arch: str) -> Exclusion | None:
    if name := next((name for name in wanted.exclude if name in (type_.name, type_.family)), None):
        return Exclusion(type_, "exclude", f"excluded as {name}")
    if wanted.accelerators and not any(these.are_on(type_) for these in wanted.accelerators):
        has = f"{type_.accelerator}:{type_.accelerator_count}"
        return Exclusion(type_, "accelerators", has if type_.accelerator_count else "a share of one GPU")
    if type_.arch != arch:
        return Exclusion(type_, "accelerators", f"{type_.arch}, where the others are {arch}")
    size_gb = type_.accelerator_memory_gb
    if wanted.accelerator_memory_gb and not wanted.accelerator_memory_gb.accepts(size_gb):
        return Exclusion(type_, "accelerator_memory", f"{size_gb} GB")
    if wanted.cpus and not wanted.cpus.accepts(type_.vcpus):
        return Exclusion(type_, "cpus", f"{type_.vcpus} vCPU")
    if wanted.memory_gib and not wanted.memory_gib.accepts(type_.memory_gib):
        return Exclusion(type_, "memory", f"{type_.memory_gib:g} GiB")
    if wanted.use_spot and not type_.spot:
        return Exclusion(type_, "use_spot", "not sold as Spot")
    return None
