"""The control plane: which events reach which function, and what happens to those that can't be handled."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from lab.sim.queues import LEAVES as SIMULATED_LEAVES
from lab.sim.queues import SIGNALS, TICKS
from spotrelay.plane.aws.clients import LAUNCH_S, LAUNCHING
from spotrelay.plane.aws.fleet import RECORD_S
from spotrelay.plane.aws.ticker import MAX_DELAY_S
from spotrelay.plane.core import timing
from spotrelay.plane.core.names import Env, Metric
from spotrelay.plane.core.quotas import LEAST_CONCURRENCY
from tests.template.support import (
    LEAVES,
    Template,
    alarms_of,
    denials_of_plain_http,
    flat,
    function,
    function_id,
    mapping_of,
    matches,
    metrics_of,
    queue_of,
    refers_to,
    targets_of,
)

WARNING_S = 120

LAMBDA_BEGINS_WITH = 5
"""Batches at the same time, of a queue whose mapping says nothing else."""


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


def _reached(template: Template, what: dict[str, Any]) -> set[str]:
    return {
        target
        for rule in template.all("AWS::Events::Rule").values()
        if "EventPattern" in rule and matches(rule["EventPattern"], what)
        for target in targets_of(template, rule)
    }


def _scheduled(template: Template) -> dict[str, set[str]]:
    return {
        rule["ScheduleExpression"]: targets_of(template, rule)
        for rule in template.all("AWS::Events::Rule").values()
        if "ScheduleExpression" in rule and rule["State"] == "ENABLED"
    }


@pytest.mark.parametrize("what", OURS, ids=lambda e: e["detail"].get("state", e["detail-type"]))
def test_events_of_interest_reach_the_signal_queue(control_plane: Template, what: dict[str, Any]) -> None:
    """Every kind of event that the code understands is led to the signal queue, and only there."""
    assert _reached(control_plane, what) == {queue_of(control_plane, "on_signal")}


@pytest.mark.parametrize("what", NOT_OURS, ids=lambda e: f"{e['source']} {e['detail-type']}")
def test_other_events_are_left_alone(control_plane: Template, what: dict[str, Any]) -> None:
    """Events that nobody would act on wake no function."""
    assert _reached(control_plane, what) == set()


def test_a_tick_comes_every_minute(control_plane: Template) -> None:
    """The level-triggered path runs without any event: a schedule feeds the tick queue."""
    assert _scheduled(control_plane)["rate(1 minute)"] == {queue_of(control_plane, "reconcile")}


def test_a_survey_comes_every_hour(control_plane: Template) -> None:
    """What EC2 offers is asked on a schedule of its own, slower than anything that must be healed."""
    assert _scheduled(control_plane)["rate(1 hour)"] == {function_id(control_plane, "survey")}
    assert len(_scheduled(control_plane)) == 2


@pytest.mark.parametrize("operation", ["Create", "Update", "Delete"])
def test_a_deployment_brings_its_tick_and_its_survey(control_plane: Template, operation: str) -> None:
    """A service is looked at once when it is deployed, changed or removed; a changed secret means nothing.

    Of a removed one there is nothing to ask.
    """

    def change(name: str) -> dict[str, Any]:
        detail = {"operation": operation, "name": name}
        return {"source": "aws.ssm", "detail-type": "Parameter Store Change", "detail": detail}

    woken = {queue_of(control_plane, "reconcile")}
    if operation != "Delete":
        woken.add(function_id(control_plane, "survey"))
    assert _reached(control_plane, change("/spotrelay/services/llama3")) == woken
    assert _reached(control_plane, change("/spotrelay/llama3/hf-token")) == set()


def test_a_survey_that_fails_for_good_is_kept(control_plane: Template) -> None:
    """What the survey function failed on, retries included, goes to a queue."""
    kept_in = refers_to(function(control_plane, "survey")["DeadLetterConfig"]["TargetArn"])
    assert kept_in in control_plane.all("AWS::SQS::Queue")


def test_rules_may_call_the_survey(control_plane: Template) -> None:
    """Exactly the two rules that wake the function are allowed to."""
    survey = function_id(control_plane, "survey")
    allowed = {
        refers_to(permission["SourceArn"])
        for permission in control_plane.all("AWS::Lambda::Permission").values()
        if refers_to(permission["FunctionName"]) == survey
    }
    assert allowed == {
        id_
        for id_, rule in control_plane.all("AWS::Events::Rule").items()
        if survey in targets_of(control_plane, rule)
    }
    assert len(allowed) == 2


def test_undelivered_events_are_kept(control_plane: Template) -> None:
    """What EventBridge can't deliver goes to a queue with an alarm, for every target of every rule."""
    kept_in = {
        refers_to(target["DeadLetterConfig"]["Arn"])
        for rule in control_plane.all("AWS::Events::Rule").values()
        for target in rule["Targets"]
    }
    assert len(kept_in) == 1
    assert kept_in <= _queues_with_alarm(control_plane, "ApproximateNumberOfMessagesVisible")


