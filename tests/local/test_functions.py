"""Functions of the local cloud run our Python with their role's permissions and nothing more."""

from __future__ import annotations

import io
import json
import re
import uuid
import zipfile
from typing import Any

import pytest

from tests.local.conftest import Aws, eventually
from tests.template.conftest import ROOT

pytestmark = pytest.mark.xdist_group("local")

CODE = """
import boto3, json, os, time

QUEUES = []

def handler(event, context):
    if event.get("Records", [{}])[0].get("body", "").startswith("http"):
        QUEUES or QUEUES.append(boto3.client("sqs"))
        for record in event["Records"]:  # to the same queue: the next invocation
            QUEUES[0].send_message(QueueUrl=record["body"], MessageBody=record["body"])
        return
    if "fail" in event:
        raise ValueError(event["fail"])
    if "sleep_s" in event:
        time.sleep(event["sleep_s"])
        return {"remaining_ms": context.get_remaining_time_in_millis()}
    if "Records" in event:
        directive = {"Namespace": "Functions", "Dimensions": [["name"]], "Metrics": [{"Name": "Seen"}]}
        metrics = {"CloudWatchMetrics": [directive]}
        print(json.dumps({"_aws": metrics, "name": context.function_name, "Seen": 1}))
        return
    try:
        boto3.client("ec2").describe_instances()
    except Exception as error:
        return {"code": error.response["Error"]["Code"], "home": os.environ.get("AWS_PROFILE")}
"""


def make_function(aws: Aws, *actions: str, timeout_s: int = 30, log_format: str = "Text") -> str:
    """A function whose role may do these things."""
    name, iam = f"f-{uuid.uuid4().hex[:8]}", aws.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
    if actions:
        policy = {"Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": "*"}]}
        iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=json.dumps(policy))
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("main.py", CODE)
    aws.client("lambda").create_function(
        FunctionName=name, Runtime="python3.13", Role=role["Role"]["Arn"], Handler="main.handler",
        Code={"ZipFile": package.getvalue()}, Timeout=timeout_s, LoggingConfig={"LogFormat": log_format},
    )  # fmt: skip
    return name


def invoke(aws: Aws, name: str) -> Any:
    """Its answer."""
    return json.load(aws.client("lambda").invoke(FunctionName=name, Payload=b"{}")["Payload"])


def total(aws: Aws, namespace: str, metric: str, dimension: tuple[str, str]) -> float:
    """The sum of everything that the metric ever got."""
    points = aws.client("cloudwatch").get_metric_statistics(
        Namespace=namespace, MetricName=metric, Dimensions=[{"Name": dimension[0], "Value": dimension[1]}],
        StartTime=0, EndTime=4_000_000_000, Period=60, Statistics=["Sum"],
    )["Datapoints"]  # fmt: skip
    return float(sum(point["Sum"] for point in points))


def test_a_function_may_do_what_its_role_may(aws: Aws) -> None:
    """Without the permission its call is refused, with it the call works, and the log names the role."""
    start = len(aws.local.calls())
    assert invoke(aws, make_function(aws))["code"] == "UnauthorizedOperation"
    allowed = make_function(aws, "ec2:DescribeInstances")
    assert invoke(aws, allowed) is None
    calls = [c for c in aws.local.calls(since=start) if c["action"] == "DescribeInstances"]
    assert [(c["status"], c["role"] == allowed) for c in calls] == [(403, False), (200, True)]


def test_a_function_on_a_queue_makes_metrics(aws: Aws) -> None:
    """An invocation by a queue counts as one, and what the function logs as metrics becomes metrics."""
    name = make_function(aws, "sqs:*", "logs:*")
    url = aws.sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    aws.client("lambda").create_event_source_mapping(EventSourceArn=arn, FunctionName=name, BatchSize=1)
    aws.sqs.send_message(QueueUrl=url, MessageBody="hello")
    function = ("FunctionName", name)
    eventually(lambda: total(aws, "AWS/Lambda", "Invocations", function) == 1, "one invocation is counted")
    assert total(aws, "AWS/Lambda", "Errors", function) == 0
    assert total(aws, "Functions", "Seen", ("name", name)) == 1


def send_to_itself(aws: Aws, setting: str | None) -> tuple[str, str]:
    """A function that sends each message to its own queue again, with one under way; its dead letters."""
    name = make_function(aws, "sqs:*")
    dead = aws.queue()
    url, arn = aws.queue()
    redrive = {"deadLetterTargetArn": dead[1], "maxReceiveCount": 2}
    attributes = {"RedrivePolicy": json.dumps(redrive), "VisibilityTimeout": "30"}
    aws.sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)  # type: ignore[arg-type]  # literals
    if setting:
        aws.client("lambda").put_function_recursion_config(FunctionName=name, RecursiveLoop=setting)
    aws.client("lambda").create_event_source_mapping(EventSourceArn=arn, FunctionName=name, BatchSize=1)
    aws.sqs.send_message(QueueUrl=url, MessageBody=url)
    return name, dead[0]


def test_a_function_that_invokes_itself_through_a_queue_is_stopped(aws: Aws) -> None:
    """By default it runs 16 times in a chain. Then Lambda drops the message, which ends as a dead letter."""
    name, dead = send_to_itself(aws, None)
    function = ("FunctionName", name)
    found = eventually(lambda: aws.sqs.receive_message(QueueUrl=dead).get("Messages"), "it is a dead letter")
    assert len(found) == 1
    assert total(aws, "AWS/Lambda", "Invocations", function) == 16
    assert total(aws, "AWS/Lambda", "RecursiveInvocationsDropped", function) == 2, "as often as received"
    assert aws.local.longest_chains()[name] == 17


