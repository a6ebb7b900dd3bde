"""Metrics that AWS makes by itself and MiniStack doesn't, and alarms that look at their own dimensions."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.local import metric_data, metric_math
from lab.local.balancer import Balancer, UnknownTargetGroupError
from lab.local.elbv2 import Routing
from lab.local.ministack import MiniStack

PUBLISH_S = 5.0
"""How often queues and load balancers are measured and alarms looked at. AWS takes a minute or more."""

MORE_PERIODS = 2
"""How many periods before the evaluated ones stand in for those without data. CloudWatch says only that there
are some; in its guide's examples there are two."""

IDLE_S, LATE_S = 6 * 3600.0, 900.0
"""A queue that nobody called for six hours isn't measured, and then up to a quarter of an hour late: here
always so late. A new one counts as idle
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/monitoring-using-cloudwatch.html)."""

NEVER = float("-inf")
"""When a queue was last used that nobody has used."""

METRIC_HOUR_USD = 0.30 / 730
"""Of a custom metric, in an hour in which it gets a value (https://aws.amazon.com/cloudwatch/pricing/)."""

OF_TARGETS = ("RequestCount", "HTTPCode_Target_")
"""How the metrics begin of what targets got and answered. They say nothing while there is nothing to say: of
requests AWS documents both this and that they are told while there are targets
(https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-cloudwatch-metrics.html)."""


@dataclass(frozen=True, slots=True)
class Datum:
    """One value of one metric."""

    namespace: str
    name: str
    value: float
    unit: str
    dimensions: dict[str, str]


def embedded_metrics(line: str) -> Iterator[Datum]:
    """The metrics in a log line of CloudWatch's embedded metric format; none in any other line."""
    # {"_aws": {"CloudWatchMetrics": [{"Namespace": "SpotRelay", "Dimensions": [["service"]],
    #   "Metrics": [{"Name": "Deregistered", "Unit": "Count"}]}]}, "service": "demo", "Deregistered": [1.0]}
    if '"_aws"' not in line:
        return
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return
    if not isinstance(record, dict) or not isinstance(record.get("_aws"), dict):
        return
    for directive in record["_aws"].get("CloudWatchMetrics", []):
        for metric in directive.get("Metrics", []):
            values = record.get(metric["Name"], [])
            for value in values if isinstance(values, list) else [values]:
                for names in directive.get("Dimensions") or [[]]:
                    dimensions = {name: str(record[name]) for name in names if name in record}
                    unit = metric.get("Unit", "None")
                    yield Datum(directive["Namespace"], metric["Name"], float(value), unit, dimensions)


