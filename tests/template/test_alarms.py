"""Every alarm, on what its metric does: silent in a good first hour and on a calm day, in time on a bad one.

The alarms are those of the templates; their states are worked out minute by minute, by the rules of
CloudWatch's user guide (`lab.local.metrics.alarm_state`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from lab.local.metrics import alarm_state
from spotrelay.core.names import Metric
from spotrelay.service import Service, load
from tests.template.conftest import SERVICE_FILES
from tests.template.support import Template, refers_to

MORE_PERIODS = 2
"""CloudWatch looks at some periods before the evaluated ones, too: in its guide's examples, two."""

HOUR, DAY = 60, 1440

Stream = Callable[[int], Iterable[float]]
"""What is counted in a minute after the deployment (before it nothing is): any number of values."""

STATISTICS: Mapping[str, Callable[[list[float]], float]] = {
    "Sum": sum,
    "Minimum": min,
    "Maximum": max,
    "p99": max,
}


def told(alarm: Mapping[str, Any], stream: Stream, minutes: int) -> list[tuple[int, str]]:
    """(minute, state) of each change of which somebody is told, good news left out."""
    state, heard = "INSUFFICIENT_DATA", []
    actions = {"ALARM": "AlarmActions", "INSUFFICIENT_DATA": "InsufficientDataActions"}
    for minute in range(minutes):
        periods = list(_periods(alarm, stream, minute))
        after, _ = alarm_state({**alarm, "StateValue": state}, periods)
        if after != state and after in actions and alarm.get(actions[after]):
            heard.append((minute, after))
        state = after
    return heard


