"""What the local cloud says that EC2 offers."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.exceptions import ClientError

from spotrelay.file import catalog
from spotrelay.file.model import DEFAULT_IMAGE, PLAIN_IMAGE
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.surveyor import AwsSurveyor
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements, find
from spotrelay.plane.memory import MemoryTelemetry
from tests.examples import demo_spec
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
        InstanceTypes=types, TargetCapacity=1, SingleAvailabilityZone=True, RegionNames=["us-east-1"]
    )["SpotPlacementScores"]
    zones = ground.aws.ec2.describe_availability_zones()["AvailabilityZones"]
    (dry,) = [z["ZoneId"] for z in zones if z["ZoneName"] == "us-east-1a"]
    by_zone = {s["AvailabilityZoneId"]: s["Score"] for s in scores}
    assert by_zone[dry] == 1
    assert max(by_zone.values()) > 5


def test_a_new_account_gets_no_score_for_a_fleet(ground: Ground) -> None:
    """It may ask for what it has used lately, and a little more."""
    types = ["g5.2xlarge", "g6.2xlarge", "g6e.2xlarge"]
    with pytest.raises(ClientError, match="recent Spot usage"):
        ground.aws.ec2.get_spot_placement_scores(InstanceTypes=types, TargetCapacity=1000)


def test_list_prices_are_the_markets(aws: Aws) -> None:
    """The price list says of a type what the market charges on-demand, if every filter is right."""
    attributes = {
        "regionCode": "us-east-1",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "instanceType": "g5.2xlarge",
    }
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in attributes.items()]
    pricing = aws.client("pricing")
    (entry,) = pricing.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
    (term,) = json.loads(entry)["terms"]["OnDemand"].values()
    (rate,) = term["priceDimensions"].values()
    assert (rate["unit"], float(rate["pricePerUnit"]["USD"])) == ("Hrs", 1.212)
    loose = pricing.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2", Filters=filters[:2], PaginationConfig={"PageSize": 50, "MaxItems": 120}
    )
    listed = [entry for page in loose for entry in page["PriceList"]]
    assert len(set(listed)) == 120, "page by page, and nothing twice"


def test_list_prices_need_their_permission(aws: Aws) -> None:
    """IAM is asked for the price list as for everything else."""
    allowed = {"Effect": "Allow", "Action": "pricing:GetProducts", "Resource": "*"}
    query = {"ServiceCode": "AmazonEC2", "MaxResults": 1}
    assert aws.assume(allowed).client("pricing").get_products(**query)["PriceList"]
    with pytest.raises(ClientError, match="AccessDenied"):
        aws.assume().client("pricing").get_products(**query)


def test_a_survey_for_a_service_without_a_gpu(aws: Aws) -> None:
    """What EC2 describes of 8+ vCPU is what the catalog says, in the same order, with a price for each."""
    wanted = Requirements(cpus=Amount(8, at_least=True), arch="x86_64")
    spec = replace(demo_spec(), subnets={"subnet-a": "us-east-1a"}, requirements=wanted)
    survey = AwsSurveyor(_clients(aws), MemoryTelemetry()).survey(spec, datetime.now(UTC))
    offered = list(dict.fromkeys(pool.instance_type for pool in survey.pools))
    assert offered == [t.name for t in find(wanted, catalog.all_types()).types if t.name in offered]
    assert len(offered) >= 10
    assert set(survey.on_demand_prices) == set(offered)


def test_a_survey_finds_what_the_market_has(aws: Aws) -> None:
    """The production surveyor over the local cloud: pools, prices and scores; a dry zone scores low."""
    clients = _clients(aws)
    spec = replace(
        demo_spec(),
        subnets={"subnet-a": "us-east-1a", "subnet-b": "us-east-1b"},
        requirements=Requirements(
            accelerators=(Accelerators("A10G", 1), Accelerators("L4", 1)),
            cpus=Amount(8, at_least=True),
            arch="x86_64",
        ),
    )
    telemetry = MemoryTelemetry()
    aws.local.dry_up(zone="us-east-1b", warn=False)
    survey = AwsSurveyor(clients, telemetry).survey(spec, datetime.now(UTC))
    aws.local.bring_back()
    assert {p.instance_type for p in survey.pools} >= {"g5.2xlarge", "g6.2xlarge", "g6.8xlarge"}
    assert {p.zone for p in survey.pools} == {"us-east-1a", "us-east-1b"}
    assert survey.on_demand_prices["g5.2xlarge"] == 1.212
    assert set(survey.on_demand_prices) == {p.instance_type for p in survey.pools}
    assert set(survey.spot_prices) == set(survey.pools)
    assert all(price < survey.on_demand_prices[p.instance_type] for p, price in survey.spot_prices.items())
    assert survey.scores["us-east-1b"] == 1
    assert survey.scores["us-east-1a"] > 5
    assert telemetry.records == []


def test_public_ami_parameters_are_there(aws: Aws) -> None:
    """The images that services boot by default can be looked up as in any account."""
    for name in (DEFAULT_IMAGE.format(arch="x86_64"), PLAIN_IMAGE.format(arch="amd64")):
        value = aws.client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
        assert value.startswith("ami-")


def _clients(aws: Aws) -> Clients:
    session = boto3.Session("test", "test", region_name="us-east-1")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", aws.endpoint)
        clients = Clients(session)
        assert clients.ec2_surveying
        assert clients.pricing
        assert clients.service_quotas
    return clients
