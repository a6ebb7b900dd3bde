"""EC2's actions on what it offers: instance types, zones, Spot prices and placement scores."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from lab.local.catalog import instance_types, offerings
from lab.local.context import Context, Handler, Result
from lab.local.environment import REGION, ZONES
from lab.local.query import Attributes, matches, page
from lab.local.wire import AwsError
from spotrelay.plane.core.pools import CapacityPool

MAX_TYPES = 100
"""The largest page of DescribeInstanceTypes, and the most types that it takes by name."""

HISTORY = timedelta(days=90)
"""How far Spot prices go back."""

PRODUCT = "Linux/UNIX"


def zone_id(zone: str) -> str:
    """The AZ ID of a zone. MiniStack numbers them in order; on AWS each account has its own shuffle."""
    return f"use1-az{ZONES.index(zone) + 1}"


def describe_instance_types(context: Context) -> Result:
    """Types with AWS's own data."""
    context.require("ec2:DescribeInstanceTypes")
    known = instance_types()
    names = context.params.get("InstanceTypes")
    for name in names or []:
        if name not in known:
            raise AwsError(
                "InvalidInstanceType", f"The following supplied instance types do not exist: [{name}]"
            )
    filters = context.params.get("Filters", [])
    found = [known[name] for name in (names or sorted(known))]
    found = [record for record in found if matches(filters, _type_attributes(record))]
    shown, more = page(found, context.params, most=MAX_TYPES)
    return {"InstanceTypes": shown, **more}


def describe_instance_type_offerings(context: Context) -> Result:
    """Which zone, or region, has which type."""
    context.require("ec2:DescribeInstanceTypeOfferings")
    kind = context.params.get("LocationType", "region")
    if kind == "region":
        rows = [(name, REGION) for name in dict.fromkeys(name for name, _ in offerings())]
    elif kind == "availability-zone":
        rows = list(offerings())
    elif kind == "availability-zone-id":
        rows = [(name, zone_id(zone)) for name, zone in offerings()]
    else:
        raise AwsError("InvalidParameterValue", f"Invalid LocationType: {kind}")
    filters = context.params.get("Filters", [])
    found = [
        {"InstanceType": name, "LocationType": kind, "Location": location}
        for name, location in rows
        if matches(filters, _offering_attributes(name, location))
    ]
    shown, more = page(found, context.params)
    return {"InstanceTypeOfferings": shown, **more}


def describe_spot_price_history(context: Context) -> Result:
    """Prices of the last 90 days, newest first; the one that stood at the start comes, too."""
    context.require("ec2:DescribeSpotPriceHistory")
    params, now = context.params, context.cloud.now()
    start = max(_utc(params.get("StartTime")) or now, now - HISTORY)
    end = min(_utc(params.get("EndTime")) or now, now)
    if start > end:
        raise AwsError("InvalidParameterValue", "StartTime must not be after EndTime")
    products = params.get("ProductDescriptions", [PRODUCT])
    rows: list[Result] = []
    for pool in _pools(context) if PRODUCT in products else []:
        for at, price in context.cloud.market.price_history(pool, start, end):
            rows.append(_price_row(pool, at, price))
    filters = params.get("Filters", [])
    rows = [row for row in rows if matches(filters, _price_attributes(row))]
    rows.sort(key=lambda row: row["Timestamp"], reverse=True)
    shown, more = page(rows, params, least=1)
    return {"SpotPriceHistory": shown, "NextToken": "", **more}


