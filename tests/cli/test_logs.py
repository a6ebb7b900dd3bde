"""What `spotrelay logs` shows of what others wrote."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.cli.logs import _in_words
from spotrelay.messages import harmless


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


def test_a_decision_that_quotes_somebody_is_as_harmless() -> None:
    """EC2's words are in it, and a tag's."""
    line = {"at": "2026-11-25T09:00:00.000+00:00", "message": "launch", "error": "\x1b[2Jdenied"}
    assert _in_words(line) == "09:00:00.000  launch  error=\\x1b[2Jdenied"
