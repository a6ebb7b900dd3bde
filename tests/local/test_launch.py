"""CreateFleet and RunInstances of the local cloud behave as EC2's."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.local.quotas import PLENTY
from lab.local.seeds import ROOT_VOLUMES
from tests.local.conftest import Ground, eventually

pytestmark = pytest.mark.xdist_group("local")

OFF = """#cloud-config
write_files:
- path: /opt/spotrelay/run.sh
  content: systemctl poweroff
"""


def test_fleet_honours_template_overrides_and_tags(ground: Ground) -> None:
    """A Spot instance carries its template's tags and the request's, and lives in its override's subnet."""
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "spotrelay:service", "Value": "demo"}]}]
    answer = ground.fleet(["g5.2xlarge"], TagSpecifications=tags)
    row = answer["Instances"][0]
    assert row["Lifecycle"] == "spot"
    assert row["InstanceType"] == "g5.2xlarge"
    assert row["LaunchTemplateAndOverrides"]["LaunchTemplateSpecification"]["Version"] == "1"
    reservation = ground.aws.ec2.describe_instances(InstanceIds=row["InstanceIds"])["Reservations"][0]
    instance = reservation["Instances"][0]
    found = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert found == {
        "from": "template",
        "spotrelay:service": "demo",
        "aws:ec2launchtemplate:id": ground.template,
        "aws:ec2launchtemplate:version": "1",
        "aws:ec2:fleet-id": answer["FleetId"],
    }
    assert instance["SubnetId"] in ground.subnets
    assert instance["InstanceLifecycle"] == "spot"
    assert instance["SpotInstanceRequestId"].startswith("sir-")


def test_user_data_has_a_limit(ground: Ground) -> None:
    """16 KiB before base64, in gzip or not."""
    place: Any = {"SubnetId": ground.subnets[0], "InstanceType": "g6.2xlarge", "MinCount": 1, "MaxCount": 1}
    template: Any = {"LaunchTemplateId": ground.template}

    def run(data: Any) -> None:
        ground.aws.ec2.run_instances(LaunchTemplate=template, UserData=data, **place)

    with pytest.raises(ClientError, match="User data is limited to 16384 bytes"):
        run(b"#" * 16_385)
    run(b"#" * 16_384)
    run(gzip.compress(b"#" * 100_000))


