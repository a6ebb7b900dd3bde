"""A CloudWatch dashboard as a page, drawn from its body: each widget at its place, with an account's values.

Where CloudWatch itself can't be photographed, this shows what is on a board and how it is laid out. Colours
and type are near CloudWatch's; what a board says is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any, Protocol

from markdown_it import MarkdownIt

from lab.pictures.chart import chart
from lab.pictures.lines import Metrics, latest, lines

WIDTH = 1440
"""Of the page, in pixels."""

COLUMNS = 24
COLUMN, ROW, GAP = (WIDTH - 32) / COLUMNS, 46, 8
"""A cell of the grid, and what lies between widgets, in pixels."""

TITLE = 34
"""Pixels of a widget that its title takes."""

STYLE = Path(__file__).with_name("board.css")


class Account(Metrics, Protocol):
    """Where a board finds what it shows."""

    def alarm_state(self, arn: str) -> tuple[str, str]:
        """The name of an alarm, and its state."""
        ...

    def custom(self, endpoint: str, params: Mapping[str, Any]) -> str:
        """The HTML of a custom widget."""
        ...

    def query(self, query: str, start: datetime, end: datetime) -> Sequence[Mapping[str, str]]:
        """The rows that a query of CloudWatch Logs Insights finds."""
        ...


@dataclass(frozen=True, slots=True)
class Shown:
    """Which board, with whose values, of what time."""

    name: str
    body: Mapping[str, Any]
    account: Callable[[datetime, datetime], Account]
    """Of a span of time: a widget may have its own."""
    start: datetime
    end: datetime


def page(shown: Shown) -> str:
    """The HTML of a whole page, which needs nothing else."""
    widgets = "".join(_widget(shown, widget) for widget in shown.body["widgets"])
    grid = f"grid-template-columns: repeat({COLUMNS}, {COLUMN:.2f}px); grid-auto-rows: {ROW}px"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(shown.name)}</title>'
        f"<style>{STYLE.read_text(encoding='utf-8')}</style><header><h1>{escape(shown.name)}</h1>"
        f"<p>{shown.start:%Y-%m-%d %H:%M} to {shown.end:%H:%M} UTC</p></header>"
        f'<main style="{grid}">{widgets}</main></html>'
    )


def _widget(shown: Shown, widget: Mapping[str, Any]) -> str:
    properties, kind = widget["properties"], widget["type"]
    place = (
        f"grid-area: {widget['y'] + 1} / {widget['x'] + 1} / span {widget['height']} / span {widget['width']}"
    )
    title = f"<h2>{escape(properties['title'])}</h2>" if properties.get("title") else ""
    inside = _KINDS[kind](shown, widget)
    is_clear = properties.get("background") == "transparent"
    return (
        f'<section style="{place}"{" class=clear" if is_clear else ""}>{title}'
        f'<div class="body {kind}">{inside}</div></section>'
    )


def _metric(shown: Shown, widget: Mapping[str, Any]) -> str:
    properties = widget["properties"]
    start = shown.end - _before(properties["start"]) if "start" in properties else shown.start
    found = lines(properties, shown.account(start, shown.end))
    if properties.get("view") == "singleValue":
        cells = "".join(
            f'<div><dt><i style="background:{line.color or "#1f77b4"}"></i>{escape(line.label)}</dt>'
            f"<dd>{_number(latest(line))}</dd></div>"
            for line in found
        )
        return f'<dl class="numbers" style="margin:0">{cells}</dl>'
    size = (
        int(widget["width"] * COLUMN) - GAP - 2 * 12 - 2,
        widget["height"] * ROW - GAP - TITLE - 8,
    )
    return chart(properties, found, start, shown.end, size)


def _alarms(shown: Shown, widget: Mapping[str, Any]) -> str:
    account = shown.account(shown.start, shown.end)
    states = [account.alarm_state(arn) for arn in widget["properties"]["alarms"]]
    boxes = "".join(f'<span class="{escape(state)}">{escape(name)}</span>' for name, state in states)
    return f'<div class="alarms">{boxes}</div>'


def _custom(shown: Shown, widget: Mapping[str, Any]) -> str:
    properties = widget["properties"]
    account = shown.account(shown.start, shown.end)
    return account.custom(properties["endpoint"], properties.get("params", {}))


def _text(_: Shown, widget: Mapping[str, Any]) -> str:
    return str(MarkdownIt().render(widget["properties"]["markdown"]))


def _log(shown: Shown, widget: Mapping[str, Any]) -> str:
    account = shown.account(shown.start, shown.end)
    rows = account.query(widget["properties"]["query"], shown.start, shown.end)
    if not rows:
        return "<p>No data in this time</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


_KINDS: Mapping[str, Callable[[Shown, Mapping[str, Any]], str]] = {
    "metric": _metric,
    "alarm": _alarms,
    "custom": _custom,
    "text": _text,
    "log": _log,
}


def _before(start: str) -> timedelta:
    """A widget's own beginning: `-PT24H`."""
    return timedelta(hours=int(start.removeprefix("-PT").removesuffix("H")))


def _number(value: float | None) -> str:
    """Three digits that count, as CloudWatch shows them."""
    if value is None:
        return "--"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
