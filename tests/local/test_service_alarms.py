"""A service's alarms, deployed as its stack has them: what they say of metrics, and whom they tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.local.metrics import MORE_PERIODS
from spotrelay.core.names import METRICS_DIMENSION, METRICS_NAMESPACE, Metric, alarms_prefix
from stacks.alarms import TOPIC_NAME
from stacks.application import SERVICE_PREFIX
from stacks.settings import AppSettings
from tests.local.conftest import Aws, eventually
from tests.template.conftest import SERVICE_FILES, synthesize
from tests.template.support import LOOK_BACKS, Template

pytestmark = pytest.mark.xdist_group("local")

SERVICE = "demo"
REPLICAS = 3
LONG_S = 900
"""Longer than any of these alarms looks back, a week's apart."""


class Deployed:
    """The alarms, and a queue that hears what they tell."""

    def __init__(self, aws: Aws, queue: str) -> None:
        self._aws, self._queue = aws, queue
        self._cloudwatch = aws.client("cloudwatch")

    def count(self, ready: int, minutes: int = 7) -> None:
        """What ticks counted in the last minutes; what was before is long ago."""
        self._aws.local.age_metrics(LONG_S)
        values = {
            Metric.REPLICAS_READY: ready,
            Metric.REPLICAS_MISSING: REPLICAS - ready,
            Metric.REPLICAS_UNLAUNCHED: 0,
        }
        now = datetime.now(UTC)
        data = [
            {
                "MetricName": metric.value,
                "Value": value,
                "Timestamp": now - timedelta(seconds=60 * minute + 1),
                "Dimensions": [{"Name": METRICS_DIMENSION, "Value": SERVICE}],
            }
            for metric, value in values.items()
            for minute in range(minutes)
        ]
        self._cloudwatch.put_metric_data(Namespace=METRICS_NAMESPACE, MetricData=data)

    def alarms(self) -> dict[str, dict[str, Any]]:
        """By the last part of their names."""
        prefix = alarms_prefix(SERVICE)
        found = self._cloudwatch.describe_alarms(
            AlarmNamePrefix=prefix, AlarmTypes=["CompositeAlarm", "MetricAlarm"]
        )
        alarms = [*found["CompositeAlarms"], *found["MetricAlarms"]]
        return {alarm["AlarmName"].removeprefix(prefix): alarm for alarm in alarms}

    def rings(self) -> set[str]:
        """Those that tell somebody and are in ALARM."""
        return {
            name
            for name, alarm in self.alarms().items()
            if alarm["StateValue"] == "ALARM" and alarm.get("AlarmActions")
        }

    def heard(self) -> list[tuple[str, str]]:
        """(alarm, state) of each message since the last time, of new alarms none."""
        found = []
        sqs = self._aws.sqs
        while messages := sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                told = json.loads(json.loads(message["Body"])["Message"])
                if told["OldStateValue"] != "INSUFFICIENT_DATA":
                    name = told["AlarmName"].removeprefix(alarms_prefix(SERVICE))
                    found.append((name, told["NewStateValue"]))
                sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])
        return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The alarms of a service's stack that look at replicas, without the rest of it."""
    settings = AppSettings(services=(Path(SERVICE_FILES[SERVICE]),))
    assembly = synthesize(tmp_path_factory.mktemp("assembly"), settings)
    resources = Template.read(assembly, SERVICE_PREFIX + SERVICE).body["Resources"]
    kinds = ("NothingReady", "CannotLaunch", "CrashLooping", "NotWhole")
    chosen = {
        id_: {key: value for key, value in resource.items() if key in ("Type", "Properties")}
        for id_, resource in resources.items()
        if str(resource["Properties"].get("AlarmName", "")).split("/")[2:3] in [[kind] for kind in kinds]
    }
    return {"Resources": chosen}


