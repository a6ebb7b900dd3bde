"""Price curves and scores as they are drawn."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from spotrelay.operator.look.curves import bounds, curves, sparkline, spread
from spotrelay.operator.look.drawing import draw
from spotrelay.operator.look.scores import scores_of
from spotrelay.plane.accounting.days import Day
from spotrelay.plane.core.pools import CapacityPool
from spotrelay.plane.view.words import duration
from tests.operate.replicas import POOL
from tests.operate.test_status import seen

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
OTHER = CapacityPool("us-east-1", "us-east-1b", "g5.xlarge")


def test_a_curve_has_its_pools_changes_in_order() -> None:
    """EC2 tells them newest first, and the first with a time from before: it counts from the start."""
    changes = {POOL: [(NOON + HOUR, 0.5), (NOON - 9 * HOUR, 0.3)], OTHER: [(NOON, 0.2)]}
    found = curves(changes, (POOL, OTHER), {"g5.xlarge": 1.0}, NOON)
    assert [curve.pool for curve in found] == [OTHER, POOL], "the cheapest now comes first"
    curve = found[1]
    assert curve.changes == ((NOON, 0.3), (NOON + HOUR, 0.5))
    assert (curve.now, curve.least, curve.most, curve.share) == (0.5, 0.3, 0.5, 0.5)
    assert curve.sampled(NOON, NOON + 2 * HOUR, 3) == [0.3, 0.5, 0.5]


def test_a_pool_without_a_price_has_no_curve() -> None:
    """EC2 doesn't offer it on Spot."""
    assert curves({}, (POOL,), {}, NOON) == []


def test_blocks_go_from_least_to_most() -> None:
    """One that doesn't change is a line at the bottom."""
    assert sparkline([0.0, 0.5, 1.0], 0.0, 1.0) == "▁▅█"
    assert sparkline([0.3, 0.3], 0.3, 0.3) == "▁▁"


def test_a_picture_is_written_and_says_what_is_in_it(tmp_path: Path) -> None:
    """SVG's text names the pools; of more pools than colours the cheapest are drawn."""
    pools = [CapacityPool("us-east-1", "us-east-1a", f"g{n}.xlarge") for n in range(9)]
    found = curves({pool: [(NOON, 0.1 * n)] for n, pool in enumerate(pools, 1)}, pools, {}, NOON)
    shown = draw(found, "chat", NOON, NOON + HOUR, tmp_path / "prices.svg")
    assert [curve.pool for curve in shown] == pools[:8]
    assert (tmp_path / "prices.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_a_chart_has_room_for_its_curves_and_for_nothing_else() -> None:
    """On-demand costs several times as much and would flatten them; a price that stands is in the middle."""
    changes = {POOL: [(NOON, 0.3), (NOON + HOUR, 0.4)], OTHER: [(NOON, 0.35)]}
    dear = curves(changes, (POOL, OTHER), {"g5.xlarge": 9.0}, NOON)
    assert bounds(dear) == pytest.approx((0.29, 0.41))
    assert bounds(dear[:1]) == pytest.approx((0.315, 0.385))


def test_labels_keep_apart_within_the_chart() -> None:
    """Those that fit stay where their curves end; the others make room, in the same order."""
    assert spread([0.2, 0.5], 0.0, 1.0, 0.1) == [0.2, 0.5]
    assert spread([0.2, 0.2, 0.21], 0.0, 1.0, 0.1) == pytest.approx([0.2, 0.3, 0.4])
    assert spread([0.9, 1.0, 1.0], 0.0, 1.0, 0.1) == pytest.approx([0.8, 0.9, 1.0])
    assert spread([], 0.0, 1.0, 0.1) == []


def test_each_curve_has_a_look_and_a_label_of_its_own(tmp_path: Path) -> None:
    """Without colours, too, they differ; on-demand stands in the label, with the share that Spot is of it."""
    pools = [CapacityPool("us-east-1", "us-east-1a", f"g{n}.xlarge") for n in range(8)]
    prices = {pool: [(NOON, 0.1 * n)] for n, pool in enumerate(pools, 1)}
    found = curves(prices, pools, {pool.instance_type: 1.0 for pool in pools[1:]}, NOON)
    draw(found, "chat", NOON, NOON + HOUR, tmp_path / "prices.svg")
    svg = (tmp_path / "prices.svg").read_text(encoding="utf-8")
    # Matplotlib draws letters as outlines, and puts the text beside them into a comment.
    assert "<!-- us-east-1a/g0.xlarge  0.1000 -->" in svg
    assert "<!-- us-east-1a/g1.xlarge  0.2000, 20 % of 1.0000 on demand -->" in svg
    styles = re.findall(r'style="(fill: none; [^"]*stroke-width: 1\.5[^"]*)"', svg)
    looks = [re.sub(r"stroke: #\w+; |stroke-linecap: \w+", "", style) for style in styles]
    assert len(looks) == len(set(looks)) == 8


def test_scores_are_those_of_the_hours_and_the_last_survey() -> None:
    """A blank is an hour without a survey; the best zone comes first."""
    day = Day("chat", date(2026, 11, 1), NOON, scores={"us-east-1a": {10: 1, 11: 10}, "us-east-1b": {11: 5}})
    found = scores_of(seen(), [day], NOON - 3 * HOUR)
    by_zone = {one.zone: one for one in found}
    assert by_zone["us-east-1a"].line(NOON - 3 * HOUR, NOON, 3) == " ▁█"
    assert by_zone["us-east-1b"].hours == {NOON - HOUR: 5}


def test_durations_are_two_units_at_most() -> None:
    """As people say them."""
    said = [duration(s) for s in (None, 0.04, 9.94, 59.6, 60, 372, 7380, 187_500)]
    assert said == ["?", "0.0 s", "9.9 s", "1 min", "1 min", "6 min 12 s", "2 h 3 min", "2 d 4 h"]
