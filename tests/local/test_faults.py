"""What a test can have go wrong with AWS calls: errors, lost answers, functions that are killed."""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from lab.local.client import LocalCloudError
from tests.local.conftest import Aws, Ground, eventually

pytestmark = pytest.mark.xdist_group("local")

CODE = """
import boto3

def handler(event, context):
    instance_id = event["Records"][0]["body"]
    boto3.client("ec2").create_tags(Resources=[instance_id], Tags=[{"Key": "n", "Value": "1"}])
"""


class Tagger:
    """A function on a queue that tags the instance that a message names."""

    def __init__(self, aws: Aws) -> None:
        self.name = f"tagger-{uuid.uuid4().hex[:8]}"
        self._aws = aws
        iam = aws.client("iam")
        trust = {
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
        role = iam.create_role(
            RoleName=self.name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]})
        )
        allowed = {"Effect": "Allow", "Action": ["ec2:*", "sqs:*", "logs:*"], "Resource": "*"}
        iam.put_role_policy(
            RoleName=self.name, PolicyName="p", PolicyDocument=json.dumps({"Statement": [allowed]})
        )
        package = io.BytesIO()
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr("main.py", CODE)
        aws.client("lambda").create_function(
            FunctionName=self.name, Runtime="python3.13", Role=role["Role"]["Arn"], Handler="main.handler",
            Code={"ZipFile": package.getvalue()}, Timeout=30,
        )  # fmt: skip
        self._queue = aws.sqs.create_queue(QueueName=self.name)["QueueUrl"]
        arn = aws.sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])["Attributes"]
        aws.client("lambda").create_event_source_mapping(
            EventSourceArn=arn["QueueArn"], FunctionName=self.name, BatchSize=1
        )

    def tag(self, instance_id: str) -> None:
        """Have an instance tagged."""
        self._aws.sqs.send_message(QueueUrl=self._queue, MessageBody=instance_id)

    def is_done(self) -> bool:
        """Whether no message is left."""
        found = self._aws.sqs.get_queue_attributes(
            QueueUrl=self._queue,
            AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        )["Attributes"]
        return all(int(number) == 0 for number in found.values())

    def errors(self) -> float:
        """Failed invocations, as CloudWatch counts them."""
        points = self._aws.client("cloudwatch").get_metric_statistics(
            Namespace="AWS/Lambda", MetricName="Errors", Statistics=["Sum"], StartTime=0,
            Dimensions=[{"Name": "FunctionName", "Value": self.name}], EndTime=4_000_000_000, Period=60,
        )["Datapoints"]  # fmt: skip
        return float(sum(point["Sum"] for point in points))


def tags_of(aws: Aws, instance_id: str) -> list[str]:
    """Names of the instance's tags."""
    found = aws.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
    return [tag["Key"] for tag in found.get("Tags", [])]


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_function_fails_and_its_message_comes_back(ground: Ground, *, after: bool) -> None:
    """A function killed at a call counts as failed; its message comes back, and the call is made again.

    Before the call took effect there is one in the log in the end, after it two.
    """
    aws = ground.aws
    (instance_id,) = ground.running()
    tagger = Tagger(aws)
    start = len(aws.local.calls())
    aws.local.inject_fault("CreateTags", role=tagger.name, kill=True, after=after)
    tagger.tag(instance_id)
    eventually(lambda: tagger.errors() == 1, "the function has failed")
    assert ("n" in tags_of(aws, instance_id)) is after
    eventually(tagger.is_done, "the message has been processed")
    assert "n" in tags_of(aws, instance_id)
    assert tagger.errors() == 1
    assert aws.local.faults() == []
    calls = [c for c in aws.local.calls(since=start) if c["role"] == tagger.name]
    assert [c["action"] for c in calls if c["action"] == "CreateTags"] == ["CreateTags"] * (1 + after)


def expect_lost_answer(aws: Aws, action: str, call: Callable[[], object]) -> None:
    """Make the call and lose its answer: the caller gets the error, the log says that it went well."""
    start = len(aws.local.calls())
    aws.local.inject_fault(action, "InternalError", status=500, after=True)
    with pytest.raises(ClientError, match="InternalError") as error:
        call()
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    calls = [c for c in aws.local.calls(since=start) if c["action"] == action]
    assert [(c["status"], c["error_code"]) for c in calls] == [(200, "")]


def test_a_lost_answer_is_that_of_a_call_that_took_effect(ground: Ground) -> None:
    """The instance that the caller knows nothing of was launched: our own actions lose answers."""
    known = len(ground.aws.local.instances())
    expect_lost_answer(ground.aws, "CreateFleet", lambda: ground.fleet(["g5.2xlarge"]))
    assert len(ground.aws.local.instances()) == known + 1


def test_an_answer_of_ministack_gets_lost_too(aws: Aws) -> None:
    """The queue that the caller knows nothing of is there."""
    name = f"queue-{uuid.uuid4().hex[:8]}"
    expect_lost_answer(aws, "CreateQueue", lambda: aws.sqs.create_queue(QueueName=name))
    assert aws.sqs.get_queue_url(QueueName=name)["QueueUrl"]


def test_an_outage_strikes_one_service_for_one_role_for_its_time(aws: Aws) -> None:
    """Every call of the role to the service fails until the time is over; nobody else notices."""
    allowed = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    somebody = aws.assume(allowed)
    role = somebody.client("sts").get_caller_identity()["Arn"].split("/")[1]
    aws.local.inject_fault("sqs:*", "InternalError", status=503, role=role, for_s=1)
    for _ in range(2):
        with pytest.raises(ClientError, match="InternalError"):
            somebody.sqs.list_queues()
    aws.sqs.list_queues()
    somebody.ec2.describe_vpcs()
    eventually(lambda: aws.local.faults() == [], "the outage is over")
    somebody.sqs.list_queues()


