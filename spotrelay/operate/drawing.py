"""Price curves as a picture, PNG or SVG."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

from matplotlib import pyplot as plt

from spotrelay.operate.curves import Curve

# Apart for those who can't tell red from green, too (after Okabe and Ito).
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000")

MOST_CURVES = 8
"""More lines than colours can't be told apart: the cheapest are drawn."""

FORMATS = (".png", ".svg")


def draw(
    curves: Sequence[Curve], title: str, start: datetime, end: datetime, path: Path
) -> tuple[Curve, ...]:
    """Write the picture; the curves that are in it.

    Raises:
        OSError: the file can't be written.
    """
    shown = tuple(curves[:MOST_CURVES])
    figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    for curve, color in zip(shown, COLORS, strict=False):
        times: Any = [at for at, _ in curve.changes] + [end]
        prices = [price for _, price in curve.changes] + [curve.now]
        axes.step(times, prices, where="post", color=color, label=str(curve.pool))
    for index, (instance_type, usd) in enumerate(sorted(_on_demand(shown).items())):
        axes.axhline(usd, color="#888888", linestyle="--", linewidth=1)
        origin: Any = (start, usd)
        axes.annotate(
            f"{instance_type} on demand",
            origin,
            xytext=(4 + 150 * index, 3),
            textcoords="offset points",
            fontsize=8,
            color="#555555",
        )
    axes.set_ylim(bottom=0)
    span: Any = (start, end)
    axes.set_xlim(*span)
    axes.set_ylabel("USD per hour")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, ncols=2, frameon=False)
    try:
        figure.savefig(path, dpi=150)
    finally:
        plt.close(figure)
    return shown


def _on_demand(curves: Sequence[Curve]) -> dict[str, float]:
    return {
        curve.pool.instance_type: curve.on_demand_usd for curve in curves if curve.on_demand_usd is not None
    }
