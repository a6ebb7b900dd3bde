"""The control plane: which events reach which function, and what happens to those that can't be handled."""

from __future__ import annotations

import re
from typing import Any

import pytest

from spotrelay.names import Env, Metric
from tests.template.support import (
    Template,
    denials_of_plain_http,
    flat,
    function,
    function_id,
    mapping_of,
    matches,
    queue_of,
    refers_to,
)

WARNING_S = 120


def _event(detail_type: str, source: str = "aws.ec2", **detail: str) -> dict[str, Any]:
    return {"source": source, "detail-type": detail_type, "detail": {"instance-id": "i-1", **detail}}


STATE_CHANGE = "EC2 Instance State-change Notification"

OURS = [
    _event("EC2 Spot Instance Interruption Warning", **{"instance-action": "terminate"}),
    _event("EC2 Instance Rebalance Recommendation"),
    *(
        _event(STATE_CHANGE, state=s)
        for s in ("running", "shutting-down", "terminated", "stopping", "stopped")
    ),
]

NOT_OURS = [
    _event(STATE_CHANGE, state="pending"),
    _event("EBS Volume Notification"),
    _event("EC2 Spot Instance Interruption Warning", source="my.tests"),
]


def _queues_reached(template: Template, what: dict[str, Any]) -> set[str]:
    return {
        refers_to(target["Arn"])
        for rule in template.all("AWS::Events::Rule").values()
        if "EventPattern" in rule and matches(rule["EventPattern"], what)
        for target in rule["Targets"]
    }


@pytest.mark.parametrize("what", OURS, ids=lambda e: e["detail"].get("state", e["detail-type"]))
def test_events_of_interest_reach_the_signal_queue(control_plane: Template, what: dict[str, Any]) -> None:
    """Every kind of event that the code understands is led to the signal queue, and only there."""
    assert _queues_reached(control_plane, what) == {queue_of(control_plane, "on_signal")}


@pytest.mark.parametrize("what", NOT_OURS, ids=lambda e: f"{e['source']} {e['detail-type']}")
def test_other_events_are_left_alone(control_plane: Template, what: dict[str, Any]) -> None:
    """Events that nobody would act on wake no function."""
    assert _queues_reached(control_plane, what) == set()


def test_a_tick_comes_every_minute(control_plane: Template) -> None:
    """The level-triggered path runs without any event: a schedule feeds the tick queue."""
    (schedule,) = (r for r in control_plane.all("AWS::Events::Rule").values() if "ScheduleExpression" in r)
    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert schedule["State"] == "ENABLED"
    assert [refers_to(t["Arn"]) for t in schedule["Targets"]] == [queue_of(control_plane, "reconcile")]


@pytest.mark.parametrize("operation", ["Create", "Update", "Delete"])
def test_a_deployment_brings_its_tick(control_plane: Template, operation: str) -> None:
    """A service that is deployed, changed or removed is looked at once; a changed secret means nothing."""

    def change(name: str) -> dict[str, Any]:
        detail = {"operation": operation, "name": name}
        return {"source": "aws.ssm", "detail-type": "Parameter Store Change", "detail": detail}

    ticks = {queue_of(control_plane, "reconcile")}
    assert _queues_reached(control_plane, change("/spotrelay/services/llama3")) == ticks
    assert _queues_reached(control_plane, change("/spotrelay/llama3/hf-token")) == set()


def test_undelivered_events_are_kept(control_plane: Template) -> None:
    """What EventBridge can't deliver goes to a queue with an alarm, for every target of every rule."""
    kept_in = {
        refers_to(target["DeadLetterConfig"]["Arn"])
        for rule in control_plane.all("AWS::Events::Rule").values()
        for target in rule["Targets"]
    }
    assert len(kept_in) == 1
    assert kept_in <= _queues_with_alarm(control_plane, "ApproximateNumberOfMessagesVisible")