def test_a_function_that_may_invoke_itself_goes_on(aws: Aws) -> None:
    """Where its setting is Allow, a chain has no end; other chains through its queue are counted apart."""
    name, _ = send_to_itself(aws, "Allow")
    eventually(lambda: aws.local.longest_chains().get(name, 0) > 100, "a hundred in one chain")
    assert total(aws, "AWS/Lambda", "RecursiveInvocationsDropped", ("FunctionName", name)) == 0
    aws.client("lambda").put_function_recursion_config(FunctionName=name, RecursiveLoop="Terminate")


def test_schedules_are_compressed(aws: Aws) -> None:
    """With --schedule-s 1, a rule that fires every minute fires every second."""
    name = f"rule-{uuid.uuid4().hex[:8]}"
    url, arn = aws.queue("events.amazonaws.com")
    events = aws.client("events")
    events.put_rule(Name=name, ScheduleExpression="rate(1 minute)")
    events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": arn}])

    def fired() -> int:
        attributes = ["ApproximateNumberOfMessages"]
        got = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=attributes)  # type: ignore[arg-type]  # literals
        return int(got["Attributes"]["ApproximateNumberOfMessages"])

    eventually(lambda: fired() >= 2, "it fires twice, well within two minutes")
    events.disable_rule(Name=name)


def test_a_function_is_ended_at_its_time_out(aws: Aws) -> None:
    """In the middle of whatever it does; until then it knows how much time it has left."""
    name, function = make_function(aws, timeout_s=2), aws.client("lambda")
    answer = json.load(function.invoke(FunctionName=name, Payload=b'{"sleep_s": 0.5}')["Payload"])
    assert 0 < answer["remaining_ms"] <= 1500
    ended = function.invoke(FunctionName=name, Payload=b'{"sleep_s": 8}')
    assert ended["FunctionError"]
    assert b"timed out" in ended["Payload"].read()


@pytest.mark.parametrize("log_format", ["JSON", "Text"])
def test_a_time_out_is_a_status(aws: Aws, log_format: str) -> None:
    """Lambda writes no *Task timed out* any more: its report has the status, in either format."""
    name = make_function(aws, timeout_s=1, log_format=log_format)
    for event in ({"sleep_s": 0}, {"sleep_s": 8}):
        aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())
    lines = logged(aws, name)
    assert not any("timed out" in line for line in lines)
    if log_format == "Text":
        reports = [line for line in lines if line.startswith("REPORT")]
        assert ["Status: timeout" in line for line in reports] == [False, True]
    else:
        events = [json.loads(line) for line in lines]
        found = [event["record"]["status"] for event in events if event["type"] == "platform.report"]
        assert found == ["success", "timeout"]


@pytest.mark.parametrize("alarm", ["ReconcileErrors", "OnSignalErrors"])
def test_the_runbooks_search_finds_what_rings(aws: Aws, alarm: str) -> None:
    """Of three invocations, the error and the time-out, and nothing of the one that went well."""
    section = (ROOT / "docs/operations.md").read_text(encoding="utf-8").partition(f"### {alarm}\n")[2]
    (pattern,) = re.findall(r"--filter-pattern '([^']*)'", section.partition("###")[0])
    name = make_function(aws, timeout_s=1, log_format="JSON")
    for event in ({"sleep_s": 0}, {"fail": "out of luck"}, {"sleep_s": 8}):
        aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())
    error, report = (json.loads(line) for line in logged(aws, name, pattern))
    assert (error["errorType"], error["errorMessage"]) == ("ValueError", "out of luck")
    assert any("raise ValueError" in line for line in error["stackTrace"])
    assert report["record"]["status"] == "timeout"


def logged(aws: Aws, name: str, pattern: str = "") -> list[str]:
    """Lines of a function's log, in order; each has an ID of its own, as CloudWatch gives it."""
    events = aws.client("logs").filter_log_events(logGroupName=f"/aws/lambda/{name}", filterPattern=pattern)
    assert len({event["eventId"] for event in events["events"]}) == len(events["events"])
    return [str(event["message"]) for event in events["events"]]


def test_a_function_that_sleeps_refuses_the_call_that_wakes_it(aws: Aws) -> None:
    """As one in a VPC that wasn't called for weeks: an error of Lambda's, not of the function."""
    name, function = make_function(aws), aws.client("lambda")
    aws.local.inject_fault("lambda:InvokeFunction", "ResourceNotReadyException", status=502)
    with pytest.raises(function.exceptions.ResourceNotReadyException):
        function.invoke(FunctionName=name, Payload=b'{"sleep_s": 0}')
    assert "FunctionError" not in function.invoke(FunctionName=name, Payload=b'{"sleep_s": 0}')


def test_an_account_runs_so_many_functions_at_once(aws: Aws) -> None:
    """Beyond its quota Lambda throttles every function, whatever it is, until another has ended."""
    lambda_, asleep, other = aws.client("lambda"), make_function(aws), make_function(aws)

    def is_throttled() -> bool:
        try:
            invoke(aws, other)
        except lambda_.exceptions.TooManyRequestsException:
            return True
        return False

    try:
        aws.local.set_quota("L-B99A9384", 1)
        payload = json.dumps({"sleep_s": 5})
        lambda_.invoke(FunctionName=asleep, InvocationType="Event", Payload=payload)
        eventually(is_throttled, "the account's only place is taken")
        eventually(lambda: not is_throttled(), "it is free again")
    finally:
        aws.local.set_quota("L-B99A9384", None)
