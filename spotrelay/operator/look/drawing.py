"""Price curves as a picture, PNG or SVG."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

from matplotlib import pyplot as plt

from spotrelay.operator.look.curves import Curve, bounds, spread
from spotrelay.plane.view.words import percent, usd

# Apart for those who can't tell red from green, too (after Okabe and Ito); without colours, by the dashes.
LOOKS: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("#0072b2", ()),
    ("#e69f00", (6, 2)),
    ("#009e73", (2, 1)),
    ("#cc79a7", (8, 2, 2, 2)),
    ("#56b4e9", (12, 3)),
    ("#d55e00", (4, 2, 1, 2, 1, 2)),
    ("#9a8b00", (1, 1.5)),
    ("#000000", (12, 2, 2, 2, 2, 2)),
)
"""Colours and dashes, in points on and off, of the lines."""

MOST_CURVES = len(LOOKS)
"""More can't be told apart: the cheapest are drawn."""

LABEL = 0.05
"""Of the axis: the height of a line of the labels, in the size in which they are written."""


def draw(
    curves: Sequence[Curve], title: str, start: datetime, end: datetime, path: Path
) -> tuple[Curve, ...]:
    """Write the picture; the curves that are in it.

    The axis has room for them alone. What on-demand costs is several times as much: it stands in the labels.

    Raises:
        OSError: the file can't be written.
    """
    shown = tuple(curves[:MOST_CURVES])
    least, most = bounds(shown)
    places = spread([curve.now for curve in shown], least, most, LABEL * (most - least))
    figure, axes = plt.subplots(figsize=(12, 4.5), layout="constrained")
    for curve, place, (color, dashes) in zip(shown, places, LOOKS, strict=False):
        times: Any = [at for at, _ in curve.changes] + [end]
        prices = [price for _, price in curve.changes] + [curve.now]
        axes.step(times, prices, where="post", color=color, linestyle=(0, dashes) if dashes else "-")
        last: Any = (end, curve.now)
        axes.annotate(
            _label(curve),
            last,
            xytext=(1.03, place),
            textcoords=axes.get_yaxis_transform(),
            verticalalignment="center",
            fontsize=8,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "linewidth": 0.8,
                "shrinkB": 0,
                "relpos": (0, 0.5),  # from the label's beginning
            },
        )
    axes.set_ylim(least, most)
    span: Any = (start, end)
    axes.set_xlim(*span)
    axes.set_ylabel("USD per hour")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    try:
        figure.savefig(path, dpi=150)
    finally:
        plt.close(figure)
    return shown


def _label(curve: Curve) -> str:
    now = f"{curve.pool}  {usd(curve.now, 4)}"
    if curve.on_demand_usd is None:
        return now
    return f"{now}, {percent(curve.share)} of {usd(curve.on_demand_usd, 4)} on demand"