@pytest.fixture(params=LOOK_BACKS, ids="{} more periods".format)
def deployed(aws: Aws, template: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[Deployed]:
    """Deployed by CloudFormation, whole for a while; however far CloudWatch looks back."""
    aws.local.look_back(request.param)
    sns, cloudformation = aws.client("sns"), aws.client("cloudformation")
    topic = sns.create_topic(Name=TOPIC_NAME)["TopicArn"]
    url, arn = aws.queue("sns.amazonaws.com")
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    cloudformation.create_stack(StackName="alarms", TemplateBody=json.dumps(template))
    cloudformation.get_waiter("stack_create_complete").wait(StackName="alarms", WaiterConfig={"Delay": 1})
    found = Deployed(aws, url)
    found.count(REPLICAS)
    eventually(lambda: found.alarms()["NotWhole/Missing"]["StateValue"] == "OK", "what is whole is seen so")
    eventually(lambda: found.alarms()["NothingReady/NeverBefore"]["StateValue"] == "OK", "it was ready")
    assert found.heard() == []
    yield found
    cloudformation.delete_stack(StackName="alarms")
    cloudformation.get_waiter("stack_delete_complete").wait(StackName="alarms", WaiterConfig={"Delay": 1})
    assert found.alarms() == {}, "left over"
    aws.local.look_back(MORE_PERIODS)
    sns.delete_topic(TopicArn=topic)


def test_not_whole_rings_and_clears_when_metrics_say_so(deployed: Deployed, aws: Aws) -> None:
    """One is missing for long: it rings, tells so when nothing else explains it, and when it is over."""
    deployed.count(REPLICAS - 1)
    eventually(lambda: deployed.rings() == {"NotWhole"}, "NotWhole rings")
    assert deployed.alarms()["NotWhole"]["ActionsSuppressedBy"] == "WaitPeriod"
    assert deployed.heard() == []
    aws.local.age_metrics(LONG_S)
    eventually(lambda: deployed.heard() == [("NotWhole", "ALARM")], "it is told when the wait is over")
    assert "ActionsSuppressedBy" not in deployed.alarms()["NotWhole"]
    deployed.count(REPLICAS)
    eventually(lambda: deployed.rings() == set(), "it is over")
    eventually(lambda: deployed.heard() == [("NotWhole", "OK")], "that is told")


def test_a_short_lack_rings_nothing(deployed: Deployed) -> None:
    """One is missing for as long as a start takes."""
    deployed.count(REPLICAS)
    deployed.count(REPLICAS - 1, minutes=3)
    eventually(
        lambda: deployed.alarms()["NotWhole/Missing"]["StateReason"] != "Unchecked: Initial alarm creation",
        "it is looked at",
    )
    assert deployed.rings() == set()


def test_an_outage_is_told_once(deployed: Deployed) -> None:
    """Nothing is ready: NothingReady tells it, and NotWhole, which is so, too, holds its tongue."""
    deployed.count(0)
    eventually(lambda: deployed.rings() == {"NothingReady", "NotWhole"}, "both are so")
    eventually(lambda: deployed.alarms()["NotWhole"]["ActionsSuppressedBy"] == "Alarm", "one is suppressed")
    deployed.count(REPLICAS)
    eventually(lambda: deployed.rings() == set(), "it is over")
    assert deployed.heard() == [("NothingReady", "ALARM"), ("NothingReady", "OK")]


def test_a_bad_alarm_is_refused(aws: Aws) -> None:
    """Metric math that can't be read, and a suppressor without its periods, as CloudWatch refuses them."""
    cloudwatch = aws.client("cloudwatch")
    query = {"Id": "e", "Expression": "ready < 1", "ReturnData": True}
    common = {"EvaluationPeriods": 1, "Threshold": 1, "ComparisonOperator": "GreaterThanThreshold"}
    with pytest.raises(ClientError, match="nothing has the ID ready"):
        cloudwatch.put_metric_alarm(AlarmName="bad", Metrics=[query], **common)
    with pytest.raises(ClientError, match="together"):
        cloudwatch.put_composite_alarm(AlarmName="bad", AlarmRule="TRUE", ActionsSuppressor="other")
    with pytest.raises(ClientError, match="does not exist"):
        cloudwatch.put_composite_alarm(
            AlarmName="bad", AlarmRule="TRUE", ActionsSuppressor="other",
            ActionsSuppressorWaitPeriod=1, ActionsSuppressorExtensionPeriod=1,
        )  # fmt: skip
    assert not cloudwatch.describe_alarms(AlarmNames=["bad"], AlarmTypes=["CompositeAlarm", "MetricAlarm"])[
        "MetricAlarms"
    ]


def test_an_alarm_on_metric_math_rings(aws: Aws) -> None:
    """Made by PutMetricAlarm; what DescribeAlarms shows of it are its queries, and no single metric."""
    cloudwatch = aws.client("cloudwatch")
    queries = [
        {"Id": "e", "Expression": "a / b", "ReturnData": True},
        *(
            {
                "Id": id_,
                "MetricStat": {
                    "Metric": {"Namespace": "Math", "MetricName": id_}, "Period": 60, "Stat": "Sum"
                },
                "ReturnData": False,
            }
            for id_ in ("a", "b")
        ),
    ]  # fmt: skip
    cloudwatch.put_metric_alarm(
        AlarmName="math", Metrics=queries, EvaluationPeriods=1, Threshold=2, TreatMissingData="notBreaching",
        ComparisonOperator="GreaterThanThreshold",
    )  # fmt: skip

    def alarm() -> dict[str, Any]:
        (found,) = cloudwatch.describe_alarms(AlarmNames=["math"])["MetricAlarms"]
        return dict(found)

    assert alarm()["Metrics"] == queries
    assert "MetricName" not in alarm()
    data = [{"MetricName": name, "Value": value} for name, value in (("a", 9), ("b", 3))]
    cloudwatch.put_metric_data(Namespace="Math", MetricData=data)
    eventually(lambda: alarm()["StateValue"] == "ALARM", "9 / 3 is more than 2")
    cloudwatch.put_metric_data(Namespace="Math", MetricData=data[1:])
    eventually(lambda: alarm()["StateValue"] == "OK", "9 / 6 isn't")


def test_a_new_alarm_is_suppressed_from_the_start(aws: Aws) -> None:
    """What is so when it is made, and explained by an alarm that rings, is told nobody."""
    cloudwatch, sns = aws.client("cloudwatch"), aws.client("sns")
    topic = sns.create_topic(Name="suppressed")["TopicArn"]
    url, arn = aws.queue("sns.amazonaws.com")
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    cloudwatch.put_composite_alarm(AlarmName="greater", AlarmRule="TRUE")
    cloudwatch.put_composite_alarm(
        AlarmName="lesser", AlarmRule="TRUE", ActionsSuppressor="greater", AlarmActions=[topic],
        ActionsSuppressorWaitPeriod=0, ActionsSuppressorExtensionPeriod=0,
    )  # fmt: skip
    cloudwatch.put_composite_alarm(AlarmName="told", AlarmRule="TRUE", AlarmActions=[topic])
    (message,) = aws.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert json.loads(json.loads(message["Body"])["Message"])["AlarmName"] == "told"
    for name in ("lesser", "greater", "told"):
        cloudwatch.delete_alarms(AlarmNames=[name])
