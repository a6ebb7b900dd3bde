"""Metrics out of log lines, and alarms out of metrics."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab.local.metrics import LATE_S, Datum, alarm_state, embedded_metrics
from tests.local.conftest import PATIENCE_S, Aws, eventually


def line(**values: object) -> str:
    """A log line in the embedded metric format, with a metric M by service."""
    directive = {"Namespace": "N", "Dimensions": [["service"]], "Metrics": [{"Name": "M", "Unit": "Count"}]}
    return json.dumps(
        {"_aws": {"Timestamp": 1, "CloudWatchMetrics": [directive]}, "service": "demo", **values}
    )


def test_embedded_metrics_are_found() -> None:
    """Single values and lists of values become data with the dimensions of the line."""
    assert list(embedded_metrics(line(M=2))) == [Datum("N", "M", 2.0, "Count", {"service": "demo"})]
    assert [datum.value for datum in embedded_metrics(line(M=[1, 3.5]))] == [1.0, 3.5]


@pytest.mark.parametrize(
    "text", ["", "START RequestId: 1", '{"a": 1}', '{"_aws": 1}', '{"_aws": {"x', line()]
)
def test_other_lines_hold_no_metrics(text: str) -> None:
    """Plain lines, other JSON, broken JSON and a line without the metric's value are passed over."""
    assert list(embedded_metrics(text)) == []


ALARM = {"StateValue": "OK", "ComparisonOperator": "GreaterThanOrEqualToThreshold", "Threshold": 1}


@pytest.mark.parametrize(
    ("alarm", "periods", "state"),
    [
        ({}, [1.0], "ALARM"),
        ({}, [0.0], "OK"),
        ({}, [None], "INSUFFICIENT_DATA"),
        ({"TreatMissingData": "notBreaching"}, [None], "OK"),
        ({"TreatMissingData": "breaching"}, [None], "ALARM"),
        ({"TreatMissingData": "ignore", "StateValue": "ALARM"}, [None], "ALARM"),
        ({"EvaluationPeriods": 3, "DatapointsToAlarm": 2}, [1.0, 0.0, 1.0], "ALARM"),
        ({"EvaluationPeriods": 3, "DatapointsToAlarm": 2}, [1.0, 0.0, 0.0], "OK"),
        ({"EvaluationPeriods": 3}, [1.0, 1.0, 0.0], "OK"),
        # The examples of the user guide, newest first; three of three, and then two of three.
        ({"EvaluationPeriods": 3}, [1.0, None, 1.0, None, 0.0], "OK"),
        ({"EvaluationPeriods": 3}, [0.0, None, None, None, None], "OK"),
        ({"EvaluationPeriods": 3}, [None] * 5, "INSUFFICIENT_DATA"),
        ({"EvaluationPeriods": 3, "TreatMissingData": "ignore"}, [None] * 5, "OK"),
        ({"EvaluationPeriods": 3, "TreatMissingData": "breaching"}, [None] * 5, "ALARM"),
        ({"EvaluationPeriods": 3, "TreatMissingData": "notBreaching"}, [1.0, None, 1.0, 1.0, 0.0], "ALARM"),
        ({"EvaluationPeriods": 3}, [None, None, 1.0, None, None], "ALARM"),
        ({"EvaluationPeriods": 3}, [1.0, None, None, None, None], "OK"),
        ({"EvaluationPeriods": 3, "TreatMissingData": "ignore"}, [None, None, 1.0, None, None], "OK"),
        ({"EvaluationPeriods": 3, "TreatMissingData": "breaching"}, [0.0, None, None, None, None], "OK"),
        ({"EvaluationPeriods": 3, "DatapointsToAlarm": 2}, [None, None, 1.0, None, 0.0], "OK"),
        ({"EvaluationPeriods": 3, "DatapointsToAlarm": 2}, [None, 1.0, None, None, None], "ALARM"),
        (
            {"EvaluationPeriods": 3, "DatapointsToAlarm": 2, "TreatMissingData": "ignore"},
            [None, 1.0, None, None, None],
            "OK",
        ),
    ],
)
def test_alarm_state(alarm: dict[str, object], periods: list[float | None], state: str) -> None:
    """M out of N periods decide, and missing ones count as the alarm says."""
    assert alarm_state({**ALARM, **alarm}, periods)[0] == state


