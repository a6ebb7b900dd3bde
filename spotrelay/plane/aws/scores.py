"""Spot placement scores: how likely EC2 thinks that a request for Spot succeeds, 1 (hardly) to 10.

EC2 limits how many *different* questions an account asks in 24 hours, and AWS publishes no number; one that
was asked before goes on working. So a service always asks the same: sorted, about all of its types at once,
and about one instance, which is what a launch mostly needs: one lost replica in whichever zone has room. How
much may be asked for depends on what Spot the account has used lately, so all replicas in each zone would be
refused in a new one (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-placement-score.html).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import SpotPlacementScoreTypeDef


class Scores:
    """Asks EC2."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def by_zone(self, region: str, types: Collection[str]) -> Mapping[str, int]:
        """Zone ID → score of a request for an instance of any of the types in that zone alone."""
        rows = self._ask(question(types, [region], by_zone=True))
        return {row["AvailabilityZoneId"]: row["Score"] for row in rows if "AvailabilityZoneId" in row}

    def by_region(self, regions: Collection[str], types: Collection[str]) -> Mapping[str, int]:
        """Region → score of such a request over all of its zones."""
        return {row["Region"]: row["Score"] for row in self._ask(question(types, regions, by_zone=False))}

    def _ask(self, question: dict[str, Any]) -> list[SpotPlacementScoreTypeDef]:
        with translated():
            pages = self._clients.ec2_surveying.get_paginator("get_spot_placement_scores").paginate(
                **question
            )
            return [row for page in pages for row in page["SpotPlacementScores"]]


def question(types: Collection[str], regions: Collection[str], *, by_zone: bool) -> dict[str, Any]:
    """The request: the same for the same service, in whatever order its parts came."""
    return {
        "InstanceTypes": sorted(set(types)),
        "TargetCapacity": 1,
        "TargetCapacityUnitType": "units",
        "SingleAvailabilityZone": by_zone,
        "RegionNames": sorted(set(regions)),
    }
