"""What the controller holds back, on record for a person to judge, and what a person says of it.

The texts that a person reads are what their word is bound to. They name who it is about and what was seen, so
as soon as somebody else, or another reason, is held back, they are other texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Something that isn't done because what was seen isn't credible."""

    what: str
    """What isn't done, and to whom."""
    why: str
    """What was seen."""
    then: str
    """What is done once a person says that it is true."""
    since: datetime
    """Since when every tick has held it back. Later it is another matter, however much it looks the same."""

    def to_values(self) -> dict[str, str]:
        """It as JSON has it, in the table and in a message."""
        return {"what": self.what, "why": self.why, "then": self.then, "since": self.since.isoformat()}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> HeldBack:
        """What `to_values` wrote.

        Raises:
            KeyError, TypeError, ValueError: it didn't write this.
        """
        texts = (values["what"], values["why"], values["then"])
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"texts are expected: {texts}")
        return cls(*texts, aware(values["since"]))


@dataclass(frozen=True, slots=True)
class Override:
    """A person's word that something which was held back, as they were shown it, is true."""

    held: frozenset[HeldBack] = frozenset()
    """What they were shown. A command of before 2026-11-24 doesn't say: then it is nothing."""
    given_at: datetime | None = None
    """When they gave it; it tells one override from another. None: of such a command."""
    tries: int = field(default=0, compare=False)
    """How often it found another tick at work, or was overtaken."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an override."""

    given_at: datetime
    """Which one, see `Override`."""
    done: tuple[str, ...] = ()
    """What was held back and isn't any more: each one's `HeldBack.what`."""
    lapsed: str = ""
    """Why the rest wasn't carried out; empty: there is no rest."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is on record of it: what the last tick held back, and what became of the last override."""

    back: tuple[HeldBack, ...] = ()
    answer: Answer | None = None


def aware(text: str) -> datetime:
    """A time of a message, which has a zone.

    Raises:
        TypeError, ValueError: it is none, or has none.
    """
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"the time of a tick has a zone, this one hasn't: {text}")
    return at
