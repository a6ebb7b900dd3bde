"""Draws what being there costs: each policy a line through its cold starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, product

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from matplotlib.transforms import Bbox

from lab.replay.baselines.optimal import NAME as OPTIMAL
from lab.replay.result import Result
from lab.replay.run import POLICIES, PRODUCTION
from lab.replay.traces import Trace
from lab.replay.wording import DAY_S


@dataclass(frozen=True, slots=True)
class Measure:
    """What is drawn against the cost, on a logarithmic scale with the best on top."""

    title: str
    badness: Callable[[Result], float]
    ticks: Sequence[float]
    """Badness at the ticks, worst first; what is better than the last is drawn there."""
    labels: Sequence[str]


AVAILABILITY = Measure(
    "available: share of time with all N ready",
    lambda result: 1 - result.availability,
    (1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001),
    ("0 %", "90 %", "99 %", "99.9 %", "99.99 %", "≥ 99.999 %"),
)

ZERO = Measure(
    "zero: time in 30 days with nobody in rotation",
    lambda result: result.zero_s_per_30d,
    (30 * DAY_S, 3 * DAY_S, 6 * 3600.0, 3600.0, 600.0, 60.0),
    ("30 days", "3 days", "6 h", "1 h", "10 min", "≤ 1 min"),
)

HEADROOM = 8.0
"""Beyond the best tick: labels of what is drawn there have a place above it."""

COSTS = (0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0)

OURS = "#0b5fff"
OTHERS = ("#7c3aed", "#9333ea", "#0f766e", "#be185d", "#4d7c0f", "#b45309", "#475569", "#0e7490")
"""Dark enough to be read as text on white."""

PLACES = tuple(
    (round(distance * across), round(distance * up))
    for distance in (9, 15, 22, 30, 40)
    for across, up in ((1, 0), (1, 0.8), (1, -0.8), (0, 1.1), (0, -1.1), (-1, 0.8), (-1, -0.8), (-1, 0))
)
"""Where a label may stand beside its point, in points, best first."""

BOX = 8
"""What a point or a piece of a line takes of the picture, in pixels."""

Points = list[tuple[float, float]]

Place = tuple[tuple[int, int], tuple[float, float]]
"""Points across and up from one of the policy's points."""


def draw_economy(
    axes: Axes, trace: Trace, results: Sequence[Result], measure: Measure
) -> list[tuple[Annotation, Points]]:
    """All policies of one trace, the best corner is the upper left one; returns labels still to be spread."""
    axes.set_title(trace.name)
    axes.set_yscale("log")
    axes.set_ylim(1.3 * measure.ticks[0], measure.ticks[-1] / HEADROOM)
    axes.yaxis.set_major_locator(FixedLocator(measure.ticks))
    axes.yaxis.set_major_formatter(FixedFormatter(measure.labels))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel(measure.title)
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
        labels.append(_line(axes, policy, list(same), sizes, measure))
    left, right = axes.get_xlim()
    axes.set_xlim(min(left, optimal * 0.78), max(right, 1.4))
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


def _line(
    axes: Axes, policy: str, results: Sequence[Result], sizes: dict[float, float], measure: Measure
) -> tuple[Annotation, Points]:
    colour, is_ours = _colour(policy), policy == PRODUCTION
    points = [(r.cost, max(measure.badness(r), measure.ticks[-1])) for r in results]
    axes.plot(*zip(*points, strict=True), color=colour, linewidth=2.0 if is_ours else 1.0, alpha=0.6)
    for result, point in reversed(list(zip(results, points, strict=True))):  # the largest is drawn first
        size = sizes[result.settings.cold_start_s]
        axes.plot(
            *point, "o", color=colour, markersize=size, markeredgecolor="white", clip_on=False, zorder=5
        )
    label = axes.annotate(
        policy,
        points[0],
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
    label.set_in_layout(False)  # it moves once the axes don't any more
    return label, points


def _legend(axes: Axes, sizes: dict[float, float]) -> None:
    for cold_start_s, size in sizes.items():
        axes.plot([], [], "o", color="#94a3b8", markersize=size, label=f"{cold_start_s:g} s")
    axes.legend(title="cold start", loc="lower right", frameon=False, fontsize=9, title_fontsize=9)


def spread(axes: Axes, labels: Sequence[tuple[Annotation, Points]]) -> None:
    """Put each label beside one of its points, where it covers least of what is drawn: nothing, if possible.

    The figure must have been laid out for good, so that positions in pixels are known.
    """
    taken = [box for line in axes.get_lines() for box in _covered(line)]
    taken += [text.get_window_extent() for text in axes.texts if text not in [label for label, _ in labels]]
    legend = axes.get_legend()
    taken += [legend.get_window_extent()] if legend else []
    for label, points in reversed(labels):  # ours is the last one, and chooses first

        def covered(where: Place, label: Annotation = label) -> int:
            box = _moved(label, where)
            inside = (
                axes.bbox.x0 <= box.x0
                and box.x1 <= axes.bbox.x1
                and axes.bbox.y0 <= box.y0
                and box.y1 <= axes.bbox.y1
            )
            return sum(box.overlaps(other) for other in taken) + (0 if inside else len(taken))

        taken.append(_moved(label, min(product(PLACES, points), key=covered)))


def _moved(label: Annotation, where: Place) -> Bbox:
    """Moves the label; what it covers there."""
    (across, up), point = where
    label.xy = point
    label.set_position((across, up))
    label.set_horizontalalignment("left" if across > 0 else "right" if across < 0 else "center")
    return label.get_window_extent()


def _covered(line: Line2D) -> Iterator[Bbox]:
    """Small boxes along the line, its points included."""
    pixels = line.get_transform().transform(line.get_xydata())
    for begin, end in pairwise([*pixels, pixels[-1]] if len(pixels) else []):
        steps = 1 + int(max(abs(end - begin)) // BOX)
        for step in range(steps):
            x, y = begin + (end - begin) * step / steps
            yield Bbox.from_bounds(x - BOX / 2, y - BOX / 2, BOX, BOX)
