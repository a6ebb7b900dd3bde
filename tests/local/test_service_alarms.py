"""A service's alarms as its stack makes them: they ring by what ticks tell, and follow an earlier stack's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.local.metrics import MORE_PERIODS
from spotrelay.plane.core.names import (
    ALARM_DIMENSION,
    ALARMS_PREFIX,
    INCIDENT,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    Alarm,
    alarms_prefix,
)
from stacks.alarms import TOPIC_NAME
from stacks.application import SERVICE_PREFIX
from stacks.settings import AppSettings
from tests.local.conftest import Aws, eventually
from tests.template.conftest import SERVICE_FILES, synthesize
from tests.template.support import LOOK_BACKS, Template

pytestmark = pytest.mark.xdist_group("local")

SERVICE = "demo"
EARLIER = Path(__file__).parents[1] / "upgrade" / "alarms-2026-11-27.json"
"""The alarms of the same service in the version before they heard of incidents: composite ones among them."""


class Deployed:
    """The alarms, and a queue that hears what they tell."""

    def __init__(self, aws: Aws, queue: str) -> None:
        self._aws, self._queue = aws, queue
        self._cloudwatch = aws.client("cloudwatch")

    def hear(self, alarm: Alarm, value: float, minutes_ago: float = 0) -> None:
        """What a tick tells an alarm, or told it some time ago."""
        datum = {
            "MetricName": INCIDENT,
            "Value": value,
            "Timestamp": datetime.now(UTC) - timedelta(minutes=minutes_ago),
            "Dimensions": [
                {"Name": METRICS_DIMENSION, "Value": SERVICE},
                {"Name": ALARM_DIMENSION, "Value": alarm.value},
            ],
        }
        self._cloudwatch.put_metric_data(Namespace=METRICS_NAMESPACE, MetricData=[datum])

    def state(self, alarm: Alarm) -> str:
        """An alarm's state."""
        name = f"{alarms_prefix(SERVICE)}{alarm}"
        (found,) = self._cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"]
        return str(found["StateValue"])

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
    """The alarms of a service's stack that hear from ticks, without the rest of it."""
    settings = AppSettings(services=(Path(SERVICE_FILES[SERVICE]),))
    assembly = synthesize(tmp_path_factory.mktemp("assembly"), settings)
    resources = Template.read(assembly, SERVICE_PREFIX + SERVICE).body["Resources"]
    chosen = {
        id_: {key: value for key, value in resource.items() if key in ("Type", "Properties")}
        for id_, resource in resources.items()
        if resource["Properties"].get("MetricName") == INCIDENT
    }
    return {"Resources": chosen}


@pytest.fixture
def topic(aws: Aws) -> Iterator[str]:
    """The alarms' topic."""
    sns = aws.client("sns")
    arn: str = sns.create_topic(Name=TOPIC_NAME)["TopicArn"]
    yield arn
    sns.delete_topic(TopicArn=arn)


@pytest.fixture(params=LOOK_BACKS, ids="{} more periods".format)
def deployed(
    aws: Aws, topic: str, template: dict[str, Any], request: pytest.FixtureRequest
) -> Iterator[Deployed]:
    """Deployed by CloudFormation, and told that all is well; however far CloudWatch looks back."""
    aws.local.look_back(request.param)
    url, arn = aws.queue("sns.amazonaws.com")
    aws.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    deploy(aws, template)
    found = Deployed(aws, url)
    found.hear(Alarm.NOT_WHOLE, 0)
    eventually(lambda: found.state(Alarm.NOT_WHOLE) == "OK", "it hears that all is well")
    assert found.heard() == []
    yield found
    remove(aws)
    aws.local.look_back(MORE_PERIODS)


def deploy(aws: Aws, template: dict[str, Any], *, is_update: bool = False) -> None:
    """By CloudFormation."""
    cloudformation = aws.client("cloudformation")
    act = cloudformation.update_stack if is_update else cloudformation.create_stack
    act(StackName="alarms", TemplateBody=json.dumps(template))
    waiter = cloudformation.get_waiter(f"stack_{'update' if is_update else 'create'}_complete")
    waiter.wait(StackName="alarms", WaiterConfig={"Delay": 1})


