"""What the user sees, without a terminal and at the end."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from lab.demo.view import View, conclusion
from tests.demo.theatre import POOLS, Theatre

REPORT: Mapping[str, Any] = {
    "ok": True,
    "problems": [],
    "took_s": 80.0,
    "stories": [{}] * 6,
    "nobody_in_rotation_s": 0.0,
    "requests": {
        "sent": 400,
        "failed": 0,
        "cut": 0,
        "unservable": 0,
        "first_token_s": {"p50": 0.05, "p95": 0.07, "max": 0.1},
        "latency_s": {"p50": 2.5, "p95": 2.6, "max": 2.7},
    },
    "metrics": {"metric_hours": {"SpotRelay HeldBack": 1, "SpotRelay Incident": 14}, "usd": 0.0062},
    "summary": {"warned_to_deregistered_s": {"median": 0.03, "max": 3.1}},
    "interruptions": [
        {
            "service": "demo",
            "story": "c",
            "replica": 4,
            "replaced_by": 6,
            "fallback": 7,
            "pool": "us-east-1b/g4dn.2xlarge",
            "event": "once",
            "warned_at": "2026-01-01T00:00:00.000+00:00",
            "warned_to_deregistered_s": 0.1,
            "served_on_s": None,
            "warned_to_launched_s": 1.2,
            "warned_to_ready_s": 6.8,
            "warned_to_reclaimed_s": 20.0,
        },
        {
            "service": "demo",
            "story": "d",
            "replica": 5,
            "replaced_by": 8,
            "fallback": None,
            "pool": "us-east-1b/g4dn.2xlarge",
            "event": "lost",
            "warned_to_deregistered_s": 3.1,
            "served_on_s": None,
            "warned_to_launched_s": 3.2,
            "warned_to_ready_s": None,
            "warned_to_reclaimed_s": 20.0,
        },
        {
            "service": "demo",
            "story": "f",
            "replica": 8,
            "replaced_by": 9,
            "fallback": None,
            "pool": "us-east-1a/g6e.2xlarge",
            "event": "once",
            "warned_to_deregistered_s": 7.25,
            "served_on_s": 7.2,
            "warned_to_launched_s": 0.1,
            "warned_to_ready_s": 6.5,
            "warned_to_reclaimed_s": 20.0,
        },
    ],
    "replicas": [
        {
            "service": "demo",
            "id": 6,
            "pool": "us-east-1c/g4dn.xlarge",
            "purchase_option": "spot",
            "entered": {
                "PROVISIONING": "2026-01-01T00:00:31.250+00:00",
                "READY": "2026-01-01T00:00:37.500+00:00",
            },
        },
        {"service": "demo", "id": 7, "pool": "us-east-1a/g4dn.xlarge", "purchase_option": "on-demand"},
        {"service": "demo", "id": 8, "pool": "us-east-1a/g6e.2xlarge", "purchase_option": "spot"},
        {"service": "demo", "id": 9, "pool": "us-east-1c/g6e.2xlarge", "purchase_option": "spot"},
    ],
}


def _console() -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, width=120), output


def test_without_a_terminal_there_are_plain_lines() -> None:
    """In a log each line stands by itself: no control characters, no redrawn table."""
    console, output = _console()
    with View(console, lambda: {"sent": 7, "in_flight": 2, "failed": 0, "cut": 0}) as view:
        view.title("(a) a story")
        view.say("replica [1] goes")
        view.show("demo", Theatre(POOLS[:3]).stage().watch.look())
    lines = output.getvalue().splitlines()
    assert [line.split(" s  ", 1)[1] for line in lines] == ["(a) a story", "replica [1] goes"]
    assert "\x1b" not in output.getvalue()


def test_the_live_table_shows_replicas_and_counters() -> None:
    """In a terminal the table has each replica's ID, state, pool and purchase option, and the counters."""
    output = io.StringIO()
    console = Console(file=output, width=120, height=40, force_terminal=True, color_system=None)
    with View(console, lambda: {"sent": 7, "in_flight": 2, "failed": 0, "cut": 0}) as view:
        view.show("demo", Theatre(POOLS[:3]).stage().watch.look())
    shown = output.getvalue()
    assert "us-east-1b/g5.xlarge" in shown
    assert "READY" in shown
    assert "7 sent" in shown


def test_the_conclusion_fits_its_width() -> None:
    """Every cell of the table at the end can be read in 120 columns."""
    console, output = _console()
    console.print(conclusion(REPORT))
    assert "…" not in output.getvalue()
    assert "on-demand" in output.getvalue()
    assert "never" in output.getvalue()
    assert "400 sent, 0 failed, 0 cut" in output.getvalue()
    assert "every promise kept" in output.getvalue()


def test_a_fallback_has_its_row_and_its_replacement_another() -> None:
    """The fallback's times are the interruption's; below it is when the replacement was back on Spot."""
    console, output = _console()
    console.print(conclusion(REPORT))
    rows = [line.split() for line in output.getvalue().splitlines() if line.startswith("c")]
    lost = ["c", "4", "us-east-1b/g4dn.2xlarge"]
    by = ["7", "us-east-1a/g4dn.xlarge", "on-demand"]
    back = ["c,", "back", "on", "Spot", "6", "us-east-1c/g4dn.xlarge", "spot", "31.25", "37.50"]
    assert rows == [[*lost, *by, "0.10", "1.20", "6.80", "20.00"], back]


def test_who_served_on_is_named_so() -> None:
    """A replica that was out of rotation late, on purpose, doesn't look like one that nobody noticed."""
    console, output = _console()
    console.print(conclusion(REPORT))
    (row,) = (line for line in output.getvalue().splitlines() if line.startswith("f"))
    assert row.split()[:5] == ["f,", "kept", "serving", "8", "us-east-1a/g6e.2xlarge"]
    assert row.split()[-4:] == ["7.25", "0.10", "6.50", "20.00"]


def test_requests_that_nobody_could_serve_are_explained() -> None:
    """A machine that is too slow for the warning is told so, instead of being told that all is well."""
    console, output = _console()
    requests = {**REPORT["requests"], "failed": 3, "unservable": 3}
    console.print(conclusion({**REPORT, "requests": requests, "nobody_in_rotation_s": 2.5}))
    said = " ".join(output.getvalue().split())
    assert "3 of them came when nobody could serve: for 2.5 s the last replica was at its end" in said
    assert "every promise kept" not in said
    assert "nobody could serve" not in _said_of(REPORT)
    assert "every promise kept" in _said_of(REPORT)


def _said_of(report: Mapping[str, Any]) -> str:
    console, output = _console()
    console.print(conclusion(report))
    return output.getvalue()


def test_broken_promises_are_listed() -> None:
    """A demo that failed ends with what was broken, one line each."""
    console, output = _console()
    console.print(conclusion({**REPORT, "ok": False, "problems": ["3 of 9 requests failed"]}))
    assert "Broken promises:\n  3 of 9 requests failed" in output.getvalue()
