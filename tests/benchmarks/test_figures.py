"""Figures, how they are shown and kept, and the list of rows."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from lab.benchmarks import counts, peers, report
from lab.benchmarks.figures import Figure, Skipped, ratio
from lab.benchmarks.registry import ROWS
from lab.local.network import NetworkError
from tests.benchmarks.support import CALLS, RATE, RATIO, WALL, measured, silent, valued


@pytest.mark.parametrize(
    ("figure", "is_met"),
    [
        (valued(CALLS, 12), True),
        (valued(CALLS, 13), False),
        (valued(RATE, 4), True),
        (valued(RATE, 3.9), False),
    ],
)
def test_a_target_is_met_or_missed(figure: Figure, is_met: bool) -> None:
    """The target itself is met; beyond it, on the bad side, is missed."""
    assert figure.is_met is is_met
    assert bool(measured(figure).missed) is not is_met


def test_a_figure_without_a_target_is_never_missed() -> None:
    """What is shown for information can't fail."""
    assert WALL.is_met
    assert WALL.target == ""


def test_targets_in_words() -> None:
    """A target reads as one would write it."""
    assert [f.target for f in (CALLS, RATIO, RATE)] == ["≤ 12", "≤ 2.5", "≥ 4"]


def test_a_ratio_is_the_median_of_the_pairs() -> None:
    """One pair that was disturbed on one side moves nothing, nor does what slows down both of a pair."""
    assert ratio([2, 20, 2000], [1, 10, 10]) == 2


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.12345, "0.123 s"), (3.0, "3 s"), (12345.6, "12,346 s"), (99.96, "100 s"), (0, "0 s")],
)
def test_values_in_words(value: float, words: str) -> None:
    """Three digits, or the whole number."""
    assert report.in_words(Figure("f", value, "s")) == words


def test_the_table_has_everything() -> None:
    """A row's table shows each figure with its value, its target and what it is; a failed row its
    error, and one that this machine can't measure why."""
    shown = io.StringIO()
    report.show(Console(file=shown, width=160), measured(CALLS, WALL))
    report.show(Console(file=shown, width=160), measured(error="no port [1]"))
    report.show(Console(file=shown, width=160), measured(skipped="it isn't Linux"))
    for text in (
        "calls",
        "10 calls",
        "≤ 12",
        "per batch",
        "0.25 s",
        "no port [1]",
        "skipped: it isn't Linux",
    ):
        assert text in shown.getvalue()


def test_what_is_kept(tmp_path: Path) -> None:
    """The JSON file has the machine, the figures, and whether they met their targets."""
    path = report.keep(tmp_path / "out", measured(CALLS, valued(RATIO, 3)), {"python": "CPython 3.11"})
    document = json.loads(path.read_text(encoding="utf-8"))
    assert path.name == "made-up.json"
    assert (document["python"], document["error"], document["skipped"]) == ("CPython 3.11", None, None)
    assert [(f["name"], f["value"], f["met"]) for f in document["figures"]] == [
        ("calls", 10, True),
        ("ratio", 3, False),
    ]


def test_rows_go_by_their_names() -> None:
    """Each row is found by the name that `make bench ROW=…` takes, and what is counted is part of a row."""
    assert all(row.name == name for name, row in ROWS.items())
    assert counts.COUNTED.keys() <= ROWS.keys()


def test_peers_are_not_measured_where_there_are_no_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, and neither a failure nor a figure."""

    def none() -> None:
        raise NetworkError("there is no command tc")

    monkeypatch.setattr(peers, "OwnNetworks", none)
    with pytest.raises(Skipped, match="networks of their own: there is no command tc"):
        peers.measure(silent)


def test_all_rows_together_keep_to_ten_minutes() -> None:
    """What the rows say of themselves adds up to less than what `make bench` may take."""
    assert sum(row.takes_s for row in ROWS.values()) <= 600
