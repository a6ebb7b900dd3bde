"""How a run of all tests is judged by what was counted in it, and that a part of them is not."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spotrelay.plane.core.names import (
    ALARM_DIMENSION,
    INCIDENT,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    TOLD,
    Alarm,
    Metric,
)
from tests.e2e import emitted
from tests.e2e.emitted import KEY, OF_A_SERVICE, OF_NONE, Check, Note, missing

RANG = (f"{INCIDENT} of {Alarm.NOT_WHOLE}", OF_A_SERVICE)
GAP, DENIED = (Metric.GAP_S.value, OF_A_SERVICE), (Metric.CALLS_DENIED.value, OF_NONE)

MODULES = sorted(emitted.HERE.rglob("test_*.py"))
TESTS = [f"tests/e2e/{module.relative_to(emitted.HERE)}::test" for module in MODULES]


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notes of the run that this test is in are none of its business."""
    monkeypatch.setattr(emitted, "NOTES", [])


def a_check(*arguments: str) -> Check:
    """In a process that was started with these arguments."""
    return Check(cast("pytest.Config", SimpleNamespace(args=["tests", *arguments])))


def a_worker(*notes: Note, collected: list[str] = TESTS, is_part: bool = False) -> Any:
    """What pytest-xdist has of one that is done."""
    told = {"collected": collected, "is_part": is_part, "notes": [asdict(one) for one in notes]}
    return SimpleNamespace(workeroutput={KEY: told})


def all_ran(check: Check, tests: list[str] = TESTS) -> Check:
    """It has heard of the end of every one of these tests."""
    for test in tests:
        check.pytest_runtest_logreport(
            cast("pytest.TestReport", SimpleNamespace(nodeid=test, when="teardown"))
        )
    return check


def test_what_nobody_counted_is_named() -> None:
    """A metric of another deployment counts, and one of a service isn't one of none."""
    assert missing([Note.of([GAP], [GAP, DENIED]), Note.of([DENIED], [])]) == []
    (line,) = missing([Note.of([GAP, (Metric.CALLS_DENIED, OF_A_SERVICE)], [GAP, DENIED])])
    assert line.startswith("CallsDenied (of no service): ")


def test_a_run_in_which_nothing_is_named_proves_nothing() -> None:
    """It isn't taken for one in which all is well."""
    with pytest.raises(ValueError, match="no deployment"):
        missing([Note.of([GAP], [])])


def test_workers_are_judged_together() -> None:
    """One counted what the other's board names; what neither counted is told."""
    check = all_ran(a_check())
    check.pytest_testnodedown(a_worker(Note.of([GAP], [DENIED])))
    check.pytest_testnodedown(a_worker(Note.of([], [GAP])))
    assert check.lacking() == missing([Note.of([GAP], [GAP, DENIED])]) != []


def test_a_part_of_the_tests_is_not_judged() -> None:
    """Tests were deselected, named one by one, not reached, or lost with their worker."""
    note = Note.of([], [GAP])
    assert [len(all_ran(told(a_check(), a_worker(note))).lacking())] == [1]
    assert all_ran(told(a_check(), a_worker(note, is_part=True))).lacking() == []
    assert all_ran(told(a_check("tests/e2e/test_page.py::test_x"), a_worker(note))).lacking() == []
    assert all_ran(told(a_check(), a_worker(note)), TESTS[1:]).lacking() == []
    assert all_ran(told(a_check(), a_worker(note), SimpleNamespace())).lacking() == []
    assert a_check().lacking() == []


def told(check: Check, *workers: Any) -> Check:
    """The workers are done."""
    for worker in workers:
        check.pytest_testnodedown(worker)
    return check