def test_a_fault_that_makes_no_sense_is_refused(aws: Aws) -> None:
    """Killing needs the role of a function, and what happens after a call must be said."""
    with pytest.raises(LocalCloudError, match="kill needs role"):
        aws.local.inject_fault("CreateFleet", kill=True)
    with pytest.raises(LocalCloudError, match="after needs error_code or kill"):
        aws.local.inject_fault("CreateFleet", after=True)
    with pytest.raises(LocalCloudError, match="CreateFleet has none that can be thinned"):
        aws.local.inject_fault("CreateFleet", answer="empty")
    with pytest.raises(LocalCloudError, match="answer needs a call that succeeds"):
        aws.local.inject_fault("DescribeInstances", "Throttling", answer="empty")
    with pytest.raises(LocalCloudError, match='expected "empty" or "partial"'):
        aws.local.inject_fault("DescribeInstances", answer="half")  # type: ignore[arg-type]  # that's the test


def test_a_warned_instance_that_is_terminated_all_the_same_shows(ground: Ground) -> None:
    """The record of an interruption says when somebody terminated the instance, which costs its refund."""
    first, second = ground.running(2)
    for instance_id in (first, second):
        ground.aws.local.warn(instance_id)
    ground.aws.ec2.terminate_instances(InstanceIds=[second])
    by_id = {i["instance_id"]: i for i in ground.aws.local.interruptions()}
    assert by_id[first]["terminated_at"] is None
    assert by_id[second]["terminated_at"] >= by_id[second]["warned_at"]


def test_instances_are_missing_in_a_successful_answer(ground: Ground) -> None:
    """DescribeInstances shows none of the running instances, or every second one, and then all again."""
    ids = ground.running(4)
    ec2, local = ground.aws.ec2, ground.aws.local

    def shown() -> list[str]:
        pages = ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "instance-id", "Values": ids}]
        )
        return [i["InstanceId"] for page in pages for r in page["Reservations"] for i in r["Instances"]]

    everything = shown()
    assert sorted(everything) == sorted(ids)
    local.inject_fault("DescribeInstances", answer="empty")
    assert shown() == []
    local.inject_fault("DescribeInstances", answer="partial")
    assert shown() == everything[::2]
    assert shown() == everything
    local.inject_fault("DescribeSpotInstanceRequests", answer="empty")
    assert ec2.describe_spot_instance_requests()["SpotInstanceRequests"] == []


def test_targets_are_missing_in_a_successful_answer(ground: Ground) -> None:
    """DescribeTargetHealth shows none of the registered targets, or every second one."""
    elb = ground.aws.elb
    group = elb.create_target_group(
        Name=f"tg-{uuid.uuid4().hex[:8]}", Protocol="HTTP", Port=8081, VpcId=ground.vpc
    )["TargetGroups"][0]["TargetGroupArn"]
    ids = ground.running(2)
    elb.register_targets(TargetGroupArn=group, Targets=[{"Id": i} for i in ids])

    def shown() -> list[str]:
        rows = elb.describe_target_health(TargetGroupArn=group)["TargetHealthDescriptions"]
        return [row["Target"]["Id"] for row in rows]

    ground.aws.local.inject_fault("DescribeTargetHealth", answer="empty", for_s=600)
    assert (shown(), shown()) == ([], [])
    ground.aws.local.clear_faults()
    ground.aws.local.inject_fault("DescribeTargetHealth", answer="partial")
    assert shown() == ids[:1]
    assert shown() == ids


def test_parameters_are_missing_though_they_are_there(aws: Aws) -> None:
    """Parameters that exist are missing from a path, invalid by name, or not found."""
    ssm, path = aws.client("ssm"), f"/{uuid.uuid4().hex[:8]}"
    names = [f"{path}/{n}" for n in range(3)]
    for name in names:
        ssm.put_parameter(Name=name, Value="x", Type="String")

    def by_path() -> list[str]:
        return [p["Name"] for p in ssm.get_parameters_by_path(Path=path)["Parameters"]]

    def by_name() -> tuple[list[str], list[str]]:
        answer = ssm.get_parameters(Names=names)
        return [p["Name"] for p in answer["Parameters"]], sorted(answer["InvalidParameters"])

    for answer, left in (("empty", []), ("partial", names[::2])):
        aws.local.inject_fault("ssm:GetParametersByPath", answer=answer)  # type: ignore[arg-type]  # it is one
        assert by_path() == left
        aws.local.inject_fault("GetParameters", answer=answer)  # type: ignore[arg-type]  # it is one
        assert by_name() == (left, [name for name in names if name not in left])
    aws.local.inject_fault("GetParameter", "ParameterNotFound")
    with pytest.raises(ssm.exceptions.ParameterNotFound):
        ssm.get_parameter(Name=names[0])
    assert ssm.get_parameter(Name=names[0])["Parameter"]["Value"] == "x"
    assert (by_path(), by_name()) == (names, (names, []))


def test_a_fault_may_be_about_one_thing(ground: Ground) -> None:
    """Calls about something else are left alone, and such faults can be forgotten by themselves."""
    local, ids = ground.aws.local, ground.running(2)

    def shown() -> list[bool]:
        return [bool(ground.aws.ec2.describe_instances(InstanceIds=[id_])["Reservations"]) for id_ in ids]

    for id_ in ids:
        local.inject_fault("DescribeInstances", answer="empty", about=id_, for_s=600)
    assert shown() == [False, False]
    local.clear_faults(about=ids[1])
    assert shown() == [False, True]
    local.clear_faults()
    assert shown() == [True, True]