def test_all_that_fails_is_in_one_queue(control_plane: Template) -> None:
    """What SQS sets aside, what EventBridge can't deliver and what functions put there: one alarm has it all.

    It is the queue that the ticks' letters were in before, so that an upgrade loses none of them.
    """
    (queue,) = _queues_with_alarm(control_plane, "ApproximateNumberOfMessagesVisible")
    assert queue.startswith("TicksDeadLetters")
    variables = [
        function(control_plane, name)["Environment"]["Variables"][Env.DEAD_LETTER_QUEUE_URL]
        for name in ("on_signal", "reconcile", "survey")
    ]
    assert {refers_to(url) for url in variables} == {queue}


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
        if refers_to(arn) in control_plane.all("AWS::SQS::Queue")
    }
    assert allowed == needed


def test_a_certificate_that_expires_is_told(control_plane: Template) -> None:
    """ACM's event goes to the alarms' topic with the name and the days, in a form that chats show, too.

    The topic lets EventBridge publish without a condition: it would never hold.
    """
    told = {"source": "aws.acm", "detail-type": "ACM Certificate Approaching Expiration", "detail": {}}
    (topic,) = control_plane.all("AWS::SNS::Topic")
    assert _reached(control_plane, told) == {topic}
    assert _reached(control_plane, {**told, "detail-type": "ACM Certificate Available"}) == set()
    (target,) = (
        target
        for rule in control_plane.all("AWS::Events::Rule").values()
        for target in rule["Targets"]
        if refers_to(target["Arn"]) == topic
    )
    transformer = target["InputTransformer"]
    assert set(transformer["InputPathsMap"].values()) == {"$.detail.CommonName", "$.detail.DaysToExpiry"}
    said = json.loads(transformer["InputTemplate"])
    assert (said["version"], said["source"]) == ("1.0", "custom")
    assert all(f"<{name}>" in said["content"]["description"] for name in transformer["InputPathsMap"])
    (statement,) = (
        statement
        for statement in control_plane.only("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
        if statement["Principal"] == {"Service": "events.amazonaws.com"}
    )
    assert (statement["Effect"], statement["Action"]) == ("Allow", "sns:Publish")
    assert "Condition" not in statement


FED = pytest.mark.parametrize(("name", "feed"), [("on_signal", ""), ("reconcile", ""), ("reconcile", LEAVES)])
"""Each function that queues feed, with each of them."""


@FED
def test_a_bad_message_fails_alone_and_is_set_aside(control_plane: Template, name: str, feed: str) -> None:
    """A function answers message by message; what it keeps failing on ends in a queue with an alarm."""
    mapping = mapping_of(control_plane, name, feed)
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    redrive = control_plane.all("AWS::SQS::Queue")[queue_of(control_plane, name, feed)]["RedrivePolicy"]
    assert redrive["maxReceiveCount"] >= 5, "AWS's advice: a poll that is throttled counts, too"
    assert refers_to(redrive["deadLetterTargetArn"]) in _queues_with_alarm(
        control_plane, "ApproximateNumberOfMessagesVisible"
    )


@FED
def test_a_message_outlives_its_attempts(control_plane: Template, name: str, feed: str) -> None:
    """A message isn't handed out while a function may work on it, nor expires before its last attempt, though
    it was announced as long before as SQS can.

    AWS advises six time-outs and insists on one. Signals have less, see `test_a_warning_has_a_second_chance`,
    and so has what becomes pointless within a minute.
    """
    timeout = function(control_plane, name)["Timeout"]
    queue = control_plane.all("AWS::SQS::Queue")[queue_of(control_plane, name, feed)]
    least = timeout if feed else {"reconcile": 6 * timeout, "on_signal": timeout + 30}[name]
    assert queue["VisibilityTimeout"] >= least
    attempts_s = queue["VisibilityTimeout"] * queue["RedrivePolicy"]["maxReceiveCount"]
    assert queue["MessageRetentionPeriod"] > MAX_DELAY_S + attempts_s


def test_a_warning_has_a_second_chance(control_plane: Template) -> None:
    """If the function crashes over a warning, the message comes back before EC2 takes the instance."""
    queue = control_plane.all("AWS::SQS::Queue")[queue_of(control_plane, "on_signal")]
    assert queue["VisibilityTimeout"] < WARNING_S


@pytest.mark.parametrize("name", ["on_signal", "reconcile"])
def test_a_function_outlives_its_calls(control_plane: Template, name: str) -> None:
    """It has time for the longest launch, and for its record: Lambda never ends it in the middle of one.

    Nor is it longer than what an intent and a lease are given: what isn't on record by then never will be.
    """
    timeout = function(control_plane, name)["Timeout"]
    calls = vars(LAUNCHING)
    attempts = calls["retries"]["total_max_attempts"]
    assert attempts * (calls["connect_timeout"] + calls["read_timeout"]) <= LAUNCH_S
    assert timeout >= LAUNCH_S + RECORD_S + 5, "5 s for what comes before the launch"
    assert timeout <= min(timing.INTENT_EXPIRES_S, timing.LEASE_S)


def test_an_account_is_told_how_much_concurrency_it_takes(control_plane: Template) -> None:
    """All functions at once, with a prober for each tick, fit into what `validate --account` asks for."""
    ticks = mapping_of(control_plane, "reconcile")["ScalingConfig"]["MaximumConcurrency"]
    signals = leaves = LAMBDA_BEGINS_WITH
    assert signals + 2 * ticks + leaves + 1 < LEAST_CONCURRENCY


def test_queues_at_rest_are_asked_seldom(control_plane: Template) -> None:
    """Only ticks are bound: a maximum keeps Lambda from asking a queue less often where there is little."""
    mappings = {fed: mapping_of(control_plane, *fed) for fed in (("on_signal", ""), ("reconcile", LEAVES))}
    assert not any("ScalingConfig" in mapping for mapping in mappings.values())


def test_no_leave_waits_for_a_tick(control_plane: Template) -> None:
    """Looks at who must leave have a queue of their own, so that ticks that wait for replicas take none of
    their turns; and nobody else sends there.
    """
    ticks, leaves = (mapping_of(control_plane, "reconcile", feed) for feed in ("", LEAVES))
    assert refers_to(ticks["EventSourceArn"]) != refers_to(leaves["EventSourceArn"])
    assert leaves["BatchSize"] == 1, "one that hangs holds up no other of its batch"
    assert leaves.get("MaximumBatchingWindowInSeconds", 0) == 0
    queue = queue_of(control_plane, "reconcile", LEAVES)
    assert "DelaySeconds" not in control_plane.all("AWS::SQS::Queue")[queue]
    rules = control_plane.all("AWS::Events::Rule").values()
    assert queue not in set[str]().union(*(targets_of(control_plane, rule) for rule in rules))


def test_the_simulated_functions_are_the_deployed_ones(control_plane: Template) -> None:
    """Time-outs, batches and attempts of the simulation are the stack's; it has no more at work than that."""
    for name, feed, simulated in (
        ("on_signal", "", SIGNALS),
        ("reconcile", "", TICKS),
        ("reconcile", LEAVES, SIMULATED_LEAVES),
    ):
        queue = control_plane.all("AWS::SQS::Queue")[queue_of(control_plane, name, feed)]
        mapping = mapping_of(control_plane, name, feed)
        assert simulated.timeout_s == function(control_plane, name)["Timeout"]
        assert simulated.visibility_s == queue["VisibilityTimeout"]
        assert simulated.max_receives == queue["RedrivePolicy"]["maxReceiveCount"]
        assert simulated.batch == mapping["BatchSize"]
        bound = mapping.get("ScalingConfig", {}).get("MaximumConcurrency", LAMBDA_BEGINS_WITH)
        assert 2 <= simulated.concurrency <= bound


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
    assert set(Env) - {Env.DRILL_ROLE, Env.METRICS} <= set(variables)
    assert Env.METRICS not in variables, "unless somebody asks for all: see test_settings"
    (table,) = control_plane.all("AWS::DynamoDB::Table")
    assert refers_to(variables[Env.TABLE]) == table
    assert refers_to(variables[Env.TICK_QUEUE_URL]) == queue_of(control_plane, "reconcile")
    assert refers_to(variables[Env.LEAVE_QUEUE_URL]) == queue_of(control_plane, "reconcile", LEAVES)


def test_the_survey_finds_its_surroundings(control_plane: Template) -> None:
    """It knows the table, where the services are, and the ticks' queue, and what it keeps in use."""
    variables = function(control_plane, "survey")["Environment"]["Variables"]
    needed = {Env.TABLE, Env.SERVICES_PATH, Env.TICK_QUEUE_URL, Env.DEAD_LETTER_QUEUE_URL}
    assert set(Env) & set(variables) == needed
    assert refers_to(variables[Env.TABLE]) in control_plane.all("AWS::DynamoDB::Table")
    assert refers_to(variables[Env.TICK_QUEUE_URL]) == queue_of(control_plane, "reconcile")


@pytest.mark.parametrize("name", ["on_signal", "reconcile", "survey"])
def test_functions_log_json_and_forget_in_time(control_plane: Template, name: str) -> None:
    """Logs are structured, in a group of the function's own that doesn't grow for ever."""
    logging = function(control_plane, name)["LoggingConfig"]
    assert logging["LogFormat"] == "JSON"
    group = control_plane.all("AWS::Logs::LogGroup")[refers_to(logging["LogGroup"])]
    assert group["RetentionInDays"] == 30


def test_a_tick_may_follow_a_tick(control_plane: Template) -> None:
    """Lambda ends a chain of a function's own messages after some sixteen, unless told that it is meant."""
    found = control_plane.all("AWS::Lambda::Function").values()
    assert {f["Handler"] for f in found if f.get("RecursiveLoop") == "Allow"} == {"lambdas.reconcile.handler"}


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
    """What launches and ends has alarms on its errors and on its throttles, and they notify the topic."""
    dimension = {"Name": "FunctionName", "Value": {"Ref": function_id(control_plane, name)}}
    (alarm,) = (
        alarm
        for name, alarm in alarms_of(control_plane, "ControlPlane").items()
        if name.endswith(metric) and any(dimension in found["Dimensions"] for found in metrics_of(alarm))
    )
    assert alarm["Threshold"] == 1
    assert [refers_to(action) for action in alarm["AlarmActions"]] == list(
        control_plane.all("AWS::SNS::Topic")
    )


def test_waiting_messages_are_heard_of(control_plane: Template) -> None:
    """What nobody takes up raises an alarm, but not what comes back once more."""
    queues, alarms = (
        control_plane.all("AWS::SQS::Queue"),
        _alarms(control_plane, "ApproximateAgeOfOldestMessage"),
    )
    watched = {refers_to(d["Value"]): alarm["Threshold"] for alarm in alarms for d in alarm["Dimensions"]}
    # Of leaves that nobody takes up the tick tells, which takes their replicas out: see `serving.mending`.
    assert set(watched) == {queue_of(control_plane, name) for name in ("on_signal", "reconcile")}
    signals = queue_of(control_plane, "on_signal")
    again_s = queues[signals]["VisibilityTimeout"] + function(control_plane, "on_signal")["Timeout"]
    assert again_s <= watched[signals] <= again_s + 60


def test_silence_is_heard_of(control_plane: Template) -> None:
    """If ticks stop, an alarm says so, though there is nothing to count any more. Of surveys ticks tell.

    It tells of having no data, which is how every alarm begins: calling that bad would ring for a new one.
    """
    silent = alarms_of(control_plane, "ControlPlane")["ReconcileSilent"]
    watched = {refers_to(d["Value"]) for m in metrics_of(silent) for d in m["Dimensions"]}
    assert watched == {function_id(control_plane, "reconcile")}
    assert silent["ComparisonOperator"] == "LessThanThreshold"
    assert silent["TreatMissingData"] == "missing"
    assert silent["InsufficientDataActions"] == silent["AlarmActions"]


@pytest.mark.parametrize(
    ("metric", "minutes", "remedy"),
    [(Metric.HELD_BACK, 1, "spotrelay override NAME"), (Metric.ACTION_REQUIRED, 2, "?quota_short")],
)
def test_what_needs_a_person_rings_within_a_minute(
    control_plane: Template, metric: Metric, minutes: int, remedy: str
) -> None:
    """What is held back, and what is to be mended, raises an alarm that says what to do."""
    (alarm,) = _alarms(control_plane, metric)
    assert alarm["Dimensions"] == [{"Name": "service", "Value": "SpotRelay"}]
    assert (alarm["Period"], alarm["Threshold"]) == (60, 1)
    assert (alarm["EvaluationPeriods"], alarm.get("DatapointsToAlarm", 1)) == (minutes, 1)
    assert alarm["TreatMissingData"] == "notBreaching"
    assert remedy in flat(alarm["AlarmDescription"])


def test_alarms_may_publish(control_plane: Template) -> None:
    """The topic's policy lets this account's alarms publish: without that nobody ever hears of one."""
    (topic,) = control_plane.all("AWS::SNS::Topic")
    policy = control_plane.only("AWS::SNS::TopicPolicy")
    assert [refers_to(topic) for topic in policy["Topics"]] == [topic]
    (allowed,) = (
        statement
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    )
    assert allowed["Effect"] == "Allow"
    assert (allowed["Action"], refers_to(allowed["Resource"])) == ("sns:Publish", topic)
    assert allowed["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    assert list(denials_of_plain_http(control_plane, "AWS::SNS::TopicPolicy", "Topics")) == [topic]


def test_every_alarm_tells_somebody(control_plane: Template) -> None:
    """Each alarm publishes when it goes off and when it is over."""
    for id_, alarm in control_plane.all("AWS::CloudWatch::Alarm").items():
        for actions in ("AlarmActions", "OKActions"):
            assert [refers_to(a) for a in alarm[actions]] == list(control_plane.all("AWS::SNS::Topic")), id_


def test_there_is_one_control_plane(control_plane: Template) -> None:
    """Its parameter has a fixed name, which CloudFormation refuses a second one, and says whose rows count.

    No function is made or changed before it: where it is refused, there never is a second controller.
    """
    (id_,) = control_plane.all("AWS::SSM::Parameter")
    parameter = control_plane.only("AWS::SSM::Parameter")
    assert parameter["Name"] == "/spotrelay/control-plane"
    (table,) = control_plane.all("AWS::DynamoDB::Table")
    queue = queue_of(control_plane, "reconcile")
    said = json.loads(flat(parameter["Value"]))
    assert (said["table"], said["tick_queue_url"]) == (f"<{table}>", f"<{queue}>")
    board = control_plane.only("AWS::CloudWatch::Dashboard")
    assert said["dashboard"] == flat(board["DashboardName"]) == "spotrelay-<AWS::Region>"
    assert said["drill_function"] == function(control_plane, "drill")["FunctionName"]
    for name in ("drill", "on_signal", "reconcile", "survey"):
        assert id_ in control_plane.resource(function_id(control_plane, name))["DependsOn"]


def test_the_dashboard_shows_ec2s_words(control_plane: Template) -> None:
    """Refused launches are listed, with words and remedy, from the logs of both functions that launch."""
    body = flat(control_plane.only("AWS::CloudWatch::Dashboard")["DashboardBody"])
    assert "launch_blocked" in body
    assert {"service", "code", "error", "remedy"} <= set(re.findall(r"\w+", body))
    for name in ("on_signal", "reconcile"):
        group = refers_to(function(control_plane, name)["LoggingConfig"]["LogGroup"])
        assert f"SOURCE '<{group}>'" in body


def _alarms(template: Template, metric: str) -> list[dict[str, Any]]:
    return [a for a in template.all("AWS::CloudWatch::Alarm").values() if a.get("MetricName") == metric]


def _queues_with_alarm(template: Template, metric: str) -> set[str]:
    return {
        refers_to(dimension["Value"])
        for alarm in template.all("AWS::CloudWatch::Alarm").values()
        for found in metrics_of(alarm)
        if found["MetricName"] == metric
        for dimension in found["Dimensions"]
    }
