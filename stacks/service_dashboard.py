"""A service's own board: whole or not at a glance, then what was lost, what clients felt, and what it costs.

Its metrics are named one by one: a search would forget those of a calm fortnight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from spotrelay.core.names import Metric, service_dashboard_name
from spotrelay.palette import BAD, CONTEXT, FAILED, MONEY, ON_DEMAND, SERVING, WARNED
from spotrelay.service import Service
from stacks.alarms import MINUTE, ours
from stacks.dashboard import (
    ALARMS_A_ROW,
    DAY,
    FROM_ZERO,
    FULL,
    NUMBERS_HEIGHT,
    PERIODS,
    SCORES,
    SURVEY_PERIOD_S,
    in_unit,
    widget,
)
from stacks.entrance import Entrance

A_ROW = 3
"""Graphs beside each other, so that what was lost and what clients felt are seen at the same height."""

GRAPH_HEIGHT, TABLE_HEIGHT = 6, 8

SURVEY = Duration.seconds(SURVEY_PERIOD_S)


class _Graph(NamedTuple):
    """Lines on either axis, each with one unit; where it stands is for `_in_rows` to say."""

    title: str
    left: Sequence[cloudwatch.IMetric]
    right: Sequence[cloudwatch.IMetric] = ()
    is_stacked: bool = False
    axis: cloudwatch.YAxisProps = FROM_ZERO
    right_axis: cloudwatch.YAxisProps = FROM_ZERO


def service_dashboard(
    scope: Construct,
    id_: str,
    *,
    service: Service,
    entrance: Entrance,
    alarms: Sequence[cloudwatch.IAlarm],
) -> cloudwatch.Dashboard:
    """The board of one service."""
    stack = Stack.of(scope)
    board = cloudwatch.Dashboard(
        scope,
        id_,
        dashboard_name=service_dashboard_name(service.name, stack.region),
        default_interval=Duration.hours(12),
        period_override=PERIODS,
    )
    of = _Of(service.name)
    board.add_widgets(*_numbers(of))
    board.add_widgets(
        cloudwatch.AlarmStatusWidget(
            title="Alarms",
            alarms=list(alarms),
            width=FULL,
            height=1 + -(-len(alarms) // ALARMS_A_ROW),
        )
    )
    _in_rows(board, _first(of, service, entrance))
    board.add_widgets(_table(stack, service))
    board.add_widgets(_commands(service))
    _in_rows(board, _then(of, service))
    return board


def _first(of: _Of, service: Service, entrance: Entrance) -> Iterator[_Graph]:
    """What is there, what was lost, what clients felt, and whether Spot is to be had: in this order."""
    yield _Graph(
        "Replicas: on Spot, on demand, missing",
        is_stacked=True,
        # Stacked, they make as many as are desired.
        left=[
            of.metric(Metric.REPLICAS_SPOT, "Minimum", "on Spot", color=SERVING),
            of.metric(Metric.REPLICAS_ON_DEMAND, "Minimum", "on demand", color=ON_DEMAND),
            of.metric(Metric.REPLICAS_MISSING, "Maximum", "missing", color=BAD),
        ],
        right=(
            [of.metric(Metric.STANDBYS, "Maximum", "standbys", color=CONTEXT)]
            if service.may_have_standbys
            else []
        ),
    )
    yield _Graph(
        "Lost; seconds from the warning until",
        axis=in_unit("replicas"),
        right_axis=in_unit("seconds"),
        left=[
            of.metric(Metric.LOSSES_WARNED, "Sum", "lost, warned", color=WARNED),
            of.metric(Metric.LOSSES_UNWARNED, "Sum", "lost, no warning", color=BAD),
        ],
        right=[
            of.seconds(Metric.WARNING_TO_DEREGISTERED_MS, "out"),
            of.seconds(Metric.WARNING_TO_LAUNCHED_MS, "launched"),
            of.seconds(Metric.WARNING_TO_READY_MS, "ready"),
        ],
    )
    if entrance.requests:
        yield _Graph(
            "Requests, and answers of 5xx",
            left=[entrance.requests["requests"].with_(label="requests", color=CONTEXT)],
            right=[
                entrance.requests[name].with_(label=name.replace("_", " "), color=color)
                for name, color in zip(entrance.errors, (FAILED, BAD), strict=False)
            ],
        )
    if entrance.response_time is not None:
        yield _Graph(
            "Seconds until an answer's headers",
            left=[
                entrance.response_time.with_(statistic=statistic, period=MINUTE, label=statistic)
                for statistic in ("p50", "p99")
            ],
        )
    yield _Graph(
        "Placement score of the best zone (of 10)",
        left=[of.metric(Metric.BEST_PLACEMENT_SCORE, "Minimum", "best zone", period=SURVEY)],
        axis=SCORES,
    )
    yield _Graph(
        "Capacity pools: eligible, left alone",
        left=[
            of.metric(Metric.ELIGIBLE_POOLS, "Minimum", "eligible", color=CONTEXT, period=SURVEY),
            of.metric(Metric.POOLS_COOLING, "Maximum", "left alone after a loss or a refusal", color=WARNED),
        ],
    )


def _then(of: _Of, service: Service) -> Iterator[_Graph]:
    """What it costs, and the details of what the controller does."""
    yield _Graph(
        "USD an hour",
        left=[
            of.metric(Metric.USD_PER_HOUR, "Maximum", "paid", color=MONEY),
            of.metric(Metric.ON_DEMAND_USD_PER_HOUR, "Maximum", "the same on demand", color=CONTEXT),
        ],
    )
    yield _Graph(
        "Launches",
        left=[
            of.metric(Metric.REPLICAS_LAUNCHED, "Sum", "launched", color=SERVING),
            of.metric(Metric.LAUNCH_REFUSALS, "Sum", "refused: no capacity", color=WARNED),
            of.metric(Metric.LAUNCHES_BLOCKED, "Sum", "refused until mended", color=BAD),
            of.metric(Metric.LAUNCH_ERRORS, "Sum", "errors"),
            of.metric(Metric.LAUNCHES_HELD, "Sum", "held back", color=CONTEXT),
        ],
    )
    yield _Graph(
        "Trouble",
        left=[
            of.metric(Metric.REPLICAS_FAILED, "Sum", "failed to start", color=FAILED),
            of.metric(Metric.CRASH_LOOPING, "Sum", "crash looping"),
            of.metric(Metric.ROLLOUT_STOPPED, "Sum", "roll-out stopped", color=BAD),
            of.metric(Metric.ORPHANS_ADOPTED, "Sum", "orphans adopted"),
            of.metric(Metric.ORPHANS_TERMINATED, "Sum", "orphans terminated"),
        ],
    )
    yield _Graph(
        "Seconds for which on-demand has stood in for Spot",
        left=[of.metric(Metric.LONGEST_FALLBACK_S, "Maximum", "longest", color=ON_DEMAND)],
    )
    if service.scaling and service.scaling.ongoing:
        yield _Graph(
            "Requests that replicas have by their own account",
            left=[
                of.metric(Metric.ONGOING_REQUESTS, "Maximum", "requests"),
                of.metric(Metric.ONGOING_UNKNOWN, "Maximum", "replicas that don't tell", color=BAD),
            ],
        )


def _in_rows(board: cloudwatch.Dashboard, graphs: Iterable[_Graph]) -> None:
    """Three graphs at most beside each other, and no row much emptier than the others."""
    waiting = list(graphs)
    for rows in range(-(-len(waiting) // A_ROW), 0, -1):
        count = -(-len(waiting) // rows)
        beside, waiting = waiting[:count], waiting[count:]
        board.add_widgets(
            *(
                cloudwatch.GraphWidget(
                    title=graph.title,
                    left=list(graph.left),
                    right=list(graph.right),
                    stacked=graph.is_stacked,
                    left_y_axis=graph.axis,
                    right_y_axis=graph.right_axis if graph.right else None,
                    width=FULL // len(beside),
                    height=GRAPH_HEIGHT,
                )
                for graph in beside
            )
        )


class _Of:
    """Makes metrics of one service."""

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

    def seconds(self, metric: Metric, label: str) -> cloudwatch.MathExpression:
        """The longest of what is counted in milliseconds."""
        id_ = metric[0].lower() + metric[1:]
        return cloudwatch.MathExpression(
            expression=f"{id_} / 1000",
            using_metrics={id_: self.metric(metric, "Maximum")},
            period=MINUTE,
            label=label,
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
            of.metric(Metric.REPLICAS_MISSING, "Maximum", "missing", color=BAD),
            of.metric(Metric.REPLICAS_READY, "Minimum", "ready", color=SERVING),
            of.metric(Metric.REPLICAS_ON_DEMAND, "Maximum", "on demand", color=ON_DEMAND),
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


def _table(stack: Stack, service: Service) -> cloudwatch.CustomWidget:
    """Its replicas and last losses, which a function of the control plane's draws."""
    return widget(stack, "Replicas and last losses", TABLE_HEIGHT, service=service.name)


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
