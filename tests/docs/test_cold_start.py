"""docs/cold-start.md shows the figures that are kept of the replays, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.pictures.cold_start import KNEE_S, Figure, drawn, keep, kept, table, worth
from lab.pictures.files import IMAGES

from .blocks import ROOT

PAGE = (ROOT / "docs" / "cold-start.md").read_text(encoding="utf-8")


def test_the_picture_is_drawn_from_the_figures() -> None:
    """Figures that change make it stale."""
    shown = (IMAGES / "cold-start.svg").read_text(encoding="utf-8")
    assert shown == drawn(kept()), "run: python -m lab.pictures.cold_start"


def test_the_tables_say_what_was_found() -> None:
    """Each line of both stands on the page as `python -m lab.pictures.cold_start` prints it."""
    for lines in (table(kept()), worth(kept())):
        assert "\n".join(lines) in PAGE


def test_a_start_that_fits_costs_no_strength() -> None:
    """In each recording full strength ends between the two starts that the knee is between."""
    assert KNEE_S == 70, "docs/cold-start.md says where it comes from"
    for figures in kept().values():
        assert all((figure.in_rotation > 0.99999) is (figure.cold_start_s <= KNEE_S) for figure in figures)


def test_only_the_production_controller_is_kept(tmp_path: Path) -> None:
    """Of a replay's output, in order, whatever the order of its runs."""
    runs = [
        {"trace": "b", "policy": "spotrelay", "cold_start_s": 60.0, "in_rotation": 1.0},
        {"trace": "a", "policy": "spotrelay", "cold_start_s": 90.0, "in_rotation": 0.99},
        {"trace": "a", "policy": "optimal", "cold_start_s": 60.0, "in_rotation": 1.0},
        {"trace": "a", "policy": "spotrelay", "cold_start_s": 60.0, "in_rotation": 0.999},
        {"trace": "b", "policy": "spotrelay", "cold_start_s": 90.0, "in_rotation": 0.98},
    ]
    same = {"zero_s_per_30d": 12.5, "cost": 0.36, "optimal_cost": 0.35}
    (tmp_path / "replay.json").write_text(json.dumps([run | same for run in runs]), encoding="utf-8")
    keep([tmp_path / "replay.json"], tmp_path / "kept.csv")
    assert kept(tmp_path / "kept.csv") == {
        "a": [Figure("a", 60.0, 0.999, **same), Figure("a", 90.0, 0.99, **same)],
        "b": [Figure("b", 60.0, 1.0, **same), Figure("b", 90.0, 0.98, **same)],
    }
    (tmp_path / "replay.json").write_text(json.dumps([run | same for run in runs[:-1]]), encoding="utf-8")
    with pytest.raises(SystemExit, match="same starts"):  # the page's table has a row for each
        keep([tmp_path / "replay.json"], tmp_path / "kept.csv")
