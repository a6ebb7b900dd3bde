"""The board of all services of a region, in the control plane's stack: is any of them in trouble?

`service_dashboard` has each service's own. Here services can't be known: they have stacks of their own. So
searches find their metrics, those that had a value within two weeks, which the replicas' always have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import ArnFormat, Duration, Stack, aws_logs
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from spotrelay.core.names import (
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    WIDGET_FUNCTION,
    Metric,
    fleet_dashboard_name,
)

PERIOD_S = 60
SURVEY_PERIOD_S = 3600
"""A survey's: shorter ones would leave nothing but single points."""

PERIODS = cloudwatch.PeriodOverride.INHERIT
"""As each widget says. Otherwise CloudWatch takes those that suit the board's range: five minutes for the
numbers of now, which would show what is over, and for the surveys' hours, which would be single points."""

BLOCKED_TITLE = "Launches that EC2 refuses until somebody mends the cause"

HALF, FULL = 12, 24
"""Widths in CloudWatch's grid of 24."""

NUMBERS_HEIGHT = 3

ALARMS_A_ROW = 5
"""So many names are beside each other where a board is as wide as a laptop's screen."""

FROM_ZERO = cloudwatch.YAxisProps(min=0)


def in_unit(unit: str) -> cloudwatch.YAxisProps:
    """An axis from zero, on which everything is measured in the same."""
    return cloudwatch.YAxisProps(min=0, label=unit, show_units=False)


SERVICES_HEIGHT = 6
"""Half a dozen services; more are scrolled."""

SCORES = cloudwatch.YAxisProps(min=0, max=10)
"""Spot placement scores go from 1 to 10."""

OF_SERVICE = f"${{PROP('Dim.{METRICS_DIMENSION}')}}"
"""In a label: the service of each line that a search finds."""

DAY = "-PT24H"
"""The last 24 hours, whatever the board shows: where a widget begins, as dashboards write it."""