@pytest.mark.xdist_group("local")
def test_alarm_looks_at_its_own_queue_only(aws: Aws) -> None:
    """A message in one queue sets off that queue's alarm and leaves another's, which was idle, alone."""
    cloudwatch, names = aws.client("cloudwatch"), [f"q-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for name in names:
        url = aws.sqs.create_queue(QueueName=name)["QueueUrl"]
        cloudwatch.put_metric_alarm(
            AlarmName=name, Namespace="AWS/SQS", MetricName="ApproximateNumberOfMessagesVisible",
            Dimensions=[{"Name": "QueueName", "Value": name}], Statistic="Maximum", Period=60,
            EvaluationPeriods=1, Threshold=1, ComparisonOperator="GreaterThanOrEqualToThreshold",
        )  # fmt: skip
        if name == names[0]:
            aws.sqs.send_message(QueueUrl=url, MessageBody="x")

    def states() -> list[str]:
        alarms = cloudwatch.describe_alarms(AlarmNames=names)["MetricAlarms"]
        by_name = {alarm["AlarmName"]: alarm["StateValue"] for alarm in alarms}
        return [by_name[name] for name in names]

    eventually(lambda: states() == ["ALARM", "INSUFFICIENT_DATA"], "the first queue's alarm, and only that")


def measured(aws: Aws, queue_arn: str, metric: str) -> list[float]:
    """What SQS has said of a queue, by the minute."""
    found = aws.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/SQS", MetricName=metric, StartTime=0, EndTime=4_000_000_000, Period=60,
        Dimensions=[{"Name": "QueueName", "Value": queue_arn.rpartition(":")[2]}], Statistics=["Maximum"],
    )["Datapoints"]  # fmt: skip
    return [point["Maximum"] for point in found]


@pytest.mark.xdist_group("local")
def test_a_queue_that_was_idle_is_measured_late(aws: Aws) -> None:
    """A queue that nobody used has no metrics, and none for a while once it has a message.

    SQS's quarter of an hour is compressed as schedules are. What was received three times has no age.
    """
    (url, arn), (other_url, other) = aws.queue(), aws.queue()
    for queue in (url, other_url):
        aws.sqs.send_message(QueueUrl=queue, MessageBody="x")
    sent_at = time.monotonic()
    for _ in range(3):
        aws.sqs.receive_message(QueueUrl=other_url, VisibilityTimeout=0)
    visible, age = "ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"
    eventually(lambda: measured(aws, arn, visible) and measured(aws, other, visible), "they are measured")
    took_s = time.monotonic() - sent_at
    assert took_s >= LATE_S / 60
    assert {*measured(aws, arn, visible), *measured(aws, other, visible)} == {1.0}
    assert max(measured(aws, arn, age)) >= LATE_S / 60
    assert set(measured(aws, other, age)) == {0.0}


@pytest.mark.xdist_group("local")
def test_a_queue_that_is_called_is_measured(aws: Aws) -> None:
    """Whoever only asks it for something keeps it in use: it says that it is empty, and one that is left
    alone says nothing.
    """
    url, arn = aws.queue()
    other = f"{arn}-other"
    aws.sqs.create_queue(QueueName=other.rpartition(":")[2])  # a new one counts as idle
    visible = "ApproximateNumberOfMessagesVisible"

    def is_measured() -> bool:
        aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        return measured(aws, arn, visible) == [0.0]

    eventually(is_measured, "it is measured")
    assert measured(aws, other, visible) == []


@pytest.mark.xdist_group("local")
def test_embedded_metrics_of_a_log_become_metrics(aws: Aws) -> None:
    """A line in the embedded metric format, written to a log group, can be read from CloudWatch."""
    logs, group = aws.client("logs"), f"group-{uuid.uuid4().hex[:8]}"
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="s")
    event = {"timestamp": 1_700_000_000_000, "message": line(M=5)}
    logs.put_log_events(logGroupName=group, logStreamName="s", logEvents=[event])
    metrics = aws.client("cloudwatch").list_metrics(Namespace="N")["Metrics"]
    assert metrics[0]["Dimensions"] == [{"Name": "service", "Value": "demo"}]


