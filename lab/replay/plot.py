"""Draws a replay: availability and outages against cost, and a telling day of pools and replicas."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from lab.replay.plot_day import Day, draw_pools, draw_strength
from lab.replay.plot_economy import AVAILABILITY, ZERO, draw_economy, spread
from lab.replay.result import Result
from lab.replay.run import PRODUCTION
from lab.replay.settings import ReplaySettings
from lab.replay.traces import Trace

WIDTH_IN = 11.0
ECONOMY_IN = 3.5
STRENGTH_IN = 1.1
LANE_IN = 0.17
DPI = 150
"""1650 pixels: sharp at the 830 that a README gives it."""

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "spotrelay",  # else IDs in an SVG are random
}

MEASURES = (AVAILABILITY, ZERO)
"""Side by side: a service that is rarely at less than full strength may still be gone for hours."""

Results = Sequence[tuple[Trace, Sequence[Result]]]


def draw(results: Results) -> Figure:
    """The picture: two panels with all policies per trace, and below one policy's day in the first trace."""
    with mpl.rc_context(STYLE):
        day = _day(results)
        rows = len(results)
        heights = [ECONOMY_IN] * rows
        if day:
            heights += [LANE_IN * day.lanes + 0.8, STRENGTH_IN]
        figure = Figure(figsize=(WIDTH_IN, sum(heights) + 0.5), layout="constrained")
        grid = figure.add_gridspec(len(heights), len(MEASURES), height_ratios=heights)
        labelled = []
        for (n, (trace, group)), (column, measure) in product(enumerate(results), enumerate(MEASURES)):
            axes = figure.add_subplot(grid[n, column])
            labelled.append((axes, draw_economy(axes, trace, group, measure)))
        if day:
            pools = figure.add_subplot(grid[rows, :])
            draw_pools(pools, day)
            draw_strength(figure.add_subplot(grid[rows + 1, :], sharex=pools), day)
        figure.draw_without_rendering()  # lays it out
        figure.set_layout_engine("none")
        for axes, labels in labelled:
            spread(axes, labels)
        return figure


def save(figure: Figure, file: Path) -> None:
    """Write it in the format of its suffix; the same figure gives the same bytes."""
    with mpl.rc_context(STYLE):
        metadata = {"Date": None} if file.suffix == ".svg" else {"Software": None}
        figure.savefig(file, dpi=DPI, metadata=metadata, facecolor="white")


def _day(results: Results) -> Day | None:
    """Of the first trace; our policy if it took part, at the usual cold start if that was run."""
    trace, group = results[0]
    usual_s = ReplaySettings().cold_start_s
    acting = [result for result in group if result.timeline]
    best = min(
        acting,
        key=lambda r: (r.policy != PRODUCTION, r.settings.cold_start_s != usual_s, -r.losses),
        default=None,
    )
    return Day.of(trace, best) if best else None