def dashboard(
    scope: Construct, id_: str, *, alarms: Sequence[cloudwatch.IAlarm], logs: Sequence[aws_logs.ILogGroup]
) -> cloudwatch.Dashboard:
    """The fleet's dashboard: one line per service in every graph, services added later included.

    `logs` are those of the functions that launch.
    """
    board = cloudwatch.Dashboard(
        scope,
        id_,
        dashboard_name=fleet_dashboard_name(Stack.of(scope).region),
        default_interval=Duration.hours(12),
        period_override=PERIODS,
    )
    board.add_widgets(*_totals())
    board.add_widgets(
        cloudwatch.AlarmStatusWidget(
            title="Alarms of the control plane",
            alarms=list(alarms),
            width=FULL,
            height=1 + -(-len(alarms) // ALARMS_A_ROW),
        ),
    )
    board.add_widgets(widget(Stack.of(scope), "Services, and their alarms", SERVICES_HEIGHT))
    board.add_widgets(
        _graph("Replicas missing, by service", "Maximum", {Metric.REPLICAS_MISSING: ""}),
        _graph(
            "Instances lost, by service",
            "Sum",
            {Metric.LOSSES_WARNED: "warned", Metric.LOSSES_UNWARNED: "no warning"},
        ),
    )
    board.add_widgets(
        _graph(
            "Replicas ready, by service",
            "Minimum",
            {Metric.REPLICAS_SPOT: "on Spot", Metric.REPLICAS_ON_DEMAND: "on demand"},
        ),
        _graph("USD an hour, by service", "Maximum", {Metric.USD_PER_HOUR: ""}),
    )
    board.add_widgets(_blocked(logs))
    board.add_widgets(
        cloudwatch.GraphWidget(
            title="Seconds from the warning until out of rotation, launched, ready: the slowest",
            width=HALF,
            left=[
                _expression(label, f"MAX({_search(metric, 'Maximum')}) / 1000")
                for metric, label in (
                    (Metric.WARNING_TO_DEREGISTERED_MS, "out"),
                    (Metric.WARNING_TO_LAUNCHED_MS, "launched"),
                    (Metric.WARNING_TO_READY_MS, "ready"),
                )
            ],
            left_y_axis=in_unit("seconds"),
        ),
        _graph(
            "Launches",
            "Sum",
            {
                Metric.REPLICAS_LAUNCHED: "launched",
                Metric.LAUNCH_REFUSALS: "no capacity",
                Metric.LAUNCH_ERRORS: "errors",
            },
        ),
    )
    board.add_widgets(
        _graph(
            "Placement score of the best zone (of 10), by service",
            "Minimum",
            {Metric.BEST_PLACEMENT_SCORE: ""},
            period_s=SURVEY_PERIOD_S,
            axis=SCORES,
        ),
        _graph(
            "Trouble",
            "Sum",
            {
                Metric.REPLICAS_FAILED: "failed to start",
                Metric.ORPHANS_ADOPTED: "orphans adopted",
                Metric.ORPHANS_TERMINATED: "orphans terminated",
                Metric.LAUNCHES_HELD: "launches held back",
                Metric.LAUNCHES_BLOCKED: "refused until mended",
                Metric.CRASH_LOOPING: "crash looping",
                Metric.BETTER_ELSEWHERE: "better elsewhere",
            },
        ),
    )
    board.add_widgets(
        _sums(
            "Signals, and what the controller was kept from",
            {
                Metric.SIGNALS_RECEIVED: "signals",
                Metric.SIGNALS_IGNORED: "signals that change nothing",
                Metric.MESSAGES_MALFORMED: "messages that can't be read",
                Metric.TICKS_MALFORMED: "ticks that can't be read",
                Metric.FOREIGN_INSTANCES: "signals about others' instances",
                Metric.EVENTS_UNSENT: "events that couldn't be sent",
                Metric.HELD_BACK: "decisions held back",
                Metric.CALLS_DENIED: "calls that AWS denied",
            },
        ),
        _sums(
            "Surveys",
            {
                Metric.SURVEY_REFUSED: "refused",
                Metric.SURVEY_UNANSWERED: "without an answer",
                Metric.ALL_ZONES_SCORE_LOW: "every zone scores low",
                Metric.QUOTAS_SHORT: "quotas too small",
                Metric.IMAGES_GONE: "images gone",
            },
        ),
    )
    return board


def _totals() -> tuple[cloudwatch.SingleValueWidget, ...]:
    """The sums over all services, as large numbers."""
    usd, on_demand = (
        _all(metric, "Maximum") for metric in (Metric.USD_PER_HOUR, Metric.ON_DEMAND_USD_PER_HOUR)
    )
    lost = f"{_all(Metric.LOSSES_WARNED, 'Sum')} + {_all(Metric.LOSSES_UNWARNED, 'Sum')}"
    now = {
        "missing": _all(Metric.REPLICAS_MISSING, "Maximum"),
        "on demand": _all(Metric.REPLICAS_ON_DEMAND, "Maximum"),
        "USD an hour": usd,
        "saved, %": f"100 * (1 - {usd} / {on_demand})",
    }
    return (
        cloudwatch.SingleValueWidget(
            title="All services now",
            metrics=[_expression(label, expression) for label, expression in now.items()],
            width=18,
            height=NUMBERS_HEIGHT,
        ),
        cloudwatch.SingleValueWidget(
            title="Last 24 hours",
            metrics=[_expression("lost", lost)],
            start=DAY,
            set_period_to_time_range=True,
            width=6,
            height=NUMBERS_HEIGHT,
        ),
    )


def widget(stack: Stack, title: str, height: int, **params: str) -> cloudwatch.CustomWidget:
    """What a function of the control plane draws: one service's table, or that of all services."""
    arn = stack.format_arn(
        service="lambda",
        resource="function",
        resource_name=WIDGET_FUNCTION,
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return cloudwatch.CustomWidget(
        function_arn=arn,
        title=title,
        params=params,
        width=FULL,
        height=height,
        update_on_refresh=True,
        update_on_resize=False,
        update_on_time_range_change=False,
    )


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


def _sums(title: str, metrics: Mapping[Metric, str]) -> cloudwatch.GraphWidget:
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
                label=label,
            )
            for metric, label in metrics.items()
        ],
        left_y_axis=FROM_ZERO,
    )


def _search(metric: Metric, statistic: str) -> str:
    """Finds a metric of every service, as they appear: no stack knows them all.

    It names no period, so that it is the widget's, or all of a widget's time where that is wanted.
    """
    return f"SEARCH('{{{METRICS_NAMESPACE},{METRICS_DIMENSION}}} MetricName=\"{metric}\"', '{statistic}')"


def _all(metric: Metric, statistic: str) -> str:
    return f"SUM({_search(metric, statistic)})"


def _expression(label: str, expression: str, period_s: int = PERIOD_S) -> cloudwatch.MathExpression:
    return cloudwatch.MathExpression(
        expression=expression, using_metrics={}, label=label, period=Duration.seconds(period_s)
    )


def _graph(
    title: str,
    statistic: str,
    metrics: Mapping[Metric, str],
    *,
    period_s: int = PERIOD_S,
    axis: cloudwatch.YAxisProps = FROM_ZERO,
) -> cloudwatch.GraphWidget:
    """A line per metric and service, labelled so: what of which service."""
    return cloudwatch.GraphWidget(
        title=title,
        width=HALF,
        left=[
            _expression(f"{OF_SERVICE} {words}".strip(), _search(metric, statistic), period_s)
            for metric, words in metrics.items()
        ],
        left_y_axis=axis,
    )
