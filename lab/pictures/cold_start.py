"""`python -m lab.pictures.cold_start [REPLAY.json...]`: what seconds of a start are worth.

Given what `spotrelay replay --json` printed, it first keeps the figures, in a file beside it: recordings
aren't in the repository. Then it draws the picture of docs/cold-start.md, and prints the page's tables.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

from lab.pictures import files
from lab.replay.run import PRODUCTION
from lab.replay.settings import ReplaySettings
from spotrelay.plane.core.timing import DRAIN_SETTLE_S, NOTICE_S

FIGURES = Path(__file__).with_suffix(".csv")

KNEE_S = NOTICE_S - ReplaySettings().drain_s - DRAIN_SETTLE_S
"""What a warned replica may serve on. A start that takes no longer costs no strength."""

MONTH_S = 30 * 86_400.0

TITLES = {
    "aws-04-19-2023": "r5.16xlarge, three zones",
    "aws-08-03-2023": "p3.2xlarge, three zones",
    "aws-02-15-2023": "p3.2xlarge, nine zones",
}
"""What the recordings of docs/replay.md are, by the names of their folders."""

COLORS = ("#be123c", "#b45309", "#0b5fff", "#0f766e", "#7c3aed", "#475569")
"""Dark enough to be read as text on white."""

WIDTH, HEIGHT, EDGE, GAP = 1000, 372, 16, 58
TOP, FOOT, SIDES = 92, 48, 56
"""What stands above the panels, below them, and left and right of them all."""

INK, FAINT = "#0f172a", "#64748b"


@dataclass(frozen=True, slots=True)
class Figure:
    """What one replay found."""

    recording: str
    cold_start_s: float
    in_rotation: float
    """Share of the time with all replicas in rotation."""
    zero_s_per_30d: float
    """Seconds in 30 days with nobody in rotation."""
    cost: float
    """As a share of what as many on-demand replicas cost."""
    optimal_cost: float
    """The oracle's."""


Curves = Mapping[str, Sequence[Figure]]
"""The figures of each recording, shortest start first."""


@dataclass(frozen=True, slots=True)
class Panel:
    """What is drawn against the start."""

    title: str
    unit: str
    value: Callable[[Figure], float]
    ticks: Sequence[float]


PANELS = (
    Panel("Below full strength", "% of the time", lambda f: 100 * (1 - f.in_rotation), (0, 1, 2, 3, 4)),
    Panel(
        "Nobody in rotation", "hours in 30 days", lambda f: f.zero_s_per_30d / 3600, (0, 5, 10, 15, 20, 25)
    ),
    Panel("Cost", "times the oracle's", lambda f: f.cost / f.optimal_cost, (1, 1.05, 1.1, 1.15, 1.2, 1.25)),
)

STARTS = (30, 60, 120, 300, 600)
"""Ticks of the start, which has a logarithmic scale."""


def kept(file: Path = FIGURES) -> Curves:
    """The figures in the repository."""
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [
            Figure(row.pop("recording"), **{k: float(v) for k, v in row.items()})
            for row in csv.DictReader(lines)
        ]
    names = dict.fromkeys(row.recording for row in rows)
    return {
        TITLES.get(name, name): sorted(
            (row for row in rows if row.recording == name), key=lambda row: row.cold_start_s
        )
        for name in names
    }


def keep(results: Sequence[Path], file: Path = FIGURES) -> None:
    """Keep what the production controller reached in these replays, in place of what was kept."""
    found = [each for path in results for each in json.loads(path.read_text(encoding="utf-8"))]
    names = [field.name for field in fields(Figure)]
    rows = sorted(
        (each["trace"], *(each[name] for name in names[1:])) for each in found if each["policy"] == PRODUCTION
    )
    starts = {trace: [row[1] for row in rows if row[0] == trace] for trace, *_ in rows}
    if len({tuple(each) for each in starts.values()}) != 1:
        raise SystemExit(f"every recording must be replayed once at each of the same starts, not {starts}")
    with file.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows(
            [names, *([n, *(f"{v:.8g}" for v in row)] for n, *row in rows)]
        )