def test_no_test_of_here_may_be_left_out() -> None:
    """Not even a slow one, as by `make test`: it may be what counts a metric. Other tests don't matter."""
    for module, is_whole in ((TESTS[0], False), ("tests/x.py", True)):
        check = told(a_check(), a_worker(Note.of([], [GAP])))
        check.pytest_deselected([cast("pytest.Item", SimpleNamespace(nodeid=module))])
        assert bool(all_ran(check).lacking()) is is_whole


@pytest.mark.parametrize(("ran", "is_whole"), [(MODULES, True), (MODULES[1:], False)])
def test_modules_that_were_not_collected_make_it_a_part(ran: list[Path], is_whole: bool) -> None:
    """As in `pytest tests/e2e/faults`."""
    check = a_check()
    items = [SimpleNamespace(nodeid=id_of(module), path=module) for module in ran]
    check.pytest_collection_finish(cast("pytest.Session", SimpleNamespace(items=items)))
    emitted.NOTES[:] = [Note.of([], [GAP])]
    assert bool(all_ran(check, [item.nodeid for item in items]).lacking()) is is_whole


def id_of(module: Path) -> str:
    """The ID of its one test."""
    return TESTS[MODULES.index(module)]


def test_boards_and_alarms_are_read() -> None:
    """Alarms on one metric and on an expression, the queries of graphs, and none of AWS's own metrics."""
    own = {"Namespace": METRICS_NAMESPACE, "MetricName": "A", "Dimensions": [dimension("demo")]}
    in_math = {
        "MetricStat": {"Metric": own | {"MetricName": "B", "Dimensions": [dimension(METRICS_NO_SERVICE)]}}
    }
    counted = "SOURCE 'x' | filter message = \"counted\""
    of_none = f'{counted} | filter service = "{METRICS_NO_SERVICE}"'
    queries = [
        f"{counted} | stats max(C) / 1000 as c, sum(D) as d by bin(1m)",
        f"{of_none} | stats sum(E) as e by bin(1m)",
    ]
    board: dict[str, Any] = {
        "widgets": [
            *({"type": "log", "properties": {"query": query}} for query in queries),
            {"type": "custom", "properties": {"params": {}}},
        ]
    }
    of_ticks = [dimension("demo"), {"Name": ALARM_DIMENSION, "Value": Alarm.NOT_WHOLE.value}]
    alarms: list[dict[str, Any]] = [
        own,
        own | {"MetricName": INCIDENT, "Dimensions": of_ticks},
        {"Metrics": [in_math, {"Expression": "m / 2"}]},
        {"Namespace": "AWS/SQS", "MetricName": "x"},
    ]
    found = {*emitted.named(alarms, [board])}
    of_services = {(name, OF_A_SERVICE) for name in "ACD"}
    assert found == {*of_services, RANG, ("B", OF_NONE), ("E", OF_NONE)}


def test_what_alarms_were_told_is_read_from_lines() -> None:
    """That one rings; that it doesn't proves nothing."""
    line = {"message": TOLD, METRICS_DIMENSION: "demo", ALARM_DIMENSION: Alarm.NOT_WHOLE, INCIDENT: 1}
    assert [*emitted.counted_in(json.dumps(line))] == [RANG]
    assert [*emitted.counted_in(json.dumps({**line, INCIDENT: 0}))] == []


def test_what_was_counted_is_read_from_lines() -> None:
    """Each number of a line, and whose; other lines have none."""
    line = {"message": "counted", METRICS_DIMENSION: "demo", "GapS": 3, "other": 1}
    assert [*emitted.counted_in(json.dumps(line))] == [GAP]
    assert [*emitted.counted_in(json.dumps({**line, METRICS_DIMENSION: METRICS_NO_SERVICE}))] == [
        ("GapS", OF_NONE)
    ]
    for other in ('"counted"', 'no "counted" JSON', json.dumps({**line, "message": "launch"})):
        assert [*emitted.counted_in(other)] == []


def dimension(value: str) -> dict[str, str]:
    """Of a metric of ours."""
    return {"Name": METRICS_DIMENSION, "Value": value}
