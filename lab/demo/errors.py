"""What can go wrong with a demo, apart from a claim that doesn't hold.

DemoError         one line that says what is wrong and what to do about it
└── StoryError    a story didn't go as it must; the line says which and how
"""

from __future__ import annotations


class DemoError(Exception):
    """The demo can't go on: one line with the reason and the remedy."""


class StoryError(DemoError):
    """What a story claims didn't happen, or didn't happen in time."""


class Interrupted(BaseException):
    """The user, or whoever started us, wants us to stop; not an `Exception`, so that nothing swallows it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number
