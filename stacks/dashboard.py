"""The first thing to look at: what was lost, how fast it was replaced, what is there, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, aws_logs
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from spotrelay.core.names import METRICS_DIMENSION, METRICS_NAMESPACE, METRICS_NO_SERVICE, Metric

PERIOD_S = 60
SURVEY_PERIOD_S = 3600
"""A survey's: shorter ones would leave nothing but single points."""

BLOCKED_TITLE = "Launches that EC2 refuses until somebody mends the cause"

HALF, FULL = 12, 24
"""Widths in CloudWatch's grid of 24."""


def dashboard(
    scope: Construct, id_: str, *, alarms: Sequence[cloudwatch.IAlarm], logs: Sequence[aws_logs.ILogGroup]
) -> cloudwatch.Dashboard:
    """The control plane's dashboard: one line per service in every graph, services added later included.

    `logs` are those of the functions that launch.
    """
    board = cloudwatch.Dashboard(scope, id_, default_interval=Duration.hours(12))
    board.add_widgets(
        cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=FULL, height=3),
    )
    board.add_widgets(_blocked(logs))
    board.add_widgets(
        _graph(
            "Replicas ready, and missing; standbys",
            "Maximum",
            Metric.REPLICAS_READY,
            Metric.REPLICAS_MISSING,
            Metric.STANDBYS,
        ),
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
            Metric.HELD_BACK,
            Metric.LAUNCHES_BLOCKED,
            Metric.CALLS_DENIED,
        ),
    )
    board.add_widgets(
        _graph(
            "How likely Spot is to be had, in the best zone (1 to 10)",
            "Minimum",
            Metric.BEST_PLACEMENT_SCORE,
            period_s=SURVEY_PERIOD_S,
        ),
        _graph("Capacity pools that EC2 has", "Minimum", Metric.ELIGIBLE_POOLS, period_s=SURVEY_PERIOD_S),
    )
    board.add_widgets(
        _sums(
            "Signals",
            Metric.SIGNALS_RECEIVED,
            Metric.SIGNALS_IGNORED,
            Metric.MESSAGES_MALFORMED,
            Metric.FOREIGN_INSTANCES,
        ),
        _sums(
            "Surveys",
            Metric.SURVEY_REFUSED,
            Metric.SURVEY_UNANSWERED,
            Metric.ALL_ZONES_SCORE_LOW,
            Metric.QUOTAS_SHORT,
        ),
    )
    return board


def _blocked(logs: Sequence[aws_logs.ILogGroup]) -> cloudwatch.LogQueryWidget:
    """What an alarm on a service can't quote: EC2's own words, and the remedy."""
    return cloudwatch.LogQueryWidget(
        title=BLOCKED_TITLE,
        width=FULL,
        height=5,
        log_group_names=[group.log_group_name for group in logs],
        query_lines=[
            "fields @timestamp, service, purchase_option, code, remedy, error",
            'filter message = "launch_blocked"',
            "sort @timestamp desc",
            "limit 20",
        ],
    )


def _sums(title: str, *metrics: Metric) -> cloudwatch.GraphWidget:
    """What belongs to no one service."""
    return cloudwatch.GraphWidget(
        title=title,
        width=HALF,
        left=[
            cloudwatch.Metric(
                namespace=METRICS_NAMESPACE,
                metric_name=metric,
                dimensions_map={METRICS_DIMENSION: METRICS_NO_SERVICE},
                statistic="Sum",
                period=Duration.seconds(PERIOD_S),
                label=metric,
            )
            for metric in metrics
        ],
    )


def _graph(
    title: str,
    statistic: str,
    *metrics: Metric,
    period_s: int = PERIOD_S,
) -> cloudwatch.GraphWidget:
    """One line per metric and service. A search finds them as they appear: no stack knows them all."""
    return cloudwatch.GraphWidget(
        title=title,
        width=HALF,
        left=[
            cloudwatch.MathExpression(
                expression=(
                    f"SEARCH('{{{METRICS_NAMESPACE},{METRICS_DIMENSION}}} MetricName=\"{metric}\"',"
                    f" '{statistic}', {period_s})"
                ),
                using_metrics={},
                label=metric,
                period=Duration.seconds(period_s),
            )
            for metric in metrics
        ],
        left_y_axis=cloudwatch.YAxisProps(min=0),
    )
