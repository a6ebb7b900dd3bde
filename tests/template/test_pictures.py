"""The board as a picture: `lab.pictures` draws what is in the template, with an account's values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lab.pictures import terminal
from lab.pictures.board import Shown, chosen, page
from lab.pictures.insights import Event, Query, QueryError
from spotrelay.plane.core.names import COUNTED, Metric
from tests.template.support import Template
from tests.template.test_boards import Board

END = datetime(2026, 11, 23, 12, tzinfo=UTC)
START = END - timedelta(minutes=15)

SERVICES = ("demo", "demo-2")

HOSTILE = "<script>alert(1)</script>"

VALUES: dict[str, float] = {
    Metric.REPLICAS_MISSING: 0,
    Metric.REPLICAS_READY: 3,
    Metric.USD_PER_HOUR: 0.75,
    Metric.WARNING_TO_READY_MS: 96_000,
}
"""What is counted each minute, beside 1 of everything else."""


class MadeUp:
    """An account whose services count a line a minute, and were refused a launch."""

    def alarm_state(self, arn: str) -> tuple[str, str]:
        """The state that the test set."""
        return arn.removesuffix(".Arn>"), "ALARM" if "HeldBack" in arn else "OK"

    def custom(self, endpoint: str, params: Mapping[str, Any], start: datetime, end: datetime) -> str:
        """The widget's HTML, made up."""
        assert "spotrelay-widget" in endpoint
        return f"<p>{params['service']}, {start:%H:%M} to {end:%H:%M}</p>"

    def events(self, groups: Sequence[str], start: datetime, end: datetime) -> Sequence[Event]:
        """The lines that the test prepared."""
        refused = {"message": "launch_blocked", "service": "demo", "error": HOSTILE}
        return [(END.timestamp() - 30, refused), *COUNTED_LINES]


COUNTED_LINES: list[Event] = [
    (
        (START + timedelta(minutes=minute)).timestamp(),
        {"message": COUNTED, "service": service, **dict.fromkeys(Metric, 1), **VALUES},
    )
    for minute in range(15)
    for service in SERVICES
]


def drawn(board: Board) -> str:
    """The page of a board, of made-up values."""
    return page(Shown(board.name, board.body, MadeUp(), START, END))


@pytest.fixture
def board(control_plane: Template) -> Board:
    """The one."""
    return Board.of(control_plane)


def test_the_board_is_drawn_widget_by_widget(board: Board) -> None:
    """Each is at its place under its title, with its lines, alarms and what the function draws."""
    html = drawn(board)
    assert html.count("<section") == len(board.widgets)
    for widget in board.widgets:
        place = f"{widget['y'] + 1} / {widget['x'] + 1} / span {widget['height']} / span {widget['width']}"
        assert f"grid-area: {place}" in html
    for title in board.titles():
        assert f"<h2>{title.replace(chr(39), '&#x27;')}</h2>" in html
    graphs = [w for w in board.widgets if w["properties"].get("view") == "timeSeries"]
    pictures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(pictures) == len(graphs)
    for graph, picture in zip(graphs, pictures, strict=True):
        words = "".join(ET.fromstring(picture).itertext())  # noqa: S314  # our own
        for label in Query.of(graph["properties"]["query"]).lines(COUNTED_LINES):
            assert label in words
    assert "<p>every service, 11:45 to 12:00</p>" in html
    assert '<span class="ALARM">' in html


def test_a_choice_is_drawn(board: Board) -> None:
    """With a service chosen, its name stands everywhere, and no graph has another's line."""
    html = drawn(Board(board.name, dict(chosen(board.body, "demo"))))
    assert "<h2>Now: demo</h2>" in html
    assert "<p>demo, 11:45 to 12:00</p>" in html
    assert "every service" not in html
    assert "demo-2" not in html


def test_lines_are_reckoned_as_the_query_says() -> None:
    """By the period, of each service or of all, the most, the least or the sum, and divided."""
    counted = "SOURCE 'x' | filter message = \"counted\"\n| "
    of_all = Query.of(
        counted + "stats sum(LossesWarned) as warned, max(WarningToReadyMs) / 1000 as ready by bin(1m)"
    )
    found = of_all.lines(COUNTED_LINES)
    assert set(found) == {"warned", "ready"}
    assert set(found["warned"].values()) == {2}, "one of each service"
    assert (len(found["ready"]), set(found["ready"].values())) == (15, {96})
    by_service = Query.of(counted + "stats min(ReplicasReady) as ready by service, bin(1h)")
    assert {label: set(points.values()) for label, points in by_service.lines(COUNTED_LINES).items()} == {
        "demo": {3},
        "demo-2": {3},
    }


@pytest.mark.parametrize(
    "command", ["stats avg(GapS) as gap by bin(1m)", "fields strlen(@message)", "dedup service"]
)
def test_a_query_that_is_not_known_is_refused(command: str) -> None:
    """Rather than drawn wrongly."""
    with pytest.raises(QueryError):
        Query.of(f"SOURCE 'x' | {command}")


def test_what_lines_say_stays_text(board: Board) -> None:
    """The board has the rows of its query; EC2's words are no markup."""
    html = drawn(board)
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