def _periods(alarm: Mapping[str, Any], stream: Stream, minute: int) -> Iterable[float | None]:
    """The statistic of each period, newest first, the last of them ended by this minute."""
    length = alarm["Period"] // 60
    statistic = STATISTICS[alarm.get("Statistic") or alarm["ExtendedStatistic"]]
    for n in range(alarm["EvaluationPeriods"] + MORE_PERIODS):
        end = (minute // length - n) * length
        values = [v for m in range(end - length, end) if m >= 0 for v in stream(m)]
        yield statistic(values) if values else None


def nothing(_: int) -> list[float]:
    """Never counted."""
    return []


def always(value: float) -> Stream:
    """The same in every minute."""
    return lambda _: [value]


def until(minute: int, value: float, then: float | None = None) -> Stream:
    """One value at first, and from a minute on another one, or none."""
    return lambda m: [value] if m < minute else [] if then is None else [then]


def each(minutes: int, value: float = 1) -> Stream:
    """Once in so many minutes."""
    return lambda m: [value] if m % minutes == 0 else []


def once(minute: int, value: float = 1) -> Stream:
    """In one minute, and never again."""
    return lambda m: [value] if m == minute else []


def between(start: int, end: int) -> Stream:
    """1 from a minute to another, and 0 in all others."""
    return lambda m: [float(start <= m < end)]


def service_of(name: str) -> Service:
    """The service file behind a stack."""
    return load(SERVICE_FILES[name])


def alarm_on(template: Template, metric: str, of: str = "") -> dict[str, Any]:
    """The alarm on a metric, of a function or queue whose logical ID begins so."""
    (found,) = (
        a
        for a in template.all("AWS::CloudWatch::Alarm").values()
        if a["MetricName"] == metric
        and (not of or any(refers_to(d["Value"]).startswith(of) for d in a["Dimensions"]))
    )
    return found


# What the control plane's alarms see: (metric, whose, a good first day, a busy calm hour, a bad case, the
# minute in which it must ring at the latest).
CONTROL_PLANE: list[tuple[str, str, Stream, Stream, Stream, int]] = [
    # The function runs every minute, and CloudWatch may lack a minute; then its rule is disabled.
    ("Invocations", "Reconcile", lambda m: [] if m in (0, 33) else [1], always(20), until(90, 1), 100),
    # The schedule's first survey comes after an hour, a deployed service's at once.
    ("Invocations", "Survey", each(60), lambda m: [1] if m == 3 or m >= 60 else [], until(61, 1), 430),
    ("Errors", "OnSignal", nothing, always(0), once(30), 32),
    # One tick that fails is done again within a minute; one that always fails does so every minute.
    ("Errors", "Reconcile", always(0), once(20), always(1), 5),
    # Three attempts, after one minute and after two more.
    ("Errors", "Survey", each(60, 0), once(2), lambda m: [1] if m in (2, 3, 5) else [], 8),
    ("Throttles", "OnSignal", nothing, always(0), once(30), 32),
    ("Throttles", "Reconcile", nothing, always(0), once(30), 32),
    ("Throttles", "Survey", nothing, always(0), once(30), 32),
    ("ApproximateAgeOfOldestMessage", "SignalsQueue", always(0), always(15), until(999, 90), 3),
    # Announced 15 minutes ahead, failed on twice, six minutes apart.
    ("ApproximateAgeOfOldestMessage", "TicksQueue", always(0), always(900 + 2 * 360), lambda m: [60 * m], 35),
    ("ApproximateNumberOfMessagesVisible", "SignalsDeadLetters", always(0), always(0), once(30), 32),
    ("ApproximateNumberOfMessagesVisible", "TicksDeadLetters", always(0), always(0), once(30), 32),
    ("ApproximateNumberOfMessagesVisible", "Undelivered", always(0), always(0), once(30), 32),
    ("ApproximateNumberOfMessagesVisible", "SurveysFailed", always(0), always(0), once(30), 32),
    (Metric.SURVEY_REFUSED, "", nothing, nothing, each(60), 61),
    (Metric.QUOTAS_SHORT, "", nothing, nothing, each(60), 61),
    (Metric.ALL_ZONES_SCORE_LOW, "", nothing, nothing, each(60), 61),
    (Metric.CRASH_LOOPING, "", nothing, nothing, once(30), 32),
    (Metric.HELD_BACK, "", nothing, nothing, once(30), 32),
    (Metric.CALLS_DENIED, "", nothing, nothing, once(30), 32),
]


def test_no_alarm_is_left_out(control_plane: Template, service_stack: Template) -> None:
    """Each alarm of either kind of stack is among those that are looked at here."""
    assert len(control_plane.all("AWS::CloudWatch::Alarm")) == len(CONTROL_PLANE)
    assert {a["MetricName"] for a in service_stack.all("AWS::CloudWatch::Alarm").values()} == {
        Metric.LAUNCHES_BLOCKED,
        Metric.REPLICAS_UNLAUNCHED,
        Metric.REPLICAS_MISSING,
        Metric.ROLLOUT_STOPPED,
        "TargetResponseTime",
    }


@pytest.mark.parametrize(("metric", "of", "first_day", "calm", "bad", "within"), CONTROL_PLANE)
def test_the_control_planes_alarms(
    control_plane: Template, metric: str, of: str, first_day: Stream, calm: Stream, bad: Stream, within: int
) -> None:
    """Each is silent on a good first day and in a busy calm hour, and rings in time when it must."""
    alarm = alarm_on(control_plane, metric, of)
    assert told(alarm, first_day, DAY) == []
    assert told(alarm, calm, 3 * HOUR) == []
    heard = told(alarm, bad, within + 1)
    assert heard, f"silent within {within} minutes"


def test_a_good_first_hour_of_a_service_is_quiet(service_stack: Template, service_name: str) -> None:
    """Launched in the second minute, ready as late as its file allows, and whole ever after."""
    service = service_of(service_name)
    start = 2 + int(service.initial_delay_s) // 60
    for metric, stream in {
        Metric.LAUNCHES_BLOCKED: nothing,
        Metric.REPLICAS_UNLAUNCHED: until(2, service.replicas, then=0),
        Metric.REPLICAS_MISSING: until(start, service.replicas, then=0),
        "TargetResponseTime": until(start, 0.1),
    }.items():
        assert told(alarm_on(service_stack, metric), stream, DAY) == [], metric


def test_an_interruption_is_quiet(service_stack: Template, service_name: str) -> None:
    """One replica is lost on a calm day: its replacement is launched at once, and ready in its time."""
    start = int(service_of(service_name).initial_delay_s) // 60
    for metric, missing in {Metric.REPLICAS_UNLAUNCHED: 1, Metric.REPLICAS_MISSING: start}.items():
        assert told(alarm_on(service_stack, metric), between(600, 600 + missing), DAY) == [], metric


@pytest.mark.parametrize("why", ["quota", "permission", "capacity"])
def test_a_deployment_that_cant_launch_rings_within_five_minutes(service_stack: Template, why: str) -> None:
    """A quota is asked again after longer and longer, a permission every minute, capacity isn't counted."""
    refused = {"quota": each(15), "permission": always(1), "capacity": nothing}[why]
    blocked = told(alarm_on(service_stack, Metric.LAUNCHES_BLOCKED), refused, 2 * HOUR)
    assert len(blocked) == (0 if why == "capacity" else 1), "once, and on until it is mended"
    unlaunched = told(alarm_on(service_stack, Metric.REPLICAS_UNLAUNCHED), always(1), 2 * HOUR)
    assert min(minute for minute, _ in (*blocked, *unlaunched)) <= 5
    assert len(unlaunched) == 1


def test_a_service_that_never_serves_rings(service_stack: Template, service_name: str) -> None:
    """It rings soon after the time that a start may take, and once."""
    start = int(service_of(service_name).initial_delay_s) // 60
    ((minute, state),) = told(alarm_on(service_stack, Metric.REPLICAS_MISSING), always(1), DAY)
    assert state == "ALARM"
    assert start < minute <= start + 20


def test_an_alarm_doesnt_end_because_nobody_counts(service_stack: Template) -> None:
    """The controller falls silent while a service lacks replicas: the alarm stays, and tells no end of it."""
    for metric in (Metric.REPLICAS_UNLAUNCHED, Metric.REPLICAS_MISSING):
        alarm = alarm_on(service_stack, metric)
        state = "INSUFFICIENT_DATA"
        for minute in range(8 * HOUR):
            periods = list(_periods(alarm, until(4 * HOUR, 1), minute))
            state, _ = alarm_state({**alarm, "StateValue": state}, periods)
        assert state == "ALARM"


def test_no_alarm_looks_back_further_than_cloudwatch(
    control_plane: Template, service_stack: Template
) -> None:
    """A day at most with periods of less than an hour, a week with longer ones; else it isn't made."""
    for template in (control_plane, service_stack):
        for id_, alarm in template.all("AWS::CloudWatch::Alarm").items():
            longest_s = 7 * 86_400 if alarm["Period"] >= 3600 else 86_400
            assert alarm["Period"] * alarm["EvaluationPeriods"] <= longest_s, id_
            assert len(alarm["AlarmDescription"]) <= 1024, id_
