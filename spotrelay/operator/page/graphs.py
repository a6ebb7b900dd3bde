"""What clients met in the last hour, as small graphs beside the timeline: a bar for each minute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from xml.etree import ElementTree as ET

from spotrelay.plane.view.snapshot import Minute
from spotrelay.plane.view.words import duration

MINUTES, HEIGHT = 60, 24
"""The drawing's width and height; the page stretches it."""

GAP = 0.2
"""Between two bars."""


@dataclass(frozen=True, slots=True)
class Graph:
    """One of them; `words` say the same as `svg`."""

    title: str
    words: str
    svg: str
    is_bad: bool = False
    """Whether what it shows shouldn't be."""


def graphs(minutes: Sequence[Minute], now: datetime) -> Iterator[Graph]:
    """Requests, errors, latency, and load where replicas tell it. As of `now`."""
    yield _graph("Requests a minute", minutes, now, lambda one: one.requests, _count)
    yield _graph("Answers of 5xx a minute", minutes, now, lambda one: one.failed, _count, is_bad=True)
    yield _graph("Until 99 % of answers began", minutes, now, lambda one: one.p99_s, duration)
    if any(one.ongoing is not None for one in minutes):
        yield _graph("Requests that replicas have", minutes, now, lambda one: one.ongoing, _count)


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _graph(
    title: str,
    minutes: Sequence[Minute],
    now: datetime,
    of: Callable[[Minute], float | None],
    in_words: Callable[[float], str],
    *,
    is_bad: bool = False,
) -> Graph:
    known = [(one.at, value) for one in minutes if (value := of(one)) is not None]
    most = max((value for _, value in known), default=0.0)
    words = "none"
    if most > 0:
        at, last = known[-1]
        words = f"{in_words(last)} at {at:%H:%M}, {in_words(most)} at most"
    svg = ET.Element("svg", viewBox=f"0 0 {MINUTES} {HEIGHT}", preserveAspectRatio="none")
    svg.set("aria-hidden", "true")
    for at, value in known:
        x = MINUTES - (now - at).total_seconds() / 60
        if value <= 0 or x < 0:
            continue
        height = HEIGHT * value / most
        box = {"x": x, "y": HEIGHT - height, "width": 1 - GAP, "height": height}
        ET.SubElement(svg, "rect", {name: f"{size:.2f}" for name, size in box.items()})
    return Graph(title, words, ET.tostring(svg, encoding="unicode"), is_bad and most > 0)
