"""The one board of a region, in the control plane's stack: whole? lost? what does it cost?

It is of all services until somebody chooses one, above: wherever the board says `EVERY_SERVICE`, CloudWatch
then puts that service's name. So all of it is written to mean every service as it stands.

What is now, a function draws from the table and from the load balancer's metrics. What was, queries draw
from the functions' logs. Neither costs anything while nobody looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aws_cdk import ArnFormat, Duration, Stack, aws_logs
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from spotrelay.plane.core.names import (
    ALARM_DIMENSION,
    COUNTED,
    EVERY_SERVICE,
    INCIDENT,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    WIDGET_FUNCTION,
    Metric,
    dashboard_name,
)

MINUTE, SURVEY = "1m", "1h"
"""What a point of a graph stands for, as queries write it. Shorter than a survey's hour would leave nothing
but single points."""

BLOCKED_TITLE = "Launches that EC2 refuses until somebody mends the cause"

FULL, A_ROW = 24, 3
"""The width of CloudWatch's grid, and graphs beside each other."""

GRAPH_HEIGHT = 6

NOW_HEIGHT = 13
"""Numbers and a dozen services; or one's numbers, graphs and replicas. More is scrolled."""

ALARMS_A_ROW = 5
"""So many names are beside each other where a board is as wide as a laptop's screen."""


class _Graph(NamedTuple):
    """Lines over time of what was counted."""

    title: str
    lines: Sequence[str]
    """What is drawn, in the words of a query's `stats`."""
    by_service: bool = False
    """Whether there is a line for each service: then there may be one of `lines` alone."""
    period: str = MINUTE
    is_stacked: bool = False
    of: str = EVERY_SERVICE
    """Whose: `EVERY_SERVICE`, or what belongs to none."""
    is_of_one: bool = False
    """Whether it is empty until a service is chosen: sums over services would be of different seconds."""


