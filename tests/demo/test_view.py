"""What the user sees, without a terminal and at the end."""

from __future__ import annotations

import io

from rich.console import Console

from spotrelay.demo.view import View, conclusion
from tests.demo.theatre import POOLS, Theatre

REPORT = {
    "ok": True,
    "problems": [],
    "took_s": 80.0,
    "stories": [{}] * 5,
    "requests": {
        "sent": 400,
        "failed": 0,
        "cut": 0,
        "first_token_s": {"p50": 0.05, "p95": 0.07, "max": 0.1},
        "latency_s": {"p50": 2.5, "p95": 2.6, "max": 2.7},
    },
    "summary": {"warned_to_deregistered_s": {"median": 0.03, "max": 3.1}},
    "interruptions": [
        {
            "story": "d",
            "replica": 5,
            "replaced_by": 8,
            "pool": "us-east-1b/g4dn.2xlarge",
            "event": "lost",
            "warned_to_deregistered_s": 3.1,
            "warned_to_launched_s": 3.2,
            "warned_to_ready_s": None,
            "warned_to_reclaimed_s": 20.0,
        }
    ],
    "replicas": [{"id": 8, "pool": "us-east-1a/g4dn.xlarge", "purchase_option": "on-demand"}],
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
        view.show(Theatre(POOLS[:3]).stage().watch.look())
    lines = output.getvalue().splitlines()
    assert [line.split(" s  ", 1)[1] for line in lines] == ["(a) a story", "replica [1] goes"]
    assert "\x1b" not in output.getvalue()


def test_the_live_table_shows_replicas_and_counters() -> None:
    """In a terminal the table has each replica's ID, state, pool and purchase option, and the counters."""
    output = io.StringIO()
    console = Console(file=output, width=120, height=40, force_terminal=True, color_system=None)
    with View(console, lambda: {"sent": 7, "in_flight": 2, "failed": 0, "cut": 0}) as view:
        view.show(Theatre(POOLS[:3]).stage().watch.look())
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


def test_broken_promises_are_listed() -> None:
    """A demo that failed ends with what was broken, one line each."""
    console, output = _console()
    console.print(conclusion({**REPORT, "ok": False, "problems": ["3 of 9 requests failed"]}))
    assert "Broken promises:\n  3 of 9 requests failed" in output.getvalue()
