"""Which instance types a service may run on, and why not the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spotrelay import catalog
from spotrelay.catalog import InstanceType
from spotrelay.service.requirements import Accelerators, Amount

RECOMMENDED_TYPES = 10
"""AWS asks for at least ten types per Spot workload: with fewer, one dry pool is a large part of all."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an instance must have."""

    accelerators: tuple[Accelerators, ...]
    """Any of these; empty where the file only lists instance types."""
    instance_types: tuple[InstanceType, ...]
    """Only these, in this order; empty where the file leaves the choice to EC2."""
    cpus: Amount | None
    memory_gib: Amount | None
    use_spot: bool


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A type with a wanted accelerator that another requirement leaves out."""

    type: InstanceType
    field: str
    """The requirement, as a field of `resources`."""
    reason: str


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The answer: types to launch, types left out."""

    types: tuple[InstanceType, ...]
    excluded: tuple[Exclusion, ...]


def find(wanted: Wanted) -> Eligibility:
    """Every type that satisfies all requirements.

    In the file's order where it lists types; otherwise by the order of its accelerators, small before large.
    """
    candidates = wanted.instance_types or tuple(_with_accelerators(wanted.accelerators))
    arch = _arch(candidates)
    types, excluded = [], []
    for type_ in candidates:
        exclusion = _exclusion(type_, wanted, arch)
        if exclusion:
            excluded.append(exclusion)
        else:
            types.append(type_)
    return Eligibility(tuple(types), tuple(excluded))


def _with_accelerators(accelerators: Sequence[Accelerators]) -> Iterable[InstanceType]:
    for wanted in accelerators:
        for type_ in catalog.all_types():
            if has(type_, wanted):
                yield type_


def has(type_: InstanceType, wanted: Accelerators) -> bool:
    """Whether the type has these accelerators: that kind, and exactly that many.

    Exactly: one application owns the GPUs of its instance; those beyond its number would only cost money.
    """
    return type_.accelerator == wanted.name and type_.accelerator_count == wanted.count


def _arch(candidates: Iterable[InstanceType]) -> str:
    """One image can't serve two processor architectures: x86_64, unless every candidate is arm64."""
    archs = {type_.arch for type_ in candidates}
    return "arm64" if archs == {"arm64"} else "x86_64"


def _exclusion(type_: InstanceType, wanted: Wanted, arch: str) -> Exclusion | None:
    if type_.arch != arch:
        return Exclusion(type_, "accelerators", f"{type_.arch}, where the others are {arch}")
    if wanted.cpus and not wanted.cpus.accepts(type_.vcpus):
        return Exclusion(type_, "cpus", f"{type_.vcpus} vCPU")
    if wanted.memory_gib and not wanted.memory_gib.accepts(type_.memory_gib):
        return Exclusion(type_, "memory", f"{type_.memory_gib:g} GiB")
    if wanted.use_spot and not type_.spot:
        return Exclusion(type_, "use_spot", "not sold as Spot")
    return None


def why_none(wanted: Wanted, excluded: Sequence[Exclusion]) -> str:
    """Why no type is left: each requirement with the types that it leaves out."""
    values = {"cpus": wanted.cpus, "memory": wanted.memory_gib, "use_spot": "true", "accelerators": ""}
    reasons = []
    for field, value in values.items():
        left_out = [e for e in excluded if e.field == field]
        if left_out:
            reasons.append(f"{field} {value}".rstrip() + f" leaves none of {', '.join(grouped(left_out))}")
    wishes = ", ".join(str(a) for a in wanted.accelerators) or "instance_types"
    return f"no instance type satisfies {wishes} and the rest: {'; '.join(reasons)}. Ask for less."


def grouped(exclusions: Iterable[Exclusion]) -> list[str]:
    """The types left out, those with the same reason together: `g5.xlarge, g6.xlarge (4 vCPU)`."""
    by_reason: dict[str, list[str]] = {}
    for exclusion in exclusions:
        by_reason.setdefault(exclusion.reason, []).append(exclusion.type.name)
    return [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]


def how_to_widen(wanted: Wanted, found: Eligibility) -> str:
    """What would give the service more types to choose from, as one sentence."""
    if wanted.instance_types:
        return "List more in instance_types, or leave it out to take every type that has the accelerators."
    ways = []
    for field in ("cpus", "memory"):
        left_out = [e.type.name for e in found.excluded if e.field == field]
        if left_out:
            ways.append(f"a smaller {field} (it leaves out {', '.join(left_out)})")
    ways += _other_accelerators(wanted, found)
    return f"Wider with {', or with '.join(ways)}." if ways else "There are no more types of this kind."


def _other_accelerators(wanted: Wanted, found: Eligibility) -> list[str]:
    """Two accelerators that would add most, of those that hold whatever the wanted ones hold."""
    have = {Accelerators(type_.accelerator, type_.accelerator_count) for type_ in found.types}
    arch = _arch(found.types)
    fits_mib = min((type_.accelerator_memory_mib for type_ in found.types), default=0)
    counts = {a.count for a in wanted.accelerators}
    others = {
        Accelerators(type_.accelerator, type_.accelerator_count)
        for type_ in catalog.all_types()
        if type_.is_nvidia
        and type_.arch == arch
        and type_.accelerator_count in counts
        and type_.accelerator_memory_mib >= fits_mib
    }
    gains = {a: len(find(replace(wanted, accelerators=(a,))).types) for a in others - have}
    most = sorted((a for a in gains if gains[a]), key=lambda a: (-gains[a], str(a)))
    return [f"{a} ({gains[a]} more)" for a in most[:2]]