class Metrics:
    """Publishes them until it is cancelled."""

    def __init__(
        self, ministack: MiniStack, balancer: Balancer, routing: Routing, *, compressed: float = 1.0
    ) -> None:
        """`compressed`: how long a minute of schedules lasts, in minutes."""
        self._ministack = ministack
        self._balancer = balancer
        self._routing = routing
        self._published: dict[tuple[str, str], int] = {}
        self._idle_s, self._late_s = IDLE_S * compressed, LATE_S * compressed
        self._used: dict[str, tuple[float, float]] = {}
        """By queue: since when it has been in use, and when it was last."""
        self._hours: set[tuple[str, str, tuple[tuple[str, str], ...], int]] = set()
        """Of each metric with its dimensions, the hours in which it had a value."""
        self.more_periods = MORE_PERIODS
        ministack.on_log_lines(self._see_log)
        ministack.count_every_invocation()
        ministack.note_queue_calls()
        ministack.replace_alarm_evaluation(self.evaluate)
        ministack.accept_metric_math(metric_math.check_alarm)
        ministack.refuse_names_of_the_other_kind()
        ministack.answer_metric_data(metric_data.answer, metric_data.RefusedError)

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(PUBLISH_S)
            self.publish()

    def publish(self) -> None:
        """Measure once, and evaluate the alarms."""
        with self._ministack.scope():
            polled, asked = self._ministack.polled_queues(), self._ministack.asked_queues()
            now = time.time()
            for queue, values in self._ministack.queue_metrics().items():
                if not self._is_measured(queue, values, queue in polled, asked.get(queue, NEVER), now):
                    continue
                for name, value in values.items():
                    unit = "Seconds" if "Age" in name else "Count"
                    self._ministack.record_metric("AWS/SQS", name, value, unit, {"QueueName": queue})
            for name in self._routing.names():
                self._publish_requests(name)
            for alarm in self._ministack.alarms():
                self.evaluate(alarm)

    def _is_measured(
        self, queue: str, values: Mapping[str, float], is_polled: bool, asked_at: float, now: float
    ) -> bool:
        """Whether SQS tells anything of a queue: see `IDLE_S`.

        It is in use if it has a message, or if anybody called it, whatever for.
        """
        since, last = self._used.get(queue, (now, NEVER))
        is_idle = now - last > self._idle_s
        has_any = any(value for name, value in values.items() if name.startswith("ApproximateNumber"))
        if is_polled or has_any or asked_at > last:
            since = now - self._late_s if is_polled else now if is_idle else since
            self._used[queue] = since, now
            is_idle = False
        return not is_idle and now - since >= self._late_s

    def age(self, by_s: float) -> None:
        """Have all that was measured until now be so much older."""
        self.publish()
        with self._ministack.scope():
            self._ministack.age_data_points(by_s)

    def evaluate(self, alarm: dict[str, Any]) -> None:
        """Set the alarm's state from the last periods of its own metric, or of its metric math.

        AWS looks at an alarm of more than a day but once an hour; here it is looked at like the others.
        """
        now = time.time()
        if alarm.get("Metrics"):
            periods = self._math_periods(alarm, now)
        elif alarm.get("MetricName"):
            periods = list(self._periods(alarm, self._looked_at(alarm), now))
        else:
            return
        state, reason = alarm_state(alarm, periods)
        if state != alarm["StateValue"]:
            self._ministack.set_alarm_state(alarm, state, reason, now)

    def _looked_at(self, alarm: Mapping[str, Any]) -> int:
        """How many periods are looked at: the evaluated ones, and those that stand in for missing ones."""
        return int(alarm.get("EvaluationPeriods") or 1) + self.more_periods

    def _math_periods(self, alarm: Mapping[str, Any], now: float) -> list[float | None]:
        """What the alarm's expression makes of each period of its metrics, newest first."""
        count = self._looked_at(alarm)
        series: dict[str, metric_math.Series] = {}
        for query in alarm["Metrics"]:
            if stat := query.get("MetricStat"):
                metric = {**stat["Metric"], "Period": stat["Period"], "Statistic": stat["Stat"]}
                values = enumerate(self._periods(metric, count, now))
                series[query["Id"]] = {float(age): value for age, value in values if value is not None}
        found = metric_math.returned_series(alarm["Metrics"], series)
        return [found.get(float(age)) for age in range(count)]

    def _periods(self, metric: Mapping[str, Any], count: int, now: float) -> Iterator[float | None]:
        """The statistic of each of so many periods, newest first; None for one without data."""
        dimensions = {d["Name"]: d["Value"] for d in _dimension_list(metric.get("Dimensions"))}
        points = self._ministack.data_points(metric["Namespace"], metric["MetricName"], dimensions)
        period = float(metric.get("Period") or 60)
        statistic = metric.get("ExtendedStatistic") or metric.get("Statistic") or "Average"
        for index in range(count):
            end = now - index * period
            inside = [p for p in points if end - period < p["Timestamp"] <= end]
            yield self._ministack.statistic(inside, statistic) if inside else None

    def _publish_requests(self, name: str) -> None:
        dimension = self._routing.metric_dimension(name)
        if dimension is None:
            return
        labels = {"LoadBalancer": dimension}
        new: dict[str, int] = {}
        for metric, total in self._balancer.counters(name).items():
            new[metric] = total - self._published.get((name, metric), 0)
            self._published[name, metric] = total
            if new[metric]:
                self._ministack.record_metric("AWS/ApplicationELB", metric, new[metric], "Count", labels)
        response_times = self._balancer.take_response_times(name)
        self._publish_response_times(labels, response_times)
        self._publish_targets(name, labels, new, response_times)

    def _publish_response_times(self, labels: Mapping[str, str], times_s: Iterable[float]) -> None:
        for time_s in times_s:
            self._ministack.record_metric(
                "AWS/ApplicationELB", "TargetResponseTime", time_s, "Seconds", labels
            )

    def _publish_targets(
        self, name: str, labels: Mapping[str, str], new: Mapping[str, int], response_times: Iterable[float]
    ) -> None:
        """What AWS says of a target group while it has registered targets: that it has, or more."""
        group = self._balancer.target_group(name)
        try:
            states = [target["state"] for target in self._balancer.health(group)] if group else []
        except UnknownTargetGroupError:
            return
        if group and states:
            of_group = {**labels, "TargetGroup": group.rpartition(":")[2]}
            counted = {name: value for name, value in new.items() if value and name.startswith(OF_TARGETS)}
            for metric, value in {"HealthyHostCount": states.count("healthy"), **counted}.items():
                self._ministack.record_metric("AWS/ApplicationELB", metric, value, "Count", of_group)
            self._publish_response_times(of_group, response_times)

    def bill(self) -> dict[str, Any]:
        """What CloudWatch would charge for the metrics of logs so far, by the hours with a value."""
        hours = Counter(f"{namespace} {name}" for namespace, name, *_ in self._hours)
        return {"metric_hours": dict(sorted(hours.items())), "usd": round(hours.total() * METRIC_HOUR_USD, 4)}

    def _see_log(self, lines: Iterable[str]) -> None:
        for line in lines:
            for d in embedded_metrics(line):
                self._ministack.record_metric(d.namespace, d.name, d.value, d.unit, d.dimensions)
                hour = int(time.time() // 3600)
                self._hours.add((d.namespace, d.name, tuple(sorted(d.dimensions.items())), hour))


_COMPARISONS = {
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
    "LessThanOrEqualToThreshold": lambda value, threshold: value <= threshold,
}


def alarm_state(alarm: Mapping[str, Any], periods: Sequence[float | None]) -> tuple[str, str]:
    """The state that an alarm should be in, and the reason for people.

    `periods` is what CloudWatch looks at, newest first: the evaluated periods, and some more before them that
    stand in for missing ones. How many more isn't documented. The rules are those of "Configuring how
    CloudWatch alarms treat missing data" in its user guide: what is there decides if it is enough, what is
    missing is filled as the alarm says, and one that says neither good nor bad keeps its state until what is
    there is old enough.
    """
    compare = _COMPARISONS.get(alarm.get("ComparisonOperator", ""))
    if compare is None:
        return alarm["StateValue"], "This comparison isn't emulated"
    threshold = float(alarm.get("Threshold") or 0)
    missing = alarm.get("TreatMissingData") or "missing"
    evaluated = int(alarm.get("EvaluationPeriods") or 1)
    needed = int(alarm.get("DatapointsToAlarm") or evaluated)
    seen = [(age, value) for age, value in enumerate(periods) if value is not None][:evaluated]
    lacking = evaluated - len(seen)
    breaching = [age for age, value in seen if compare(value, threshold)]
    reason = f"datapoints {[v for _, v in seen]} against {alarm['ComparisonOperator']} {threshold}"
    filled = lacking if missing == "breaching" else 0
    if len(breaching) + filled >= needed:
        return "ALARM", f"Threshold Crossed: {reason}"
    if lacking and missing in ("missing", "ignore") and len(breaching) == len(seen):
        if not seen and missing == "missing":
            return "INSUFFICIENT_DATA", "Insufficient Data: no datapoints were received"
        if missing == "missing" and breaching[-1] >= needed - 1:
            return "ALARM", f"Threshold Crossed: {reason}"
        return alarm["StateValue"], f"Too few datapoints: {reason}"
    return "OK", f"Threshold not crossed: {reason}"


def _dimension_list(dimensions: Any) -> list[dict[str, str]]:
    """Alarms made by CloudFormation keep a list, those made by the API a mapping."""
    if isinstance(dimensions, dict):
        return [{"Name": name, "Value": value} for name, value in dimensions.items()]
    return list(dimensions or [])
