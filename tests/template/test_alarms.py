"""Every alarm, on what its metric does: silent in a good first hour and on a calm day, in time on a bad one.

The alarms are those of the templates; their states are worked out minute by minute, by the rules of
CloudWatch's user guide (`lab.local.metrics.alarm_state`). What ticks tell a service's alarms is what the
controller decides of what they see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from lab.local.metric_math import Series, returned_series
from lab.local.metrics import alarm_state
from spotrelay.file.service import Service, load
from spotrelay.plane.core.incidents import Incidents
from spotrelay.plane.core.names import ALARM_DIMENSION, INCIDENT, Alarm, Metric
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH
from spotrelay.plane.serving import incidents
from tests.template.conftest import SERVICE_FILES
from tests.template.support import LOOK_BACKS, Template, alarms_of, document_text, flat, metrics_of

HOUR, DAY = 60, 1440

Stream = Callable[[int], Iterable[float]]
"""What is counted in a minute after the deployment (before it nothing is): any number of values."""

Streams = Mapping[str, Stream]
"""By the metric's name, and what an alarm hears by the alarm's; of others, nothing is counted."""

STATISTICS: Mapping[str, Callable[[list[float]], float]] = {
    "Sum": sum,
    "Minimum": min,
    "Maximum": max,
    "p99": max,
}

ACTIONS = {"ALARM": "AlarmActions", "OK": "OKActions", "INSUFFICIENT_DATA": "InsufficientDataActions"}


class Watch:
    """A stack's alarms, minute by minute."""

    more_periods = 0
    """How many periods before the evaluated ones stand in for those without data."""

    def __init__(self, template: Template, of: str, streams: Streams, only: str | None = None) -> None:
        """`only`: the one alarm to look at; None: all of them."""
        self._streams = streams
        self._alarms = [
            {**properties, "Short": short, "StateValue": "INSUFFICIENT_DATA"}
            for short, properties in alarms_of(template, of).items()
            if only in (None, short)
        ]
        self._metrics = {alarm["Short"]: metrics_of(alarm) for alarm in self._alarms}
        self.told: list[tuple[int, str, str]] = []
        """(minute, alarm, state) of each message; left out is that a new alarm is well."""
        self.states: dict[str, list[str]] = {alarm["Short"]: [] for alarm in self._alarms}
        self._minute = 0
        self._seen: dict[str, tuple[float | None, ...]] = {}
        """What each alarm looked at last, newest first."""
        self._last: dict[str, int] = {}
        """The newest period of it."""
        self._reckoned: dict[tuple[str, tuple[float | None, ...]], float | None] = {}
        """What metric math makes of an alarm's values."""

    def run(self, minutes: int) -> Watch:
        """Let time pass."""
        for _ in range(minutes):
            for alarm in self._alarms:
                self._evaluate(alarm)
                self.states[alarm["Short"]].append(alarm["StateValue"])
            self._minute += 1
        return self

    def rang(self) -> list[tuple[int, str]]:
        """(minute, alarm) of each bad news."""
        return [(minute, alarm) for minute, alarm, state in self.told if state != "OK"]

    def _evaluate(self, alarm: dict[str, Any]) -> None:
        short = alarm["Short"]
        length = self._metrics[short][0]["Period"] // 60
        if length * alarm["EvaluationPeriods"] > DAY and self._minute % HOUR:
            return  # more than a day: looked at once an hour
        last = self._minute // length
        count = alarm["EvaluationPeriods"] + self.more_periods
        before = self._seen.get(short, (None,) * count)
        new = [self._value(alarm, period) for period in range(last, self._last.get(short, -1), -1)]
        periods = (*new, *before)[:count]
        self._seen[short], self._last[short] = periods, last
        # Only what has changed can change the state: most minutes are like the one before.
        if periods != before or self._minute == 0:
            state, _ = alarm_state(alarm, periods)
            self._enter(alarm, state)

    def _value(self, alarm: Mapping[str, Any], period: int) -> float | None:
        """What the alarm looks at in a period, which are numbered from the deployment on; None: nothing."""
        series: dict[str, Series] = {}
        for metric in self._metrics[alarm["Short"]]:
            length = metric["Period"] // 60
            stream = self._streams.get(_name(metric), nothing)
            values = [v for m in range(max(period - 1, 0) * length, period * length) for v in stream(m)]
            series[metric["Id"]] = {0: STATISTICS[metric["Stat"]](values)} if values else {}
        if "Metrics" not in alarm or not any(series.values()):
            return series.get("", {}).get(0)
        key = alarm["Short"], tuple(of_one.get(0) for of_one in series.values())
        if key not in self._reckoned:
            self._reckoned[key] = returned_series(alarm["Metrics"], series).get(0)
        return self._reckoned[key]

    def _enter(self, alarm: dict[str, Any], state: str) -> None:
        old, alarm["StateValue"] = alarm["StateValue"], state
        is_news = state != old and (old, state) != ("INSUFFICIENT_DATA", "OK")
        if is_news and alarm.get(ACTIONS[state]):
            self.told.append((self._minute, alarm["Short"], state))


