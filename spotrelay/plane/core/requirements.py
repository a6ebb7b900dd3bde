"""What a service file asks of an instance, and which instance types satisfy it.

The one definition: at synth `spotrelay.file` holds it against the catalog, to tell the user what a file
amounts to; at run time the survey holds it against what EC2 describes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from spotrelay.plane.core.instance_types import InstanceType

GENERAL = re.compile(r"[cmr]([6-9]|[1-9]\d)[ai]")
"""Families that do where no accelerator is asked for: compute, general purpose and memory, on Intel and AMD,
of the last generations. Not their relatives: burstable and `flex` types don't always give all of their vCPUs,
and local disks and faster networks only cost more. Whoever wants one of those names it."""

MOST_ACCELERATORS = 16
"""On one instance: no type has more."""

GIB_PER_VCPU = 4
"""Without an accelerator and without an amount of memory: SkyServe's rule."""

MOST_TIMES = 2
"""How much larger than the smallest that will do a type without an accelerator may be. Spot usually costs
half of on-demand or less: twice the size then costs no more than the smallest does on-demand. There are a
dozen types of each size, so nothing is gained by more."""

GIB_LIKE_A_VCPU = 10
"""So much memory costs as much as one vCPU, by on-demand prices of c, m and r types (us-east-1, 2026). The
size of a type is its vCPUs, and its GiB divided by this."""


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

    def times(self, number: int) -> Amount:
        """So many times as much."""
        return Amount(self.value * number, self.at_least)

    def accepts(self, offered: float) -> bool:
        """Whether what an instance type offers will do."""
        return offered >= self.value if self.at_least else offered == self.value

    def __str__(self) -> str:
        return f"{self.value}+" if self.at_least else str(self.value)


