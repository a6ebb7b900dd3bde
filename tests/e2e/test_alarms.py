"""The deployed alarms on our own metrics."""

from __future__ import annotations

import pytest

from spotrelay.names import METRICS_DIMENSION, METRICS_NAMESPACE, METRICS_NO_SERVICE, Metric
from tests.e2e.stand import SERVICE, Stand


@pytest.mark.parametrize(
    ("metric", "service"),
    [
        (Metric.CRASH_LOOPING, METRICS_NO_SERVICE),
        (Metric.ALL_ZONES_SCORE_LOW, METRICS_NO_SERVICE),
        (Metric.LAUNCHES_BLOCKED, SERVICE),
    ],
)
def test_what_must_not_stay_unseen_rings(stand: Stand, metric: Metric, service: str) -> None:
    """Counted once, the metric sets off the alarm that was deployed for it."""
    datum = {
        "MetricName": str(metric),
        "Value": 1,
        "Dimensions": [{"Name": METRICS_DIMENSION, "Value": service}],
    }
    cloudwatch = stand.operator.session.client("cloudwatch")
    cloudwatch.put_metric_data(Namespace=METRICS_NAMESPACE, MetricData=[datum])
    stand.until_alarm(metric, service=service)
