"""What a user wants to know of a service file before deploying it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spotrelay.file.compile.costs import Costs
from spotrelay.file.instance import userdata
from spotrelay.file.model import Service
from spotrelay.file.source.errors import Problem
from spotrelay.file.values import eligibility
from spotrelay.plane.core.quotas import Need, needs
from spotrelay.plane.core.spec import OnUpdate, ReadinessProbe


@dataclass(frozen=True, slots=True)
class EligibleType:
    """An instance type that the service may run on."""

    name: str
    accelerator: str
    """Empty: it has none."""
    accelerator_count: int
    """0 where it has a share of one only."""
    accelerator_memory_gb: int
    vcpus: int
    memory_gib: float
    replicas: int
    """How many an instance of it hosts."""
    why: tuple[str, ...]
    """What it satisfies; of several alternatives, every one that it does."""

    def __str__(self) -> str:
        size = f"{self.vcpus} vCPU, {self.memory_gib:g} GiB"
        if not self.accelerator:
            return f"{self.name}: {size}"
        many = f":{self.accelerator_count}" if self.accelerator_count else ", a share,"
        hosts = f"; hosts {self.replicas} replicas" if self.replicas > 1 else ""
        return f"{self.name}: {self.accelerator}{many} of {self.accelerator_memory_gb} GB, {size}{hosts}"


@dataclass(frozen=True, slots=True)
class NeededQuota:
    """A quota, and how much of it all replicas take, if all are of the smallest type that it counts."""

    code: str
    name: str
    vcpus: int


@dataclass(frozen=True, slots=True)
class NeededQuotas:
    """What one way of buying takes: of one of the quotas all, or of several together as much."""

    purchase_option: str
    any_of: tuple[NeededQuota, ...]

    def __str__(self) -> str:
        return " or ".join(f"{quota.name} ({quota.code}): {quota.vcpus} vCPU" for quota in self.any_of)


@dataclass(frozen=True, slots=True)
class Description:
    """A service in a few facts, as `spotrelay validate --json` prints them."""

    file: str
    name: str
    replicas: int
    purchase: str
    standby: int
    """On-demand instances that stand by, stopped; if `standby_auto`, to begin with."""
    standby_auto: bool
    most_replicas: int
    """As many as it may come to have by itself."""
    instance_types: tuple[EligibleType, ...]
    """In the file's order of preference if `ordered`."""
    ordered: bool
    accelerators: tuple[str, ...]
    """With the number of types that have each: `A10G:1 (4 types)`."""
    quotas: tuple[NeededQuotas, ...]
    """What the account's quotas must be, at least, for the most replicas."""
    regions: tuple[str, ...]
    """None: the one that it is deployed to."""
    pools_per_zone: int
    """Capacity pools in one zone; a service has that many times the zones of its VPC."""
    zones: tuple[str, ...]
    """None: every zone of the VPC."""
    port: int
    health_check: str
    readiness_probe: str
    idle_timeout_s: int
    drain_s: float
    longest_drain_s: float
    updates: str
    disk: str
    image: str
    files: tuple[str, ...]
    """What is taken from this machine: each a field and where its files are."""
    user_data_bytes: int
    costs: Costs | None
    """None: nobody asked for prices, or they aren't known."""
    warnings: tuple[Problem, ...]
    notices: tuple[Problem, ...]


