"""What the local cloud says that EC2 offers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from tests.local.conftest import Aws, Ground

pytestmark = pytest.mark.xdist_group("local")


def test_instance_types_are_awss_own(aws: Aws) -> None:
    """A g5.xlarge has 4 vCPU and one A10G; its 12xlarge has four."""
    types = aws.ec2.describe_instance_types(InstanceTypes=["g5.xlarge", "g5.12xlarge"])["InstanceTypes"]
    described = {t["InstanceType"]: t for t in types}
    assert described["g5.xlarge"]["VCpuInfo"]["DefaultVCpus"] == 4
    assert described["g5.xlarge"]["GpuInfo"]["Gpus"][0]["Name"] == "A10G"
    assert described["g5.12xlarge"]["GpuInfo"]["Gpus"][0]["Count"] == 4
    with pytest.raises(ClientError, match="InvalidInstanceType"):
        aws.ec2.describe_instance_types(InstanceTypes=["g5.nonsense"])  # type: ignore[list-item]  # that's the test


def test_all_types_come_in_pages(aws: Aws) -> None:
    """The paginator walks through every type once."""
    pages = list(aws.ec2.get_paginator("describe_instance_types").paginate())
    names = [t["InstanceType"] for page in pages for t in page["InstanceTypes"]]
    assert len(pages) > 1
    assert len(names) == len(set(names)) > 500


def test_offerings_by_zone(aws: Aws) -> None:
    """Offerings name the zones that the local cloud has, and filters narrow them."""
    rows = aws.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["g6.*"]}]
    )["InstanceTypeOfferings"]
    zones = {z["ZoneName"] for z in aws.ec2.describe_availability_zones()["AvailabilityZones"]}
    assert {row["Location"] for row in rows} <= zones
    assert {row["InstanceType"].partition(".")[0] for row in rows} == {"g6"}


def test_spot_prices_reach_back(aws: Aws) -> None:
    """Two days of one pool's prices, newest first, all below what on-demand costs."""
    start = datetime.now(UTC) - timedelta(days=2)
    rows = aws.ec2.describe_spot_price_history(
        InstanceTypes=["g5.2xlarge"], AvailabilityZone="us-east-1a", StartTime=start
    )["SpotPriceHistory"]
    assert len(rows) > 5
    assert rows == sorted(rows, key=lambda row: row["Timestamp"], reverse=True)
    assert all(float(row["SpotPrice"]) < 1.212 for row in rows)


def test_placement_scores_follow_the_market(ground: Ground) -> None:
    """A zone whose pools dried up scores 1, by its AZ ID."""
    types = ["g5.2xlarge", "g6.2xlarge", "g6e.2xlarge"]
    ground.aws.local.dry_up(zone="us-east-1a", warn=False)
    scores = ground.aws.ec2.get_spot_placement_scores(
        InstanceTypes=types, TargetCapacity=2, SingleAvailabilityZone=True, RegionNames=["us-east-1"]
    )["SpotPlacementScores"]
    zones = ground.aws.ec2.describe_availability_zones()["AvailabilityZones"]
    (dry,) = [z["ZoneId"] for z in zones if z["ZoneName"] == "us-east-1a"]
    by_zone = {s["AvailabilityZoneId"]: s["Score"] for s in scores}
    assert by_zone[dry] == 1
    assert max(by_zone.values()) > 5


def test_public_ami_parameters_are_there(aws: Aws) -> None:
    """The Deep Learning AMI can be looked up as in any account."""
    base = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04"
    value = aws.client("ssm").get_parameter(Name=f"{base}/latest/ami-id")["Parameter"]["Value"]
    assert value.startswith("ami-")
