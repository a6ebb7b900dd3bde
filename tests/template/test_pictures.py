"""The boards as pictures: `lab.pictures` draws what is in the template, with an account's values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lab.local.metric_math import Series
from lab.pictures import terminal
from lab.pictures.board import Shown, page
from lab.pictures.lines import Line, latest, lines
from spotrelay.core.names import METRICS_DIMENSION, Metric
from tests.template.support import Template
from tests.template.test_boards import Board

END = datetime(2026, 11, 23, 12, tzinfo=UTC)
START = END - timedelta(minutes=15)

SERVICES = ("demo", "demo-2")

HOSTILE = "<script>alert(1)</script>"


@dataclass(frozen=True)
class MadeUp:
    """An account with a value a minute of every metric, by its name; the rest is 1."""

    start: datetime
    end: datetime
    values: Mapping[str, float]

    def points(
        self, namespace: str, name: str, dimensions: Mapping[str, str], period_s: int, statistic: str
    ) -> Series:
        """See `lab.pictures.lines.Metrics`."""
        first = max(self.start, END - timedelta(minutes=10)).timestamp() // period_s * period_s
        count = max(int((self.end.timestamp() - first) / period_s), 1)
        if name == Metric.LOSSES_UNWARNED:
            count //= 2  # over long before the end
        return {first + n * period_s: self.values.get(name, 1.0) for n in range(count)}

    def like(self, namespace: str, dimensions: Sequence[str], name: str) -> Sequence[Mapping[str, str]]:
        """See `lab.pictures.lines.Metrics`."""
        assert list(dimensions) == [METRICS_DIMENSION]
        return [{METRICS_DIMENSION: service} for service in SERVICES]

    def alarm_state(self, arn: str) -> tuple[str, str]:
        """See `lab.pictures.board.Account`."""
        return arn.removesuffix(".Arn>"), "ALARM" if "NotWhole" in arn else "OK"

    def custom(self, endpoint: str, params: Mapping[str, Any]) -> str:
        """See `lab.pictures.board.Account`."""
        assert "spotrelay-widget" in endpoint
        return f"<p>the table of {params.get('service', 'all services')}</p>"

    def query(self, query: str, start: datetime, end: datetime) -> Sequence[Mapping[str, str]]:
        """See `lab.pictures.board.Account`."""
        return [{"service": "demo", "error": HOSTILE}]


VALUES: Mapping[str, float] = {
    Metric.REPLICAS_MISSING: 0.0,
    Metric.REPLICAS_READY: 3.0,
    Metric.USD_PER_HOUR: 0.75,
    Metric.ON_DEMAND_USD_PER_HOUR: 1.5,
    Metric.GAP_S: 96.0,
}


def drawn(board: Board) -> str:
    """The page of a board, of made-up values."""
    return page(Shown(board.name, board.body, lambda start, end: MadeUp(start, end, VALUES), START, END))


def lines_of(board: Board, title: str) -> dict[str, Line]:
    """Those of the widget with this title."""
    (widget,) = (w for w in board.widgets if w["properties"].get("title") == title)
    start = END - timedelta(hours=24) if "start" in widget["properties"] else START
    return {line.label: line for line in lines(widget["properties"], MadeUp(start, END, VALUES))}


def test_a_services_board_is_drawn_widget_by_widget(service_stack: Template, service_name: str) -> None:
    """Each is at its place under its title, with its numbers, lines, alarms and the function's table."""
    board = Board.of(service_stack)
    html = drawn(board)
    assert html.count("<section") == len(board.widgets)
    for widget in board.widgets:
        place = f"{widget['y'] + 1} / {widget['x'] + 1} / span {widget['height']} / span {widget['width']}"
        assert f"grid-area: {place}" in html
    for title in filter(None, board.titles()):
        assert f"<h2>{title.replace(chr(39), '&#x27;')}</h2>" in html
    graphs = [w for w in board.widgets if w["type"] == "metric" and w["properties"]["view"] != "singleValue"]
    pictures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(pictures) == len(graphs)
    for graph, picture in zip(graphs, pictures, strict=True):
        words = "".join(ET.fromstring(picture).itertext())  # noqa: S314  # our own
        for entry in graph["properties"]["metrics"]:
            assert entry[-1]["label"] in words or entry[-1].get("visible") is False
    assert f"<p>the table of {service_name}</p>" in html
    assert '<span class="ALARM">' in html
    assert "<code>spotrelay status" in html


def test_metric_math_and_a_days_numbers_are_worked_out(service_stack: Template) -> None:
    """The share that is saved, as of the last minute; what was lost, and the worst gap, of all the time."""
    board = Board.of(service_stack)
    now = lines_of(board, "Now")
    assert latest(now["saved, %"]) == pytest.approx(50)
    assert latest(now["ready"]) == 3
    day = lines_of(board, "Last 24 hours")
    assert latest(day["lost"]) == 15, "ten minutes with one that was warned, five of them with another"
    assert latest(day["worst gap, s"]) == 96


def test_a_search_finds_every_services_metric(control_plane: Template) -> None:
    """The fleet's board has a line for each of them, and sums over all."""
    board = Board.of(control_plane)
    by_service = lines_of(board, "USD an hour, by service")
    assert len(by_service) == len(SERVICES)
    assert all(any(service in label for service in SERVICES) for label in by_service)
    totals = lines_of(board, "All services now")
    assert latest(totals["USD an hour"]) == pytest.approx(2 * 0.75)
    assert latest(totals["saved, %"]) == pytest.approx(50)
    assert latest(lines_of(board, "Last 24 hours")["lost"]) == 2 * 15


def test_what_lines_say_stays_text(control_plane: Template) -> None:
    """The fleet's board has the rows of its query; EC2's words are no markup."""
    html = drawn(Board.of(control_plane))
    assert HOSTILE not in html
    assert HOSTILE.replace("<", "&lt;").replace(">", "&gt;") in html


def test_a_terminals_picture_has_the_words_and_the_colours() -> None:
    """Escapes become colours, and nothing is asked of another machine."""
    said = "\x1b[1mdemo\x1b[0m  \x1b[32mWHOLE 3/3\x1b[0m\nAlarms: none.\n"
    svg = terminal.picture(["spotrelay", "status", "demo"], said, 40)
    words = "".join(ET.fromstring(svg).itertext())  # noqa: S314  # our own
    for text in ("$\xa0spotrelay\xa0status\xa0demo", "WHOLE\xa03/3", "Alarms:\xa0none."):
        assert text in words or text.replace("\xa0", " ") in words
    assert "#0a6b4e" in svg, "green"
    assert "@font-face" not in svg
    assert "cdnjs" not in svg
