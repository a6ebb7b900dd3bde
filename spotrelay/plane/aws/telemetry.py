"""`ports.Telemetry`: a log of JSON lines, by Powertools. What was counted is one of them for each service.

Where an alarm looks at one of its numbers, that is a metric, too: CloudWatch's embedded metric format says in
the line itself which fields are metrics. The others cost nothing but the line:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from spotrelay.plane.core.names import (
    ALARM_DIMENSION,
    ALL_METRICS,
    COUNTED,
    INCIDENT,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    TOLD,
    Alarm,
    Env,
    Metric,
    Unit,
)

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools.logging import Logger
    from aws_lambda_powertools.utilities.typing import LambdaContext

_TAKEN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Names that `logging` refuses as extra ones, with an error."""


class PowertoolsTelemetry:
    """`ports.Telemetry`. What was counted is written by `flush`, once per invocation.

    Powertools is imported with the first line to write: it takes as long as a client or two, and what a
    function has just been started for, to deregister and to launch, comes before it logs anything.
    """

    def __init__(self, logger: Logger | None = None) -> None:
        self._given = logger
        self._invocation: Mapping[str, object] = {}
        self._is_cold = True
        self._counted: dict[str, list[tuple[Metric, float]]] = defaultdict(list)
        self._told: list[tuple[str, Alarm, bool, datetime]] = []
        self._earlier: set[str] = set()

    @contextmanager
    def invocation(self, context: LambdaContext) -> Iterator[None]:
        """One invocation: its lines tell which it was; at its end, be that an error, counts are written."""
        # Called as they are by Powertools' own decorator, which would have to be imported for it.
        self._invocation = {
            "cold_start": self._is_cold,
            "function_name": context.function_name,
            "function_memory_size": context.memory_limit_in_mb,
            "function_arn": context.invoked_function_arn,
            "function_request_id": context.aws_request_id,
        }
        self._is_cold = False
        try:
            yield
        finally:
            self.flush()

    def count(self, metric: Metric, value: float = 1, *, service: str | None = None) -> None:
        self._counted[service or METRICS_NO_SERVICE].append((metric, value))

    def send_all(self, service: str) -> None:
        self._earlier.add(service)

    def tell(self, alarm: Alarm, *, service: str, lasts: bool, at: datetime) -> None:
        """Each value has its own time: what an alarm heard when is on record."""
        self._told.append((service, alarm, lasts, at))

    def record(self, event: str, **facts: object) -> None:
        """A line with an `error` among its facts has that level, too."""
        log = self._logger.error if "error" in facts else self._logger.info
        named = {_free(name): fact for name, fact in facts.items()}
        # So that the line names the place that records: Powertools, too, counts from its own caller.
        log(event, extra={**self._invocation, **named}, stacklevel=3)

    def flush(self) -> None:
        """Write what was counted to the log: a line for each service, and one for what belongs to none."""
        counted, told, earlier = dict(self._counted), tuple(self._told), frozenset(self._earlier)
        for kept in (self._counted, self._told, self._earlier):
            kept.clear()
        for service, alarm, lasts, at in told:
            of = {METRICS_DIMENSION: service, ALARM_DIMENSION: alarm.value}
            _write({"message": TOLD, **of, INCIDENT: int(lasts)}, {INCIDENT: Unit.COUNT}, of, at.timestamp())
        for service, values in counted.items():
            by_metric: dict[Metric, list[float]] = defaultdict(list)
            for metric, value in values:
                by_metric[metric].append(value)
            fields = {metric.value: _together(metric, found) for metric, found in by_metric.items()}
            of = {METRICS_DIMENSION: service}
            is_all = service in earlier or os.environ.get(Env.METRICS) == ALL_METRICS
            sent = {m.value: m.unit for m in by_metric if is_all or m.is_alarmed}
            _write({"message": COUNTED, **of, **fields}, sent, of, time.time())

    @cached_property
    def _logger(self) -> Logger:
        if self._given is not None:
            return self._given
        from aws_lambda_powertools.logging import Logger

        return Logger(service=METRICS_NO_SERVICE)


def _free(name: str) -> str:
    # A log line must not be what fails.
    return f"{name}_" if name in _TAKEN else name


def _together(metric: Metric, values: Sequence[float]) -> float:
    """What an invocation counted of one metric, as the one number that queries of the log reckon with."""
    if metric.is_level:
        return values[-1]
    return sum(values) if metric.unit is Unit.COUNT else max(values)


def _write(
    line: Mapping[str, object], sent: Mapping[str, Unit], dimensions: Collection[str], at_s: float
) -> None:
    """Write a line, of which the fields `sent` are CloudWatch's metrics of that time.

    Logging would put its own fields around it, and CloudWatch looks at a line's outermost ones.
    """
    if sent:
        metrics = [{"Name": name, "Unit": unit.value} for name, unit in sent.items()]
        group = {"Namespace": METRICS_NAMESPACE, "Dimensions": [[*dimensions]], "Metrics": metrics}
        line = {**line, "_aws": {"Timestamp": round(at_s * 1000), "CloudWatchMetrics": [group]}}
    sys.stdout.write(json.dumps(line) + "\n")
