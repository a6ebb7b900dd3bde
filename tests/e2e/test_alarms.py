"""The deployed alarms on our own metrics."""

from __future__ import annotations

import pytest

from spotrelay.names import METRICS_DIMENSION, METRICS_NAMESPACE, METRICS_NO_SERVICE, Metric
from tests.e2e.stand import Stand


@pytest.mark.parametrize("metric", [Metric.CRASH_LOOPING, Metric.ALL_ZONES_SCORE_LOW])
def test_what_must_not_stay_unseen_rings(stand: Stand, metric: Metric) -> None:
    """Counted once, the metric sets off the alarm that was deployed for it."""
    datum = {
        "MetricName": str(metric),
        "Value": 1,
        "Dimensions": [{"Name": METRICS_DIMENSION, "Value": METRICS_NO_SERVICE}],
    }
    cloudwatch = stand.operator.session.client("cloudwatch")
    cloudwatch.put_metric_data(Namespace=METRICS_NAMESPACE, MetricData=[datum])
    stand.until_alarm(metric)