def remove(aws: Aws) -> None:
    """The stack; nothing is left of it."""
    cloudformation = aws.client("cloudformation")
    cloudformation.delete_stack(StackName="alarms")
    cloudformation.get_waiter("stack_delete_complete").wait(StackName="alarms", WaiterConfig={"Delay": 1})
    assert names(aws) == set()


def names(aws: Aws) -> set[str]:
    """Those of all alarms of ours."""
    found = aws.client("cloudwatch").describe_alarms(
        AlarmNamePrefix=ALARMS_PREFIX, AlarmTypes=["CompositeAlarm", "MetricAlarm"]
    )
    return {alarm["AlarmName"] for kind in ("CompositeAlarms", "MetricAlarms") for alarm in found[kind]}


def test_an_incident_rings_and_clears(deployed: Deployed, aws: Aws) -> None:
    """By one 1, and by one 0 in a later minute; nothing in between changes nothing, for an hour."""
    deployed.hear(Alarm.NOT_WHOLE, 1)
    eventually(lambda: deployed.heard() == [("NotWhole", "ALARM")], "it is told")
    aws.local.age_metrics(3600)
    assert deployed.state(Alarm.NOT_WHOLE) == "ALARM"
    deployed.hear(Alarm.NOT_WHOLE, 0)
    eventually(lambda: deployed.heard() == [("NotWhole", "OK")], "its end is told")
    assert deployed.state(Alarm.CRASH_LOOPING) == "INSUFFICIENT_DATA", "it heard nothing"


def test_a_zero_in_the_minute_of_a_one_is_no_end(deployed: Deployed, aws: Aws) -> None:
    """An alarm looks at the maximum: whoever sends its zeros too early leaves it on."""
    deployed.hear(Alarm.NOT_WHOLE, 1)
    deployed.hear(Alarm.NOT_WHOLE, 0)
    eventually(lambda: deployed.state(Alarm.NOT_WHOLE) == "ALARM", "it rings")
    aws.local.age_metrics(600)
    assert deployed.state(Alarm.NOT_WHOLE) == "ALARM"


def test_an_earlier_stack_is_updated(aws: Aws, topic: str, template: dict[str, Any]) -> None:
    """What was there is gone, composite alarms and their parts; by each name there is one alarm all the time.

    With the old names it can't be done: a metric alarm can't have the name of a composite one, and
    CloudFormation makes the new before it deletes the old.
    """
    earlier = json.loads(EARLIER.read_text(encoding="utf-8"))
    deploy(aws, earlier)
    before = {name for name in names(aws) if name.count("/") == 2}
    with pytest.raises(ClientError, match="NotWhole"):
        aws.client("cloudwatch").put_metric_alarm(
            AlarmName=f"{ALARMS_PREFIX}{SERVICE}/NotWhole", Namespace="x", MetricName="y", Period=60,
            Threshold=1, EvaluationPeriods=1, Statistic="Sum", ComparisonOperator="GreaterThanThreshold",
        )  # fmt: skip
    deploy(aws, template, is_update=True)
    after = {resource["Properties"]["AlarmName"] for resource in template["Resources"].values()}
    assert names(aws) == after
    assert {name.replace(f"{SERVICE}/", f"{SERVICE}.") for name in before} == after
    remove(aws)


def test_a_bad_alarm_is_refused(aws: Aws) -> None:
    """Metric math that can't be read, as CloudWatch refuses it."""
    cloudwatch = aws.client("cloudwatch")
    query = {"Id": "e", "Expression": "ready < 1", "ReturnData": True}
    with pytest.raises(ClientError, match="nothing has the ID ready"):
        cloudwatch.put_metric_alarm(
            AlarmName="bad", Metrics=[query], EvaluationPeriods=1, Threshold=1,
            ComparisonOperator="GreaterThanThreshold",
        )  # fmt: skip
    assert not cloudwatch.describe_alarms(AlarmNames=["bad"])["MetricAlarms"]


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
