"""A widget's lines as a picture, much as CloudWatch draws them: SVG for a piece of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from itertools import cycle
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lab.pictures.insights import Series

DPI = 96
"""A browser's: an inch of a drawing is so many of its pixels."""

CHARACTER = 6.2
"""Pixels of a legend's, about."""

INK, FAINT = "#545b64", "#e9ebed"

COLORS = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)
"""CloudWatch's, in its order."""

STYLE = {
    "svg.fonttype": "none",  # text stays text, in the page's own type
    "svg.hashsalt": "spotrelay",  # the same picture of the same values
    "font.size": 8,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, slots=True)
class Line:
    """One of a widget's."""

    label: str
    points: Series
    period_s: int
    """Points that are further apart than this have a gap between them."""


def chart(
    lines: Sequence[Line], start: datetime, end: datetime, size: tuple[int, int], *, is_stacked: bool
) -> str:
    """The SVG of a graph widget of this many pixels."""
    width, height = size
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # its stubs want one type of all values
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        colored = list(zip(lines, cycle(COLORS), strict=False))
        if is_stacked:
            _stack(axes, colored)
        else:
            for line, color in colored:
                _draw(axes, line, color)
        _finish(axes, start, end, lines)
        handles = [mpl.lines.Line2D([], [], color=color, lw=5) for _, color in colored]
        names = [line.label for line, _ in colored]
        if names:
            # As many columns as the longest name leaves room for.
            ncols = max(int(width / (CHARACTER * max(map(len, names)) + 40)), 1)
            figure.legend(
                handles, names, loc="outside lower left", ncols=ncols, frameon=False, handlelength=0.9
            )
        if not any(line.points for line in lines):
            axes.text(0.5, 0.5, "No data in this time", transform=axes.transAxes, ha="center", va="center")
        out = StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()[out.getvalue().index("<svg") :]


def _draw(axes: Axes, line: Line, color: str) -> None:
    """Pieces without a gap, as CloudWatch draws them: a value by itself is a point."""
    times = sorted(line.points)
    pieces: list[list[float]] = []
    for at in times:
        if not pieces or at - pieces[-1][-1] > line.period_s:
            pieces.append([])
        pieces[-1].append(at)
    for piece in pieces:
        moments: Any = [_moment(at) for at in piece]
        axes.plot(
            moments,
            [line.points[at] for at in piece],
            color=color,
            linewidth=1.6,
            marker="o" if len(piece) == 1 else None,
            markersize=5,
            clip_on=len(piece) > 1,  # one at the edge is seen whole
        )


def _stack(axes: Axes, colored: Sequence[tuple[Line, str]]) -> None:
    """Areas, one above the other."""
    times = sorted({at for line, _ in colored for at in line.points})
    if times:
        heights = [[line.points.get(at, 0.0) for at in times] for line, _ in colored]
        moments: Any = [_moment(at) for at in times]
        axes.stackplot(moments, heights, colors=[color for _, color in colored], alpha=0.75)


def _finish(axes: Axes, start: datetime, end: datetime, lines: Sequence[Line]) -> None:
    # A period that began before the time that is shown is shown, as CloudWatch does.
    first = min((_moment(min(line.points)) for line in lines if line.points), default=start)
    span: Any = (min(start, first), end)
    axes.set_xlim(*span)
    values = [value for line in lines for value in line.points.values()]
    axes.set_ylim(0, axes.get_ylim()[1] * 1.08 if any(values) else 1.0)
    axes.xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=8))  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M", tz=UTC))  # type: ignore[no-untyped-call]
    is_counted = all(value == int(value) for line in lines for value in line.points.values())
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=is_counted))
    axes.grid(axis="y", color=FAINT)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, pad=5)
    for name in ("top", "right", "left"):
        axes.spines[name].set_visible(False)


def _moment(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)