def dashboard(
    scope: Construct, id_: str, *, alarms: Sequence[cloudwatch.IAlarm], logs: Sequence[aws_logs.ILogGroup]
) -> cloudwatch.Dashboard:
    """The board; `logs` are those of all functions that count."""
    stack = Stack.of(scope)
    board = cloudwatch.Dashboard(
        scope,
        id_,
        dashboard_name=dashboard_name(stack.region),
        default_interval=Duration.hours(12),
        variables=[_chosen_service()],
    )
    board.add_widgets(_now(stack))
    groups = [group.log_group_name for group in logs]
    _in_rows(board, _first(), groups)
    board.add_widgets(
        cloudwatch.AlarmStatusWidget(
            title="Alarms of the control plane",
            alarms=list(alarms),
            width=FULL,
            height=1 + -(-len(alarms) // ALARMS_A_ROW),
        ),
    )
    board.add_widgets(_blocked(groups))
    _in_rows(board, _then(), groups)
    return board


def _chosen_service() -> cloudwatch.DashboardVariable:
    return cloudwatch.DashboardVariable(
        id="service",
        label="Service",
        type=cloudwatch.VariableType.PATTERN,
        value=EVERY_SERVICE,
        input_type=cloudwatch.VariableInputType.SELECT,
        values=cloudwatch.Values.from_search_components(
            namespace=METRICS_NAMESPACE,
            dimensions=[METRICS_DIMENSION, ALARM_DIMENSION],
            # Of each service there is one, at least once a week; a search finds those of two weeks.
            metric_name=INCIDENT,
            populate_from=METRICS_DIMENSION,
        ),
        default_value=cloudwatch.DefaultValue.value(EVERY_SERVICE),
    )


def _first() -> Iterable[_Graph]:
    """What is there, what was lost, what it costs."""
    yield _Graph("Replicas missing, by service", [_most(Metric.REPLICAS_MISSING, "missing")], by_service=True)
    yield _Graph(
        f"Lost: {EVERY_SERVICE}",
        [
            _sum(Metric.LOSSES_WARNED, "warned"),
            _sum(Metric.LOSSES_UNWARNED, "no_warning"),
        ],
    )
    yield _Graph("USD an hour, by service", [_most(Metric.USD_PER_HOUR, "paid")], by_service=True)
    yield _Graph(
        f"Replicas on Spot, on demand, missing: {EVERY_SERVICE}",
        # Stacked, they make as many as are desired.
        [
            _least(Metric.REPLICAS_SPOT, "on_spot"),
            _least(Metric.REPLICAS_ON_DEMAND, "on_demand"),
            _most(Metric.REPLICAS_MISSING, "missing"),
        ],
        is_stacked=True,
        is_of_one=True,
    )
    yield _Graph(
        f"Seconds from the warning until, the slowest: {EVERY_SERVICE}",
        [
            _seconds(Metric.WARNING_TO_DEREGISTERED_MS, "out"),
            _seconds(Metric.WARNING_TO_LAUNCHED_MS, "launched"),
            _seconds(Metric.WARNING_TO_READY_MS, "ready"),
        ],
    )
    yield _Graph(
        f"USD an hour, and the same on demand: {EVERY_SERVICE}",
        [_most(Metric.USD_PER_HOUR, "paid"), _most(Metric.ON_DEMAND_USD_PER_HOUR, "on_demand")],
        is_of_one=True,
    )
    yield _Graph("Replicas ready, by service", [_least(Metric.REPLICAS_READY, "ready")], by_service=True)
    yield _Graph(
        "Replicas on demand, by service", [_most(Metric.REPLICAS_ON_DEMAND, "on_demand")], by_service=True
    )
    yield _Graph(
        "Seconds with fewer replicas than desired, by service", [_most(Metric.GAP_S, "gap")], by_service=True
    )


def _then() -> Iterable[_Graph]:
    """Whether Spot is to be had, and the details of what the controller does."""
    yield _Graph(
        "Seconds that on-demand stands in, by service",
        [_most(Metric.LONGEST_FALLBACK_S, "longest")],
        by_service=True,
    )
    yield _Graph(
        "Placement score of the best zone (of 10), by service",
        [_least(Metric.BEST_PLACEMENT_SCORE, "score")],
        by_service=True,
        period=SURVEY,
    )
    yield _Graph(
        f"Pools: fewest eligible, most left alone: {EVERY_SERVICE}",
        [_least(Metric.ELIGIBLE_POOLS, "eligible"), _most(Metric.POOLS_COOLING, "left_alone")],
        period=SURVEY,
    )
    yield _Graph("Standbys, by service", [_most(Metric.STANDBYS, "standbys")], by_service=True)
    yield _Graph(
        f"Launches: {EVERY_SERVICE}",
        [
            _sum(Metric.REPLICAS_LAUNCHED, "launched"),
            _sum(Metric.LAUNCH_REFUSALS, "no_capacity"),
            _sum(Metric.LAUNCHES_BLOCKED, "refused_until_mended"),
            _sum(Metric.LAUNCH_ERRORS, "errors"),
            _sum(Metric.LAUNCHES_HELD, "held_back"),
        ],
    )
    yield _Graph(
        f"Trouble: {EVERY_SERVICE}",
        [
            _sum(Metric.REPLICAS_FAILED, "failed_to_start"),
            _sum(Metric.CRASH_LOOPING, "crash_looping"),
            _sum(Metric.ROLLOUT_STOPPED, "rollout_stopped"),
            _sum(Metric.ORPHANS_ADOPTED, "orphans_adopted"),
            _sum(Metric.ORPHANS_TERMINATED, "orphans_terminated"),
            _sum(Metric.BETTER_ELSEWHERE, "better_elsewhere"),
        ],
    )
    yield _Graph(
        f"Requests, as replicas tell, the most: {EVERY_SERVICE}",
        [_most(Metric.ONGOING_REQUESTS, "requests"), _most(Metric.ONGOING_UNKNOWN, "not_telling")],
    )
    yield _Graph(
        "Signals, and what the controller was kept from",
        [
            _sum(Metric.SIGNALS_RECEIVED, "signals"),
            _sum(Metric.SIGNALS_IGNORED, "change_nothing"),
            _sum(Metric.MESSAGES_MALFORMED, "unreadable_messages"),
            _sum(Metric.TICKS_MALFORMED, "unreadable_ticks"),
            _sum(Metric.FOREIGN_INSTANCES, "others_instances"),
            _sum(Metric.EVENTS_UNSENT, "events_unsent"),
            _sum(Metric.HELD_BACK, "held_back"),
            _sum(Metric.CALLS_DENIED, "denied"),
        ],
        of=METRICS_NO_SERVICE,
    )
    yield _Graph(
        "Surveys",
        [
            _sum(Metric.SURVEY_REFUSED, "refused"),
            _sum(Metric.SURVEY_UNANSWERED, "without_answer"),
            _sum(Metric.ALL_ZONES_SCORE_LOW, "every_zone_scores_low"),
            _sum(Metric.QUOTAS_SHORT, "quotas_too_small"),
            _sum(Metric.IMAGES_GONE, "images_gone"),
        ],
        period=SURVEY,
        of=METRICS_NO_SERVICE,
    )


def _most(metric: Metric, name: str) -> str:
    return f"max({metric}) as {name}"


def _least(metric: Metric, name: str) -> str:
    return f"min({metric}) as {name}"


def _sum(metric: Metric, name: str) -> str:
    return f"sum({metric}) as {name}"


def _seconds(metric: Metric, name: str) -> str:
    """The longest of what is counted in milliseconds."""
    return f"max({metric}) / 1000 as {name}"


def _in_rows(board: cloudwatch.Dashboard, graphs: Iterable[_Graph], groups: Sequence[str]) -> None:
    """Three graphs at most beside each other."""
    waiting = list(graphs)
    while waiting:
        beside, waiting = waiting[:A_ROW], waiting[A_ROW:]
        board.add_widgets(
            *(
                cloudwatch.LogQueryWidget(
                    title=graph.title,
                    view=(
                        cloudwatch.LogQueryVisualizationType.STACKEDAREA
                        if graph.is_stacked
                        else cloudwatch.LogQueryVisualizationType.LINE
                    ),
                    log_group_names=list(groups),
                    query_lines=_query(graph),
                    width=FULL // len(beside),
                    height=GRAPH_HEIGHT,
                )
                for graph in beside
            )
        )


def _query(graph: _Graph) -> list[str]:
    by = f"service, bin({graph.period})" if graph.by_service else f"bin({graph.period})"
    of_service = (
        _of_chosen()
        if graph.of == EVERY_SERVICE and not graph.is_of_one
        else [f'filter service = "{graph.of}"']
    )
    return [f'filter message = "{COUNTED}"', *of_service, f"stats {', '.join(graph.lines)} by {by}"]


def _of_chosen() -> list[str]:
    """Lines of a query that let the chosen service through, or each while none is chosen.

    A line is called by both names, and must have the one that the board says. Here the first is written in
    two parts, so that the variable replaces nothing in it. No service's name has a slash.
    """
    half = len(EVERY_SERVICE) // 2
    return [
        f'fields concat("/{EVERY_SERVICE[:half]}", "{EVERY_SERVICE[half:]}/", service, "/") as names',
        f'filter names like "/{EVERY_SERVICE}/"',
    ]


def _now(stack: Stack) -> cloudwatch.CustomWidget:
    """What a function of the control plane draws: all services with their alarms, or the chosen one."""
    arn = stack.format_arn(
        service="lambda",
        resource="function",
        resource_name=WIDGET_FUNCTION,
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return cloudwatch.CustomWidget(
        function_arn=arn,
        title=f"Now: {EVERY_SERVICE}",
        params={"service": EVERY_SERVICE},
        width=FULL,
        height=NOW_HEIGHT,
        update_on_refresh=True,
        update_on_resize=False,
        update_on_time_range_change=True,  # what clients met is drawn of that time
    )


def _blocked(groups: Sequence[str]) -> cloudwatch.LogQueryWidget:
    """What an alarm on a service can't quote: EC2's own words, and the remedy."""
    return cloudwatch.LogQueryWidget(
        title=BLOCKED_TITLE,
        width=FULL,
        height=5,
        log_group_names=list(groups),
        query_lines=[
            "fields @timestamp, service, purchase_option, code, remedy, error",
            'filter message = "launch_blocked"',
            *_of_chosen(),
            "sort @timestamp desc",
            "limit 20",
        ],
    )
