"""Whether a service may be where it is deployed to: its zones, regions, certificate and reservations."""

from __future__ import annotations

from collections.abc import Iterator

from spotrelay.service import Problem, Service
from spotrelay.service.schema import RESERVATIONS
from stacks.settings import LOAD_BALANCER_ZONES, AppSettings


def problems(service: Service, settings: AppSettings) -> Iterator[Problem]:
    """What stands against it, as problems of the service file."""
    yield from _of_regions(service, settings)
    yield from _of_zones(service, settings)
    yield from _of_certificate(service, settings)
    yield from _of_reservations(service, settings)


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
