"""IAM policies hold for the actions that the local cloud answers itself."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotrelay.local.client import LocalCloudError
from tests.local.conftest import Ground

pytestmark = pytest.mark.xdist_group("local")

LAUNCH = ["ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateTags"]


def allow(*actions: str, **more: Any) -> dict[str, Any]:
    """A statement."""
    return {"Effect": "Allow", "Action": list(actions), "Resource": "*", **more}


def test_role_without_create_fleet_is_refused(ground: Ground) -> None:
    """A role that may describe and nothing else can't launch, and the refusal names role and action."""
    somebody = ground.aws.assume(allow("ec2:DescribeInstances"))
    assert somebody.ec2.describe_instances()["ResponseMetadata"]["HTTPStatusCode"] == 200
    with pytest.raises(ClientError, match=r"UnauthorizedOperation.*ec2:CreateFleet"):
        ground.fleet(["g5.2xlarge"], by=somebody)


def test_fleet_without_run_instances_reports_it_among_its_errors(ground: Ground) -> None:
    """CreateFleet is allowed, the launch isn't: HTTP 200, no instances, UnauthorizedOperation, as on EC2."""
    somebody = ground.aws.assume(allow("ec2:CreateFleet", "ec2:CreateTags"))
    answer = ground.fleet(["g5.2xlarge"], by=somebody)
    assert answer["Instances"] == []
    assert {error["ErrorCode"] for error in answer["Errors"]} == {"UnauthorizedOperation"}


def test_launch_can_be_limited_to_tagged_instances_and_one_template(ground: Ground) -> None:
    """Conditions on the request's tags and on the template's ARN decide whether a fleet launches."""
    by_template = allow(*LAUNCH, Resource=f"arn:aws:ec2:*:*:launch-template/{ground.template}")
    parts = (
        "fleet",
        "image",
        "network-interface",
        "security-group",
        "spot-instances-request",
        "subnet",
        "volume",
    )
    the_rest = allow(*LAUNCH, Resource=[f"arn:aws:ec2:*:*:{part}/*" for part in parts])
    tagged = allow(
        *LAUNCH,
        Resource="arn:aws:ec2:*:*:instance/*",
        Condition={"Null": {"aws:RequestTag/spotrelay:service": "false"}},
    )
    somebody = ground.aws.assume(by_template, the_rest, tagged)
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ground.fleet(["g5.2xlarge"], by=somebody)
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "spotrelay:service", "Value": "demo"}]}]
    assert ground.fleet(["g5.2xlarge"], by=somebody, TagSpecifications=tags)["Instances"]


def test_terminate_can_be_limited_by_the_instances_tag(ground: Ground) -> None:
    """aws:ResourceTag decides for every instance of a call: one foreign instance, and none is terminated."""
    ours, foreign = ground.running(2)
    ground.aws.ec2.create_tags(Resources=[ours], Tags=[{"Key": "spotrelay:service", "Value": "demo"}])
    condition = {"Null": {"aws:ResourceTag/spotrelay:service": "false"}}
    somebody = ground.aws.assume(allow("ec2:TerminateInstances", Condition=condition))
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        somebody.ec2.terminate_instances(InstanceIds=[ours, foreign])
    assert ground.states([ours, foreign]) == ["running", "running"]
    somebody.ec2.terminate_instances(InstanceIds=[ours])
    assert ground.states([foreign]) == ["running"]


def test_targets_can_be_limited_by_the_groups_tag(ground: Ground) -> None:
    """aws:ResourceTag on the target group decides who may take instances out of rotation."""
    groups = [
        ground.aws.elb.create_target_group(
            Name=f"tg-{uuid.uuid4().hex[:8]}", Protocol="HTTP", Port=80, VpcId=ground.vpc,
            Tags=[{"Key": key, "Value": "demo"}],
        )["TargetGroups"][0]["TargetGroupArn"]
        for key in ("spotrelay:service", "other")
    ]  # fmt: skip
    (instance_id,) = ground.running(1)
    condition = {"StringEquals": {"aws:ResourceTag/spotrelay:service": "demo"}}
    somebody = ground.aws.assume(allow("elasticloadbalancing:*", Condition=condition))
    somebody.elb.deregister_targets(TargetGroupArn=groups[0], Targets=[{"Id": instance_id}])
    with pytest.raises(ClientError, match="AccessDenied"):
        somebody.elb.deregister_targets(TargetGroupArn=groups[1], Targets=[{"Id": instance_id}])


def test_wrong_secret_is_no_credential(ground: Ground) -> None:
    """A signature made with another secret is refused before any policy is asked."""
    key, _, token = ground.aws.assume(allow("*")).credentials
    forged = type(ground.aws)(ground.aws.endpoint, (key, "wrong", token))
    with pytest.raises(ClientError, match="AuthFailure"):
        forged.ec2.describe_instances()


def test_call_log_names_who_did_what(ground: Ground) -> None:
    """Every call is logged with action, status, error code and the role that made it."""
    start = len(ground.aws.local.calls())
    somebody = ground.aws.assume()
    with pytest.raises(ClientError):
        somebody.ec2.describe_instances()
    with pytest.raises(ClientError):
        somebody.sqs.list_queues()
    calls = ground.aws.local.calls(since=start)
    roles = {call["action"]: (call["role"][:5], call["status"], call["error_code"]) for call in calls}
    assert roles["CreateRole"] == ("", 200, "")
    assert roles["DescribeInstances"] == ("role-", 403, "UnauthorizedOperation")
    assert roles["ListQueues"][:2] == ("role-", 403)


def test_a_service_control_policy_denies_one_instance(ground: Ground) -> None:
    """Nobody may do what it denies, and a request that has the instance among others fails as a whole."""
    spared, other = ground.running(2)
    ground.aws.local.deny("ec2:TerminateInstances", spared)
    somebody = ground.aws.assume(allow("ec2:*"))
    for who in (ground.aws, somebody):
        with pytest.raises(
            ClientError,
            match=rf"UnauthorizedOperation.*{spared} with an explicit deny in a service control policy",
        ):
            who.ec2.terminate_instances(InstanceIds=[other, spared])
    assert ground.states([spared, other]) == ["running", "running"]
    somebody.ec2.terminate_instances(InstanceIds=[other])
    ground.aws.local.clear_faults()
    somebody.ec2.terminate_instances(InstanceIds=[spared])


def test_only_what_can_be_denied_is_taken(ground: Ground) -> None:
    """A policy on an action that the local cloud passes on would do nothing, so it is refused."""
    with pytest.raises(LocalCloudError, match="dynamodb:GetItem: actions that can be denied"):
        ground.aws.local.deny("dynamodb:GetItem", "table")