@pytest.mark.xdist_group("local")
def test_a_metric_is_charged_by_the_hour(aws: Aws) -> None:
    """However many values it gets in one; another service's is another metric."""
    logs, group = aws.client("logs"), f"group-{uuid.uuid4().hex[:8]}"
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="s")
    at = int(time.time() * 1000)
    lines = [line(M=1), line(M=2), line(M=3).replace("demo", "other")]
    events = [{"timestamp": at, "message": one.replace('"N"', f'"{group}"')} for one in lines]
    logs.put_log_events(logGroupName=group, logStreamName="s", logEvents=events)
    bill = aws.local.bill()
    assert bill["metric_hours"][f"{group} M"] in (2, 3, 4), "an hour may end meanwhile"
    assert bill["usd"] == round(sum(bill["metric_hours"].values()) * 0.30 / 730, 4)


@pytest.mark.xdist_group("local")
@pytest.mark.parametrize("way", ["log", "call"])
def test_a_metric_sets_off_its_alarm(aws: Aws, way: str) -> None:
    """Whether a log line or PutMetricData made it, the alarm on it rings; one on another service doesn't."""
    cloudwatch, namespace = aws.client("cloudwatch"), f"ns-{uuid.uuid4().hex[:8]}"
    for service in ("demo", "other"):
        cloudwatch.put_metric_alarm(
            AlarmName=f"{namespace}-{service}", Namespace=namespace, MetricName="M", Statistic="Sum",
            Dimensions=[{"Name": "service", "Value": service}], Period=60, EvaluationPeriods=1, Threshold=1,
            ComparisonOperator="GreaterThanOrEqualToThreshold", TreatMissingData="notBreaching",
        )  # fmt: skip
    if way == "call":
        datum = {"MetricName": "M", "Value": 1, "Dimensions": [{"Name": "service", "Value": "demo"}]}
        cloudwatch.put_metric_data(Namespace=namespace, MetricData=[datum])
    else:
        logs, group = aws.client("logs"), f"group-{uuid.uuid4().hex[:8]}"
        logs.create_log_group(logGroupName=group)
        logs.create_log_stream(logGroupName=group, logStreamName="s")
        message = line(M=1).replace('"Namespace": "N"', f'"Namespace": "{namespace}"')
        events = [{"timestamp": 1_700_000_000_000, "message": message}]
        logs.put_log_events(logGroupName=group, logStreamName="s", logEvents=events)

    def states() -> list[str]:
        return [
            alarm["StateValue"]
            for service in ("demo", "other")
            for alarm in cloudwatch.describe_alarms(AlarmNames=[f"{namespace}-{service}"])["MetricAlarms"]
        ]

    eventually(lambda: states() == ["ALARM", "OK"], "the first service's alarm, and only that")


def topic_of(aws: Aws, name: str, statement: Mapping[str, object] | None) -> tuple[str, str]:
    """A topic's ARN, and the URL of a queue that gets what arrives there.

    `statement`: of who may publish, the only one of its policy; None: the policy that every topic has.
    """
    sns = aws.client("sns")
    topic = str(sns.create_topic(Name=name)["TopicArn"])
    if statement is not None:
        said = {"Action": "sns:Publish", "Resource": topic, **statement}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [said]})
        sns.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=policy)
    url, queue = aws.queue("sns.amazonaws.com")
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue)
    return topic, url