def drawn(curves: Curves) -> str:
    """The picture, as SVG."""
    each = (WIDTH - 2 * EDGE - (len(PANELS) - 1) * GAP - SIDES) / len(PANELS)
    parts = list(_legend(list(curves)))
    for n, panel in enumerate(PANELS):
        parts += _panel(panel, curves, EDGE + SIDES / 2 + n * (each + GAP), each)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            ' font-family="system-ui, sans-serif" font-size="12">',
            "  <title>Strength, outages and cost by the seconds that a start takes</title>",
            f'  <rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            *(f"  {part}" for part in parts),
            "</svg>",
            "",
        ]
    )


def _legend(names: Sequence[str]) -> Iterator[str]:
    x = float(EDGE)
    for name, color in zip(names, COLORS, strict=False):
        yield f'<rect x="{x:g}" y="{EDGE}" width="18" height="4" rx="2" fill="{color}"/>'
        yield f'<text x="{x + 24:g}" y="{EDGE + 7}" fill="{color}">{name}</text>'
        x += 56 + 6.6 * len(name)  # so wide is a letter, about


def _panel(panel: Panel, curves: Curves, x: float, width: float) -> Iterator[str]:
    bottom = HEIGHT - FOOT
    low, high = panel.ticks[0], panel.ticks[-1]

    def across(start_s: float) -> float:
        return x + width * math.log(start_s / STARTS[0]) / math.log(STARTS[-1] / STARTS[0])

    def up(value: float) -> float:
        return bottom - (bottom - TOP) * (value - low) / (high - low)

    bold = f'font-weight="700" fill="{INK}"'
    yield f'<text x="{x:.1f}" y="{TOP - 34}" font-size="14" {bold}>{panel.title}</text>'
    yield f'<text x="{x:.1f}" y="{TOP - 17}" fill="{FAINT}">{panel.unit}</text>'
    for tick in panel.ticks:
        y = up(tick)
        yield f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + width:.1f}" y2="{y:.1f}" stroke="#e2e8f0"/>'
        yield f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end" fill="{FAINT}">{tick:g}</text>'
    for start_s in STARTS:
        yield (
            f'<text x="{across(start_s):.1f}" y="{bottom + 17}" text-anchor="middle" fill="{FAINT}">'
            f"{start_s}{' s' if start_s == STARTS[-1] else ''}</text>"
        )
    knee = f"{across(KNEE_S):.1f}"
    yield (
        f'<line x1="{knee}" y1="{TOP}" x2="{knee}" y2="{bottom}" stroke="{FAINT}" stroke-dasharray="4 3"/>'
    )
    yield f'<text x="{knee}" y="{bottom + 33}" text-anchor="middle" {bold}>{KNEE_S:g} s</text>'
    for curve, color in zip(curves.values(), COLORS, strict=False):
        points = [(across(f.cold_start_s), up(panel.value(f))) for f in curve]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        yield f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>'
        for px, py in points:
            yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.5" fill="{color}"/>'


def table(curves: Curves) -> Iterator[str]:
    """The lines of the page's table: a row for each start, a column for each recording."""
    yield "| start | " + " | ".join(curves) + " |"
    yield "|---|" + "---|" * len(curves)
    for row in zip(*curves.values(), strict=True):
        cells = (f"{100 * f.in_rotation:.2f} %, {f.zero_s_per_30d:,.0f} s, {f.cost:.4f}" for f in row)
        yield f"| {row[0].cold_start_s:g} s | " + " | ".join(cells) + " |"


def worth(curves: Curves) -> Iterator[str]:
    """The lines of what one second is worth between neighbouring starts, averaged over the recordings."""
    yield "| a second between | seconds in 30 days below full strength | with nobody | of 1,000 USD |"
    yield "|---|---|---|---|"
    for pair in zip(*(pairwise(curve) for curve in curves.values()), strict=True):
        start_s, end_s = (f.cold_start_s for f in pair[0])
        over_s = (end_s - start_s) * len(pair)
        weak = sum(a.in_rotation - b.in_rotation for a, b in pair) * MONTH_S / over_s
        nobody = sum(b.zero_s_per_30d - a.zero_s_per_30d for a, b in pair) / over_s
        dearer = sum(b.cost / a.cost - 1 for a, b in pair) * 1000 / over_s
        yield f"| {start_s:g} and {end_s:g} s | {weak:.0f} | {nobody:.0f} | {dearer:.2f} |"


def main(arguments: Sequence[str]) -> None:
    """Keep what is given, draw, print."""
    if arguments:
        keep([Path(each) for each in arguments])
    curves = kept()
    files.svg("cold-start", drawn(curves))
    sys.stdout.write("\n".join([*table(curves), "", *worth(curves), ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
