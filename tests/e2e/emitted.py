"""Was everything that the deployed board or an alarm names counted by somebody, in a run of all tests?

Each deployment of a run notes what its functions counted, and what its board and alarms name. Whoever runs
the tests puts the notes of all worker processes together at the end, and fails the run for a name that nobody
counted: a graph that stays empty, an alarm that never rings. AWS's own metrics aren't looked at:
tests/template knows their names.

A run that leaves out tests, slow ones too, or was ended early, can't tell, and doesn't: `make test-all` can.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spotrelay.plane.core.names import (
    ALARM_DIMENSION,
    COUNTED,
    INCIDENT,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    TOLD,
    Metric,
)

if TYPE_CHECKING:
    from lab.demo.operator import Operator

HERE = Path(__file__).parent
PREFIX = "tests/e2e/"

CHECK = "tests/e2e/emitted.py::every_metric_that_is_named_was_emitted"
"""What fails, as if it were a test."""

KEY = "emitted"
"""What a worker process tells by this name."""

OF_A_SERVICE, OF_NONE = "service", "none"
"""Whose a metric is, or a line of what was counted: it says a service, or none."""

Name = tuple[str, str]
"""A metric's, and whose it is."""


@dataclass(frozen=True, slots=True)
class Note:
    """Of one deployment, as JSON has it."""

    counted: list[list[str]]
    named: list[list[str]]

    @classmethod
    def of(cls, counted: Iterable[Name], named: Iterable[Name]) -> Note:
        """Of these names."""
        return cls([list(one) for one in sorted({*counted})], [list(one) for one in sorted({*named})])


NOTES: list[Note] = []
"""Of this process."""


def note(operator: Operator, logs: Path) -> None:
    """Note what a deployment's functions counted, by their logs, and what its board and alarms name."""
    counted = (
        name
        for file in logs.glob("function-*.log")
        for line in file.read_text(encoding="utf-8").splitlines()
        for name in counted_in(line)
    )
    NOTES.append(Note.of(counted, _deployed(operator.session.client("cloudwatch"))))


def counted_in(line: str) -> Iterator[Name]:
    """What a line of a function's log has counted, or the alarm that it has made ring."""
    if f'"{COUNTED}"' not in line and f'"{TOLD}"' not in line:
        return
    try:
        found = json.loads(line)
    except ValueError:
        return
    if not isinstance(found, dict):
        return
    if found.get("message") == COUNTED:
        yield from ((name, _whose(found[METRICS_DIMENSION])) for name in found if name in {*Metric})
    if found.get("message") == TOLD and found[INCIDENT]:
        yield _incident(found[ALARM_DIMENSION]), _whose(found[METRICS_DIMENSION])


def missing(notes: Collection[Note]) -> list[str]:
    """What the boards and alarms name and none of the deployments counted: a line for each.

    Raises:
        ValueError: they name nothing at all, so whoever looks sees nothing.
    """
    named = {(name, whose) for one in notes for name, whose in one.named}
    if not named:
        raise ValueError("no deployment has a board or an alarm on a metric of ours")
    counted = {(name, whose) for one in notes for name, whose in one.counted}
    return [
        f"{name} ({_WORDS[whose]}): a board or an alarm names it, and nobody counted it"
        for name, whose in sorted(named - counted)
    ]


_WORDS = {OF_A_SERVICE: "of a service", OF_NONE: "of no service"}


def _incident(alarm: str) -> str:
    """The name of what an alarm hears: each is to ring in some test."""
    return f"{INCIDENT} of {alarm}"


def _whose(dimension: str | None) -> str:
    return OF_NONE if dimension == METRICS_NO_SERVICE else OF_A_SERVICE


def named(alarms: Iterable[Mapping[str, Any]], boards: Iterable[Mapping[str, Any]]) -> Iterator[Name]:
    """Of our own metrics, those that these name; both as CloudWatch tells them."""
    for alarm in alarms:
        stats = [query["MetricStat"] for query in alarm.get("Metrics", ()) if "MetricStat" in query]
        for metric in [stat["Metric"] for stat in stats] or [alarm]:
            if metric.get("Namespace") == METRICS_NAMESPACE:
                dimensions = {d["Name"]: d["Value"] for d in metric["Dimensions"]}
                hears = dimensions.get(ALARM_DIMENSION)
                name = _incident(hears) if hears else metric["MetricName"]
                yield name, _whose(dimensions[METRICS_DIMENSION])
    for board in boards:
        yield from _on_board(board)


def _deployed(cloudwatch: Any) -> Iterator[Name]:
    """What the alarms and boards of an account name."""
    pages = cloudwatch.get_paginator("describe_alarms").paginate()
    entries = cloudwatch.list_dashboards()["DashboardEntries"]
    boards = (cloudwatch.get_dashboard(DashboardName=e["DashboardName"])["DashboardBody"] for e in entries)
    return named((alarm for page in pages for alarm in page["MetricAlarms"]), map(json.loads, boards))


def _on_board(body: Mapping[str, Any]) -> Iterator[Name]:
    """What its queries reckon with."""
    from lab.pictures.insights import Query

    for widget in body["widgets"]:
        if widget["type"] == "log":
            query = Query.of(widget["properties"]["query"])
            yield from ((name, _whose(query.service)) for name in query.counted)


class Check:
    """A plugin of pytest, in every process of a run: see the module."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._modules: set[Path] = set()
        """Of the tests that were found."""
        self._collected: set[str] = set()
        self._ran: set[str] = set()
        self._is_part = any("::" in argument for argument in config.args)
        self._told: list[Note] = []

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """By a marker, a keyword, or what failed last."""
        self._is_part |= any(_is_of_here(item.nodeid) for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Where tests are run; with pytest-xdist that is in each of the workers."""
        found = [item for item in session.items if _is_of_here(item.nodeid)]
        self._collected = {item.nodeid for item in found}
        self._modules |= {item.path for item in found}
        self._is_part |= self._modules != {*HERE.rglob("test_*.py")}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of a test that ran, be it elsewhere."""
        if report.when == "teardown" and _is_of_here(report.nodeid):
            self._ran.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker is done: what it has told. One that crashed tells nothing."""
        told = getattr(node, "workeroutput", {}).get(KEY)
        if told is None:
            self._is_part = True
            return
        self._collected |= {*told["collected"]}
        self._is_part |= told["is_part"]
        self._told += [Note(**one) for one in told["notes"]]

    @pytest.hookimpl(tryfirst=True)  # before the summary is written
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker tells, and whoever runs the tests judges."""
        if (output := getattr(self._config, "workeroutput", None)) is not None:
            notes = [asdict(one) for one in NOTES]
            output[KEY] = {"collected": sorted(self._collected), "is_part": self._is_part, "notes": notes}
            return
        lines = self.lacking()
        if lines:
            report = pytest.TestReport(CHECK, (CHECK, None, CHECK), {}, "failed", "\n".join(lines), "call")
            self._config.hook.pytest_runtest_logreport(report=report)
            session.testsfailed += 1
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def lacking(self) -> list[str]:
        """What is `missing`; nothing if only a part of the tests has run."""
        is_whole = not self._is_part and self._collected and self._ran == self._collected
        return missing([*self._told, *NOTES]) if is_whole else []


def _is_of_here(node_id: str) -> bool:
    return node_id.startswith(PREFIX)
