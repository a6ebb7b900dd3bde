"""What a tick holds back, and whether a person's word lets it go on.

An override is bound to what its giver was shown. It is carried out if all that is held back now is among
that, held back without a break since then. If anything else is seen, or more, it lapses: whoever said that
one instance is gone hasn't said that the answer which now lacks three is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from spotrelay.plane.core.held import Answer, Held, HeldBack, Override
from spotrelay.plane.serving.steps import HoldBack, Step


def overridable(decided: Iterable[Step]) -> list[HoldBack]:
    """Of a decision, what an override may let go on: the rest has a remedy of its own."""
    return [s.holds_back for s in decided if s.holds_back and not s.holds_back.remedy]


def lapsed(override: Override, before: Held, held: Sequence[HoldBack]) -> str:
    """Why the override isn't carried out, with `held` to be held back; empty: it is, for all of that."""
    if not override.held:
        return "it doesn't say what it is given for, as commands of before 2026-11-24 don't"
    for one in held:
        if not {_on_record(one, before)} & override.held:
            return f"it wasn't given for this: {one.what}, because {one.why}"
    return ""


@dataclass(slots=True)
class Holding:
    """What one tick holds back."""

    before: Held
    """What is on record of it."""
    override: Override | None = None
    """What a person says, if the tick is an override's."""
    lapsed: str = ""
    """Why the override isn't carried out, or not any further."""
    back: list[HoldBack] = field(default_factory=list)
    """What is held back."""
    let_go: list[HoldBack] = field(default_factory=list)
    """What the override lets go on."""

    def __post_init__(self) -> None:
        """What was answered isn't answered again: a message may come twice."""
        answer = self.before.answer
        if self.override and answer and answer.given_at == self.override.given_at:
            self.override = None

    def lets_go(self, held: Sequence[HoldBack]) -> bool:
        """Whether the override lets all of these go on; if not, they are held back."""
        if held and self.override and not self.lapsed:
            self.lapsed = lapsed(self.override, self.before, held)
        is_let_go = bool(held) and self.override is not None and not self.lapsed
        (self.let_go if is_let_go else self.back).extend(held)
        return is_let_go

    def record(self, now: datetime) -> Held:
        """What is to be on record."""
        known = (_on_record(one, self.before) or _new(one, now) for one in self.back)
        back = tuple(sorted(known, key=lambda one: (one.what, one.why)))
        return Held(back, self.answer or self.before.answer)

    @property
    def answer(self) -> Answer | None:
        """What became of the override; None: there is none, or nobody waits for its answer."""
        if self.override is None or self.override.given_at is None:
            return None
        return Answer(self.override.given_at, tuple(one.what for one in self.let_go), self.why_lapsed)

    @property
    def why_lapsed(self) -> str:
        """Why the override isn't carried out, or not any further; empty: it is."""
        return self.lapsed or ("" if self.let_go else "nothing is held back any more")


def _on_record(held: HoldBack, before: Held) -> HeldBack | None:
    return next((known for known in before.back if _new(held, known.since) == known), None)


def _new(held: HoldBack, now: datetime) -> HeldBack:
    return HeldBack(held.what, held.why, held.then, now)
