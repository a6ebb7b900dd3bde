"""A service's own board: whole or not at a glance, then what was lost, what clients felt, and what it costs.

Its metrics are named one by one: a search would forget those of a calm fortnight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from spotrelay.core.names import WIDGET_FUNCTION, Metric, service_dashboard_name
from spotrelay.service import Service
from stacks.alarms import MINUTE, ours
from stacks.dashboard import DAY, FULL, HALF, PERIODS, SURVEY_PERIOD_S
from stacks.entrance import Entrance

NUMBERS_HEIGHT, GRAPH_HEIGHT, TABLE_HEIGHT = 4, 6, 9

GREEN, ORANGE, RED, GREY = "#2ca02c", "#ff7f0e", "#d62728", "#7f7f7f"
"""Of CloudWatch's own palette (`cloudwatch.Color`): Spot, on-demand, missing, the rest."""


def service_dashboard(
    scope: Construct,
    id_: str,
    *,
    service: Service,
    entrance: Entrance,
    alarms: Sequence[cloudwatch.IAlarm],
) -> cloudwatch.Dashboard:
    """The board of one service."""
    board = cloudwatch.Dashboard(
        scope,
        id_,
        dashboard_name=service_dashboard_name(service.name, Stack.of(scope).region),
        default_interval=Duration.hours(12),
        period_override=PERIODS,
    )
    of = _Of(service.name)
    board.add_widgets(*_numbers(of))
    board.add_widgets(cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=FULL, height=2))
    board.add_widgets(_replicas(of, service), _losses(of))
    if entrance.requests:
        board.add_widgets(*_balancer(entrance))
    board.add_widgets(_table(Stack.of(scope), service))
    board.add_widgets(_commands(service))
    board.add_widgets(
        of.graph("USD an hour", "Maximum", Metric.USD_PER_HOUR, Metric.ON_DEMAND_USD_PER_HOUR),
        of.graph("How long on-demand has stood in for Spot (s)", "Maximum", Metric.LONGEST_FALLBACK_S),
    )
    board.add_widgets(
        of.graph(
            "How likely Spot is to be had, in the best zone (1 to 10)",
            "Minimum",
            Metric.BEST_PLACEMENT_SCORE,
            period=Duration.seconds(SURVEY_PERIOD_S),
        ),
        _pools(of),
    )
    board.add_widgets(
        of.graph(
            "Launches",
            "Sum",
            Metric.REPLICAS_LAUNCHED,
            Metric.LAUNCH_REFUSALS,
            Metric.LAUNCH_ERRORS,
            Metric.LAUNCHES_BLOCKED,
            Metric.LAUNCHES_HELD,
        ),
        of.graph(
            "Trouble",
            "Sum",
            Metric.REPLICAS_FAILED,
            Metric.ROLLOUT_STOPPED,
            Metric.ORPHANS_ADOPTED,
            Metric.ORPHANS_TERMINATED,
        ),
    )
    if service.scaling and service.scaling.ongoing:
        board.add_widgets(
            of.graph(
                "Requests that replicas have by their own account; replicas that don't tell",
                "Maximum",
                Metric.ONGOING_REQUESTS,
                Metric.ONGOING_UNKNOWN,
                width=FULL,
            )
        )
    return board


class _Of:
    """Makes metrics and graphs of one service."""

    def __init__(self, service: str) -> None:
        self._service = service

    def metric(
        self,
        metric: Metric,
        statistic: str,
        label: str = "",
        *,
        color: str | None = None,
        period: Duration = MINUTE,
    ) -> cloudwatch.Metric:
        """A metric of the service's."""
        return ours(metric, self._service, period, statistic).with_(label=label or metric, color=color)

    def graph(
        self, title: str, statistic: str, *metrics: Metric, width: int = HALF, period: Duration = MINUTE
    ) -> cloudwatch.GraphWidget:
        """A line for each."""
        return cloudwatch.GraphWidget(
            title=title,
            width=width,
            height=GRAPH_HEIGHT,
            left=[self.metric(metric, statistic, period=period) for metric in metrics],
            left_y_axis=cloudwatch.YAxisProps(min=0),
        )


def _numbers(of: _Of) -> Iterable[cloudwatch.IWidget]:
    """What somebody who is woken looks at first."""
    saved = cloudwatch.MathExpression(
        expression="100 * (1 - usd / on_demand)",
        using_metrics={
            "usd": of.metric(Metric.USD_PER_HOUR, "Maximum"),
            "on_demand": of.metric(Metric.ON_DEMAND_USD_PER_HOUR, "Maximum"),
        },
        period=MINUTE,
        label="saved, %",
    )
    yield cloudwatch.SingleValueWidget(
        title="Now",
        metrics=[
            of.metric(Metric.REPLICAS_MISSING, "Maximum", "missing", color=RED),
            of.metric(Metric.REPLICAS_READY, "Minimum", "ready", color=GREEN),
            of.metric(Metric.REPLICAS_ON_DEMAND, "Maximum", "on demand", color=ORANGE),
            of.metric(Metric.USD_PER_HOUR, "Maximum", "USD an hour"),
            saved,
        ],
        width=16,
        height=NUMBERS_HEIGHT,
    )
    lost = cloudwatch.MathExpression(
        expression="warned + unwarned",
        using_metrics={
            "warned": of.metric(Metric.LOSSES_WARNED, "Sum"),
            "unwarned": of.metric(Metric.LOSSES_UNWARNED, "Sum"),
        },
        period=MINUTE,
        label="lost",
    )
    yield cloudwatch.SingleValueWidget(
        title="Last 24 hours",
        metrics=[lost, of.metric(Metric.GAP_S, "Maximum", "worst gap, s")],
        start=DAY,
        set_period_to_time_range=True,
        width=8,
        height=NUMBERS_HEIGHT,
    )


