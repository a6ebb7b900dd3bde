"""What a dashboard's widget draws: its metrics, metric math and searches as lines of values over time.

The syntax is that of "Dashboard Body Structure and Syntax" in CloudWatch's reference, as far as the CDK and
the boards here use it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lab.local import metric_math
from lab.local.metric_math import Series

PERIOD_S = 300
"""CloudWatch's, where a widget doesn't say."""

ALL = 0.0
"""When a value is of all of a widget's time: it then has one of each metric."""

_SEARCH = re.compile(
    r"(?P<over>(?:SUM|MAX)\()?SEARCH\('\{(?P<namespace>[^,}]+),(?P<dimensions>[^}]+)\}"
    r" MetricName=\"(?P<name>[^\"]+)\"', '(?P<statistic>[^']+)'\)(?(over)\))"
)

_PROPERTY = re.compile(r"\$\{PROP\('Dim\.(\w+)'\)\}")
"""In a label, a dimension's value."""

_OVER_ALL: Mapping[str, Callable[[Sequence[float]], float]] = {"Sum": sum, "Minimum": min, "Maximum": max}
"""A value for all of a widget's time, made of those of its periods."""


class Metrics(Protocol):
    """Who has the values."""

    def points(
        self, namespace: str, name: str, dimensions: Mapping[str, str], period_s: int, statistic: str
    ) -> Series:
        """The values of a metric, by the beginning of their period in epoch seconds."""
        ...

    def like(self, namespace: str, dimensions: Sequence[str], name: str) -> Sequence[Mapping[str, str]]:
        """The dimensions of each metric of that name that has exactly these."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """One of a widget's."""

    label: str
    points: Series
    color: str | None = None
    is_right: bool = False
    """Of the axis on the right."""
    period_s: int = PERIOD_S
    """Points that are further apart than this have a gap between them."""


def lines(properties: Mapping[str, Any], metrics: Metrics) -> list[Line]:
    """Those that a widget shows.

    Raises:
        metric_math.MathError: an expression isn't known here.
    """
    return _Reader(properties, metrics).lines()


def latest(line: Line) -> float | None:
    """The last value of a line; None: it has none."""
    return line.points[max(line.points)] if line.points else None


class _Reader:
    def __init__(self, properties: Mapping[str, Any], metrics: Metrics) -> None:
        self._metrics = metrics
        self._is_one = bool(properties.get("setPeriodToTimeRange"))
        self._entries = [_Entry.of(raw) for raw in properties.get("metrics", ())]
        self._named = {
            entry.options["id"]: self._points(entry)
            for entry in self._entries
            if entry.name and "id" in entry.options
        }

    def lines(self) -> list[Line]:
        return [
            Line(
                label,
                points,
                entry.options.get("color"),
                entry.options.get("yAxis") == "right",
                entry.period_s,
            )
            for entry in self._entries
            if entry.options.get("visible", True)
            for label, points in self._shown(entry)
        ]

    def _shown(self, entry: _Entry) -> Sequence[tuple[str, Series]]:
        label = str(entry.options.get("label") or entry.name)
        expression = entry.options.get("expression")
        if not expression:
            return [(label, self._points(entry))]
        whole = _SEARCH.fullmatch(expression)
        if whole and not whole["over"]:
            found = self._found(whole, entry.period_s)
            return [(_labelled(label, of), points) for of, points in found]
        return [(label, self._calculated(expression, entry.period_s))]

    def _calculated(self, expression: str, period_s: int) -> Series:
        """Metric math, with each sum, or most, of a search in place of a metric."""
        series = dict(self._named)

        def named(search: re.Match[str]) -> str:
            id_ = f"search{len(series)}"
            over = max if search["over"] == "MAX(" else math.fsum
            series[id_] = _over(over, [points for _, points in self._found(search, period_s)])
            return id_

        return metric_math.evaluate(_SEARCH.sub(named, expression), series)

    def _found(self, search: re.Match[str], period_s: int) -> list[tuple[Mapping[str, str], Series]]:
        dimensions = [name.strip() for name in search["dimensions"].split(",")]
        return [
            (of, self._values(search["namespace"], search["name"], of, period_s, search["statistic"]))
            for of in self._metrics.like(search["namespace"], dimensions, search["name"])
        ]

    def _points(self, entry: _Entry) -> Series:
        return self._values(entry.namespace, entry.name, entry.dimensions, entry.period_s, entry.statistic)

    def _values(
        self, namespace: str, name: str, dimensions: Mapping[str, str], period_s: int, statistic: str
    ) -> Series:
        points = self._metrics.points(namespace, name, dimensions, period_s, statistic)
        if not self._is_one or not points:
            return points
        return {ALL: _OVER_ALL[statistic](list(points.values()))}


@dataclass(frozen=True, slots=True)
class _Entry:
    """One of a widget's `metrics`: of a metric or, without a name, of an expression."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, raw: Sequence[Any]) -> _Entry:
        names, options = (raw[:-1], raw[-1]) if isinstance(raw[-1], dict) else (raw, {})
        namespace, name, *pairs = names or ("", "")
        return cls(namespace, name, dict(zip(pairs[::2], pairs[1::2], strict=True)), options)

    @property
    def period_s(self) -> int:
        return int(self.options.get("period", PERIOD_S))

    @property
    def statistic(self) -> str:
        return str(self.options.get("stat", "Average"))


def _labelled(label: str, dimensions: Mapping[str, str]) -> str:
    return _PROPERTY.sub(lambda name: dimensions[name[1]], label)


def _over(combine: Callable[[Iterable[float]], float], found: Sequence[Series]) -> Series:
    times = {at for points in found for at in points}
    return {at: combine(points[at] for points in found if at in points) for at in sorted(times)}
