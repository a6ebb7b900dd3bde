"""`ports.Telemetry` with Powertools: a log of JSON lines, metrics for CloudWatch among them."""

from __future__ import annotations

import logging

from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from spotrelay.names import (
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    METRICS_ZONE_DIMENSION,
    Metric,
)

_TAKEN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Names that `logging` refuses as extra ones, with an error."""


class PowertoolsTelemetry:
    """See `ports.Telemetry`. What was counted is written by `flush`, once per invocation."""

    def __init__(self, logger: Logger | None = None) -> None:
        self._logger = logger or Logger(service=METRICS_NO_SERVICE)
        # Powertools' `Metrics` shares one set of dimensions in the whole process, but an invocation counts
        # for several services. `EphemeralMetrics` is Powertools' own answer: one each, nothing shared.
        self._metrics: dict[tuple[str, str | None], EphemeralMetrics] = {}

    def count(self, metric: Metric, value: float = 1, *, service: str | None = None) -> None:
        """See `ports.Telemetry.count`."""
        self._add(metric, value, service or METRICS_NO_SERVICE)

    def measure(self, metric: Metric, value: float, *, service: str, zone: str) -> None:
        """See `surveying.ZoneTelemetry.measure`."""
        self._add(metric, value, service, zone)

    def record(self, event: str, **facts: object) -> None:
        """See `ports.Telemetry.record`. A line with an `error` among its facts has that level, too."""
        log = self._logger.error if "error" in facts else self._logger.info
        # So that the line names the place that records: Powertools, too, counts from its own caller.
        log(event, extra={_free(name): fact for name, fact in facts.items()}, stacklevel=3)

    def flush(self) -> None:
        """Write the metrics to the log; a handler calls it last, whatever became of the invocation."""
        counted, self._metrics = self._metrics, {}
        for metrics in counted.values():
            # Powertools writes a full set by itself, which leaves an empty one.
            if metrics.metric_set:
                metrics.flush_metrics()

    def _add(self, metric: Metric, value: float, service: str, zone: str | None = None) -> None:
        if (service, zone) not in self._metrics:
            dimensions = {METRICS_DIMENSION: service} | ({METRICS_ZONE_DIMENSION: zone} if zone else {})
            self._metrics[service, zone] = EphemeralMetrics(
                namespace=METRICS_NAMESPACE, default_dimensions=dimensions
            )
        unit = MetricUnit.Milliseconds if metric.endswith("Ms") else MetricUnit.Count
        self._metrics[service, zone].add_metric(metric.value, unit, value)


def _free(name: str) -> str:
    # A log line must not be what fails.
    return f"{name}_" if name in _TAKEN else name