def test_an_instance_that_powers_itself_off(ground: Ground) -> None:
    """It stops, unless it was launched to be terminated then."""
    place: Any = {"SubnetId": ground.subnets[0], "InstanceType": "g6.2xlarge", "MinCount": 1, "MaxCount": 1}
    template: Any = {"LaunchTemplateId": ground.template}
    for behaviour, state in ((None, "stopped"), ("stop", "stopped"), ("terminate", "terminated")):
        more: Any = {"InstanceInitiatedShutdownBehavior": behaviour} if behaviour else {}
        answer = ground.aws.ec2.run_instances(LaunchTemplate=template, UserData=OFF, **place, **more)
        id_ = answer["Instances"][0]["InstanceId"]
        eventually(lambda: ground.states([id_]) == [state], f"{id_} is {state}")  # noqa: B023 - called at once
        described = ground.aws.ec2.describe_instances(InstanceIds=[id_])["Reservations"][0]["Instances"][0]
        assert described["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


@pytest.mark.parametrize("key", ["team/search", "cost center", "_index"])
def test_a_tag_that_metadata_cannot_have_refuses_the_launch(ground: Ground, key: str) -> None:
    """In EC2's words, where instances may read their tags; elsewhere such a tag is fine."""
    tags = [{"ResourceType": "instance", "Tags": [{"Key": key, "Value": "x"}]}]
    assert ground.fleet(["g5.2xlarge"], TagSpecifications=tags)["Instances"]
    refused = replace(ground, template=template_with_tags(ground)).fleet(
        ["g5.2xlarge"], TagSpecifications=tags
    )
    assert refused["Instances"] == []
    assert {error["ErrorCode"] for error in refused["Errors"]} == {"InvalidParameterValue"}
    assert refused["Errors"][0]["ErrorMessage"].startswith(
        rf"'{key}' is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{{1,255}}), and"
    )


def template_with_tags(ground: Ground) -> str:
    """A launch template whose instances may read their tags."""
    return ground.aws.ec2.create_launch_template(
        LaunchTemplateName=f"tags-{ground.template}",
        LaunchTemplateData={
            "ImageId": "ami-0abcdef1234567890",
            "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
        },
    )["LaunchTemplate"]["LaunchTemplateId"]


def test_partial_success_is_http_200_with_instances_and_errors(ground: Ground) -> None:
    """What the pools hold comes as instances, what they lack as errors, in one successful answer."""
    ground.aws.local.set_capacity(instance_type="g6.4xlarge", spot=1)
    answer = ground.fleet(["g6.4xlarge"], 3)
    assert sum(len(row["InstanceIds"]) for row in answer["Instances"]) == 2
    assert {error["ErrorCode"] for error in answer["Errors"]} == {"InsufficientInstanceCapacity"}
    assert answer["Errors"][0]["Lifecycle"] == "spot"


def test_dry_spot_pools_refuse_and_on_demand_still_launches(ground: Ground) -> None:
    """With every Spot pool dry a Spot fleet gets errors only, and an on-demand one its first priority."""
    ground.aws.local.dry_up(warn=False)
    refused = ground.fleet(["g6.2xlarge", "g5.2xlarge"], 1)
    assert refused["Instances"] == []
    assert {error["ErrorCode"] for error in refused["Errors"]} == {"UnfulfillableCapacity"}
    assert len(refused["Errors"]) == 4
    granted = ground.fleet(["g6.2xlarge", "g5.2xlarge"], 1, option="on-demand")
    assert granted["Instances"][0]["InstanceType"] == "g6.2xlarge"
    assert granted["Instances"][0]["Lifecycle"] == "on-demand"


def test_type_that_the_zone_lacks_is_an_error_beside_the_instances(ground: Ground) -> None:
    """An impossible override spoils nothing for the others."""
    answer = ground.fleet(["g9.nonsense", "g5.2xlarge"], 20)
    codes = {error["ErrorCode"] for error in answer["Errors"]}
    assert "InvalidFleetConfiguration" in codes
    assert answer["Instances"]


def test_same_token_launches_once(ground: Ground) -> None:
    """The same request with the same token gets the first answer again, another request a refusal."""
    first = ground.fleet(["g5.2xlarge"], ClientToken=f"token-{ground.template}")
    again = ground.fleet(["g5.2xlarge"], ClientToken=f"token-{ground.template}")
    assert first["FleetId"] == again["FleetId"]
    assert first["Instances"] == again["Instances"]
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        ground.fleet(["g5.2xlarge"], 2, ClientToken=f"token-{ground.template}")


@pytest.mark.parametrize(
    ("template", "version", "code"),
    [
        ("lt-00000000000000000", "1", r"InvalidLaunchTemplateId\.NotFound"),
        (None, "7", r"InvalidLaunchTemplateId\.VersionNotFound"),
    ],
)
def test_unknown_template_or_version_is_refused(
    ground: Ground, template: str | None, version: str, code: str
) -> None:
    """A launch names a template and a version that exist, or nothing is launched."""
    specification = {"LaunchTemplateId": template or ground.template, "Version": version}
    with pytest.raises(ClientError, match=code):
        ground.fleet([], LaunchTemplateConfigs=[{"LaunchTemplateSpecification": specification}])


def test_run_instances_honours_the_template(ground: Ground) -> None:
    """RunInstances takes image and tags from its template, and goes where it is told."""
    reservation = ground.aws.ec2.run_instances(
        MinCount=1,
        MaxCount=2,
        InstanceType="g5.xlarge",
        SubnetId=ground.subnets[1],
        LaunchTemplate={"LaunchTemplateId": ground.template},
    )
    assert len(reservation["Instances"]) == 2
    instance = reservation["Instances"][0]
    assert instance["ImageId"] == "ami-0abcdef1234567890"
    assert instance["Placement"]["AvailabilityZone"] == "us-east-1b"
    assert instance["State"]["Name"] == "pending"
    assert {tag["Key"]: tag["Value"] for tag in instance["Tags"]} == {
        "from": "template",
        "aws:ec2launchtemplate:id": ground.template,
        "aws:ec2launchtemplate:version": "1",
    }


def test_no_launch_sets_tags_of_awss(ground: Ground) -> None:
    """A fleet or a launch that asks for a tag that is AWS's to give is refused as a whole."""
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "aws:ec2:fleet-id", "Value": "fleet-1"}]}]
    known = len(ground.aws.local.instances())
    with pytest.raises(ClientError, match=r"InvalidParameterValue.*reserved for internal use"):
        ground.fleet(["g5.2xlarge"], TagSpecifications=tags)
    with pytest.raises(ClientError, match=r"InvalidParameterValue.*reserved for internal use"):
        ground.aws.ec2.run_instances(
            MinCount=1,
            MaxCount=1,
            InstanceType="g5.xlarge",
            LaunchTemplate={"LaunchTemplateId": ground.template},
            TagSpecifications=tags,  # type: ignore[arg-type]  # keys are right
        )
    assert len(ground.aws.local.instances()) == known


