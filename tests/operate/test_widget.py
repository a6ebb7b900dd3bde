"""A dashboard's table of replicas and last losses."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lambdas import widget as function
from spotrelay.plane.aws.requests import ServedRequests
from spotrelay.plane.core.names import EVERY_SERVICE
from spotrelay.plane.core.ports import Unavailable, UnreadableDocument
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.view.chart import Line, chart
from spotrelay.plane.view.palette import BAD, SERVING, TONES
from spotrelay.plane.view.rows import Account
from spotrelay.plane.view.snapshot import Alarm, AlarmState, Minute
from spotrelay.plane.view.widget import REPLICAS_SHOWN, Served, overview, rendered
from tests.examples import demo_spec
from tests.operate.replicas import replica
from tests.operate.test_history import pair
from tests.operate.test_status import on, seen
from tests.unit.invocations import Context

ARN = "arn:aws:lambda:us-east-1:000000000000:function:spotrelay-widget"
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)

HOSTILE = "<script>alert('x')</script> & <b>"


class Cells(HTMLParser):
    """The text of each cell, and every tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []
        self._is_in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Note an opening tag."""
        self.tags.append(tag)
        if tag == "td":
            self.cells.append("")
            self._is_in_cell = True
        elif tag == "cwdb-action":  # what it says is for CloudWatch
            self._is_in_cell = False

    def handle_data(self, data: str) -> None:
        """Note the text."""
        if self._is_in_cell:
            self.cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        """Note a closing tag."""
        if tag == "td":
            self._is_in_cell = False


def test_it_has_the_judgement_the_replicas_and_the_losses() -> None:
    """What a status and a history say."""
    found = rendered(seen(*pair()), (), None)
    cells = Cells(found).cells
    assert "NOT WHOLE 1/3" in found
    assert "us-east-1c/g6.xlarge" in cells
    assert "warned" in cells
    assert "1 min 36 s" in cells


def test_what_rows_say_is_text() -> None:
    """A reason with markup in it is shown as it is, and nothing of it runs in anybody's console."""
    failed = replace(replica(9, ReplicaState.FAILED, entered={"FAILED": 3500.0}), reason=HOSTILE)
    found = Cells(rendered(seen(on(1), failed), (), None))
    assert HOSTILE in found.cells
    assert "script" not in found.tags


def test_a_large_fleet_is_cut_and_says_so() -> None:
    """CloudWatch takes no endless table."""
    found = rendered(seen(*(on(id_) for id_ in range(1, REPLICAS_SHOWN + 11))), (), None)
    assert "… and 10 more." in found
    assert len([tag for tag in Cells(found).tags if tag == "tr"]) == REPLICAS_SHOWN + 1


def test_it_describes_itself_and_knows_no_unknown_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """CloudWatch asks for a description with `describe`; a name that nobody deployed is told, escaped."""
    context: Any = Context()
    assert function.handler({"describe": True}, context).startswith("## ")
    store = SimpleNamespace(load=lambda _: Rows(), history=lambda *_: (), recall=lambda *_: seen().memory)
    services = SimpleNamespace(get=lambda *_, **__: None)
    account: Any = Account(store, services, "us-east-1")
    monkeypatch.setattr(function, "account", lambda: account)
    assert "No service &lt;b&gt;:" in function.handler({"service": "<b>"}, context)


def test_all_services_have_a_row_with_their_alarms() -> None:
    """In red, each with its judgement; what can't be read of one is said in its row."""
    found = overview(
        {"chat": seen(*pair()), "broken": f"its document {HOSTILE}", "web": seen(on(1), on(2), on(3))},
        {"chat": ["NotWhole", "Elb5xx"]},
        ARN,
    )
    cells = Cells(found).cells
    assert [cells[at : at + 4] for at in (0, 8, 16)] == [
        ["broken", "UNKNOWN", f"its document {HOSTILE}", "none"],
        ["chat", "NOT WHOLE 1/3", cells[10], "Elb5xx, NotWhole"],
        ["web", "WHOLE 3/3", "", "none"],
    ]
    assert f'<b style="color:{TONES["bad"]}">Elb5xx, NotWhole</b>' in found
    assert "<script>" not in found
    assert "not known" in overview({"chat": seen(*pair())}, None, ARN)
    assert "No service is deployed" in overview({}, {}, ARN)


