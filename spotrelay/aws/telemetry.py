"""`ports.Telemetry` with Powertools: a log of JSON lines, metrics for CloudWatch among them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from spotrelay.core.names import (
    ALARM_DIMENSION,
    INCIDENT,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    Alarm,
    Metric,
)

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools.logging import Logger
    from aws_lambda_powertools.utilities.typing import LambdaContext

_TAKEN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Names that `logging` refuses as extra ones, with an error."""


class PowertoolsTelemetry:
    """See `ports.Telemetry`. What was counted is written by `flush`, once per invocation.

    Powertools is imported with the first line to write: it takes as long as a client or two, and what a
    function has just been started for, to deregister and to launch, comes before it logs anything.
    """

    def __init__(self, logger: Logger | None = None) -> None:
        self._given = logger
        self._invocation: Mapping[str, object] = {}
        self._is_cold = True
        self._counted: dict[str, list[tuple[Metric, float]]] = defaultdict(list)
        self._told: list[tuple[str, Alarm, bool, datetime]] = []

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
        """See `ports.Telemetry.count`."""
        self._counted[service or METRICS_NO_SERVICE].append((metric, value))

    def tell(self, alarm: Alarm, *, service: str, lasts: bool, at: datetime) -> None:
        """See `ports.Telemetry.tell`. Each value has its own time: what an alarm heard when is on record."""
        self._told.append((service, alarm, lasts, at))

    def record(self, event: str, **facts: object) -> None:
        """See `ports.Telemetry.record`. A line with an `error` among its facts has that level, too."""
        log = self._logger.error if "error" in facts else self._logger.info
        named = {_free(name): fact for name, fact in facts.items()}
        # So that the line names the place that records: Powertools, too, counts from its own caller.
        log(event, extra={**self._invocation, **named}, stacklevel=3)

    def flush(self) -> None:
        """Write the metrics to the log."""
        if not self._counted and not self._told:
            return
        from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

        counted, told = dict(self._counted), list(self._told)
        self._counted.clear()
        self._told.clear()
        for service, alarm, lasts, at in told:
            dimensions = {METRICS_DIMENSION: service, ALARM_DIMENSION: alarm.value}
            metrics = EphemeralMetrics(namespace=METRICS_NAMESPACE, default_dimensions=dimensions)
            metrics.add_metric(INCIDENT, MetricUnit.Count, float(lasts))
            metrics.set_timestamp(at)
            metrics.flush_metrics()
        for service, values in counted.items():
            dimensions = {METRICS_DIMENSION: service}
            # Powertools' `Metrics` shares one set of dimensions in the whole process, but an invocation
            # counts for several services. `EphemeralMetrics` is its own answer: one each, nothing shared.
            metrics = EphemeralMetrics(namespace=METRICS_NAMESPACE, default_dimensions=dimensions)
            for metric, value in values:
                metrics.add_metric(metric.value, MetricUnit(metric.unit.value), value)
            # Powertools writes a full set by itself, which leaves an empty one.
            if metrics.metric_set:
                metrics.flush_metrics()

    @cached_property
    def _logger(self) -> Logger:
        if self._given is not None:
            return self._given
        from aws_lambda_powertools.logging import Logger

        return Logger(service=METRICS_NO_SERVICE)


def _free(name: str) -> str:
    # A log line must not be what fails.
    return f"{name}_" if name in _TAKEN else name
