"""IAM policies hold for the actions that the local cloud answers itself."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.local.client import LocalCloudError
from tests.local.conftest import Ground, eventually

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


def test_launches_can_be_limited_to_launch_templates(ground: Ground) -> None:
    """ec2:LaunchTemplate is there for what comes from a template, in RunInstances, and not in CreateFleet."""
    template = f"arn:aws:ec2:us-east-1:000000000000:launch-template/{ground.template}"
    condition = {"ArnLike": {"ec2:LaunchTemplate": "arn:aws:ec2:us-east-1:000000000000:launch-template/*"}}
    request = allow("ec2:RunInstances", Resource="arn:aws:ec2:*:*:spot-instances-request/*")
    run = [allow("ec2:RunInstances", Condition=condition), request, allow("ec2:CreateTags")]
    somebody = ground.aws.assume(*run, allow("ec2:CreateFleet"))
    assert ground.fleet(["g5.2xlarge"], by=somebody)["Instances"]
    one: dict[str, Any] = {"MinCount": 1, "MaxCount": 1, "InstanceType": "g5.2xlarge"}
    place: dict[str, Any] = {"SubnetId": ground.subnets[0], "ImageId": "ami-0abcdef1234567890"}
    with pytest.raises(ClientError, match=r"UnauthorizedOperation.*ec2:RunInstances"):
        somebody.ec2.run_instances(**one, **place)
    exact = {"ArnLike": {"ec2:LaunchTemplate": template}}
    asker = ground.aws.assume(*run, allow("ec2:CreateFleet", Condition=exact))
    with pytest.raises(ClientError, match=r"UnauthorizedOperation.*ec2:CreateFleet"):
        ground.fleet(["g5.2xlarge"], by=asker)


def test_what_a_template_says_can_be_made_binding(ground: Ground) -> None:
    """ec2:IsLaunchTemplateResource is false for an image that the request names, beside a template or not."""
    binding = {"Bool": {"ec2:IsLaunchTemplateResource": "true"}}
    images = allow("ec2:RunInstances", Resource="arn:aws:ec2:*::image/*", Condition=binding)
    rest = {"Effect": "Allow", "Action": LAUNCH, "NotResource": "arn:aws:ec2:*::image/*"}
    somebody = ground.aws.assume(images, rest, allow("ec2:CreateFleet"))
    one: dict[str, Any] = {"MinCount": 1, "MaxCount": 1, "InstanceType": "g5.2xlarge"}
    place: dict[str, Any] = {
        "SubnetId": ground.subnets[0],
        "LaunchTemplate": {"LaunchTemplateId": ground.template},
    }
    assert somebody.ec2.run_instances(**one, **place)["Instances"]
    with pytest.raises(ClientError, match=r"UnauthorizedOperation.*image/ami-0fedcba9876543210"):
        somebody.ec2.run_instances(**one, **place, ImageId="ami-0fedcba9876543210")


def test_a_fleet_that_may_use_reservations_needs_the_right_to(ground: Ground) -> None:
    """With use-capacity-reservations-first both actions are asked for on capacity-reservation/*."""
    reservations = {"Effect": "Allow", "NotResource": "arn:aws:ec2:*:*:capacity-reservation/*"}
    options = {"CapacityReservationOptions": {"UsageStrategy": "use-capacity-reservations-first"}}
    fleet: dict[str, Any] = {"option": "on-demand", "OnDemandOptions": options}
    run_only = ground.aws.assume({**reservations, "Action": "ec2:CreateFleet"}, allow(*LAUNCH[1:]))
    with pytest.raises(ClientError, match=r"UnauthorizedOperation.*ec2:CreateFleet.*capacity-reservation"):
        ground.fleet(["g5.2xlarge"], by=run_only, **fleet)
    fleet_only = ground.aws.assume(allow("ec2:CreateFleet"), {**reservations, "Action": LAUNCH[1:]})
    answer = ground.fleet(["g5.2xlarge"], by=fleet_only, **fleet)
    assert {error["ErrorCode"] for error in answer["Errors"]} == {"UnauthorizedOperation"}
    assert ground.fleet(["g5.2xlarge"], by=ground.aws.assume(allow("ec2:*")), **fleet)["Instances"]


def test_items_can_be_limited_by_their_partition(ground: Ground) -> None:
    """dynamodb:LeadingKeys decides for single writes, batches, and each write of a transaction by itself."""
    dynamodb, table = ground.aws.client("dynamodb"), f"table-{uuid.uuid4().hex[:8]}"
    keys = [("PK", "HASH"), ("SK", "RANGE")]
    dynamodb.create_table(
        TableName=table, BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
    )  # fmt: skip

    def only(partition: str) -> dict[str, Any]:
        return {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [partition]}}

    somebody = ground.aws.assume(
        allow("dynamodb:PutItem", Condition=only("ours#*")),
        allow("dynamodb:DeleteItem", Condition=only("done#*")),
        allow("dynamodb:BatchGetItem", Condition=only("ours#*")),
    ).client("dynamodb")

    def key(partition: str) -> dict[str, Any]:
        return {"PK": {"S": partition}, "SK": {"S": "x"}}

    def both(put: str, delete: str) -> None:
        writes = [{"Put": {"TableName": table, "Item": key(put)}}]
        writes.append({"Delete": {"TableName": table, "Key": key(delete)}})
        somebody.transact_write_items(TransactItems=writes)

    somebody.put_item(TableName=table, Item=key("ours#1"))
    both("ours#2", "done#1")
    somebody.batch_get_item(RequestItems={table: {"Keys": [key("ours#1"), key("ours#2")]}})
    for refused in (
        lambda: somebody.put_item(TableName=table, Item=key("theirs#1")),
        lambda: both("ours#3", "ours#1"),
        lambda: both("done#1", "done#2"),
        lambda: somebody.batch_get_item(RequestItems={table: {"Keys": [key("ours#1"), key("theirs#1")]}}),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            refused()


def test_a_rule_reaches_a_queue_by_its_policy_only(ground: Ground) -> None:
    """Of two queues that a rule names, the one whose policy doesn't let EventBridge write gets nothing."""
    events, name = ground.aws.client("events"), f"rule-{uuid.uuid4().hex[:8]}"
    (open_, arn), (closed, closed_arn) = ground.aws.queue("events.amazonaws.com"), ground.aws.queue()
    events.put_rule(Name=name, EventPattern=json.dumps({"source": [name]}))
    targets = [{"Id": "1", "Arn": closed_arn}, {"Id": "2", "Arn": arn}]
    events.put_targets(Rule=name, Targets=targets)
    events.put_events(Entries=[{"Source": name, "DetailType": "d", "Detail": "{}"}])
    eventually(lambda: ground.aws.sqs.receive_message(QueueUrl=open_).get("Messages"), "the event arrives")
    assert "Messages" not in ground.aws.sqs.receive_message(QueueUrl=closed)


def test_decisions_tell_what_a_call_needs(ground: Ground) -> None:
    """Every action that IAM was asked for is counted by role, those behind CreateFleet, too."""
    somebody = ground.aws.assume(allow("ec2:CreateFleet", "ec2:RunInstances"))
    ground.fleet(["g5.2xlarge"], by=somebody)
    with pytest.raises(ClientError):
        somebody.sqs.list_queues()
    # Others, before, may have asked for queues as somebody else.
    role = [call["role"] for call in ground.aws.local.calls() if call["action"] == "ListQueues"][-1]
    asked = {d["action"]: d for d in ground.aws.local.decisions() if d["role"] == role}
    assert asked["ec2:CreateFleet"]["allowed"] > 0 == asked["ec2:CreateFleet"]["refused"]
    assert asked["ec2:RunInstances"]["allowed"] > 0
    assert asked["ec2:CreateTags"]["refused"] > 0 == asked["ec2:CreateTags"]["allowed"]
    assert asked["sqs:ListQueues"]["refused"] == 1


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
