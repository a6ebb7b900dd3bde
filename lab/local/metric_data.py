"""CloudWatch's GetMetricData, for metrics without mathematics: as strict as CloudWatch, MiniStack isn't."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Point = Mapping[str, Any]
"""A datum: Timestamp (epoch seconds), Value …"""

Points = Callable[[str, str, Mapping[str, str]], Sequence[Point]]
Statistic = Callable[[list[Any], str], float]

MOST_QUERIES = 500
SHORT_PERIODS = (1, 5, 10, 30)

DAY_S = 86_400
LEAST_PERIODS = ((63 * DAY_S, 3600), (15 * DAY_S, 300), (3 * 3600, 60))
"""With a start that is so long ago, a period that is no multiple of this has no values at all
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_MetricStat.html)."""

_STATISTIC = re.compile(r"SampleCount|Average|Sum|Minimum|Maximum|IQM|p\d{1,2}(\.\d+)?|tm\d{1,2}(\.\d+)?")


class RefusedError(ValueError):
    """CloudWatch's words for a request that it doesn't take."""


def answer(
    queries: Sequence[Mapping[str, Any]],
    start: float | None,
    end: float | None,
    *,
    now: float,
    is_ascending: bool,
    points: Points,
    statistic: Statistic,
) -> list[dict[str, Any]]:
    """Its results, newest first unless `is_ascending`.

    Raises:
        RefusedError: CloudWatch would refuse the request.
    """
    if start is None or end is None:
        raise RefusedError("The parameters StartTime and EndTime are required.")
    if start >= end:
        raise RefusedError("The parameter StartTime must be less than the parameter EndTime.")
    if not 0 < len(queries) <= MOST_QUERIES:
        raise RefusedError(f"The parameter MetricDataQueries must have 1 to {MOST_QUERIES} members.")
    ids = [str(query.get("Id", "")) for query in queries]
    if len(set(ids)) < len(ids):
        raise RefusedError("The values for parameter id in MetricDataQueries are not unique.")
    for id_ in ids:
        if not re.fullmatch("[a-z][a-zA-Z0-9_]{0,254}", id_):
            raise RefusedError(
                f"The value {id_} for parameter MetricDataQueries.Id doesn't begin with a lowercase letter."
            )
    return [
        _result(id_, query, start, end, now, is_ascending, points, statistic)
        for id_, query in zip(ids, queries, strict=True)
        if query.get("ReturnData", True)
    ]


def _result(
    id_: str,
    query: Mapping[str, Any],
    start: float,
    end: float,
    now: float,
    is_ascending: bool,
    points: Points,
    statistic: Statistic,
) -> dict[str, Any]:
    asked = query.get("MetricStat")
    if not asked:
        raise RefusedError("Only queries with a MetricStat are emulated.")
    metric, period, name = asked.get("Metric") or {}, asked.get("Period"), str(asked.get("Stat", ""))
    if not isinstance(period, int) or (period % 60 and period not in SHORT_PERIODS) or period < 1:
        raise RefusedError(f"The parameter Period must be 1, 5, 10, 30 or a multiple of 60, not {period}.")
    if not _STATISTIC.fullmatch(name):
        raise RefusedError(f"The value {name} for parameter Stat is not supported.")
    if not metric.get("Namespace") or not metric.get("MetricName"):
        raise RefusedError("A metric needs a Namespace and a MetricName.")
    # A metric is all of its dimensions: fewer, or none, are another metric.
    dimensions = {d["Name"]: d["Value"] for d in metric.get("Dimensions") or ()}
    by_period: dict[float, list[Point]] = defaultdict(list)
    first = start // period * period  # CloudWatch rounds the start down
    least = next((least for age_s, least in LEAST_PERIODS if now - start > age_s), 1)
    known = points(metric["Namespace"], metric["MetricName"], dimensions) if period % least == 0 else ()
    for point in known:
        if first <= point["Timestamp"] < end:
            by_period[point["Timestamp"] // period * period].append(point)
    times = sorted(by_period, reverse=not is_ascending)
    return {
        "Id": id_,
        "Label": query.get("Label") or metric["MetricName"],
        "Timestamps": times,
        "Values": [statistic(list(by_period[at]), name) for at in times],
        "StatusCode": "Complete",
    }