def test_a_tag_key_stands_in_a_request_once(ground: Ground) -> None:
    """A fleet that gives its instances two tags with one key is refused as a whole."""
    tags = [{"Key": "Name", "Value": value} for value in ("one", "other")]
    with pytest.raises(ClientError, match=r"InvalidParameterValue.*Duplicate tag key 'Name' specified"):
        ground.fleet(["g5.2xlarge"], TagSpecifications=[{"ResourceType": "instance", "Tags": tags}])


@pytest.mark.parametrize(("size_gib", "device", "is_refused"), [
    (74, "/dev/sda1", True),
    (75, "/dev/sda1", False),
    (8, "/dev/sdb", False),
])  # fmt: skip
def test_a_root_volume_holds_its_snapshot(
    ground: Ground, size_gib: int, device: str, *, is_refused: bool
) -> None:
    """A root volume smaller than the image's snapshot is an error in the answer; a second disk isn't."""
    mapping = {"DeviceName": device, "Ebs": {"VolumeSize": size_gib, "VolumeType": "gp3"}}
    image = next(iter(ROOT_VOLUMES))
    ground.aws.ec2.create_launch_template_version(
        LaunchTemplateId=ground.template,
        LaunchTemplateData={"ImageId": image, "BlockDeviceMappings": [mapping]},  # type: ignore[list-item]  # its keys are right
    )
    answer = ground.fleet(["g5.2xlarge"])
    if not is_refused:
        assert answer["Instances"]
        return
    assert answer["Instances"] == []
    assert {error["ErrorCode"] for error in answer["Errors"]} == {"InvalidBlockDeviceMapping"}
    assert answer["Errors"][0]["ErrorMessage"].endswith("expect size >= 75GB")


def test_run_instances_without_capacity_fails_as_a_server_error(ground: Ground) -> None:
    """For RunInstances a lack of capacity is an error, and EC2's own fault."""
    ground.aws.local.dry_up(instance_type="g5.xlarge", warn=False)
    with pytest.raises(ClientError, match="InsufficientInstanceCapacity") as error:
        ground.aws.ec2.run_instances(
            MinCount=1,
            MaxCount=1,
            InstanceType="g5.xlarge",
            InstanceMarketOptions={"MarketType": "spot"},
            LaunchTemplate={"LaunchTemplateId": ground.template},
        )
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500


def test_injected_fault_strikes_as_often_as_asked(ground: Ground) -> None:
    """A throttled CreateFleet fails with the injected code and status, once, and then works."""
    ground.aws.local.inject_fault("CreateFleet", "RequestLimitExceeded", status=503)
    with pytest.raises(ClientError, match="RequestLimitExceeded") as error:
        ground.fleet(["g5.2xlarge"])
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert ground.fleet(["g5.2xlarge"])["Instances"]