@dataclass(frozen=True, slots=True)
class Accelerators:
    """So many accelerators of one kind on each instance: `L4:1`."""

    name: str
    """Our name of it; see `spotrelay.plane.core.accelerators`."""
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
    else, with `accelerator_memory_gb` alone, those with one NVIDIA GPU of that size; else, with `cpus` or
    `memory_gib` alone, those of the `GENERAL` families. Or they are those of the `alternatives`.
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
    alternatives: tuple[Requirements, ...] = ()
    """What satisfies any of these will do, the preferred one first. Each says all that it asks, but for
    `arch` and `use_spot`, which are above. So are all their `zones` where each names some; `regions`
    likewise."""

    @property
    def choices(self) -> tuple[Requirements, ...]:
        """The alternatives; this alone where there are none."""
        each = (replace(one, arch=self.arch, use_spot=self.use_spot) for one in self.alternatives)
        return tuple(each) or (self,)

    def shared(self) -> Requirements:
        """The same, but that an instance may have what several replicas ask for, and hosts as many."""
        each = (
            replace(
                choice,
                accelerators=tuple(replace(one, count=count) for one in choice.accelerators),
                cpus=choice.cpus and choice.cpus.times(count),
                memory_gib=choice.memory_gib and choice.memory_gib.times(count),
            )
            for choice in self.choices
            for count in range(1, MOST_ACCELERATORS + 1)
        )
        return replace(self, accelerators=(), cpus=None, memory_gib=None, alternatives=tuple(each))

    def within(self, region: str) -> Requirements:
        """The same without alternatives that are for other regions only."""
        there = tuple(one for one in self.alternatives if one.allows_region(region) and one._has_zone(region))
        if not there:
            return self
        zones = tuple(zone for zone in self.zones if zone[:-1] == region)
        return replace(self, alternatives=there, zones=zones)

    def _has_zone(self, region: str) -> bool:
        return not self.zones or any(zone[:-1] == region for zone in self.zones)

    @property
    def is_plain(self) -> bool:
        """Whether types without an accelerator are asked for, by their size alone."""
        by_name = self.instance_types or self.accelerators or self.accelerator_memory_gb
        return not by_name and bool(self.cpus or self.memory_gib)

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
            "alternatives": [one.to_dict() for one in self.alternatives],
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
        if any(one.get("alternatives") for one in values.get("alternatives", ())):
            raise ValueError("alternatives of alternatives")

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
            alternatives=tuple(cls.from_dict(one) for one in values.get("alternatives", ())),
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
    """The requirement, as a field of the service file's `resources`; empty where the file doesn't say it."""
    reason: str


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The answer: types to launch, types left out."""

    types: tuple[InstanceType, ...]
    excluded: tuple[Exclusion, ...]


def find(wanted: Requirements, described: Iterable[InstanceType]) -> Eligibility:
    """Every described type that satisfies all requirements, however the descriptions are ordered.

    In the order of the alternatives; within one in the order of `instance_types` where there is one,
    otherwise by accelerators in the order in which they are wanted, small before large. What one alternative
    takes isn't excluded by the others.
    """
    described = tuple(described)
    candidates = [(choice, _candidates(choice, described)) for choice in wanted.choices]
    arch = wanted.arch or arch_of(type_ for _, types in candidates for type_ in types)
    eligible: dict[str, InstanceType] = {}
    excluded: dict[str, Exclusion] = {}
    for choice, types in candidates:
        fitting = []
        for type_ in types:
            if exclusion := _exclusion(type_, choice, arch):
                excluded.setdefault(type_.name, exclusion)
            else:
                fitting.append(type_)
        smallest = min(fitting, key=_size, default=None) if choice.is_plain else None
        for type_ in fitting:
            if smallest and _size(type_) > MOST_TIMES * _size(smallest):
                reason = f"more than {MOST_TIMES} times as large as {smallest.name}"
                excluded.setdefault(type_.name, Exclusion(type_, "", reason))
            else:
                eligible.setdefault(type_.name, type_)
    left_out = tuple(exclusion for name, exclusion in excluded.items() if name not in eligible)
    return Eligibility(tuple(eligible.values()), left_out)


def arch_of(candidates: Iterable[InstanceType]) -> str:
    """One image can't serve two processor architectures: x86_64, unless every candidate is arm64."""
    archs = {type_.arch for type_ in candidates}
    return "arm64" if archs == {"arm64"} else "x86_64"


def _candidates(wanted: Requirements, described: Iterable[InstanceType]) -> list[InstanceType]:
    by_name = {type_.name: type_ for type_ in described}
    if wanted.instance_types:
        return [by_name[name] for name in wanted.instance_types if name in by_name]
    types = by_name.values()
    if wanted.accelerators:
        kinds = [[type_ for type_ in types if these.are_on(type_)] for these in wanted.accelerators]
        return [type_ for kind in kinds for type_ in sorted(kind, key=_small_first)]
    if wanted.accelerator_memory_gb:
        single = (type_ for type_ in types if type_.is_nvidia and type_.accelerator_count == 1)
        return sorted(single, key=_small_first)
    if wanted.is_plain:
        general = (type_ for type_ in types if _is_general(type_, wanted.arch or "x86_64"))
        return sorted(general, key=lambda type_: (_size(type_), type_.name))
    return []


def _is_general(type_: InstanceType, arch: str) -> bool:
    is_general = GENERAL.fullmatch(type_.family) is not None
    return is_general and type_.arch == arch and not (type_.accelerator or type_.bare_metal)


def _size(type_: InstanceType) -> float:
    return type_.vcpus + type_.memory_gib / GIB_LIKE_A_VCPU


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
    if wanted.is_plain and not wanted.memory_gib and type_.memory_gib < GIB_PER_VCPU * type_.vcpus:
        return Exclusion(type_, "", f"less than {GIB_PER_VCPU} GiB per vCPU")
    if wanted.use_spot and not type_.spot:
        return Exclusion(type_, "use_spot", "not sold as Spot")
    return None
