"""A dashboard's table of replicas and last losses."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest

from lambdas import widget as function
from spotrelay.core.ports import Unavailable, UnreadableDocument
from spotrelay.core.replica import ReplicaState
from spotrelay.core.rows import Rows
from spotrelay.core.spec import ServiceSpec
from spotrelay.operate.rows import Account
from spotrelay.operate.widget import REPLICAS_SHOWN, overview, rendered
from spotrelay.palette import TONES
from tests.examples import demo_spec
from tests.operate.replicas import replica
from tests.operate.test_history import pair
from tests.operate.test_status import on, seen
from tests.unit.invocations import Context

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
        """See `HTMLParser`."""
        self.tags.append(tag)
        if tag == "td":
            self.cells.append("")
            self._is_in_cell = True

    def handle_data(self, data: str) -> None:
        """See `HTMLParser`."""
        if self._is_in_cell:
            self.cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        """See `HTMLParser`."""
        if tag == "td":
            self._is_in_cell = False


def test_it_has_the_judgement_the_replicas_and_the_losses() -> None:
    """What a status and a history say."""
    found = rendered(seen(*pair()))
    cells = Cells(found).cells
    assert "NOT WHOLE 1/3" in found
    assert "us-east-1c/g6.xlarge" in cells
    assert "warned" in cells
    assert "1 min 36 s" in cells


def test_what_rows_say_is_text() -> None:
    """A reason with markup in it is shown as it is, and nothing of it runs in anybody's console."""
    failed = replace(replica(9, ReplicaState.FAILED, entered={"FAILED": 3500.0}), reason=HOSTILE)
    found = Cells(rendered(seen(on(1), failed)))
    assert HOSTILE in found.cells
    assert "script" not in found.tags


def test_a_large_fleet_is_cut_and_says_so() -> None:
    """CloudWatch takes no endless table."""
    found = rendered(seen(*(on(id_) for id_ in range(1, REPLICAS_SHOWN + 11))))
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
    )
    cells = Cells(found).cells
    assert [cells[at : at + 4] for at in (0, 7, 14)] == [
        ["broken", "UNKNOWN", f"its document {HOSTILE}", "none"],
        ["chat", "NOT WHOLE 1/3", cells[9], "Elb5xx, NotWhole"],
        ["web", "WHOLE 3/3", "", "none"],
    ]
    assert f'<b style="color:{TONES["bad"]}">Elb5xx, NotWhole</b>' in found
    assert "<script>" not in found
    assert "not known" in overview({"chat": seen(*pair())}, None)
    assert "No service is deployed" in overview({}, {})


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
    monkeypatch.setattr(function, "ringing", lambda _: {"chat": ["NothingReady"]})
    cells = Cells(function.handler({}, context)).cells
    assert cells[:4] == ["broken", "UNKNOWN", "no JSON", "none"]
    assert (cells[7], cells[8], cells[10]) == ("chat", "NOT WHOLE 0/3", "NothingReady")
    monkeypatch.setattr(function, "ringing", denied)
    assert Cells(function.handler({}, context)).cells[10] == "not known"
