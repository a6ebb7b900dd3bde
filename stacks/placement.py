"""Whether a service may be where it is deployed to: its zones and regions, and all that it names there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spotrelay.file.fields.sections import RESERVATIONS
from spotrelay.file.service import Problem, Service
from spotrelay.file.values import brought
from stacks.settings import LOAD_BALANCER_ZONES, SUBNETS_EXAMPLE, AppSettings


def problems(service: Service, settings: AppSettings) -> Iterator[Problem]:
    """What stands against it, as problems of the service file."""
    yield from _of_regions(service, settings)
    yield from _of_zones(service, settings)
    yield from _of_certificate(service, settings)
    yield from _of_reservations(service, settings)
    yield from _of_what_it_brings(service, settings)


def _of_what_it_brings(service: Service, settings: AppSettings) -> Iterator[Problem]:
    """It is where this would deploy to, in a VPC that exists, and no setting means another balancer."""
    file, listener = str(service.path), service.listener
    for place, arn in brought.arns(
        certificate=None,
        reservations=None,
        profile=service.instance_profile,
        listener=listener,
        target_group=service.target_group,
    ).items():
        its = brought.Arn.of(arn)
        for what, ours, deployed in (
            ("region", its.region, settings.target_region),
            ("account", its.account, settings.account),
            ("partition", its.partition, _partition(settings.target_region)),
        ):
            if ours and deployed and ours != deployed:
                message = f"its {what} is {ours}, and this would deploy to {deployed}: name one there"
                yield Problem(file, None, ".".join(map(str, place)), message)
    fields = {
        "security_groups": service.security_groups,
        "listener": listener,
        "target_group": service.target_group,
    }
    named = [f"spotrelay.{name}" for name, value in fields.items() if value]
    if named and settings.network is None:
        message = (
            "is in a VPC that exists, and without one named SpotRelay makes its own: name it,"
            f" -c vpc_id=vpc-… -c subnets={SUBNETS_EXAMPLE}"
        )
        yield Problem(file, None, named[0], message)
    if service.is_behind_a_given_balancer and settings.api_keys:
        message = (
            "context api_keys is for load balancers of SpotRelay's own, and yours would serve without a key:"
            " ask for one there, and deploy this service without api_keys"
        )
        yield Problem(file, None, named[-1], message)


def _partition(region: str | None) -> str | None:
    """The partition that a region is in; None: no region is known."""
    if region is None:
        return None
    begins = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
    return next((its for start, its in begins.items() if region.startswith(start)), "aws")


def conflicts(services: Sequence[Service]) -> Iterator[Problem]:
    """What two services of one deployment bring and only one of them can have."""
    seen: dict[tuple[str, int], str] = {}
    for service in services:
        if service.target_group:
            key, field = (service.target_group, 0), "spotrelay.target_group"
            message = "has the same target group: give each its own"
        elif service.listener:
            key, field = (service.listener.arn, service.listener.priority), "spotrelay.listener.priority"
            message = "has a rule of the same priority at the same listener: choose another"
        else:
            continue
        if key in seen:
            yield Problem(str(service.path), None, field, f"{seen[key]} {message}")
        seen.setdefault(key, service.name)


def _of_certificate(service: Service, settings: AppSettings) -> Iterator[Problem]:
    if service.certificate_arn is None:
        return
    its_region, its_account = service.certificate_arn.split(":")[3:5]
    field = "spotrelay.certificate_arn"
    for its, ours in ((its_region, settings.target_region), (its_account, settings.account)):
        if ours and its != ours:
            message = (
                f"the certificate is in {its}, and this would deploy to {ours}: a load balancer takes its own"
                " region's and account's. Request one there"
            )
            yield Problem(str(service.path), None, field, message)


def _of_regions(service: Service, settings: AppSettings) -> Iterator[Problem]:
    wanted, region = service.requirements, settings.target_region
    if not wanted.regions:
        return
    if region is None:
        yield _problem(
            service, "the regions that it allows need one to be held against: -c account=… -c region=…"
        )
    elif not wanted.allows_region(region):
        allowed = ", ".join(wanted.regions)
        yield _problem(service, f"allows {allowed}, and this would deploy to {region}: change one")


def _of_zones(service: Service, settings: AppSettings) -> Iterator[Problem]:
    zones, region = service.requirements.zones, settings.target_region
    if not zones:
        return
    there = tuple(settings.network.subnets.values()) if settings.network else settings.zones
    if there:
        if not set(zones) & set(there):
            message = f"of the zones that it allows, none of {', '.join(zones)} has a subnet"
            yield _problem(service, f"{message}: there are {', '.join(there)}")
    elif region and (elsewhere := [zone for zone in zones if zone[:-1] != region]):
        yield _problem(service, f"{elsewhere[0]} isn't in {region}, which this would deploy to")
    else:
        # The VPC is every service's: it must not depend on the zones of one.
        named = zones if len(zones) >= LOAD_BALANCER_ZONES else (*zones, _next(zones[0]))
        yield _problem(
            service,
            "the zones that it allows need a VPC whose zones are named: name all of them, two or more,"
            f" and the same at each deployment, -c zones={','.join(named)}",
        )


def _of_reservations(service: Service, settings: AppSettings) -> Iterator[Problem]:
    group = RESERVATIONS.fullmatch(service.capacity_reservations or "")
    if group is None:
        return
    for what, deployed in (("region", settings.target_region), ("account", settings.account)):
        if deployed and group[what] != deployed:
            yield Problem(
                str(service.path),
                None,
                "spotrelay.capacity_reservations",
                f"the group's {what} is {group[what]}, and this would deploy to {deployed}: name a group"
                " there, or remove this",
            )


def _next(zone: str) -> str:
    return zone[:-1] + ("b" if zone.endswith("a") else "a")


def _problem(service: Service, message: str) -> Problem:
    """Not of one field: a file has several for where it may be."""
    return Problem(str(service.path), None, "resources", message)
