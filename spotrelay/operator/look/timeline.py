"""A service's replicas as a picture: each a bar over time, each interruption a mark. As SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from xml.etree import ElementTree as ET

from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.view.palette import BAD, FAILED, SERVING, WARNED

# In user units, which are pixels where nobody scales the picture.
TOP = 84
BAR = 16
BOTTOM = 62
LINE = 18
"""Of the legend."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How wide the picture is, and where a replica's name and pool stand."""

    width: float
    left: float
    """Where the bars begin."""
    right: float
    """What is free behind them."""
    row: float
    """Height of a replica's row; its bar is at the bottom."""
    margin: float
    """Left of all text."""
    ticks: int
    """So many times at most stand below the bars."""
    is_named_above: bool = False
    """Whether names are above the bars, not beside them."""
    suffix: str = ""
    """Of what has a name in the drawing: two of them may be on one page."""

    def middle(self, y: float) -> float:
        """Of the bar of the row that begins there."""
        return y + (self.row - BAR / 2 - 2 if self.is_named_above else self.row / 2)


WIDE = Layout(width=960, left=280, right=24, row=30, margin=20, ticks=8)
"""A README shows it some 900 wide."""

NARROW = Layout(
    width=364, left=14, right=14, row=44, margin=14, ticks=5, is_named_above=True, suffix="-narrow"
)
"""For a phone that is held upright, unscaled: letters stay as large as they are."""

INK, FAINT, PAPER = "#24292f", "#d8dee4", "#ffffff"
WARNING_INK = BAD

# Apart for those who can't tell red from green, too (after Okabe and Ito).
COLORS: Mapping[ReplicaState, str] = {
    ReplicaState.REQUESTED: "#c9ced6",
    ReplicaState.PROVISIONING: "#a5d3f2",
    ReplicaState.STARTING: "#56a8dd",
    ReplicaState.READY: SERVING,
    ReplicaState.DRAINING: WARNED,
    ReplicaState.STANDBY: "#cc79a7",
    ReplicaState.FAILED: FAILED,
}

HATCH = "fallback"
"""The pattern over the bars of fallbacks: white strokes, whatever the state below them."""

SERVES_ON = "serves-on"
"""The pattern over the bar of a replica that EC2 has warned and that is still in rotation: strokes of what it
will be, DRAINING, and the other way round than a fallback's."""

FLAG_ABOVE = 14
"""From a bar's middle up to the edge of a flag on it."""

DIGIT = 6.5
"""Width of one in a time below the bars."""

MIN_SEGMENT = 1.5
"""A state that lasted milliseconds still shows."""

TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
"""Seconds between marks of the time axis that are easy to read."""

CLASSES: Mapping[str, str] = {INK: "ink", FAINT: "faint", PAPER: "paper"}
"""What a page's own style sheet may colour otherwise, for the dark."""


class Axis(StrEnum):
    """What stands below the time axis."""

    SECONDS = "seconds"
    """Since the start."""
    CLOCK = "clock"
    """The time of day, in UTC."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An interruption, as it is drawn into the lost replica's row. None: it never happened."""

    label: str
    """On the flag, which has room for one character."""
    replica: int
    fallback: int | None
    """The on-demand replica that served until its replacement did."""
    warned_at: datetime
    serves_on_since: datetime | None
    """Warned, and kept in rotation because too few others served."""
    out_at: datetime | None
    taken_at: datetime | None


def draw(
    replicas: Sequence[Replica],
    marks: Sequence[Mark],
    start: datetime,
    end: datetime,
    title: str,
    subtitle: str,
    *,
    axis: Axis = Axis.SECONDS,
    flags: Sequence[tuple[str, str]] = (("a", "interruption warning (story)"),),
    layout: Layout = WIDE,
) -> str:
    """The picture, from `start` to `end`; `replicas` from top to bottom. `flags`: the marks' labels, and what
    they mean.
    """
    bottom = TOP + layout.row * len(replicas)
    legend = _Legend(layout, flags)
    height = bottom + BOTTOM + LINE * (legend.lines - 1)
    svg = ET.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_n(layout.width)} {_n(height)}",
        width=_n(layout.width),
        height=_n(height),
        attrib={"font-family": "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"},
        role="img",
    )
    ET.SubElement(svg, "title").text = f"{title}. {subtitle}"
    _define_hatches(svg, layout.suffix)
    _rect(svg, 0, 0, layout.width, height, PAPER, rx="8")
    _text(svg, layout.margin, 30, title, size=16, weight="600")
    _text(svg, layout.margin, 50, subtitle, size=12)
    duration_s = max((end - start).total_seconds(), 1.0)
    picture = _Picture(svg, layout, start, end)
    if axis is Axis.CLOCK:
        picture.clock(duration_s, bottom)
    else:
        picture.axis(duration_s, bottom)
    rows = {replica.id: TOP + layout.row * index for index, replica in enumerate(replicas)}
    for replica in replicas:
        picture.handover(replica, _predecessor(replica, marks), rows)
    for replica in replicas:
        picture.replica(replica, rows[replica.id])
    for mark in marks:
        picture.mark(mark, rows[mark.replica])
    legend.draw(svg, bottom + 42)
    return ET.tostring(svg, encoding="unicode") + "\n"


