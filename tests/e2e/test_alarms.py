"""The deployed alarms on our own metrics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spotrelay.plane.core.names import (
    ALARM_DIMENSION,
    INCIDENT,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    Alarm,
    Metric,
    alarms_prefix,
)
from tests.e2e.stand import SERVICE, Stand


@pytest.fixture(scope="module")
def subscriber(deployed: Stand) -> str:
    """URL of a queue that gets what the alarms' topic publishes, as an operator's mailbox would."""
    sqs, sns = (deployed.operator.session.client(name) for name in ("sqs", "sns"))
    url: str = sqs.create_queue(QueueName="subscriber")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    write = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": arn}
    statement = {**write, "Principal": {"Service": "sns.amazonaws.com"}}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    sns.subscribe(TopicArn=deployed.outputs["AlarmTopic"], Protocol="sqs", Endpoint=arn)
    return url


@pytest.mark.parametrize(
    ("metric", "dimensions", "alarm"),
    [
        (
            INCIDENT,
            {METRICS_DIMENSION: SERVICE, ALARM_DIMENSION: Alarm.BETTER_ELSEWHERE},
            f"{alarms_prefix(SERVICE)}{Alarm.BETTER_ELSEWHERE}",
        ),
        (
            Metric.ACTION_REQUIRED,
            {METRICS_DIMENSION: METRICS_NO_SERVICE},
            f"{alarms_prefix()}ActionRequired",
        ),
    ],
)
def test_what_must_not_stay_unseen_rings(
    stand: Stand, subscriber: str, metric: str, dimensions: dict[str, str], alarm: str
) -> None:
    """Counted once, the metric sets off its alarm, and who subscribed to the topic hears it."""
    datum = {
        "MetricName": metric,
        "Value": 1,
        "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
    }
    cloudwatch = stand.operator.session.client("cloudwatch")
    cloudwatch.put_metric_data(Namespace=METRICS_NAMESPACE, MetricData=[datum])
    sqs, heard = stand.operator.session.client("sqs"), set[str]()

    def rang() -> bool:
        messages: list[Any] = sqs.receive_message(QueueUrl=subscriber, MaxNumberOfMessages=10).get(
            "Messages", []
        )
        alarms = (json.loads(json.loads(message["Body"])["Message"]) for message in messages)
        heard.update(a["AlarmName"] for a in alarms if a["NewStateValue"] == "ALARM")
        return alarm in heard

    stand.eventually(rang, f"the topic's subscribers hear of {alarm}")


def test_a_certificate_that_expires_reaches_the_alarms_subscribers(stand: Stand, subscriber: str) -> None:
    """Through the deployed rule and the topic's policy, with its name and the days that are left."""
    sqs = stand.operator.session.client("sqs")
    sqs.purge_queue(QueueUrl=subscriber)
    arn = "arn:aws:acm:us-east-1:000000000000:certificate/00000000-0000-0000-0000-000000000000"
    stand.cloud.certificate_expires(arn, "chat.example.com", 17)
    told: list[str] = []

    def is_told() -> bool:
        for message in sqs.receive_message(QueueUrl=subscriber).get("Messages", []):
            said = json.loads(json.loads(message["Body"])["Message"])
            told.append(said.get("content", {}).get("description", ""))
        return any(told)

    stand.eventually(is_told, "the topic's subscribers hear of the certificate")
    assert "The certificate for chat.example.com expires in 17 days." in "".join(told)