def describe(service: Service, costs: Costs | None = None) -> Description:
    """The facts of a validated service, with what it costs if that is known."""
    with_any = [type_ for type_ in service.instance_types if type_.accelerator]
    counts = Counter(f"{t.accelerator}:{t.accelerator_count}" for t in with_any)
    probe = service.readiness_probe
    disk = service.disk
    return Description(
        file=str(service.path),
        name=service.name,
        replicas=service.replicas,
        purchase=_purchase(service),
        standby=service.standby,
        standby_auto=service.standby_auto,
        most_replicas=service.most_replicas,
        instance_types=_eligible(service),
        ordered=service.ordered,
        accelerators=tuple(f"{name} ({n} type{'s' if n > 1 else ''})" for name, n in counts.items()),
        quotas=tuple(
            _needed(wanted)
            for wanted in needs(at_most(service), {t.name: t.vcpus for t in service.instance_types})
        ),
        regions=service.requirements.regions,
        pools_per_zone=len(service.instance_types),
        zones=service.requirements.zones,
        port=service.port,
        health_check="your target group's" if service.target_group else f"GET {service.health_check_path}",
        readiness_probe=_probe(probe) if probe and not probe.is_health_check else "the health check",
        idle_timeout_s=service.idle_timeout_s,
        drain_s=service.drain_s,
        longest_drain_s=service.longest_drain_s,
        updates=_updates(service),
        disk=f"{disk.size_gib} GiB, {disk.throughput_mibps} MiB/s, {disk.iops} IOPS",
        image=_image(service),
        files=tuple(local_files(service)),
        user_data_bytes=userdata.size(service),
        costs=costs,
        warnings=service.warnings,
        notices=service.notices,
    )


def local_files(service: Service) -> Iterator[str]:
    """Which of this machine's files go to the instances: `workdir: /home/me/chat`."""
    if isinstance(service.workdir, Path):
        yield f"workdir: {service.workdir}"
    for mount in service.file_mounts:
        if isinstance(mount.source, Path):
            yield f"{mount.target}: {mount.source}"


def _updates(service: Service) -> str:
    match service.on_update:
        case OnUpdate.ROLLING:
            bake = "for as long as it took to start" if service.bake_s is None else f"for {service.bake_s} s"
            return f"rolling, {service.surge} at a time; an old one leaves once the new one was ready {bake}"
        case OnUpdate.BLUE_GREEN:
            return "blue_green: as many again come up, then all change at once"
        case OnUpdate.KEEP:
            return "keep: what is launched from then on has the new version"


def at_most(service: Service) -> Service:
    """The service when it has as many replicas as it may come to have by itself."""
    return replace(service, replicas=service.most_replicas)


def _eligible(service: Service) -> tuple[EligibleType, ...]:
    why = eligibility.reasons(service.requirements)
    return tuple(
        EligibleType(
            name=type_.name,
            accelerator=type_.accelerator,
            accelerator_count=type_.accelerator_count,
            accelerator_memory_gb=type_.accelerator_memory_gb,
            vcpus=type_.vcpus,
            memory_gib=type_.memory_gib,
            replicas=service.hosted_by(type_.name),
            why=why.get(type_.name, ()),
        )
        for type_ in service.instance_types
    )


def _needed(wanted: Sequence[Need]) -> NeededQuotas:
    return NeededQuotas(
        str(wanted[0].option),
        tuple(NeededQuota(need.quota.code, need.quota.name, need.vcpus) for need in wanted),
    )


def _image(service: Service) -> str:
    image = service.image
    by_region = ", ".join(f"{ami} ({region})" for region, ami in image.by_region.items())
    inside = f", and in it the container {service.container}" if service.container else ""
    return (by_region or image.reference) + inside


def _probe(probe: ReadinessProbe) -> str:
    return f"{'GET' if probe.post_data is None else 'POST'} {probe.path}"


def _purchase(service: Service) -> str:
    group = (service.capacity_reservations or "").rpartition("/")[2]
    reserved = f"; on-demand in the capacity reservations of {group} first" if group else ""
    if not service.use_spot:
        return f"on-demand{reserved}"
    fallback = "Spot, on-demand when there is none" if service.on_demand_fallback else "Spot only"
    base = f"{service.base_on_demand} always on-demand, the rest " if service.base_on_demand else ""
    share = service.max_price_share
    cap = "" if share is None else f"; Spot for at most {share:.0%} of the on-demand price"
    return f"{base}{fallback}{cap}{reserved}"