def test_rules_may_send_to_their_queues(control_plane: Template) -> None:
    """Each rule, and no other, is allowed to send to the queue that it targets."""
    allowed = {
        (refers_to(statement["Condition"]["ArnEquals"]["aws:SourceArn"]), refers_to(queue))
        for policy in control_plane.all("AWS::SQS::QueuePolicy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        for queue in policy["Queues"]
        if statement["Effect"] == "Allow" and statement["Principal"] == {"Service": "events.amazonaws.com"}
    }
    needed = {
        (id_, refers_to(arn))
        for id_, rule in control_plane.all("AWS::Events::Rule").items()
        for target in rule["Targets"]
        for arn in (target["Arn"], target["DeadLetterConfig"]["Arn"])
    }
    assert allowed == needed


@pytest.mark.parametrize("name", ["on_signal", "reconcile"])
def test_a_bad_message_fails_alone_and_is_set_aside(control_plane: Template, name: str) -> None:
    """A function answers message by message; what it keeps failing on ends in a queue with an alarm."""
    mapping = mapping_of(control_plane, name)
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    redrive = control_plane.all("AWS::SQS::Queue")[queue_of(control_plane, name)]["RedrivePolicy"]
    assert 2 <= redrive["maxReceiveCount"] <= 5
    assert refers_to(redrive["deadLetterTargetArn"]) in _queues_with_alarm(
        control_plane, "ApproximateNumberOfMessagesVisible"
    )


@pytest.mark.parametrize("name", ["on_signal", "reconcile"])
def test_a_message_outlives_its_attempts(control_plane: Template, name: str) -> None:
    """A message isn't handed out while a function may work on it, nor expires before its last attempt."""
    timeout = function(control_plane, name)["Timeout"]
    queue = control_plane.all("AWS::SQS::Queue")[queue_of(control_plane, name)]
    assert queue["VisibilityTimeout"] >= 6 * timeout
    assert (
        queue["MessageRetentionPeriod"]
        > queue["VisibilityTimeout"] * queue["RedrivePolicy"]["maxReceiveCount"]
    )


def test_a_warning_has_a_second_chance(control_plane: Template) -> None:
    """If the function crashes over a warning, the message comes back before EC2 takes the instance."""
    queue = control_plane.all("AWS::SQS::Queue")[queue_of(control_plane, "on_signal")]
    assert queue["VisibilityTimeout"] < WARNING_S


def test_signals_are_not_held_back(control_plane: Template) -> None:
    """A warning is handed over at once: no batching window, no delay."""
    mapping = mapping_of(control_plane, "on_signal")
    assert mapping.get("MaximumBatchingWindowInSeconds", 0) == 0
    assert mapping["BatchSize"] <= 10
    assert "DelaySeconds" not in control_plane.all("AWS::SQS::Queue")[queue_of(control_plane, "on_signal")]


def test_every_queue_is_encrypted_and_refuses_plain_http(control_plane: Template) -> None:
    """Dead-letter queues included."""
    queues = control_plane.all("AWS::SQS::Queue")
    assert all(queue["SqsManagedSseEnabled"] for queue in queues.values())
    assert set(denials_of_plain_http(control_plane, "AWS::SQS::QueuePolicy", "Queues")) == set(queues)


@pytest.mark.parametrize("name", ["on_signal", "reconcile"])
def test_functions_find_their_surroundings(control_plane: Template, name: str) -> None:
    """Every environment variable that the code reads is set, and set to the resource that it names."""
    variables = function(control_plane, name)["Environment"]["Variables"]
    assert set(Env) <= set(variables)
    (table,) = control_plane.all("AWS::DynamoDB::Table")
    assert refers_to(variables[Env.TABLE]) == table
    assert refers_to(variables[Env.TICK_QUEUE_URL]) == queue_of(control_plane, "reconcile")


@pytest.mark.parametrize("name", ["on_signal", "reconcile"])
def test_functions_log_json_and_forget_in_time(control_plane: Template, name: str) -> None:
    """Logs are structured, in a group of the function's own that doesn't grow for ever."""
    logging = function(control_plane, name)["LoggingConfig"]
    assert logging["LogFormat"] == "JSON"
    group = control_plane.all("AWS::Logs::LogGroup")[refers_to(logging["LogGroup"])]
    assert group["RetentionInDays"] == 30


def test_the_table_outlives_its_stack(control_plane: Template) -> None:
    """Deleting the stack leaves the table, and its rows can be had back as of any second."""
    (id_,) = control_plane.all("AWS::DynamoDB::Table")
    assert control_plane.resource(id_)["DeletionPolicy"] == "RetainExceptOnCreate"
    assert control_plane.resource(id_)["UpdateReplacePolicy"] == "Retain"
    table = control_plane.only("AWS::DynamoDB::Table")
    assert table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True
    assert table["BillingMode"] == "PAY_PER_REQUEST"


def test_the_table_has_the_keys_that_the_code_uses(control_plane: Template) -> None:
    """Rows are found by PK and SK, text both, and expire by TTL."""
    table = control_plane.only("AWS::DynamoDB::Table")
    assert table["KeySchema"] == [
        {"AttributeName": "PK", "KeyType": "HASH"},
        {"AttributeName": "SK", "KeyType": "RANGE"},
    ]
    assert {a["AttributeName"]: a["AttributeType"] for a in table["AttributeDefinitions"]} == {
        "PK": "S",
        "SK": "S",
    }
    assert table["TimeToLiveSpecification"] == {"AttributeName": "TTL", "Enabled": True}


@pytest.mark.parametrize("name", ["on_signal", "reconcile"])
@pytest.mark.parametrize("metric", ["Errors", "Throttles"])
def test_a_failing_function_is_heard_of(control_plane: Template, name: str, metric: str) -> None:
    """Each function has alarms on its errors and on its throttles, and they notify the topic."""
    dimension = {"Name": "FunctionName", "Value": {"Ref": function_id(control_plane, name)}}
    (alarm,) = (a for a in _alarms(control_plane, metric) if dimension in a["Dimensions"])
    assert alarm["Threshold"] == 1
    assert [refers_to(action) for action in alarm["AlarmActions"]] == list(
        control_plane.all("AWS::SNS::Topic")
    )


def test_waiting_messages_are_heard_of(control_plane: Template) -> None:
    """Signals and ticks that nobody takes up raise an alarm, signals while half of the warning is left."""
    watched = _queues_with_alarm(control_plane, "ApproximateAgeOfOldestMessage")
    assert watched == {queue_of(control_plane, "on_signal"), queue_of(control_plane, "reconcile")}
    assert (
        min(a["Threshold"] for a in _alarms(control_plane, "ApproximateAgeOfOldestMessage")) <= WARNING_S / 2
    )


def test_silence_is_heard_of(control_plane: Template) -> None:
    """If ticks stop, an alarm says so, though there is nothing to count any more."""
    (alarm,) = _alarms(control_plane, "Invocations")
    assert alarm["ComparisonOperator"] == "LessThanThreshold"
    assert alarm["TreatMissingData"] == "breaching"


def test_the_dashboard_shows_only_metrics_that_exist(control_plane: Template) -> None:
    """Every metric of ours on the dashboard is one that the code knows, and the important ones are there."""
    body = flat(control_plane.only("AWS::CloudWatch::Dashboard")["DashboardBody"])
    shown = {metric for metric in Metric if metric in body}
    searched = re.findall(r'MetricName=\\+"(\w+)', body)
    assert searched
    assert set(searched) <= set(Metric)
    assert shown >= {
        Metric.INTERRUPTION_WARNINGS,
        Metric.WARNING_TO_DEREGISTERED_MS,
        Metric.REPLICAS_LAUNCHED,
        Metric.LAUNCH_REFUSALS,
        Metric.REPLICAS_READY,
        Metric.REPLICAS_DESIRED,
    }


def _alarms(template: Template, metric: str) -> list[dict[str, Any]]:
    return [a for a in template.all("AWS::CloudWatch::Alarm").values() if a.get("MetricName") == metric]


def _queues_with_alarm(template: Template, metric: str) -> set[str]:
    return {refers_to(d["Value"]) for a in _alarms(template, metric) for d in a["Dimensions"]}
