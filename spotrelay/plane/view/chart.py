"""Lines over time as a small SVG, for a page that runs no scripts and brings no styles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from xml.etree import ElementTree as ET

WIDTH, HEIGHT, TOP = 400, 120, 14
"""Of the drawing, and what the words above the highest value take, in its own pixels."""


@dataclass(frozen=True, slots=True)
class Line:
    """Values over time."""

    name: str
    color: str
    points: Mapping[datetime, float]


def chart(
    title: str,
    lines: Sequence[Line],
    start: datetime,
    end: datetime,
    period: timedelta,
    in_words: Callable[[float], str],
) -> ET.Element:
    """A figure: title, drawing from zero to the highest value, and each line's name with its last value.

    A line has a gap where nothing is known for longer than `period`.
    """
    figure = ET.Element("div", style=f"width:{WIDTH}px")
    ET.SubElement(figure, "b").text = title
    most = max((value for line in lines for value in line.points.values()), default=0.0)
    svg = ET.SubElement(figure, "svg", viewBox=f"0 0 {WIDTH} {HEIGHT + TOP}", width="100%", role="img")
    ET.SubElement(svg, "title").text = title
    _words(svg, 0, TOP - 3, in_words(most) if most else "none")
    _words(svg, 0, HEIGHT + TOP - 2, f"{start:%m-%d %H:%M}")
    _words(svg, WIDTH, HEIGHT + TOP - 2, f"{end:%m-%d %H:%M} UTC", anchor="end")
    names = ET.SubElement(figure, "div")
    for line in lines:
        for piece in _pieces(line.points, period):
            places = [_place(at, line.points[at], start, end, most) for at in piece]
            # A value by itself is seen as a dash.
            places += [(places[0][0] + 2, places[0][1])] if len(places) == 1 else []
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            ET.SubElement(
                svg, "polyline", points=path, fill="none", stroke=line.color, attrib={"stroke-width": "1.5"}
            )
        last = line.points[max(line.points)] if line.points else None
        named = ET.SubElement(names, "span", style=f"color:{line.color};margin-right:12px")
        named.text = f"■ {line.name}: {'none' if last is None else in_words(last)}"
    return figure


def _pieces(points: Mapping[datetime, float], period: timedelta) -> list[list[datetime]]:
    pieces: list[list[datetime]] = []
    for at in sorted(points):
        if not pieces or at - pieces[-1][-1] > period:
            pieces.append([])
        pieces[-1].append(at)
    return pieces


def _place(at: datetime, value: float, start: datetime, end: datetime, most: float) -> tuple[float, float]:
    """Where a value is: the ground leaves room for the times below it."""
    ground = HEIGHT + TOP - 14
    across = (at - start) / (end - start)
    return WIDTH * min(max(across, 0.0), 1.0), ground - (ground - TOP) * (value / most if most else 0.0)


def _words(svg: ET.Element, x: float, y: float, text: str, anchor: str = "start") -> None:
    # As CloudWatch's grey, which is read on its white page and on its dark one.
    made = ET.SubElement(svg, "text", x=f"{x:g}", y=f"{y:g}", fill="#7f7f7f")
    made.set("font-size", "11")
    made.set("text-anchor", anchor)
    made.text = text