def test_a_click_on_a_name_shows_that_service() -> None:
    """In CloudWatch's own words: the element before it calls this function with the service's name."""
    found = overview({"chat": seen(on(1))}, {}, ARN)
    (action,) = re.findall(r"<a>chat</a><cwdb-action ([^>]*)>([^<]*)</cwdb-action>", found)
    assert action == (f'action="call" display="popup" endpoint="{ARN}"', '{"service": "chat"}')


def numbers(html: str) -> dict[str, str]:
    """The large ones, by what is below them."""
    return {
        name: number
        for number, name in re.findall(r"<div style=\"font-size[^>]*>([^<]*)</div>([^<]*)<", html)
    }


def test_a_service_begins_with_large_numbers() -> None:
    """Whole, lost, and what it costs; a gap lasts from when a replica was out until all were there again."""
    found = numbers(rendered(seen(*pair()), (), None))
    assert list(found) == [
        "missing", "ready", "on demand", "USD an hour", "saved", "lost in 24 h", "worst gap in 24 h",
    ]  # fmt: skip
    assert (found["missing"], found["ready"], found["lost in 24 h"]) == ("2", "1", "1")
    assert found["worst gap in 24 h"] not in ("none", "?")
    calm = numbers(rendered(seen(on(1), on(2), on(3)), (), None))
    assert (calm["missing"], calm["lost in 24 h"], calm["worst gap in 24 h"]) == ("0", "0", "none")


def test_all_services_begin_with_their_sums() -> None:
    """One that can't be read leaves no sum: it would look like less."""
    whole = {"a": seen(on(1), on(2)), "b": seen(on(1))}
    found = numbers(overview(whole, {}, ARN))
    assert (found["missing"], found["lost in 24 h"]) == ("3", "0")
    part = numbers(overview({**whole, "c": "no JSON"}, {}, ARN))
    assert {part[name] for name in ("missing", "on demand", "USD an hour", "lost in 24 h")} == {"?"}


def test_alarms_have_their_state_and_what_they_mean() -> None:
    """Each in a colour, with its description for whoever points at it; unknown ones are called so."""
    ringing = Alarm("NotWhole", AlarmState.ALARM, NOW, "Run `x`. Runbook: docs/operations.md, NotWhole.")
    found = rendered(seen(on(1)), (ringing, replace(ringing, name="Elb5xx", state=AlarmState.OK)), None)
    assert f'color:{BAD};margin-right:10px">■ NotWhole</span>' in found
    assert f'color:{SERVING};margin-right:10px">■ Elb5xx</span>' in found
    assert "Runbook: docs/operations.md, NotWhole." in found
    assert "Alarms: not known" in rendered(seen(on(1)), None, None)


def test_what_clients_met_is_drawn() -> None:
    """Requests, both kinds of 5xx, and how long answers took: values a minute, whatever the period is."""
    span = timedelta(hours=1)
    minutes = [Minute(NOW - span / 2, 600, 30, 0.25, 4.0, failed_by_balancer=10)]
    served = Served(NOW - span, NOW, timedelta(minutes=5), minutes)
    found = rendered(seen(on(1)), (), served)
    pictures = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", found)]  # noqa: S314  # our own
    assert len(pictures) == 3
    assert all(line.attrib["points"].startswith("200.0,") for p in pictures for line in p.iter("polyline"))
    for words in ("requests: 120", "replicas: 4", "load balancer: 2", "p50: 0.2 s", "p99: 4.0 s"):
        assert f"■ {words}</span>" in found
    assert "Requests: not known" in rendered(seen(on(1)), (), None)
    assert "load balancer of this service isn't known" in rendered(
        seen(on(1)), (), replace(served, minutes=None)
    )


