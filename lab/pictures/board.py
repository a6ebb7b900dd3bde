"""A CloudWatch dashboard as a page, drawn from its body: each widget at its place, with an account's values.

Where CloudWatch itself can't be photographed, this shows what is on a board and how it is laid out. Colours
and type are near CloudWatch's; what a board says is exact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, Protocol

from lab.pictures.chart import Line, chart
from lab.pictures.insights import Event, Query

WIDTH = 1440
"""Of the page, in pixels."""

COLUMNS = 24
COLUMN, ROW, GAP = (WIDTH - 32) / COLUMNS, 46, 8
"""A cell of the grid, and what lies between widgets, in pixels."""

TITLE = 34
"""Pixels of a widget that its title takes."""

STYLE = Path(__file__).with_name("board.css")


class Account(Protocol):
    """Where a board finds what it shows."""

    def alarm_state(self, arn: str) -> tuple[str, str]:
        """The name of an alarm, and its state."""
        ...

    def custom(self, endpoint: str, params: Mapping[str, Any], start: datetime, end: datetime) -> str:
        """The HTML of a custom widget, on a board of this time."""
        ...

    def events(self, groups: Sequence[str], start: datetime, end: datetime) -> Sequence[Event]:
        """The lines of these log groups."""
        ...


@dataclass(frozen=True, slots=True)
class Shown:
    """Which board, with whose values, of what time."""

    name: str
    body: Mapping[str, Any]
    account: Account
    start: datetime
    end: datetime


def chosen(body: Mapping[str, Any], service: str) -> Mapping[str, Any]:
    """The board's body when somebody has chosen a service: its variable is a pattern in the body's JSON."""
    (variable,) = body["variables"]
    rest = json.dumps({name: part for name, part in body.items() if name != "variables"})
    replaced: Mapping[str, Any] = json.loads(re.sub(variable["pattern"], service, rest))
    return replaced


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
    return f'<section style="{place}">{title}<div class="body {kind}">{inside}</div></section>'


def _alarms(shown: Shown, widget: Mapping[str, Any]) -> str:
    states = [shown.account.alarm_state(arn) for arn in widget["properties"]["alarms"]]
    boxes = "".join(f'<span class="{escape(state)}">{escape(name)}</span>' for name, state in states)
    return f'<div class="alarms">{boxes}</div>'


def _custom(shown: Shown, widget: Mapping[str, Any]) -> str:
    properties = widget["properties"]
    return shown.account.custom(properties["endpoint"], properties.get("params", {}), shown.start, shown.end)


def _log(shown: Shown, widget: Mapping[str, Any]) -> str:
    properties = widget["properties"]
    query = Query.of(properties["query"])
    events = shown.account.events(query.groups, shown.start, shown.end)
    if properties["view"] == "timeSeries":
        lines = [Line(label, points, query.period_s) for label, points in query.lines(events).items()]
        size = (
            int(widget["width"] * COLUMN) - GAP - 2 * 12 - 2,
            widget["height"] * ROW - GAP - TITLE - 8,
        )
        return chart(lines, shown.start, shown.end, size, is_stacked=properties.get("stacked", False))
    rows = query.rows(events)
    if not rows:
        return "<p>No data in this time</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


_KINDS: Mapping[str, Callable[[Shown, Mapping[str, Any]], str]] = {
    "alarm": _alarms,
    "custom": _custom,
    "log": _log,
}