class _Picture:
    def __init__(self, svg: ET.Element, layout: Layout, start: datetime, end: datetime) -> None:
        self._svg = svg
        self._layout = layout
        self._start = start
        duration_s = max((end - start).total_seconds(), 1.0)
        self._scale = (layout.width - layout.left - layout.right) / duration_s
        self._end = end

    def _x(self, at: datetime) -> float:
        clamped = min(max(at, self._start), self._end)
        return self._layout.left + (clamped - self._start).total_seconds() * self._scale

    def axis(self, duration_s: float, bottom: float) -> None:
        """Vertical lines at round seconds."""
        # A dozen marks at most, whatever the duration.
        step = next((tick for tick in TICKS if duration_s / tick <= 12), TICKS[-1])
        for second in range(0, math.floor(duration_s) + 1, step):
            x = self._layout.left + second * self._scale
            _line(self._svg, x, TOP - 8, x, bottom, FAINT)
            _text(self._svg, x, bottom + 16, f"{second} s", size=11, anchor="middle")

    def clock(self, duration_s: float, bottom: float) -> None:
        """Vertical lines at round times of day."""
        step_s = next((tick for tick in TICKS if duration_s / tick <= self._layout.ticks), TICKS[-1])
        at = datetime.fromtimestamp(math.ceil(self._start.timestamp() / step_s) * step_s, self._start.tzinfo)
        while at <= self._end:
            x = self._x(at)
            _line(self._svg, x, TOP - 8, x, bottom, FAINT)
            words = at.strftime("%H:%M" if step_s >= 60 else "%H:%M:%S")
            # At an edge it stands beside its line, not outside of the picture.
            half = DIGIT * len(words) / 2
            x = min(max(x, half + 2), self._layout.width - half - 2)
            _text(self._svg, x, bottom + 16, words, size=11, anchor="middle")
            at += timedelta(seconds=step_s)

    def replica(self, replica: Replica, y: float) -> None:
        """One row: name, pool, and a segment per state."""
        middle, layout = self._layout.middle(y), self._layout
        if layout.is_named_above:
            named, end = y + 14, layout.width - layout.right
        else:
            named, end = middle + 4, layout.left - 10
        _text(self._svg, layout.margin, named, f"#{replica.id}", size=12, weight="600")
        if replica.offering:
            option = replica.offering.purchase_option
            _text(self._svg, layout.margin + 32, named, str(replica.offering.pool), size=11)
            weight = "400" if option.is_interruptible else "600"
            _text(self._svg, end, named, option.name, size=11, anchor="end", weight=weight)
        entered = sorted(_own(replica).items(), key=lambda item: item[1])
        for (state, since), until in zip(entered, [at for _, at in entered[1:]] + [self._end], strict=True):
            if state is ReplicaState.TERMINATED or until < self._start:
                continue
            x = self._x(since)
            width = max(self._x(until) - x, MIN_SEGMENT)
            _rect(self._svg, x, middle - BAR / 2, width, BAR, COLORS[state])
            if replica.is_fallback:
                _rect(self._svg, x, middle - BAR / 2, width, BAR, f"url(#{HATCH}{layout.suffix})")

    def mark(self, mark: Mark, y: float) -> None:
        """A flag where the warning came, and a cross where EC2 took the instance.

        In between, the bar is hatched while it served on.
        """
        middle = self._layout.middle(y)
        x, top = self._x(mark.warned_at), middle - FLAG_ABOVE
        if mark.serves_on_since and mark.out_at:
            since = self._x(mark.serves_on_since)
            hatch = f"url(#{SERVES_ON}{self._layout.suffix})"
            _rect(self._svg, since, middle - BAR / 2, self._x(mark.out_at) - since, BAR, hatch)
        _line(self._svg, x, top, x, middle + BAR / 2, WARNING_INK, width="2")
        _rect(self._svg, x, top, 14, 12, WARNING_INK, rx="2")
        _text(
            self._svg,
            x + 7,
            top + 9.5,
            mark.label,
            size=10,
            anchor="middle",
            color=PAPER,
        )
        if mark.taken_at:
            x = self._x(mark.taken_at)
            for dy in (-4, 4):
                _line(self._svg, x - 4, middle - dy, x + 4, middle + dy, WARNING_INK, width="2")

    def handover(self, replica: Replica, predecessor: int | None, rows: Mapping[int, float]) -> None:
        """A dotted line from the replica in whose place this one is, when that was decided."""
        if predecessor is None or predecessor not in rows:
            return
        x = self._x(min(_own(replica).values()))
        top, bottom = (self._layout.middle(rows[id_]) for id_ in (predecessor, replica.id))
        _line(self._svg, x, top, x, bottom, WARNING_INK, dashes="2 3")


def _own(replica: Replica) -> Mapping[ReplicaState, datetime]:
    """What it has been through itself: a standby's instance comes with the time when it was requested."""
    is_passed_on = replica.was_started_again or ReplicaState.PROVISIONING not in replica.entered
    if not (replica.is_standby and is_passed_on and len(replica.entered) > 1):
        return replica.entered
    return {state: at for state, at in replica.entered.items() if state != ReplicaState.REQUESTED}