def _replicas(of: _Of, service: Service) -> cloudwatch.GraphWidget:
    """Stacked, they make as many as are desired."""
    return cloudwatch.GraphWidget(
        title="Replicas: on Spot, on demand, missing",
        width=HALF,
        height=GRAPH_HEIGHT,
        stacked=True,
        left=[
            of.metric(Metric.REPLICAS_SPOT, "Minimum", "on Spot", color=GREEN),
            of.metric(Metric.REPLICAS_ON_DEMAND, "Minimum", "on demand", color=ORANGE),
            of.metric(Metric.REPLICAS_MISSING, "Maximum", "missing", color=RED),
        ],
        right=(
            [of.metric(Metric.STANDBYS, "Maximum", "standbys", color=GREY)]
            if service.may_have_standbys
            else []
        ),
        left_y_axis=cloudwatch.YAxisProps(min=0),
    )


def _losses(of: _Of) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title="Losses, and from the warning until: out of rotation, replacement launched, ready",
        width=HALF,
        height=GRAPH_HEIGHT,
        left=[
            of.metric(Metric.LOSSES_WARNED, "Sum", "lost with a warning", color=ORANGE),
            of.metric(Metric.LOSSES_UNWARNED, "Sum", "lost without a warning", color=RED),
        ],
        right=[
            of.metric(Metric.WARNING_TO_DEREGISTERED_MS, "Maximum", "warning until out (ms)"),
            of.metric(Metric.WARNING_TO_LAUNCHED_MS, "Maximum", "warning until launched (ms)"),
            of.metric(Metric.WARNING_TO_READY_MS, "Maximum", "warning until ready (ms)"),
        ],
        left_y_axis=cloudwatch.YAxisProps(min=0),
        right_y_axis=cloudwatch.YAxisProps(min=0),
    )


def _balancer(entrance: Entrance) -> Iterable[cloudwatch.IWidget]:
    """What clients felt, beside what was lost: the same width, the same time."""
    requests = entrance.requests
    yield cloudwatch.GraphWidget(
        title="Requests, and answers of 5xx",
        width=HALF,
        height=GRAPH_HEIGHT,
        left=[requests["requests"].with_(label="requests", color=GREY)],
        right=[requests[name].with_(label=name.replace("_", " ")) for name in entrance.errors],
        left_y_axis=cloudwatch.YAxisProps(min=0),
        right_y_axis=cloudwatch.YAxisProps(min=0),
    )
    if entrance.response_time is not None:
        yield cloudwatch.GraphWidget(
            title="Seconds until an answer's headers",
            width=HALF,
            height=GRAPH_HEIGHT,
            left=[
                entrance.response_time.with_(statistic=statistic, period=MINUTE, label=statistic)
                for statistic in ("p50", "p99")
            ],
            left_y_axis=cloudwatch.YAxisProps(min=0),
        )


def _pools(of: _Of) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title="Capacity pools: eligible, and left alone after a loss or a refusal",
        width=HALF,
        height=GRAPH_HEIGHT,
        left=[
            of.metric(Metric.ELIGIBLE_POOLS, "Minimum", "eligible", period=Duration.seconds(SURVEY_PERIOD_S)),
            of.metric(Metric.POOLS_COOLING, "Maximum", "cooling", color=ORANGE),
        ],
        left_y_axis=cloudwatch.YAxisProps(min=0),
    )


def _table(stack: Stack, service: Service) -> cloudwatch.CustomWidget:
    """Its replicas and last losses, which a function of the control plane's draws."""
    arn = stack.format_arn(
        service="lambda",
        resource="function",
        resource_name=WIDGET_FUNCTION,
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return cloudwatch.CustomWidget(
        function_arn=arn,
        title="Replicas and last losses",
        params={"service": service.name},
        width=FULL,
        height=TABLE_HEIGHT,
        update_on_refresh=True,
        update_on_resize=False,
        update_on_time_range_change=False,
    )


def _commands(service: Service) -> cloudwatch.TextWidget:
    return cloudwatch.TextWidget(
        markdown=(
            f"Each replica, and why: `spotrelay status {service.name}`. Each loss and what became of it:"
            f" `spotrelay history {service.name}`. What an alarm means: docs/operations.md"
        ),
        width=FULL,
        height=1,
        background=cloudwatch.TextWidgetBackground.TRANSPARENT,
    )
