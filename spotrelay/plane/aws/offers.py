"""What EC2 offers in a region: instance types, and the zones that have them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from spotrelay.plane.aws.clients import Clients, Kept
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.instance_types import InstanceType, described
from spotrelay.plane.core.requirements import Requirements

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

KEPT_S = 6 * 3600.0
"""New types and zones come a few times a year; an environment rarely lives that long."""

MAX_FILTER_VALUES = 200
"""EC2's limit for the values of a request's filters."""


class Offers:
    """Asks EC2, and keeps the answers: services of one kind ask the same."""

    def __init__(self, clients: Clients, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._clients = clients
        self._types: Kept[tuple[tuple[str, tuple[str, ...]], ...], tuple[InstanceType, ...]] = Kept(
            KEPT_S, monotonic_s
        )
        self._zones: Kept[tuple[str, ...], Mapping[str, frozenset[str]]] = Kept(KEPT_S, monotonic_s)
        self._zone_ids: Kept[str, Mapping[str, str]] = Kept(KEPT_S, monotonic_s)

    def types(self, wanted: Requirements) -> Sequence[InstanceType]:
        """Types that may satisfy the requirements, which have no alternatives: all that do, and others."""
        filters = _filters(wanted)
        return self._types.get(filters, lambda: self._describe_types(filters))

    def types_by_zone(self, names: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Zone → those of the types that it has."""
        ordered = tuple(sorted(names))
        return self._zones.get(ordered, lambda: self._describe_offerings(ordered))

    def zone_ids(self) -> Mapping[str, str]:
        """Zone's name → its ID, such as `use1-az4`; which has which name differs between accounts."""
        return self._zone_ids.get("", self._describe_zones)

    def _describe_types(self, filters: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[InstanceType, ...]:
        with translated():
            pages = self._clients.ec2_surveying.get_paginator("describe_instance_types").paginate(
                Filters=[_filter(name, values) for name, values in filters]
            )
            return tuple(described(answer) for page in pages for answer in page["InstanceTypes"])

    def _describe_offerings(self, names: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        paginator = self._clients.ec2_surveying.get_paginator("describe_instance_type_offerings")
        for start in range(0, len(names), MAX_FILTER_VALUES):
            with translated():
                for page in paginator.paginate(
                    LocationType="availability-zone",
                    Filters=[_filter("instance-type", names[start : start + MAX_FILTER_VALUES])],
                ):
                    for offering in page["InstanceTypeOfferings"]:
                        found.setdefault(offering["Location"], set()).add(offering["InstanceType"])
        return {zone: frozenset(types) for zone, types in found.items()}

    def _describe_zones(self) -> Mapping[str, str]:
        with translated():
            answer = self._clients.ec2_surveying.describe_availability_zones()
        return {zone["ZoneName"]: zone["ZoneId"] for zone in answer["AvailabilityZones"]}


def _filters(wanted: Requirements) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What EC2 itself can leave out; it has no filter for accelerators. Sorted: equal questions are equal."""
    filters: dict[str, tuple[str, ...]] = {}
    if wanted.use_spot:
        filters["supported-usage-class"] = ("spot",)
    if wanted.arch:
        filters["processor-info.supported-architecture"] = (wanted.arch,)
    if wanted.cpus and not wanted.cpus.at_least:
        filters["vcpu-info.default-vcpus"] = (str(wanted.cpus.value),)
    if wanted.memory_gib and not wanted.memory_gib.at_least:
        filters["memory-info.size-in-mib"] = (str(wanted.memory_gib.value * 1024),)
    if 0 < len(wanted.instance_types) < MAX_FILTER_VALUES - len(filters):
        # A filter, because EC2 refuses a request by names if it lacks one of them in the region.
        filters["instance-type"] = tuple(sorted(wanted.instance_types))
    return tuple(sorted(filters.items()))


def _filter(name: str, values: Sequence[str]) -> FilterTypeDef:
    return {"Name": name, "Values": list(values)}