def get_spot_placement_scores(context: Context) -> Result:
    """How likely a Spot request succeeds, by region or by zone (as AZ IDs), best first.

    AWS takes so much capacity as the account has used lately, and some more; of how much it says nothing, nor
    how it refuses more. The strictest that lets a new account ask at all: what runs now, and one.
    """
    context.require("ec2:GetSpotPlacementScores")
    params = context.params
    types = params.get("InstanceTypes")
    if not types:
        raise AwsError("UnsupportedOperation", "The local cloud scores InstanceTypes, not requirements")
    if params.get("TargetCapacityUnitType", "units") != "units":
        raise AwsError("UnsupportedOperation", "The local cloud scores TargetCapacity in units only")
    most = 1 + sum(i.is_spot and not i.state.is_over for i in context.cloud.instances.values())
    if params["TargetCapacity"] > most:
        raise AwsError("InvalidParameterValue", f"TargetCapacity: at most {most} with your recent Spot usage")
    regions = params.get("RegionNames", [REGION])
    scores: list[Result] = []
    for region in regions:
        if params.get("SingleAvailabilityZone"):
            for zone in ZONES if region == REGION else []:
                score = _score(context, [zone], types)
                scores.append({"Region": region, "AvailabilityZoneId": zone_id(zone), "Score": score})
        else:
            # Other regions have no market here: the lowest score is the honest one.
            score = _score(context, ZONES, types) if region == REGION else 1
            scores.append({"Region": region, "Score": score})
    scores.sort(key=lambda row: row["Score"], reverse=True)
    shown, more = page(scores, params, least=10)
    return {"SpotPlacementScores": shown, **more}


HANDLERS: dict[str, Handler] = {
    "DescribeInstanceTypes": describe_instance_types,
    "DescribeInstanceTypeOfferings": describe_instance_type_offerings,
    "DescribeSpotPriceHistory": describe_spot_price_history,
    "GetSpotPlacementScores": get_spot_placement_scores,
}


def _score(context: Context, zones: tuple[str, ...] | list[str], types: list[str]) -> int:
    pools = [CapacityPool(REGION, zone, type_) for zone in zones for type_ in types]
    return context.cloud.market.placement_score(pools, context.params["TargetCapacity"])


def _pools(context: Context) -> list[CapacityPool]:
    """The pools whose prices are asked for, before filters."""
    params, market = context.params, context.cloud.market
    zones = [params["AvailabilityZone"]] if params.get("AvailabilityZone") else list(ZONES)
    types = params.get("InstanceTypes") or _filter_values(params, "instance-type")
    # Beside recorded prices made-up ones would pass for recorded.
    known = market.recorded or [state.pool for state in market]
    return [pool for pool in known if pool.zone in zones and (not types or pool.instance_type in types)]


def _filter_values(params: Mapping[str, Any], name: str) -> list[str]:
    values = [v for f in params.get("Filters", []) if f["Name"] == name for v in f.get("Values", [])]
    return [] if any("*" in v or "?" in v for v in values) else values


def _price_row(pool: CapacityPool, at: datetime, price: float) -> Result:
    return {
        "AvailabilityZone": pool.zone,
        "InstanceType": pool.instance_type,
        "ProductDescription": PRODUCT,
        "SpotPrice": f"{price:.6f}",
        "Timestamp": at,
    }


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time and time.tzinfo is None else time


def _price_attributes(row: Mapping[str, Any]) -> Attributes:
    return {
        "availability-zone": lambda: [row["AvailabilityZone"]],
        "instance-type": lambda: [row["InstanceType"]],
        "product-description": lambda: [row["ProductDescription"]],
        "spot-price": lambda: [row["SpotPrice"]],
    }


def _offering_attributes(name: str, location: str) -> Attributes:
    return {"instance-type": lambda: [name], "location": lambda: [location]}


def _type_attributes(record: Mapping[str, Any]) -> Attributes:
    def flag(name: str) -> list[str]:
        return [str(bool(record.get(name))).lower()]

    processor = record.get("ProcessorInfo", {})
    return {
        "instance-type": lambda: [record["InstanceType"]],
        "current-generation": lambda: flag("CurrentGeneration"),
        "bare-metal": lambda: flag("BareMetal"),
        "burstable-performance-supported": lambda: flag("BurstablePerformanceSupported"),
        "hypervisor": lambda: [record.get("Hypervisor", "")],
        "supported-usage-class": lambda: record.get("SupportedUsageClasses", []),
        "processor-info.supported-architecture": lambda: processor.get("SupportedArchitectures", []),
        "vcpu-info.default-vcpus": lambda: [str(record["VCpuInfo"]["DefaultVCpus"])],
        "memory-info.size-in-mib": lambda: [str(record["MemoryInfo"]["SizeInMiB"])],
    }
