"""Capacity reservations in resource groups: capacity of a pool that is kept for what targets the group.

Who targets a group gets what is reserved in it first, and goes on without when that is full. Source:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/create-cr-group.html
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.local.wire import AwsError
from spotrelay.plane.core.pools import CapacityPool


@dataclass(slots=True)
class Reservation:
    """So many instances of one pool, which its owner pays for, used or not."""

    id: str
    group: str
    """ARN of its resource group."""
    pool: CapacityPool
    count: int
    in_use: int = 0


class Reservations:
    """The account's."""

    def __init__(self) -> None:
        self._known: dict[str, Reservation] = {}

    def add(self, group: str, pool: CapacityPool, count: int) -> str:
        """Reserve so many instances of the pool, for who targets the group; the reservation's ID."""
        id_ = f"cr-{secrets.token_hex(8)}{secrets.token_hex(1)[0]}"
        self._known[id_] = Reservation(id_, group, pool, count)
        return id_

    def free(self, group: str | None, pool: CapacityPool) -> int:
        """How many more instances of the pool the group has room for."""
        return sum(r.count - r.in_use for r in self._known.values() if (r.group, r.pool) == (group, pool))

    def take(self, group: str | None, pool: CapacityPool) -> str | None:
        """Take room for one instance of the pool; the reservation's ID, or None if the group has none."""
        for reservation in self._known.values():
            if (reservation.group, reservation.pool) == (
                group,
                pool,
            ) and reservation.in_use < reservation.count:
                reservation.in_use += 1
                return reservation.id
        return None

    def release(self, id_: str) -> None:
        """One instance less uses the reservation."""
        self._known[id_].in_use -= 1

    def targeted(self, data: Mapping[str, Any], *, spot: bool) -> str | None:
        """The group that a launch with this data targets, if any.

        Raises:
            AwsError: it is for Spot, which has no reservations; a preference stands beside the target; there
                is no such group; or it targets one reservation, which the local cloud doesn't know. EC2's own
                codes and words for these aren't documented.
        """
        specification = data.get("CapacityReservationSpecification") or {}
        target = specification.get("CapacityReservationTarget") or {}
        group = target.get("CapacityReservationResourceGroupArn")
        if specification and spot:
            message = "A Spot Instance can't run in a Capacity Reservation"
            raise AwsError("InvalidParameterCombination", message)
        if target and specification.get("CapacityReservationPreference"):
            message = "Specify either CapacityReservationPreference or CapacityReservationTarget, not both"
            raise AwsError("InvalidParameterCombination", message)
        if target and not group:
            message = "The local cloud knows capacity reservations by their resource group only"
            raise AwsError("UnsupportedOperation", message)
        if group and not any(r.group == group for r in self._known.values()):
            raise AwsError("InvalidParameterValue", f"The resource group {group} does not exist")
        return str(group) if group else None