def test_a_line_has_gaps_where_nothing_is_known() -> None:
    """And a value by itself is seen."""
    at = [NOW - timedelta(minutes=minute) for minute in (9, 8, 5)]
    line = Line("x", BAD, dict.fromkeys(at, 1.0))
    drawn = chart("t", [line], NOW - timedelta(minutes=10), NOW, timedelta(minutes=1), str)
    assert [len(one.attrib["points"].split()) for one in drawn.iter("polyline")] == [2, 2]


def test_without_a_name_the_function_draws_all_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document or alarms that can't be read cost their own cells alone."""

    def get(service: str, *, fresh: bool) -> ServiceSpec:
        if service == "broken":
            raise UnreadableDocument("no JSON")
        return demo_spec(service)

    def denied(_: object) -> dict[str, list[str]]:
        raise Unavailable("no answer")

    store = SimpleNamespace(load=lambda _: Rows(), history=lambda *_: (), recall=lambda *_: seen().memory)
    account: Any = Account(
        store,
        SimpleNamespace(get=get, names=lambda: ["broken", "chat"]),
        "us-east-1",
    )
    context: Any = Context()
    monkeypatch.setattr(function, "account", lambda: account)
    monkeypatch.setattr("spotrelay.plane.aws.alarms.ringing", lambda _: {"chat": ["NothingReady"]})
    cells = Cells(function.handler({}, context)).cells
    assert cells[:4] == ["broken", "UNKNOWN", "no JSON", "none"]
    assert (cells[8], cells[9], cells[11]) == ("chat", "NOT WHOLE 0/3", "NothingReady")
    monkeypatch.setattr("spotrelay.plane.aws.alarms.ringing", denied)
    # As the board asks while no service is chosen.
    assert Cells(function.handler({"service": EVERY_SERVICE}, context)).cells[11] == "not known"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ({}, (timedelta(hours=12), timedelta(), 60)),
        ({"start": -3600, "end": 0}, (timedelta(hours=1), timedelta(), 60)),
        ({"start": -86_400, "end": 0}, (timedelta(days=1), timedelta(), 300)),
        ({"start": -30 * 86_400, "end": 0}, (timedelta(days=30), timedelta(), 3600)),
        # What is so old CloudWatch keeps by five minutes alone.
        ({"start": -20 * 86_400, "end": -20 * 86_400 + 60},
         (timedelta(days=20), timedelta(days=20, minutes=-1), 300)),
        ({"start": -86_400, "end": 0, "zoom": {"start": -600, "end": -300}},
         (timedelta(minutes=10), timedelta(minutes=5), 60)),
    ],
)  # fmt: skip
def test_what_clients_met_is_of_the_boards_time(
    shown: dict[str, Any], expected: tuple[timedelta, timedelta, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or of the part that somebody looks at; as fine as CloudWatch has it and as a graph shows it."""

    def at(times: dict[str, Any]) -> dict[str, Any]:
        return {
            name: at(value) if isinstance(value, dict) else int(NOW.timestamp() + value) * 1000
            for name, value in times.items()
        }

    asked: list[tuple[datetime, datetime, int]] = []

    def minutes(
        _: object, __: object, since: datetime, until: datetime, *, period_s: int
    ) -> tuple[Minute, ...]:
        asked.append((since, until, period_s))
        return ()

    monkeypatch.setattr(ServedRequests, "minutes", minutes)
    span = function._span({"timeRange": at(shown)}, NOW)
    assert function._served(demo_spec("chat"), *span, NOW) is not None
    ((since, until, period_s),) = asked
    assert (NOW - since, NOW - until, period_s) == expected