@pytest.mark.xdist_group("local")
@pytest.mark.parametrize(
    ("statement", "arrives"),
    [
        (None, True),
        ({"Effect": "Deny", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}, False),
        (
            {
                "Effect": "Allow",
                "Principal": {"Service": "cloudwatch.amazonaws.com"},
                "Condition": {"StringEquals": {"aws:SourceAccount": "000000000000"}},
            },
            True,
        ),
        (
            {
                "Effect": "Allow",
                "Principal": {"Service": "cloudwatch.amazonaws.com"},
                "Condition": {"StringEquals": {"aws:SourceAccount": "111111111111"}},
            },
            False,
        ),
    ],
    ids=["the policy that every topic has", "a policy that only denies", "for us", "for another account"],
)
def test_an_alarm_reaches_a_topic_by_its_policy_only(
    aws: Aws, statement: dict[str, object] | None, arrives: bool
) -> None:
    """A topic's own policy replaces the one that lets alarms publish: what it doesn't allow never arrives."""
    cloudwatch, name = aws.client("cloudwatch"), f"t-{uuid.uuid4().hex[:8]}"
    topic, url = topic_of(aws, name, {"Principal": "*", **statement} if statement else None)
    cloudwatch.put_metric_alarm(
        AlarmName=name, Namespace=name, MetricName="M", Statistic="Sum", Period=60, EvaluationPeriods=1,
        Threshold=1, ComparisonOperator="GreaterThanOrEqualToThreshold", AlarmActions=[topic],
    )  # fmt: skip
    cloudwatch.put_metric_data(Namespace=name, MetricData=[{"MetricName": "M", "Value": 1}])

    def rings() -> bool:
        (alarm,) = cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"]
        return bool(alarm["StateValue"] == "ALARM")

    eventually(rings, "the alarm rings")
    # The alarm's own actions come before anybody can see its state.
    assert bool(aws.sqs.receive_message(QueueUrl=url).get("Messages")) == arrives


@pytest.mark.xdist_group("local")
@pytest.mark.parametrize(
    ("condition", "arrives"),
    [
        ({}, True),
        ({"Condition": {"StringEquals": {"aws:SourceAccount": "000000000000"}}}, False),
        ({"Condition": {"ArnLike": {"aws:SourceArn": "arn:aws:events:*:000000000000:rule/*"}}}, False),
        (None, False),
    ],
    ids=["without a condition", "for an account", "for a rule", "the policy that every topic has"],
)
def test_an_event_reaches_a_topic_by_a_statement_without_conditions(
    aws: Aws, condition: dict[str, object] | None, arrives: bool
) -> None:
    """EventBridge tells SNS nothing of the rule: a condition on it never holds, and the event is lost."""
    events, name = aws.client("events"), f"t-{uuid.uuid4().hex[:8]}"
    allowed = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}}
    topic, url = topic_of(aws, name, None if condition is None else {**allowed, **condition})
    # What comes later shows that the topic's turn is over.
    seen, seen_queue = aws.queue("events.amazonaws.com")
    events.put_rule(Name=name, EventPattern=json.dumps({"source": ["aws.acm"]}))
    events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": topic}, {"Id": "2", "Arn": seen_queue}])
    aws.local.certificate_expires("arn:aws:acm:us-east-1:000000000000:certificate/1", "example.com", 31)

    def receive(at: str) -> list[Any]:
        return list(aws.sqs.receive_message(QueueUrl=at).get("Messages", []))

    (message,) = eventually(lambda: receive(seen), "the rule's other target gets it")
    event = json.loads(message["Body"])
    assert (event["source"], event["detail-type"]) == ("aws.acm", "ACM Certificate Approaching Expiration")
    assert event["detail"] == {"DaysToExpiry": 31, "CommonName": "example.com"}
    assert bool(receive(url)) == arrives


@pytest.mark.xdist_group("local")
def test_what_was_measured_can_be_made_older(aws: Aws) -> None:
    """CloudWatch has it two minutes earlier then; what is measured afterwards is of now."""
    cloudwatch, namespace = aws.client("cloudwatch"), f"ns-{uuid.uuid4().hex[:8]}"

    def ages_s() -> list[float]:
        now = datetime.now(UTC)
        query = {
            "Id": "m",
            "MetricStat": {"Metric": {"Namespace": namespace, "MetricName": "M"}, "Period": 1, "Stat": "Sum"},
        }
        answer = cloudwatch.get_metric_data(
            MetricDataQueries=[query],
            StartTime=now - timedelta(hours=1),
            EndTime=now + timedelta(minutes=1),
            ScanBy="TimestampAscending",
        )
        return [(now - at).total_seconds() for at in answer["MetricDataResults"][0]["Timestamps"]]

    cloudwatch.put_metric_data(Namespace=namespace, MetricData=[{"MetricName": "M", "Value": 1}])
    aws.local.age_metrics(120)
    cloudwatch.put_metric_data(Namespace=namespace, MetricData=[{"MetricName": "M", "Value": 1}])
    old, new = ages_s()
    assert 120 <= old - new < 120 + PATIENCE_S
    assert new < PATIENCE_S
