"""What `spotrelay logs` shows of what others wrote."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.messages import harmless
from spotrelay.operator.cli.logs import Record, followed, shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain, with a tab\tand ü\r\nlines\n", "plain, with a tab\tand ü\nlines\n"),
        ("\x1b[32mINFO\x1b[0m started", "INFO started"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2J\x1b[H all is well", "\\x1b[2J\\x1b[H all is well"),
        ("50 %\r100 %", "50 %\\r100 %"),
        ("\x9b31m \x7f \u202egpj", "\\x9b31m \\x7f \\u202egpj"),
    ],
)
def test_a_console_cannot_speak_to_the_terminal(written: str, shown: str) -> None:
    """Colours go, line ends stay, and every other control is spelt out."""
    assert harmless(written) == shown


@given(st.text(st.characters(max_codepoint=0x2FF)))
def test_nothing_that_is_shown_controls_anything(text: str) -> None:
    """Whatever a replica prints."""
    assert all(letter in "\t\n" or unicodedata.category(letter) != "Cc" for letter in harmless(text))


NOW = datetime(2026, 11, 25, 9, 0, tzinfo=UTC)


def record(seconds: float, **line: Any) -> Record:
    """One of so many seconds ago."""
    return Record(f"event-{seconds:g}", NOW - timedelta(seconds=seconds), {"service": "demo", **line})


def test_a_decision_that_quotes_somebody_is_as_harmless() -> None:
    """EC2's words are in it, and a tag's."""
    quoting = record(0, message="signals_failed", error="\x1b[2Jdenied")
    assert shown(quoting, NOW) == (
        "09:00:00  EC2's events couldn't be handled, and come again: \\x1b[2Jdenied"
    )


def test_the_record_itself_is_for_who_asks() -> None:
    """By default a sentence, with the date if it isn't of today; else all facts, or an object on one line."""
    one = record(86_400, message="scaled", before=3, count=5, level="INFO", load={"requests": 7})
    assert shown(one, NOW) == "2026-11-24 09:00:00  the load asks for 5 replicas instead of 3"
    assert shown(one, NOW, is_verbose=True).splitlines()[1:] == [
        "    record=scaled",
        "    before=3",
        "    count=5",
        '    load={"requests": 7}',
    ]
    told = json.loads(shown(one, NOW, is_json=True))
    assert (told["at"], told["message"], told["load"]) == (
        "2026-11-24T09:00:00.000+00:00",
        "scaled",
        {"requests": 7},
    )
    assert told["sentence"] == "the load asks for 5 replicas instead of 3"


def test_following_shows_each_record_once() -> None:
    """Also one that CloudWatch shows late: each look goes back, and what was shown isn't shown again."""
    there = [record(60), record(10)]
    looks = iter([[record(5)], [record(20)], []])
    asked = []

    def read(since: datetime) -> list[Record]:
        asked.append(since)
        there.extend(next(looks))
        return sorted((one for one in there if one.at >= since), key=lambda one: one.at)

    found = followed(read, list(there), NOW - timedelta(hours=1), lambda: None)
    assert [[one.id for one in next(found)] for _ in range(3)] == [["event-5"], ["event-20"], []]
    assert asked[0] == NOW - timedelta(seconds=40), "as late as a line may come"
