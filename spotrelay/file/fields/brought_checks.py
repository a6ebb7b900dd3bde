"""What contradicts what a service brings, and what SpotRelay can't see of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from spotrelay.file.fields.resources import Resources
from spotrelay.file.fields.sections import ServiceSection, SpotRelaySection
from spotrelay.file.model import Service
from spotrelay.file.source.document import Location
from spotrelay.file.values.brought import Arn, arns
from spotrelay.file.values.parsing import Finding
from spotrelay.plane.core.names import instances_namespace

_OF_OUR_BALANCER: Mapping[Location, str] = {
    ("spotrelay", "certificate_arn"): "your load balancer's listener has its certificate",
    ("spotrelay", "domain"): "your load balancer has its names",
    ("spotrelay", "idle_timeout_seconds"): "your load balancer has its idle time-out",
    ("service", "tls"): "your load balancer's listener has its certificate",
}
_OF_OUR_GROUP: Mapping[Location, str] = {
    ("spotrelay", "health_check"): "your target group has its health check",
    ("service", "load_balancing_policy"): "your target group has its algorithm",
}


def findings(own: SpotRelaySection, service: ServiceSection, resources: Resources) -> Iterator[Finding]:
    """What contradicts what a service brings, each at its field."""
    ways = [name for name in ("target_group", "listener") if getattr(own, name) is not None]
    if len(ways) > 1:
        message = (
            "spotrelay.listener is here, too, and for that one SpotRelay makes a target group: remove one"
        )
        yield Finding(("spotrelay", "target_group"), message)
    elif ways:
        yield from _unused(own, service, ways[0])
        if not own.security_groups:
            message = (
                "SpotRelay doesn't know the security group of your load balancer, so it can't let it in:"
                " name the groups that do in spotrelay.security_groups"
            )
            yield Finding(("spotrelay", ways[0]), message)
    yield from _apart(own, resources)


def _unused(own: SpotRelaySection, service: ServiceSection, way: str) -> Iterator[Finding]:
    """What says something of a load balancer or a target group that SpotRelay doesn't make."""
    without = {**_OF_OUR_BALANCER, **(_OF_OUR_GROUP if way == "target_group" else {})}
    for place, why in without.items():
        section = own if place[0] == "spotrelay" else service
        if place[1] in section.model_fields_set and getattr(section, str(place[1])) is not None:
            yield Finding(place, f"with spotrelay.{way}, {why}: set it there, and remove this")


def _apart(own: SpotRelaySection, resources: Resources) -> Iterator[Finding]:
    """ARNs of two regions, accounts or partitions: no stack can have both."""
    there = arns(
        certificate=own.certificate_arn,
        reservations=own.capacity_reservations,
        profile=own.instance_profile,
        listener=own.listener,
        target_group=own.target_group,
    )
    seen: dict[str, Location] = {}
    for place, arn in there.items():
        for other, first in seen.items():
            if apart := Arn.of(arn).disagrees(Arn.of(other)):
                what, ours, theirs = apart
                message = f"its {what} is {ours}, and that of {'.'.join(map(str, first))} is {theirs}"
                yield Finding(place, f"{message}: change one of the two")
                break
        seen.setdefault(arn, place)
    for name, regions in (
        ("zones", [zone[:-1] for zone in resources.zones or ()]),
        ("regions", resources.regions or []),
    ):
        for place in (("spotrelay", "target_group"), ("spotrelay", "listener", "arn")):
            if regions and place in there and Arn.of(there[place]).region not in regions:
                listed = ", ".join(getattr(resources, name))
                message = f"is in {Arn.of(there[place]).region}, and resources.{name} is {listed}"
                yield Finding(place, f"{message}: change one of the two")


def notices(service: Service) -> Iterator[tuple[Location, str]]:
    """What has to be so, and what SpotRelay can't see."""
    if service.target_group:
        yield (
            ("spotrelay", "target_group"),
            "your target group's own settings count: it needs the target type instance, HTTP, a health check"
            f" that a replica answers, such as GET {service.health_check_path}, and a deregistration delay of"
            f" {service.deregistration_delay_s:g} s, the longest way out. What else is in it is left"
            " alone, until `spotrelay adopt` makes replicas of it",
        )
    if service.security_groups and service.is_behind_a_given_balancer:
        yield (
            ("spotrelay", "security_groups"),
            f"one of them must let your load balancer reach port {service.port}, which SpotRelay can't see",
        )
    if service.instance_profile and (needed := _permissions(service)):
        yield (
            ("spotrelay", "instance_profile"),
            f"its role, {service.instance_profile.role_arn}, must be allowed {', '.join(needed)}: SpotRelay"
            " doesn't change it",
        )


def _permissions(service: Service) -> Sequence[str]:
    """What an instance does with its role."""
    needed = [f"ssm:GetParameter on {name} and {name}:*" for name in sorted(set(service.secrets.values()))]
    if service.file_mounts or service.workdir is not None or service.scripts_in_bundle:
        needed.append("s3:GetObject on its files (the CDK's bucket, and those of file_mounts)")
    if service.container and re.search(r"\.dkr\.ecr\.", service.container):
        needed.append(f"to pull {service.container} from ECR")
    if service.reports_gpus:
        needed.append(f"cloudwatch:PutMetricData into the namespace {instances_namespace(service.name)}")
    return needed