def _predecessor(replica: Replica, marks: Sequence[Mark]) -> int | None:
    """The ID of the replica that this one replaces, or stands in for."""
    if not replica.is_fallback:
        return replica.replaces
    return next((mark.replica for mark in marks if mark.fallback == replica.id), None)


def _define_hatches(svg: ET.Element, suffix: str) -> None:
    definitions = ET.SubElement(svg, "defs")
    for name, degrees, color in ((HATCH, 45, PAPER), (SERVES_ON, -45, COLORS[ReplicaState.DRAINING])):
        pattern = ET.SubElement(
            definitions,
            "pattern",
            id=name + suffix,
            width="6",
            height="6",
            patternUnits="userSpaceOnUse",
            patternTransform=f"rotate({degrees})",
        )
        _line(pattern, 1, 0, 1, 6, color, width="2")


class _Legend:
    """What colours, patterns and flags mean, in as many lines as it takes."""

    def __init__(self, layout: Layout, flags: Sequence[tuple[str, str]]) -> None:
        self._layout = layout
        fill = COLORS[ReplicaState.READY]
        states = [
            # FAILED is rare, and the reason is in words wherever one is shown.
            _Entry(str(state), 30 + 7 * len(state), (color,))
            for state, color in COLORS.items()
            if state is not ReplicaState.FAILED
        ]
        hatched = [
            _Entry(meaning, 26 + 6 * len(meaning), (fill, f"url(#{name}{layout.suffix})"))
            for name, meaning in ((SERVES_ON, "warned, keeps serving"), (HATCH, "fallback"))
        ]
        marks = [_Entry(meaning, 30 + 6 * len(meaning), flag=label) for label, meaning in flags]
        taken = _Entry("taken by EC2", 15 + 6 * 12, is_cross=True)
        self._lines = [*self._broken([*states, *hatched]), *self._broken([*marks, taken])]

    @property
    def lines(self) -> int:
        """So many there are."""
        return len(self._lines)

    def draw(self, svg: ET.Element, y: float) -> None:
        """From this base line on."""
        for line in self._lines:
            x = self._layout.margin
            for entry in line:
                entry.draw(svg, x, y)
                x += entry.width
            y += LINE

    def _broken(self, entries: Sequence[_Entry]) -> list[list[_Entry]]:
        lines: list[list[_Entry]] = [[]]
        room = self._layout.width - 2 * self._layout.margin
        for entry in entries:
            if lines[-1] and sum(one.width for one in lines[-1]) + entry.width > room:
                lines.append([])
            lines[-1].append(entry)
        return lines


@dataclass(frozen=True, slots=True)
class _Entry:
    """One of a legend's: a box of colours over each other, a flag, or EC2's cross; then words."""

    meaning: str
    width: float
    fills: Sequence[str] = ()
    flag: str = ""
    is_cross: bool = False

    def draw(self, svg: ET.Element, x: float, y: float) -> None:
        for fill in self.fills:
            _rect(svg, x, y - 9, 12, 12, fill)
        if self.flag:
            _rect(svg, x, y - 9, 14, 12, WARNING_INK, rx="2")
            _text(svg, x + 7, y + 0.5, self.flag, size=10, anchor="middle", color=PAPER)
        for dy in (-4, 4) if self.is_cross else ():
            _line(svg, x, y - 3 - dy, x + 8, y - 3 + dy, WARNING_INK, width="2")
        words = 15 if self.is_cross else 20 if self.flag else 17
        _text(svg, x + words, y + 1, self.meaning, size=11)


def _rect(
    svg: ET.Element, x: float, y: float, width: float, height: float, color: str, rx: str = "0"
) -> None:
    box = {"x": _n(x), "y": _n(y), "width": _n(width), "height": _n(height)}
    ET.SubElement(svg, "rect", {**box, "fill": color, "rx": rx, **_class(color)})


def _line(
    svg: ET.Element,
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    color: str,
    width: str = "1",
    dashes: str = "",
) -> None:
    ends = {"x1": _n(x1), "y1": _n(y1), "x2": _n(x2), "y2": _n(y2)}
    style = {"stroke": color, "stroke-width": width} | ({"stroke-dasharray": dashes} if dashes else {})
    ET.SubElement(svg, "line", {**ends, **style, **_class(color)})


def _text(
    svg: ET.Element,
    x: float,
    y: float,
    text: str,
    *,
    size: int,
    anchor: str = "start",
    weight: str = "400",
    color: str = INK,
) -> None:
    style = {"font-size": str(size), "text-anchor": anchor, "font-weight": weight, "fill": color}
    ET.SubElement(svg, "text", {"x": _n(x), "y": _n(y), **style, **_class(color)}).text = text


def _class(color: str) -> dict[str, str]:
    return {"class": CLASSES[color]} if color in CLASSES else {}


def _n(value: float) -> str:
    """A coordinate with as many digits as can be seen."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
