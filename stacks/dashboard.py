"""The first thing to look at: what was lost, how fast it was replaced, what is there, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from spotrelay.names import METRICS_DIMENSION, METRICS_NAMESPACE, METRICS_NO_SERVICE, Metric

PERIOD_S = 60
HALF, FULL = 12, 24
"""Widths in CloudWatch's grid of 24."""


def dashboard(scope: Construct, id_: str, *, alarms: Sequence[cloudwatch.IAlarm]) -> cloudwatch.Dashboard:
    """The control plane's dashboard: one line per service in every graph, services added later included."""
    board = cloudwatch.Dashboard(scope, id_, default_interval=Duration.hours(12))
    board.add_widgets(
        cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=FULL, height=3),
    )
    board.add_widgets(
        _graph("Replicas ready, of those desired", "Minimum", Metric.REPLICAS_READY, Metric.REPLICAS_DESIRED),
        _graph("Interruptions", "Sum", Metric.INTERRUPTION_WARNINGS, Metric.DEREGISTERED),
    )
    board.add_widgets(
        _graph("From the warning until out of rotation (ms)", "Maximum", Metric.WARNING_TO_DEREGISTERED_MS),
        _graph("From the warning until a replacement runs (ms)", "Maximum", Metric.WARNING_TO_LAUNCHED_MS),
    )
    board.add_widgets(
        _graph("Launches", "Sum", Metric.REPLICAS_LAUNCHED, Metric.LAUNCH_REFUSALS, Metric.LAUNCH_ERRORS),
        _graph(
            "Trouble",
            "Sum",
            Metric.REPLICAS_FAILED,
            Metric.ORPHANS_ADOPTED,
            Metric.ORPHANS_TERMINATED,
            Metric.LAUNCHES_HELD,
        ),
    )
    board.add_widgets(
        cloudwatch.GraphWidget(
            title="Signals",
            width=FULL,
            left=[
                cloudwatch.Metric(
                    namespace=METRICS_NAMESPACE,
                    metric_name=metric,
                    dimensions_map={METRICS_DIMENSION: METRICS_NO_SERVICE},
                    statistic="Sum",
                    period=Duration.seconds(PERIOD_S),
                    label=metric,
                )
                for metric in (
                    Metric.SIGNALS_RECEIVED,
                    Metric.SIGNALS_IGNORED,
                    Metric.MESSAGES_MALFORMED,
                    Metric.FOREIGN_INSTANCES,
                )
            ],
        )
    )
    return board


def _graph(title: str, statistic: str, *metrics: Metric) -> cloudwatch.GraphWidget:
    """One line per metric and service. A search finds them as they appear: no stack knows them all."""
    return cloudwatch.GraphWidget(
        title=title,
        width=HALF,
        left=[
            cloudwatch.MathExpression(
                expression=(
                    f"SEARCH('{{{METRICS_NAMESPACE},{METRICS_DIMENSION}}} MetricName=\"{metric}\"',"
                    f" '{statistic}', {PERIOD_S})"
                ),
                using_metrics={},
                label=metric,
                period=Duration.seconds(PERIOD_S),
            )
            for metric in metrics
        ],
        left_y_axis=cloudwatch.YAxisProps(min=0),
    )
