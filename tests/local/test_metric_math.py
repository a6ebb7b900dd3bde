"""Metric math: the user guide's own examples, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from lab.local.metric_math import MathError, Series, check_alarm, evaluate, returned_series

GUIDE: dict[str, Series] = {
    "metric1": {0: 30, 1: 20, 2: 0, 3: 0},
    "metric2": {0: 20.0, 2: 20.0},
}
"""Values by their time, of "Comparison and logical operators"."""

IFS: dict[str, Series] = {
    "metric1": {0: 1, 1: 1, 2: 0, 3: 0},
    "metric2": {0: 30.0, 2: 0.0, 3: 0.0, 4: 30.0},
    "metric3": {0: 0.0, 1: 0.0, 2: 20.0, 4: 20.0},
}
"""Of "Using IF expressions"."""


def values(series: Series) -> list[float | None]:
    """In order of time, None where there is none."""
    return [series.get(at) for at in range(int(max(series, default=-1)) + 1)]


@pytest.mark.parametrize(
    ("expression", "series", "found"),
    [
        ("(metric1 < metric2)", GUIDE, [0, 0, 1, 0]),
        ("(metric1 >= 30)", GUIDE, [1, 0, 0, 0]),
        ("(metric1 > 15 AND metric2 > 15)", GUIDE, [1, 0, 0, 0]),
        ("metric1 > 25 || metric2 == 20", GUIDE, [1, 0, 1, 0]),
        ("IF(metric1, metric2, metric3)", IFS, [30, 0, 20]),
        ("IF(metric1, 5, metric3)", IFS, [5, 5, 20]),
        ("IF(metric1, metric2, 5)", IFS, [30, 0, 5, 5]),
        ("IF(metric1, metric2)", IFS, [30, 0]),
        # Missing values count as 0 in arithmetic, and a division by 0 leaves none.
        ("metric1 + metric2", GUIDE, [50, 20, 20, 0]),
        ("metric1 / metric2", GUIDE, [1.5, None, 0]),
        ("-metric1 * 2 - 1", GUIDE, [-61, -41, -1, -1]),
        ("100 * (metric1 - 10) / (2 + 3)", GUIDE, [400, 200, -200, -200]),
    ],
)
def test_expressions(expression: str, series: dict[str, Series], found: list[float | None]) -> None:
    """Values that are missing count as the guide says."""
    assert values(evaluate(expression, series)) == found


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("metric1 +", "expected a value at 'the end'"),
        ("(metric1", r"expected \) at 'the end'"),
        ("metric1 metric2", "unexpected 'metric2'"),
        ("metric9", "nothing has the ID metric9"),
        ("FILL(metric1, 0)", "FILL isn't emulated"),
        ("metric1 ^ 2", "unsupported text"),
        ("1 + 2", "must return a time series"),
        ("IF(metric1)", "two or three arguments"),
        ("IF(1, metric1)", "IF of a scalar"),
    ],
)
def test_what_cant_be_read_is_refused(expression: str, why: str) -> None:
    """With the place and the reason."""
    with pytest.raises(MathError, match=why):
        evaluate(expression, GUIDE)


def metric(id_: str, **more: Any) -> dict[str, Any]:
    """A query for a metric."""
    stat = {"Metric": {"Namespace": "N", "MetricName": id_}, "Period": more.pop("Period", 60), "Stat": "Sum"}
    return {"Id": id_, "MetricStat": stat, "ReturnData": False, **more}


SUM = {"Id": "e", "Expression": "a + b", "ReturnData": True}


def test_an_alarm_goes_by_the_one_query_that_returns_data() -> None:
    """Expressions may stand on others, and the one that returns data is the alarm's."""
    twice = {"Id": "twice", "Expression": "2 * a", "ReturnData": False}
    own = {**SUM, "Expression": "twice + b"}
    assert returned_series([own, metric("a"), metric("b"), twice], {"a": {0: 1}, "b": {0: 3}}) == {0: 5}


@pytest.mark.parametrize(
    ("queries", "why"),
    [
        ([metric("A"), SUM], "lowercase"),
        ([metric("a"), metric("a"), SUM], "not unique"),
        ([metric("a"), metric("b")], "Exactly one"),
        ([metric("a", ReturnData=True), metric("b"), SUM], "Exactly one"),
        ([metric("a"), SUM], "nothing has the ID b"),
        ([metric("a"), metric("b", Period=300), SUM], "different periods"),
        ([metric("a"), {"Id": "b", "ReturnData": False}, SUM], "either"),
        ([*(metric(f"m{n}") for n in range(11)), {**SUM, "Expression": "m1"}], "10 metrics"),
    ],
)
def test_an_alarms_bad_queries_are_refused(queries: list[dict[str, Any]], why: str) -> None:
    """As CloudWatch does, before there is an alarm."""
    with pytest.raises(MathError, match=why):
        check_alarm(queries)
