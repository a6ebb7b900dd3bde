"""What a user wants to know of a service file before deploying it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from spotrelay.core.instance_types import InstanceType
from spotrelay.core.quotas import Need, needs
from spotrelay.core.spec import OnUpdate, ReadinessProbe
from spotrelay.service import userdata
from spotrelay.service.model import Service


@dataclass(frozen=True, slots=True)
class Description:
    """A service in a few facts."""

    name: str
    replicas: int
    purchase: str
    standby: int
    """On-demand instances that stand by, stopped; if `standby_auto`, to begin with."""
    standby_auto: bool
    instance_types: tuple[str, ...]
    """With what makes each eligible: `g5.xlarge: A10G:1 of 24 GB, 4 vCPU, 16 GiB`."""
    accelerators: tuple[str, ...]
    """With the number of types that have each: `A10G:1 (4 types)`."""
    quotas: tuple[str, ...]
    """What the account's quotas must be, at least."""
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
    updates: str
    disk: str
    image: str
    user_data_bytes: int


def describe(service: Service) -> Description:
    """The facts of a validated service."""
    with_any = [type_ for type_ in service.instance_types if type_.accelerator]
    counts = Counter(f"{t.accelerator}:{t.accelerator_count}" for t in with_any)
    probe = service.readiness_probe
    disk = service.disk
    return Description(
        name=service.name,
        replicas=service.replicas,
        purchase=_purchase(service),
        standby=service.standby,
        standby_auto=service.standby_auto,
        instance_types=tuple(_facts(service, type_) for type_ in service.instance_types),
        accelerators=tuple(f"{name} ({n} type{'s' if n > 1 else ''})" for name, n in counts.items()),
        quotas=tuple(
            _needed(wanted) for wanted in needs(service, {t.name: t.vcpus for t in service.instance_types})
        ),
        regions=service.requirements.regions,
        pools_per_zone=len(service.instance_types),
        zones=service.requirements.zones,
        port=service.port,
        health_check="your target group's" if service.target_group else f"GET {service.health_check_path}",
        readiness_probe=_probe(probe) if probe else "the health check",
        idle_timeout_s=service.idle_timeout_s,
        drain_s=service.drain_s,
        updates=_updates(service),
        disk=f"{disk.size_gib} GiB, {disk.throughput_mibps} MiB/s, {disk.iops} IOPS",
        image=_image(service),
        user_data_bytes=userdata.size(service),
    )


def _updates(service: Service) -> str:
    match service.on_update:
        case OnUpdate.ROLLING:
            bake = "for as long as it took to start" if service.bake_s is None else f"for {service.bake_s} s"
            return f"rolling, {service.surge} at a time; an old one leaves once the new one was ready {bake}"
        case OnUpdate.BLUE_GREEN:
            return "blue_green: as many again come up, then all change at once"
        case OnUpdate.KEEP:
            return "keep: what is launched from then on has the new version"


def _facts(service: Service, type_: InstanceType) -> str:
    size = f"{type_.vcpus} vCPU, {type_.memory_gib:g} GiB"
    if not type_.accelerator:
        return f"{type_.name}: {size}"
    many = f":{type_.accelerator_count}" if type_.accelerator_count else ", a share,"
    hosted = service.hosted_by(type_.name)
    hosts = f"; hosts {hosted} replicas" if hosted > 1 else ""
    return f"{type_.name}: {type_.accelerator}{many} of {type_.accelerator_memory_gb} GB, {size}{hosts}"


def _needed(wanted: Sequence[Need]) -> str:
    return " or ".join(f"{need.quota}: {need.vcpus} vCPU" for need in wanted)


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
