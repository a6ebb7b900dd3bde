"""The picture of a replay."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.replay.plot import Results, draw, save
from lab.replay.plot_day import Day, strength
from lab.replay.result import Life, Result
from lab.replay.run import run
from lab.replay.settings import ReplaySettings
from lab.replay.synthetic import generate
from lab.replay.traces import Trace
from spotrelay.plane.core.pools import CapacityPool, PurchaseOption

from .markets import market, pool
from .test_report import result

HOUR_S = 3600.0


def life(
    up_at: float, ended_at: float = math.inf, where: CapacityPool | None = None, **changes: object
) -> Life:
    """A replica on Spot."""
    spot, never = PurchaseOption.SPOT, math.inf
    one = Life("i-1", where or pool(), spot, up_at - 120, up_at, never, never, never, ended_at, is_lost=False)
    return replace(one, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def results() -> Results:
    """Two policies at two cold starts on two markets."""
    markets = (generate(1, days=1.5), generate(2, days=1.5))
    settings = [ReplaySettings(cold_start_s=cold_start_s) for cold_start_s in (120.0, 300.0)]
    return [(m, [run(m, p, s) for s in settings for p in ("optimal", "round-robin", "asg")]) for m in markets]


def texts(file: Path) -> str:
    """The comments of an SVG, which hold the drawn texts."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return "\n".join(line.strip()[5:-4] for line in lines if line.strip().startswith("<!-- "))


def test_the_picture_names_every_policy_trace_and_zone(results: Results, tmp_path: Path) -> None:
    """Labels beside the points, two panels with a title per trace, a row per pool."""
    figure = draw(results)
    *panels, day, _ = figure.axes
    assert len(panels) == 4
    save(figure, tmp_path / "plot.svg")
    drawn = texts(tmp_path / "plot.svg")
    for axes in panels:
        assert {"round-robin", "asg", "optimal cost"} <= {text.get_text() for text in axes.texts}
    for axes in (*panels, day):
        assert axes.get_title(loc="left") in drawn
    assert "us-east-2b" in drawn


def test_availability_and_outages_stand_side_by_side() -> None:
    """The left panel has the share of time below N, the right one the time with nobody, both the cost."""
    trace = market([(0.0, 3)], duration_s=86_400.0)
    figure = draw([(trace, [result("asg"), result("spotrelay", zero_s_per_30d=0.0)])])
    left, right = figure.axes
    assert left.get_ylabel().startswith("available: ")
    assert right.get_ylabel().startswith("zero: ")
    drawn = [
        sorted(tuple(*np.asarray(line.get_xydata())) for line in axes.get_lines() if line.get_marker() == "o")
        for axes in (left, right)
    ]
    worst, best = pytest.approx((0.42, 1234.5)), pytest.approx((0.42, 60.0))
    assert drawn[0] == [pytest.approx((0.42, 1 - 0.99912))] * 2
    assert drawn[1] == [best, worst], "what is better than the last tick is drawn there"
    for axes in (left, right):
        bottom, top = axes.get_ylim()
        assert bottom > top, "the best is on top"


def test_the_same_results_give_the_same_bytes(results: Results, tmp_path: Path) -> None:
    """A picture in a repository changes when what it shows does: no date, no random IDs."""
    for name in "ab":
        figure = draw(results[:1])
        save(figure, tmp_path / f"{name}.svg")
        save(figure, tmp_path / f"{name}.png")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_an_oracle_alone_has_no_day(tmp_path: Path) -> None:
    """Nothing acted, so that there is nothing to show of it."""
    trace = generate(0, days=1)
    figure = draw([(trace, [run(trace, "optimal", ReplaySettings())])])
    save(figure, tmp_path / "plot.png")
    assert len(figure.axes) == 2


def test_labels_of_neighbours_do_not_cover_one_another() -> None:
    """Five policies of nearly the same outcome can still be read."""
    trace = market([(0.0, 3)], duration_s=86_400.0)
    names = ("spotrelay", "spothedge", "spothedge-warned", "asg", "round-robin")
    crowd = [result(name, cost=0.40 + n / 200) for n, name in enumerate(names)]
    figure = draw([(trace, crowd)])
    labels = [text for text in figure.axes[0].texts if text.get_text() in names]
    boxes = [label.get_window_extent() for label in labels]
    assert len(boxes) == len(names)
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[n + 1 :])


def test_the_day_is_the_one_with_most_losses() -> None:
    """It begins at a whole hour, ends with the trace, and holds what lived in it."""
    trace = market([(0.0, 3)], duration_s=10 * 86_400.0)
    lost = [life(HOUR_S, at * HOUR_S, is_lost=True) for at in (3, 100, 101, 102, 103, 200)]
    day = Day.of(trace, result(timeline=tuple(lost)))
    assert day.begin_s <= 100 * HOUR_S < 103 * HOUR_S < day.end_s
    assert day.begin_s % HOUR_S == 0
    assert day.end_s - day.begin_s == 24 * HOUR_S


def test_replicas_that_do_not_overlap_share_a_lane() -> None:
    """A row is as high as the pool had replicas at once; on-demand has a row of its own."""
    trace = market([(0.0, 3)], [(0.0, 3)], duration_s=86_400.0)
    lives = (
        life(1000, 5000),
        life(2000, 6000),
        life(7000),
        life(1000, option=PurchaseOption.ON_DEMAND),
    )
    rows = Day.of(trace, result(timeline=lives)).rows
    assert [(row.title, len(row.lanes)) for row in rows] == [
        ("us-east-1a", 2),
        ("us-east-1b", 1),
        ("on-demand", 1),
    ]


def test_strength_counts_who_is_ready() -> None:
    """From ready until gone, or until taken out on purpose; a warned one serves until it is taken."""
    timeline = (
        life(100, 900),
        life(200, 1000, warned_at=500, drained_at=math.inf, out_at=501),
        life(300, 1200, drained_at=600, out_at=600),
        life(math.inf, 400),
    )
    assert list(strength(timeline, 0, 2000)) == [
        *((0, 0), (100, 1), (200, 2), (300, 3), (600, 2), (900, 1), (1000, 0)),
    ]
    assert list(strength(timeline, 250, 950)) == [(250, 2), (300, 3), (600, 2), (900, 1)]


def test_a_large_market_is_drawn_with_the_pools_that_were_used(tmp_path: Path) -> None:
    """More pools than rows can be read: those with replicas come first."""
    trace, shown = _forty_pools()
    save(draw([(trace, [shown])]), tmp_path / "plot.svg")
    drawn = texts(tmp_path / "plot.svg")
    assert "us-east-39a" in drawn
    assert "us-east-38a" not in drawn


def _forty_pools() -> tuple[Trace, Result]:
    one = market([(0.0, 3)], duration_s=86_400.0).pools[0]
    zones = [f"us-east-{n:02}a" for n in range(40)]
    pools = tuple(replace(one, pool=CapacityPool(zone[:-1], zone, "v100:1")) for zone in zones)
    trace = Trace("large", pools, 86_400.0)
    return trace, result(timeline=(life(500, where=pools[39].pool),))


def test_nothing_but_drawing_loads_matplotlib() -> None:
    """The command starts as fast as before."""
    code = "import sys, spotrelay.operator.cli.app; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
