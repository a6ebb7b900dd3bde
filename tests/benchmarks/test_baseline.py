"""What `make bench-check` takes for a regression."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from lab.benchmarks import baseline
from lab.benchmarks.__main__ import EXIT_WORSE, check
from lab.benchmarks.figures import Figure
from tests.benchmarks.support import CALLS, RATE, RATIO, WALL, measured, valued

FACTS = {"date": "2026-11-21T07:00:00+00:00", "machine": {}}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A baseline of one row."""
    path = tmp_path / "baseline.json"
    baseline.record([measured(CALLS, RATIO, RATE, WALL)], FACTS, path)
    return path


def test_the_same_figures_are_no_regression(recorded: Path) -> None:
    """What was recorded passes its own check, whatever became of the times."""
    assert baseline.regressions([measured(CALLS, RATIO, RATE, valued(WALL, 99))], recorded) == []


@pytest.mark.parametrize(
    "better", [valued(CALLS, 9), valued(RATIO, 1), valued(RATE, 50)], ids=lambda figure: figure.name
)
def test_better_is_no_regression(recorded: Path, better: Figure) -> None:
    """Fewer calls, a smaller ratio and a higher rate pass."""
    figures = {f.name: f for f in (CALLS, RATIO, RATE)} | {better.name: better}
    assert baseline.regressions([measured(*figures.values())], recorded) == []


@pytest.mark.parametrize(
    ("worse", "told"),
    [
        (valued(CALLS, 11), "calls is 11 calls, the baseline has 10, no more is allowed"),
        (valued(RATIO, 2.3), "ratio is 2.3 x, the baseline has 2, 10% worse is allowed"),
        (valued(RATE, 4.4), "rate is 4.4 x, the baseline has 5, 10% worse is allowed"),
    ],
    ids=lambda value: value.name if isinstance(value, Figure) else "",
)
def test_worse_is_told(recorded: Path, worse: Figure, told: str) -> None:
    """A count that rises at all, and a ratio beyond its tolerance, is one line with the remedy."""
    figures = {f.name: f for f in (CALLS, RATIO, RATE)} | {worse.name: worse}
    (line,) = baseline.regressions([measured(*figures.values())], recorded)
    assert line.startswith(f"made-up: {told}")
    assert "make bench-baseline ROW=made-up`" in line


@pytest.mark.parametrize("almost", [valued(RATIO, 2.19), valued(RATE, 4.51)], ids=lambda figure: figure.name)
def test_within_the_tolerance(recorded: Path, almost: Figure) -> None:
    """A ratio may drift by its tolerance: machines differ a little."""
    figures = {f.name: f for f in (CALLS, RATIO, RATE)} | {almost.name: almost}
    assert baseline.regressions([measured(*figures.values())], recorded) == []


def test_a_figure_that_comes_or_goes_is_told(recorded: Path) -> None:
    """What the baseline doesn't know isn't guarded, nor is what nobody measures any more: both are told."""
    lines = baseline.regressions([measured(CALLS, RATIO, Figure("new", 1, "calls", tolerance=0))], recorded)
    assert [line.partition(":")[2].split()[0] for line in lines] == ["rate", "new"]


def test_counts_alone_lack_nothing(recorded: Path) -> None:
    """Where only counts were taken, the figures that weren't are no regression, but a worse count is."""
    assert baseline.regressions([measured(CALLS)], recorded, only_counts=True) == []
    assert len(baseline.regressions([measured(valued(CALLS, 11))], recorded, only_counts=True)) == 1


def test_a_row_that_fails_is_a_regression(recorded: Path) -> None:
    """A row without figures doesn't pass for one without regressions."""
    assert baseline.regressions([measured(error="no port")], recorded) == ["made-up: no port"]


def test_other_rows_keep_their_baseline(recorded: Path) -> None:
    """Recording one row leaves the others as they were."""
    baseline.record([measured(CALLS, row="other")], FACTS, recorded)
    assert baseline.regressions([measured(CALLS, RATIO, RATE)], recorded) == []
    assert baseline.regressions([measured(valued(CALLS, 11), row="other")], recorded)


def test_the_baseline_says_where_it_is_from(recorded: Path) -> None:
    """The file names date and machine, and has no time among its figures."""
    document = json.loads(recorded.read_text(encoding="utf-8"))
    assert document["date"] == FACTS["date"]
    assert sorted(document["rows"]["made-up"]) == ["calls", "rate", "ratio"]


@pytest.mark.parametrize("text", [None, "", "{}", "[1]", '{"rows": 3}'])
def test_without_a_baseline(tmp_path: Path, text: str | None) -> None:
    """A baseline that isn't there or can't be read is one error, with the remedy."""
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(baseline.BaselineError, match="run `make bench-baseline`"):
        baseline.regressions([], path)


@pytest.mark.parametrize(("value", "code"), [(10, 0), (11, EXIT_WORSE)])
def test_the_command_fails_on_a_regression(recorded: Path, value: float, code: int) -> None:
    """`make bench-check` ends with an error if a single count has risen, and names it."""
    shown = io.StringIO()
    outcome = measured(valued(CALLS, value), RATIO, RATE)
    assert check(Console(file=shown, width=200), [outcome], recorded) == code
    assert ("calls is 11" in shown.getvalue()) == bool(code)
