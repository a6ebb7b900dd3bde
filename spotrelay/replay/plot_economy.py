"""Draws what availability costs: each policy a line through its cold starts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from matplotlib.transforms import Bbox

from spotrelay.replay.baselines.optimal import NAME as OPTIMAL
from spotrelay.replay.result import Result
from spotrelay.replay.run import POLICIES, PRODUCTION
from spotrelay.replay.traces import Trace

NINES = (1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001)
"""Unavailability at the ticks; what is better than the last is drawn there."""

LABELS = ("0 %", "90 %", "99 %", "99.9 %", "99.99 %", "≥ 99.999 %")

COSTS = (0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0)

OURS = "#0b5fff"
OTHERS = ("#c2410c", "#9333ea", "#0f766e", "#be185d", "#4d7c0f", "#b45309", "#475569", "#0e7490")
"""Dark enough to be read as text on white."""

PLACES = tuple(
    (round(distance * across), round(distance * up))
    for distance in (9, 15, 22, 30, 40)
    for across, up in ((1, 0), (1, 0.8), (1, -0.8), (0, 1.1), (0, -1.1), (-1, 0.8), (-1, -0.8), (-1, 0))
)
"""Where a label may stand beside its point, in points, best first."""


def draw_economy(axes: Axes, trace: Trace, results: Sequence[Result]) -> list[Annotation]:
    """All policies of one trace, the best corner is the upper left one; returns labels still to be spread."""
    axes.set_title(trace.name)
    axes.set_yscale("log")
    axes.set_ylim(1.3, NINES[-1] / 1.6)
    axes.yaxis.set_major_locator(FixedLocator(NINES))
    axes.yaxis.set_major_formatter(FixedFormatter(LABELS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("availability: share of time at full strength")
    axes.set_xlabel("cost, relative to on-demand")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(COSTS))
    axes.xaxis.set_major_formatter(lambda cost, _: f"{cost:.0%}".replace("%", " %"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(color="#e2e8f0", linewidth=0.8)
    axes.set_axisbelow(True)
    optimal = sum(r.optimal_cost for r in results) / len(results)
    axes.axvline(optimal, color="#64748b", linewidth=1.2, linestyle=(0, (4, 3)))
    axes.annotate(
        "optimal cost",
        (optimal, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-3, 0),
        textcoords="offset points",
        color="#64748b",
        ha="right",
        va="top",
        fontsize=9,
    )
    labels = []
    sizes = _sizes(results)
    acting = [r for r in results if r.policy != OPTIMAL]
    for policy, same in groupby(sorted(acting, key=_order), key=lambda r: r.policy):
        labels.append(_line(axes, policy, list(same), sizes))
    left, right = axes.get_xlim()
    axes.set_xlim(min(left, optimal * 0.78), max(right, 1.1))
    if len(sizes) > 1:
        _legend(axes, sizes)
    return labels


def _order(result: Result) -> tuple[bool, int, float]:
    """Ours last, so that it is drawn over the others."""
    return result.policy == PRODUCTION, POLICIES.index(result.policy), result.settings.cold_start_s


def _sizes(results: Sequence[Result]) -> dict[float, float]:
    cold_starts = sorted({r.settings.cold_start_s for r in results})
    return {cold_start_s: 5.0 + 1.8 * n for n, cold_start_s in enumerate(cold_starts)}


def _colour(policy: str) -> str:
    return OURS if policy == PRODUCTION else OTHERS[POLICIES.index(policy) % len(OTHERS)]


def _line(axes: Axes, policy: str, results: Sequence[Result], sizes: dict[float, float]) -> Annotation:
    colour, is_ours = _colour(policy), policy == PRODUCTION
    points = [(r.cost, max(1 - r.availability, NINES[-1])) for r in results]
    axes.plot(*zip(*points, strict=True), color=colour, linewidth=2.0 if is_ours else 1.0, alpha=0.6)
    for result, point in reversed(list(zip(results, points, strict=True))):  # the largest is drawn first
        size = sizes[result.settings.cold_start_s]
        axes.plot(
            *point, "o", color=colour, markersize=size, markeredgecolor="white", clip_on=False, zorder=5
        )
    return axes.annotate(
        policy,
        points[len(points) // 2],
        xytext=PLACES[0],
        textcoords="offset points",
        color=colour,
        fontsize=11 if is_ours else 9,
        fontweight="bold" if is_ours else "normal",
        va="center",
        annotation_clip=False,
        path_effects=[withStroke(linewidth=3, foreground="white")],
        zorder=6,
    )


def _legend(axes: Axes, sizes: dict[float, float]) -> None:
    for cold_start_s, size in sizes.items():
        axes.plot([], [], "o", color="#94a3b8", markersize=size, label=f"{cold_start_s:g} s")
    axes.legend(title="cold start", loc="lower right", frameon=False, fontsize=9, title_fontsize=9)


def spread(axes: Axes, labels: Sequence[Annotation]) -> None:
    """Give each label the first place where it covers nothing: neither a point nor another label.

    The figure must have been laid out, so that positions in pixels are known.
    """
    taken = [
        Bbox.from_bounds(x - 5, y - 5, 10, 10)
        for line in axes.get_lines()
        if line.get_marker() == "o"
        for x, y in axes.transData.transform(line.get_xydata())
    ]
    for label in reversed(labels):  # ours is the last one, and chooses first
        for place in PLACES:
            label.set_position(place)
            label.set_horizontalalignment("left" if place[0] > 0 else "right" if place[0] < 0 else "center")
            box = label.get_window_extent()
            inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and axes.bbox.y0 <= box.y0
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(label.get_window_extent())
