"""What the stacks need of CloudFormation and IAM, and MiniStack lacks."""

from __future__ import annotations

import json
import uuid

import pytest
from botocore.exceptions import ClientError

from tests.local.conftest import Ground, eventually

pytestmark = pytest.mark.xdist_group("local")


def test_security_group_rules_are_resources(ground: Ground) -> None:
    """A rule between two groups, a resource of its own in the CDK, is in its group and goes with it."""
    rule = {
        "GroupId": {"Ref": "Inner"}, "SourceSecurityGroupId": {"Ref": "Outer"},
        "IpProtocol": "tcp", "FromPort": 8081, "ToPort": 8081,
    }  # fmt: skip
    group = {"GroupDescription": "test", "VpcId": ground.vpc}
    resources = {
        "Outer": {"Type": "AWS::EC2::SecurityGroup", "Properties": group},
        "Inner": {"Type": "AWS::EC2::SecurityGroup", "Properties": group},
        "Rule": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": rule},
    }
    cloudformation, name = ground.aws.client("cloudformation"), f"stack-{uuid.uuid4().hex[:8]}"

    def deploy(action: str, wanted: dict[str, object], status: str) -> None:
        getattr(cloudformation, action)(StackName=name, TemplateBody=json.dumps({"Resources": wanted}))
        eventually(
            lambda: cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"] == status,
            status,
        )

    def ports() -> list[int]:
        inner = cloudformation.describe_stack_resource(StackName=name, LogicalResourceId="Inner")
        group_id = inner["StackResourceDetail"]["PhysicalResourceId"]
        (found,) = ground.aws.ec2.describe_security_groups(GroupIds=[group_id])["SecurityGroups"]
        return [permission["FromPort"] for permission in found["IpPermissions"]]

    deploy("create_stack", dict(resources), "CREATE_COMPLETE")
    assert ports() == [8081]
    del resources["Rule"]
    deploy("update_stack", dict(resources), "UPDATE_COMPLETE")
    assert ports() == []


def test_a_policy_can_allow_one_path_of_parameters(ground: Ground) -> None:
    """GetParametersByPath is about its path: a role that may read one path can't read another."""
    somebody = ground.aws.assume(
        {
            "Effect": "Allow",
            "Action": "ssm:GetParametersByPath",
            "Resource": "arn:aws:ssm:us-east-1:000000000000:parameter/mine",
        }
    )
    ssm = somebody.client("ssm")
    assert ssm.get_parameters_by_path(Path="/mine")["Parameters"] == []
    with pytest.raises(ClientError, match="AccessDenied"):
        ssm.get_parameters_by_path(Path="/theirs")


def test_queues_may_demand_tls(ground: Ground) -> None:
    """A queue that denies plain HTTP works: the local cloud stands for the far end of TLS."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    deny = {
        "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }  # fmt: skip
    policy = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
    url = ground.aws.sqs.create_queue(QueueName=name, Attributes={"Policy": policy})["QueueUrl"]
    somebody = ground.aws.assume({"Effect": "Allow", "Action": "sqs:*", "Resource": "*"})
    assert somebody.sqs.send_message(QueueUrl=url, MessageBody="x")["MessageId"]