def _name(metric: Mapping[str, Any]) -> str:
    """A metric's name; of what ticks tell an alarm, the alarm's."""
    dimensions = {d["Name"]: d["Value"] for d in metric["Dimensions"] if isinstance(d["Value"], str)}
    return str(dimensions[ALARM_DIMENSION] if metric["MetricName"] == INCIDENT else metric["MetricName"])


@pytest.fixture(params=LOOK_BACKS, ids="{} more periods".format, autouse=True)
def more_periods(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is true of an alarm is true however far CloudWatch looks back."""
    monkeypatch.setattr(Watch, "more_periods", request.param)


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


def once(*minutes: int) -> Stream:
    """1 in each of these minutes, and never again."""
    return lambda m: [1] if m in minutes else []


def between(start: int, end: int, value: float = 1, otherwise: float = 0) -> Stream:
    """A value from a minute to another, and another one in all others."""
    return lambda m: [value if start <= m < end else otherwise]


Number = Callable[[int], int]
"""How many, in a minute after the deployment."""


def number(value: int) -> Number:
    """The same in every minute."""
    return lambda _: value


@dataclass(frozen=True)
class Seen:
    """What ticks see, one a minute."""

    ready: Number
    desired: Number
    launched: Number | None = None
    """Which have an instance; None: all that are desired."""
    blocked: Callable[[int], bool] = lambda _: False
    fallback: Callable[[int], int | None] = lambda _: None
    """Since which minute there has been one."""
    ticks: Callable[[int], bool] = lambda _: True
    """Whether there is a tick."""

    def told(self, template: Template, minutes: int = DAY) -> dict[str, Stream]:
        """What the alarms of a template's service hear."""
        spec = ServiceSpec.from_json(document_text(template))
        record, heard, blocked = Incidents(), defaultdict[tuple[str, int], list[float]](list), None
        for m in filter(self.ticks, range(minutes)):
            now = EPOCH + seconds(60 * m + 30)
            blocked = now if self.blocked(m) else blocked
            since = self.fallback(m)
            situation = incidents.Situation(
                desired=self.desired(m),
                ready=self.ready(m),
                launched=(self.launched or self.desired)(m),
                has_served=False,
                blocked_at=blocked,
                fallback_since=None if since is None else EPOCH + seconds(60 * since),
                is_crash_looping=False,
                is_rollout_stopped=False,
                is_better_elsewhere=False,
            )
            told = incidents.after(record, spec, situation, now)
            record = told.record
            for alarm, lasts in told.heard.items():
                heard[alarm.value, m].append(float(lasts))
        # Each stream has its own alarm.
        return {alarm: (lambda m, of=alarm: heard.get((of, m), [])) for alarm in spec.alarms}  # type: ignore[misc]


def service_of(name: str) -> Service:
    """The service file behind a stack."""
    return load(SERVICE_FILES[name])


VISIBLE, AGE = "ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"

TOLD = Metric.ACTION_REQUIRED

LEAST_SURVEY = 3 * HOUR
"""Without a survey for so long, each minute's tick counts it: `timing.SURVEY_SILENT_S`."""

# What the control plane's alarms see: a situation → (the alarm, its metric, a good first day, a busy calm
# hour, the bad case, the minute in which it must ring at the latest). Where another alarm told it before
# 2026-11-27, the situation has that one's name: none rings more than a minute later than it did.
CONTROL_PLANE: dict[str, tuple[str, str, Stream, Stream, Stream, int]] = {
    # The function runs every minute, and CloudWatch may lack a minute; then its rule is disabled.
    "ReconcileSilent": (
        "ReconcileSilent", "Invocations", lambda m: [] if m in (0, 33) else [1], always(20), until(90, 1), 100
    ),
    # A signal that fails comes back after 90 s: what fails again then fails for good.
    "OnSignalErrors": ("OnSignalErrors", "Errors", nothing, once(20), once(30, 32), 34),
    # One tick that fails is done again within a minute; one that always fails does so every minute.
    "ReconcileErrors": ("ReconcileErrors", "Errors", always(0), once(20), always(1), 5),
    "OnSignalThrottles": ("Throttles", "Throttles", nothing, always(0), once(30), 32),
    "ReconcileThrottles": ("Throttles", "Throttles", nothing, always(0), once(30), 32),
    # A batch that failed comes back after 90 s, and may take a minute more.
    "LateSignals": (
        "LateSignals", AGE, always(0), lambda m: [90 + 59] if m % 20 == 0 else [15], until(999, 160), 3
    ),
    # Announced 15 minutes ahead, failed on four times, six minutes apart.
    "LateTicks": ("LateTicks", AGE, always(0), always(900 + 4 * 360), lambda m: [60 * m], 47),
    "SignalDeadLetters": ("DeadLetters", VISIBLE, always(0), always(0), once(30), 32),
    "TickDeadLetters": ("DeadLetters", VISIBLE, always(0), always(0), once(30), 32),
    "Undelivered": ("DeadLetters", VISIBLE, always(0), always(0), once(30), 32),
    "HeldBack": ("HeldBack", Metric.HELD_BACK, nothing, nothing, once(30), 32),
    "CallsDenied": ("ActionRequired", TOLD, nothing, nothing, once(30), 32),
    # The survey finds it within its hour; from then on each minute's tick counts it.
    "SurveyRefused": ("ActionRequired", TOLD, nothing, nothing, lambda m: [1] if m >= 60 else [], 62),
    "QuotasShort": ("ActionRequired", TOLD, nothing, nothing, lambda m: [1] if m >= 60 else [], 62),
    "ImagesGone": ("ActionRequired", TOLD, nothing, nothing, lambda m: [1] if m >= 60 else [], 62),
    "SurveySilent": (
        "ActionRequired", TOLD, nothing, nothing, lambda m: [1] if m >= 60 + LEAST_SURVEY else [],
        62 + LEAST_SURVEY,
    ),
    # The first replica that left late: before, a queue of which none was taken up for ten minutes.
    "LateLeaves": ("ActionRequired", TOLD, nothing, nothing, once(30), 32),
}  # fmt: skip


MOST_METRICS = 10
"""That the control plane's alarms look at: CloudWatch bills each of them. docs/cost.md has the budget."""


def test_no_alarm_is_left_out(control_plane: Template, service_stack: Template, service_name: str) -> None:
    """Each alarm of either kind of stack is among those that are looked at here."""
    assert set(alarms_of(control_plane, "ControlPlane")) == {alarm for alarm, *_ in CONTROL_PLANE.values()}
    assert set(alarms_of(service_stack, service_name)) == set(Alarm)


def test_the_control_planes_alarms_look_at_few_metrics(control_plane: Template) -> None:
    """Each costs a tenth of a dollar a month, whether it is alone in its alarm or not."""
    looked_at = [metrics_of(alarm) for alarm in alarms_of(control_plane, "ControlPlane").values()]
    assert sum(map(len, looked_at)) <= MOST_METRICS


@pytest.mark.parametrize("situation", CONTROL_PLANE)
def test_the_control_planes_alarms(control_plane: Template, situation: str) -> None:
    """Each is silent on a good first day and in a busy calm hour, and rings in time when it must."""
    name, metric, first_day, calm, bad, within = CONTROL_PLANE[situation]

    def rang(stream: Stream, minutes: int) -> list[str]:
        watch = Watch(control_plane, "ControlPlane", {metric: stream}, only=name).run(minutes)
        return [alarm for _, alarm in watch.rang()]

    assert rang(first_day, DAY) == []
    assert rang(calm, 3 * HOUR) == []
    assert rang(bad, within + 1), f"silent within {within} minutes"


def test_what_is_set_aside_rings_at_once_and_until_the_queue_is_empty(control_plane: Template) -> None:
    """The survey keeps the queue in use, so that SQS measures it. One message when it begins and one when
    somebody has emptied the queue, whatever is missing in between, should nobody keep it in use.
    """
    visible: Stream = lambda m: [0] if m < 30 else [] if 40 <= m < 45 else [1] if m < 90 else [0]  # noqa: E731
    gone: Stream = lambda m: [] if m >= 450 else visible(m)  # noqa: E731
    watch = Watch(control_plane, "ControlPlane", {VISIBLE: gone})
    told = [one for one in watch.run(DAY).told if one[1] == "DeadLetters"]
    assert told == [(31, "DeadLetters", "ALARM"), (91, "DeadLetters", "OK")]


def test_what_is_to_be_mended_rings_once_until_nothing_is_found(control_plane: Template) -> None:
    """Each minute's tick counts it, and a minute may lack one; two minutes without it end the alarm."""
    found: Stream = lambda m: [1] if 30 <= m < 90 and m % 7 else []  # noqa: E731
    watch = Watch(control_plane, "ControlPlane", {TOLD: found})
    told = [(minute, state) for minute, alarm, state in watch.run(3 * HOUR).told if alarm == "ActionRequired"]
    # Where data is missing, CloudWatch looks further back.
    assert told == [(31, "ALARM"), (92 + Watch.more_periods, "OK")]


def test_a_good_first_day_of_a_service_is_quiet(service_stack: Template, service_name: str) -> None:
    """Launched in the second minute, ready as late as its file allows, asked from the start; then whole."""
    service = service_of(service_name)
    desired, start = service.replicas, 2 + int(service.initial_delay_s) // 60
    seen = Seen(
        ready=lambda m: 0 if m < start else desired,
        desired=number(desired),
        launched=lambda m: 0 if m < 2 else desired,
    )
    streams = {
        **seen.told(service_stack),
        "HTTPCode_ELB_5XX_Count": until(start, 20),
        "RequestCount": until(start, 0, then=20),
        "TargetResponseTime": until(start, 0.1),
    }
    assert Watch(service_stack, service_name, streams).run(DAY).told == []


def test_an_interruption_is_quiet(service_stack: Template, service_name: str) -> None:
    """A replica is lost without a warning on a calm day, and the answers that it had are broken off.

    Its replacement is launched at once, and ready in its time.
    """
    service = service_of(service_name)
    desired, start = service.replicas, int(service.initial_delay_s) // 60
    seen = Seen(
        # Where there is but one, another comes to serve before it goes: nobody ready for long is an outage.
        ready=lambda m: desired - 1 if 600 <= m < 600 + (start if desired > 1 else 1) else desired,
        desired=number(desired),
        launched=lambda m: desired - 1 if m == 600 else desired,
        fallback=lambda m: 600 if 600 <= m < 700 else None,
    )
    streams = {
        **seen.told(service_stack),
        "HTTPCode_ELB_5XX_Count": once(600, 601),
        "RequestCount": always(10),
    }
    assert Watch(service_stack, service_name, streams).run(DAY).told == []


@pytest.mark.parametrize("why", ["quota", "permission", "capacity"])
def test_a_deployment_that_cant_launch_rings_once_within_five_minutes(
    service_stack: Template, service_name: str, why: str
) -> None:
    """A quota is asked again after longer and longer, a permission every minute, capacity isn't noted.

    Nothing is ready then, and nothing becomes ready in its time: that is no news.
    """
    blocked = {"quota": lambda m: m % 15 == 0, "permission": lambda _: True, "capacity": lambda _: False}[why]
    desired = service_of(service_name).replicas
    seen = Seen(ready=number(0), desired=number(desired), launched=number(0), blocked=blocked)
    watch = Watch(service_stack, service_name, seen.told(service_stack)).run(2 * HOUR)
    ((minute, alarm),) = watch.rang()
    assert alarm == Alarm.CANNOT_LAUNCH
    assert minute <= 5


def test_a_service_that_never_serves_rings(service_stack: Template, service_name: str) -> None:
    """It rings soon after the time that a start may take, and once: its start is no outage."""
    service = service_of(service_name)
    start = int(service.initial_delay_s) // 60
    seen = Seen(ready=number(0), desired=number(service.replicas))
    ((minute, alarm),) = Watch(service_stack, service_name, seen.told(service_stack)).run(DAY).rang()
    assert alarm == Alarm.NOT_WHOLE
    assert start < minute <= start + 10


@pytest.mark.parametrize("launches", ["possible", "blocked"])
def test_an_outage_rings_within_minutes_and_once(
    service_stack: Template, service_name: str, launches: str
) -> None:
    """All are lost: one message then and one when something serves, though clients see errors, and whatever
    keeps the replacements."""
    desired, lost, back = service_of(service_name).replicas, 600, 700
    is_blocked = launches == "blocked"
    seen = Seen(
        ready=lambda m: 0 if lost <= m < back else desired,
        desired=number(desired),
        launched=lambda m: 0 if is_blocked and lost <= m < back - 20 else desired,
        blocked=lambda m: is_blocked and lost <= m < back - 20,
    )
    streams = {
        **seen.told(service_stack),
        "HTTPCode_ELB_5XX_Count": between(lost, back, 10, 0),
        "RequestCount": between(lost, back, 0, 10),
    }
    (begin, alarm, state), (end, same, well) = Watch(service_stack, service_name, streams).run(DAY).told
    assert (alarm, state, same, well) == (Alarm.NOTHING_READY, "ALARM", Alarm.NOTHING_READY, "OK")
    assert begin <= lost + 3
    assert end <= back + 3


def test_every_pool_dry_and_one_lost_is_told_once(service_stack: Template, service_name: str) -> None:
    """Nothing takes its place: CannotLaunch tells, and its end; what starts then may take its time."""
    service = service_of(service_name)
    desired = service.replicas
    if desired < 2:
        pytest.skip("one replica is all")
    lost, launched = 600, 680
    start = int(service.initial_delay_s) // 60
    seen = Seen(
        ready=lambda m: desired - 1 if lost <= m < launched + start else desired,
        desired=number(desired),
        launched=lambda m: desired - 1 if lost <= m < launched else desired,
    )
    watch = Watch(service_stack, service_name, seen.told(service_stack)).run(DAY)
    assert [(alarm, state) for _, alarm, state in watch.told] == [
        (Alarm.CANNOT_LAUNCH, "ALARM"),
        (Alarm.CANNOT_LAUNCH, "OK"),
    ]


@pytest.mark.parametrize("alarm", incidents.CAUSES)
def test_an_incident_rings_until_it_is_over(service_stack: Template, service_name: str, alarm: Alarm) -> None:
    """Whatever it is: by one 1, until the first minute that has a 0; what is missing in between is no end.

    When ticks tell which alarm so is `tests/unit/test_incidents.py`'s.
    """
    told: Stream = lambda m: [1] if 60 <= m < 120 and m % 7 else [0] if 125 <= m < 128 else []  # noqa: E731
    watch = Watch(service_stack, service_name, {alarm: told}, only=alarm).run(DAY)
    assert watch.told == [(61, alarm, "ALARM"), (126, alarm, "OK")]


def test_an_alarm_doesnt_end_because_nobody_looks(service_stack: Template, service_name: str) -> None:
    """The controller falls silent while alarms of a service ring: they stay, and tell no end."""
    desired = service_of(service_name).replicas
    for alarm, seen in {
        Alarm.NOTHING_READY: Seen(
            lambda m: desired if m < 60 else 0, number(desired), ticks=lambda m: m < 180
        ),
        Alarm.CANNOT_LAUNCH: Seen(number(0), number(desired), number(0), ticks=lambda m: m < 180),
        Alarm.NOT_WHOLE: Seen(number(0), number(desired), ticks=lambda m: m < 180),
    }.items():
        watch = Watch(service_stack, service_name, seen.told(service_stack)).run(8 * HOUR)
        assert watch.states[alarm][-1] == "ALARM", alarm


def test_errors_while_something_is_ready_ring_once(service_stack: Template, service_name: str) -> None:
    """A tenth of all answers is 5xx, by the servers or by the balancer: rings within five minutes.

    It needs no controller.
    """
    for metric in ("HTTPCode_Target_5XX_Count", "HTTPCode_ELB_5XX_Count"):
        streams = {metric: lambda m: [2] if 600 <= m < 660 else [], "RequestCount": always(18)}
        watch = Watch(service_stack, service_name, streams).run(DAY)
        (begin, alarm, state), (end, same, well) = watch.told
        assert (alarm, state, same, well) == (Alarm.ELB_5XX, "ALARM", Alarm.ELB_5XX, "OK")
        assert begin <= 605
        assert 660 <= end <= 665


def test_a_few_errors_among_many_answers_are_quiet(service_stack: Template, service_name: str) -> None:
    """One in a hundred is no incident."""
    streams = {"HTTPCode_Target_5XX_Count": always(1), "RequestCount": always(100)}
    assert Watch(service_stack, service_name, streams).run(3 * HOUR).told == []


def test_every_alarm_tells_both_changes(service_stack: Template, service_name: str) -> None:
    """Going off and being over; each looks at as many metrics as docs/cost.md says."""
    for name, alarm in alarms_of(service_stack, service_name).items():
        assert {key for key in ACTIONS.values() if alarm.get(key)} == {"AlarmActions", "OKActions"}, name


def test_the_document_says_which_alarms_hear_of_incidents(service_stack: Template, service_name: str) -> None:
    """Just those that look at what ticks tell: another one would hear nothing, or nobody would hear."""
    spec = ServiceSpec.from_json(document_text(service_stack))
    hear = {
        name
        for name, alarm in alarms_of(service_stack, service_name).items()
        if [metric["MetricName"] for metric in metrics_of(alarm)] == [INCIDENT]
    }
    assert set(spec.alarms) == hear
    assert {Alarm(name) for name in spec.alarms} <= incidents.CAUSES.keys()


def test_no_alarm_looks_back_further_than_cloudwatch(
    control_plane: Template, service_stack: Template
) -> None:
    """A day at most with periods of less than an hour, a week with longer ones; else it isn't made."""
    for template in (control_plane, service_stack):
        for name, alarm in template.alarms.items():
            assert len(flat(alarm["AlarmDescription"])) <= 1024 - 200, name  # names are longer than tokens
            for metric in metrics_of(alarm):
                longest_s = 7 * 86_400 if metric["Period"] >= 3600 else 86_400
                assert metric["Period"] * alarm["EvaluationPeriods"] <= longest_s, name