def test_pools_count_what_is_in_use(ground: Ground) -> None:
    """A launched instance holds its place until it is terminated, and then gives it back."""
    (instance_id,) = ground.running(1, ["g6e.2xlarge"])
    used = [p for p in ground.aws.local.pools(instance_type="g6e.2xlarge") if p["spot_in_use"]]
    assert len(used) == 1
    ground.aws.ec2.terminate_instances(InstanceIds=[instance_id])
    eventually(
        lambda: not [p for p in ground.aws.local.pools(instance_type="g6e.2xlarge") if p["spot_in_use"]],
        "the place is free again",
    )


@pytest.mark.parametrize(
    ("option", "code", "refused"),
    [
        ("spot", "L-3819A6DF", "MaxSpotInstanceCountExceeded"),
        ("on-demand", "L-DB2E81BA", "VcpuLimitExceeded"),
    ],
)
def test_a_quota_refuses_by_ec2s_code(ground: Ground, option: str, code: str, refused: str) -> None:
    """What fits into the account's quota is launched, the rest refused; in a new account that is all."""
    quotas = ground.aws.client("service-quotas")
    try:
        for vcpus, launched in ((20, 2), (0, 0)):
            ground.aws.local.set_quota(code, vcpus)
            known = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
            assert (known["Value"], known["QuotaCode"]) == (vcpus, code)
            answer = ground.fleet(["g5.2xlarge"], 3, option=option)
            assert sum(len(row["InstanceIds"]) for row in answer["Instances"]) == launched, "8 vCPU each"
            assert {error["ErrorCode"] for error in answer["Errors"]} == {refused}
    finally:
        ground.aws.local.set_quota(code, None)
    state = ground.aws.local.pools(instance_type="g5.2xlarge")
    assert sum(pool[f"{option.replace('-', '_')}_in_use"] for pool in state) == 2, "no place is lost"


def test_a_quota_that_was_never_changed_has_a_default_alone(ground: Ground) -> None:
    """Service Quotas doesn't retrieve it; nor Lambda's concurrency, which Lambda tells."""
    quotas = ground.aws.client("service-quotas")
    for service, code, default in (("ec2", "L-6B0D517C", PLENTY), ("lambda", "L-B99A9384", 1000)):
        asked = {"ServiceCode": service, "QuotaCode": code}
        with pytest.raises(ClientError, match="NoSuchResourceException"):
            quotas.get_service_quota(**asked)
        assert quotas.get_aws_default_service_quota(**asked)["Quota"]["Value"] == default
    assert ground.aws.client("lambda").get_account_settings()["AccountLimit"]["ConcurrentExecutions"]


def test_a_quota_that_there_isnt(ground: Ground) -> None:
    """AWS's own error, for a code that it doesn't know."""
    with pytest.raises(ClientError, match="NoSuchResourceException"):
        ground.aws.client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")


def test_an_image_that_is_gone_launches_nothing(ground: Ground) -> None:
    """EC2 refuses every launch from it, in an answer that succeeds."""
    image = "ami-0000000000000dead"
    template = ground.aws.ec2.create_launch_template(
        LaunchTemplateName="image-to-lose", LaunchTemplateData={"ImageId": image}
    )["LaunchTemplate"]["LaunchTemplateId"]
    config = {
        "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "$Latest"},
        "Overrides": [{"InstanceType": "g5.2xlarge", "SubnetId": ground.subnets[0]}],
    }
    assert ground.fleet([], LaunchTemplateConfigs=[config])["Instances"]
    ground.aws.local.lose_image(image)
    answer = ground.fleet([], LaunchTemplateConfigs=[config])
    (error,) = answer["Errors"]
    assert (answer["Instances"], error["ErrorCode"]) == ([], "InvalidAMIID.NotFound")
    assert image in error["ErrorMessage"]
    other, ec2 = "ami-00000000000000001", ground.aws.ec2
    asked: Any = [{"Name": "image-id", "Values": [image, other]}]
    assert [found["ImageId"] for found in ec2.describe_images(Filters=asked)["Images"]] == [other]
    with pytest.raises(ClientError, match=r"InvalidAMIID\.NotFound"):
        ec2.describe_images(ImageIds=[other, image])
    ground.aws.local.find_image(image)
    assert ground.fleet([], LaunchTemplateConfigs=[config])["Instances"]
