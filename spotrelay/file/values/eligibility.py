"""What to tell a user about the instance types that a service may run on, and about the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spotrelay.file import catalog
from spotrelay.plane.core import requirements
from spotrelay.plane.core.pools import RECOMMENDED_TYPES
from spotrelay.plane.core.requirements import Accelerators, Eligibility, Exclusion, Requirements, arch_of

LEAST_POOLS = 10
"""Capacity pools (types times zones) below which losing one is a large part of all."""

USUAL_ZONES = 3
"""Zones of SpotRelay's own VPC, where none are named."""


MOST_NAMES = 8
"""Types that a message names; a GPU comes in six sizes or so, and processors in hundreds."""


def find(wanted: Requirements) -> Eligibility:
    """Every type of the catalog that satisfies all requirements; see `core.requirements.find`."""
    return requirements.find(wanted, catalog.all_types())


def reasons(wanted: Requirements) -> dict[str, tuple[str, ...]]:
    """What each eligible type satisfies, in the file's words: of several alternatives, every one."""
    found: dict[str, list[str]] = {}
    for choice in wanted.choices:
        place = f"in {', '.join(choice.zones or choice.regions)}" if wanted.alternatives else ""
        for type_ in find(choice).types:
            accelerators = next((str(a) for a in choice.accelerators if a.are_on(type_)), "")
            asked = {
                "accelerator_memory": choice.accelerator_memory_gb,
                "cpus": choice.cpus,
                "memory": choice.memory_gib,
            }
            parts = [
                "named in instance_types" if choice.instance_types else "",
                accelerators,
                *(f"{field} {amount}" for field, amount in asked.items() if amount),
                place if choice.zones or choice.regions else "",
            ]
            found.setdefault(type_.name, []).append(", ".join(part for part in parts if part))
    return {name: tuple(dict.fromkeys(texts)) for name, texts in found.items()}


def why_none(wanted: Requirements, excluded: Sequence[Exclusion]) -> str:
    """Why no type is left: each requirement with the types that it leaves out."""
    values = {
        "exclude": "",
        "accelerator_memory": wanted.accelerator_memory_gb,
        "cpus": wanted.cpus,
        "memory": wanted.memory_gib,
        "use_spot": "true",
        "accelerators": "",
    }
    if wanted.is_plain:
        return _why_no_size(wanted, excluded)
    reasons = []
    for field, value in values.items():
        left_out = [e for e in excluded if e.field == field]
        if left_out:
            reasons.append(f"{field} {value}".rstrip() + f" leaves none of {', '.join(grouped(left_out))}")
    wishes = ", ".join(str(a) for a in wanted.accelerators) or (
        "instance_types" if wanted.instance_types else "one NVIDIA GPU"
    )
    return f"no instance type satisfies {wishes} and the rest: {'; '.join(reasons)}. Ask for less."


def _why_no_size(wanted: Requirements, excluded: Sequence[Exclusion]) -> str:
    """Types without an accelerator are too many to name: the sizes say more."""
    types = [exclusion.type for exclusion in excluded]
    if not types or all(exclusion.field in ("exclude", "use_spot") for exclusion in excluded):
        return "no instance type without an accelerator is left: ask for less"
    if wanted.cpus and not any(wanted.cpus.accepts(type_.vcpus) for type_ in types):
        sizes = ", ".join(str(vcpus) for vcpus in sorted({type_.vcpus for type_ in types}))
        return f"no instance type without an accelerator has {wanted.cpus} vCPU: there are {sizes}"
    with_cpus = [type_ for type_ in types if not wanted.cpus or wanted.cpus.accepts(type_.vcpus)]
    sizes = ", ".join(f"{gib:g}" for gib in sorted({type_.memory_gib for type_ in with_cpus}))
    vcpus = f" and {wanted.cpus} vCPU" if wanted.cpus else ""
    return (
        f"no instance type without an accelerator has {wanted.memory_gib} GiB{vcpus}: there are {sizes} GiB"
    )


def grouped(exclusions: Iterable[Exclusion]) -> list[str]:
    """The types left out, those with the same reason together: `g5.xlarge, g6.xlarge (4 vCPU)`."""
    by_reason: dict[str, list[str]] = {}
    for exclusion in exclusions:
        by_reason.setdefault(exclusion.reason, []).append(exclusion.type.name)
    return [f"{_few(names)} ({reason})" for reason, names in by_reason.items()]


def _few(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def too_few(wanted: Requirements, found: Eligibility) -> str | None:
    """What is too little to choose from, and what would widen it; None where there is enough."""
    types, zones = len(found.types), len(wanted.zones) or USUAL_ZONES
    if types >= RECOMMENDED_TYPES:  # and so are the pools
        return None
    if types * zones < LEAST_POOLS:
        choice = f"{_counted(types * zones, 'capacity pool')} (instance types: {types}, zones: {zones})"
    else:
        choice = _counted(types, "instance type")
    verb = "is" if choice.startswith("1 ") else "are"
    return (
        f"only {choice} {verb} eligible, where AWS asks for at least {RECOMMENDED_TYPES}"
        f"{' types' if 'pool' in choice else ''} for Spot. {how_to_widen(wanted, found)}"
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def how_to_widen(wanted: Requirements, found: Eligibility) -> str:
    """What would give the service more types to choose from, as one sentence."""
    if wanted.alternatives:
        return "Allow more alternatives."
    if wanted.instance_types:
        others = "every type that has the accelerators" if wanted.accelerators else "all of a size"
        return f"List more in instance_types, or leave it out to take {others}."
    ways = []
    for field, how in {
        "cpus": "a smaller cpus",
        "memory": "a smaller memory",
        "accelerator_memory": "a smaller accelerator_memory",
        "exclude": "a shorter exclude",
    }.items():
        left_out = [e.type.name for e in found.excluded if e.field == field]
        if left_out:
            ways.append(f"{how} (it leaves out {_few(left_out)})")
    if wanted.zones and len(wanted.zones) < USUAL_ZONES:
        ways.append(f"more zones than {' and '.join(wanted.zones)}")
    if not wanted.is_plain:
        ways += _other_accelerators(wanted, found)
    return f"Wider with {', or with '.join(ways)}." if ways else "There are no more types of this kind."


def _other_accelerators(wanted: Requirements, found: Eligibility) -> list[str]:
    """Two accelerators that would add most, of those that hold whatever the wanted ones hold."""
    have = {Accelerators(type_.accelerator, type_.accelerator_count) for type_ in found.types}
    arch = arch_of(found.types)
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
