"""Where a service's starts spend their time, what is usual, and what would make each part shorter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from types import MappingProxyType
from typing import Any

from spotrelay.plane.view import starts
from spotrelay.plane.view.snapshot import ServiceSnapshot
from spotrelay.plane.view.starts import WHOSE, Part, Start, Stretch
from spotrelay.plane.view.words import duration

MOST = 20
"""Starts that are shown and counted, the latest: as many as `standby: auto` goes by."""

ADVICE: Mapping[Part, str] = MappingProxyType(
    {
        Part.REQUEST: "more pools to choose from: resources.accelerators; docs/placement.md",
        Part.LAUNCH: "EC2's own; a standby has it too: docs/standbys.md",
        Part.BOOT: "an image that starts less, a faster disk (resources.disk_tier)",
        Part.FILES: "fewer and smaller files, an image that has tools and container (resources.image_id)",
        Part.SET_UP: "a pack of what it makes (docs/packs.md), or an image that has it (resources.image_id)",
        Part.MODELS: "a smaller or quantized model, an instance with a faster network: docs/cold-start.md",
        Part.LOAD: "an engine cache (docs/packs.md), a smaller model, a faster disk (resources.disk_tier),"
        " another loader (docs/loaders.md)",
        Part.INSTANCE: "an image with all of it installed (resources.image_id), a faster disk"
        " (resources.disk_tier), a smaller model: docs/cold-start.md; its console says more: spotrelay logs",
        Part.REGISTRATION: "ours: a read and a call; where all change at once, the others' answers, too",
        Part.CHECK: "the load balancer's own check: AWS lets it come every five seconds at least",
    }
)
"""What shortens each part: a setting of the service file, or a page that says more."""

FIXED = frozenset({"EC2", "load balancer", "SpotRelay"})
"""Whose parts no setting shortens."""

NOT_TOLD_APART = "not told apart: nothing on record says where one of these ended and the next began"


@dataclass(frozen=True, slots=True)
class Usual:
    """What starts take for a part, or for several that nobody can tell apart."""

    parts: tuple[Part, ...]
    took_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Half of the starts took less."""
        return median(self.took_s)

    @property
    def name(self) -> str:
        """In words."""
        return starts.named(self.parts)

    @property
    def whose(self) -> str:
        """Who can shorten it."""
        return starts.whose(self.parts)

    @property
    def letter(self) -> str:
        """What it is drawn with."""
        return letter(self.parts)

    @property
    def advice(self) -> str:
        """What would."""
        return ADVICE[self.parts[0]] if len(self.parts) == 1 else NOT_TOLD_APART


@dataclass(frozen=True, slots=True)
class Goal:
    """What the service file asks of a start (`spotrelay.start_within`), and what is missing to it."""

    within_s: float
    took_s: tuple[float, ...]
    """Cold starts that are over."""
    fixed_s: float
    """What EC2, the load balancer and SpotRelay usually take of one: no setting shortens that."""
    to_shorten: tuple[Usual, ...]
    """Parts without which half of the starts would keep it, what takes most first.
    Empty: they do, or nothing helps."""

    @property
    def kept(self) -> int:
        """Starts that kept it."""
        return sum(took_s <= self.within_s for took_s in self.took_s)

    @property
    def is_out_of_reach(self) -> bool:
        """Whether it can't be kept, however short set-up and load become."""
        return self.fixed_s >= self.within_s

    @property
    def words(self) -> str:
        """All of it in a line."""
        asked = f"start_within: {duration(self.within_s)}"
        if not self.took_s:
            return f"{asked}: no cold start is over yet"
        kept = f"{asked}: {self.kept} of {len(self.took_s)} kept it, median {duration(median(self.took_s))}"
        if self.is_out_of_reach:
            return (
                f"{kept}. Out of reach: EC2, the load balancer and SpotRelay take {duration(self.fixed_s)}"
                " themselves. Ask for more, or have standbys: docs/standbys.md"
            )
        parts = ", ".join(f"{one.name} ({duration(one.median_s)})" for one in self.to_shorten)
        if not parts:
            return kept
        return f"{kept}. Shorten {parts}: spotrelay validate --account FILE says by what"


@dataclass(frozen=True, slots=True)
class ColdStarts:
    """The latest starts of a service, the newest first, and what is usual of them."""

    service: str
    at: datetime
    starts: tuple[Start, ...]
    usual: tuple[Usual, ...]
    """Of cold starts that are over; a resume is none, because it has no set-up."""
    goal: Goal | None = None
    """None: the service file asks for none."""
    without_cache: tuple[str, ...] | None = ()
    """The accelerators that lack an engine cache, where the file keeps some; None: unknown."""

    def to_json(self) -> dict[str, Any]:
        """It as JSON: times in ISO 8601, durations in seconds."""
        return {
            "service": self.service,
            "at": _text(self.at),
            "starts": [_start_json(start) for start in self.starts],
            "usual": [
                {
                    "parts": [str(part) for part in one.parts],
                    "whose": one.whose,
                    "starts": len(one.took_s),
                    "median_s": round(one.median_s, 3),
                    "longest_s": round(max(one.took_s), 3),
                    "advice": one.advice,
                }
                for one in self.usual
            ],
            "start_within": _goal_json(self.goal) if self.goal else None,
            "without_engine_cache": None if self.without_cache is None else list(self.without_cache),
        }


def cold_starts(seen: ServiceSnapshot) -> ColdStarts:
    """What a snapshot tells of a service's starts."""
    found = starts.starts(seen.replicas.values())[:MOST]
    over = [one for one in found if one.took_s is not None and not one.is_resume]
    usual = tuple(Usual(parts, tuple(took)) for parts, took in starts.stretches_of(over).items())
    within_s = seen.spec.start_within_s if seen.spec else None
    goal = (
        _goal(within_s, [one.took_s for one in over if one.took_s is not None], usual) if within_s else None
    )
    return ColdStarts(seen.service, seen.at, tuple(found), usual, goal)


def _goal(within_s: float, took_s: Sequence[float], usual: Sequence[Usual]) -> Goal:
    fixed_s = sum(one.median_s for one in usual if {WHOSE[part] for part in one.parts} <= FIXED)
    left_s, to_shorten = median(took_s) if took_s else 0.0, list[Usual]()
    for one in sorted(usual, key=lambda one: one.median_s, reverse=True):
        if left_s > within_s > fixed_s and not {WHOSE[part] for part in one.parts} & FIXED:
            to_shorten.append(one)
            left_s -= one.median_s
    return Goal(within_s, tuple(took_s), fixed_s, tuple(to_shorten))


def bar(start: Start, now: datetime, longest_s: float, width: int) -> str:
    """A start as a line: each stretch as long as it took, in the letter of its part.

    A stretch of several parts has a question mark in place of their letters. What took any time has a block.
    """
    drawn = []
    for one in start.stretches:
        took_s = one.took_s if one.ends else max((now - one.begins).total_seconds(), 0.0)
        blocks = round((took_s or 0.0) / longest_s * width) if longest_s else 0
        drawn.append(letter(one.parts) * max(blocks, 1 if took_s else 0))
    return "".join(drawn)


def letter(parts: Sequence[Part]) -> str:
    """What a stretch is drawn with."""
    return LETTERS[parts[0]] if len(parts) == 1 else "?"


LETTERS: Mapping[Part, str] = MappingProxyType(
    {
        Part.REQUEST: "q",
        Part.LAUNCH: "e",
        Part.BOOT: "b",
        Part.FILES: "f",
        Part.SET_UP: "s",
        Part.MODELS: "m",
        Part.LOAD: "l",
        Part.INSTANCE: "i",
        Part.REGISTRATION: "r",
        Part.CHECK: "c",
    }
)


def _goal_json(goal: Goal) -> dict[str, Any]:
    return {
        "within_s": goal.within_s,
        "starts": len(goal.took_s),
        "kept": goal.kept,
        "median_s": _rounded(median(goal.took_s)) if goal.took_s else None,
        "fixed_s": _rounded(goal.fixed_s),
        "is_out_of_reach": goal.is_out_of_reach,
        "to_shorten": [one.name for one in goal.to_shorten],
    }


def _start_json(start: Start) -> dict[str, Any]:
    replica = start.replica
    return {
        "replica": replica.id,
        "version": replica.version,
        "state": str(replica.state),
        "pool": str(replica.offering.pool) if replica.offering else None,
        "purchase_option": str(replica.offering.purchase_option) if replica.offering else None,
        "is_resume": start.is_resume,
        "began": _text(start.began),
        "took_s": _rounded(start.took_s),
        "stretches": [_stretch_json(one) for one in start.stretches],
    }


def _stretch_json(one: Stretch) -> dict[str, Any]:
    return {
        "parts": [str(part) for part in one.parts],
        "whose": one.whose,
        "begins": _text(one.begins),
        "ends": _text(one.ends) if one.ends else None,
        "took_s": _rounded(one.took_s),
    }


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def drawn_longest_s(found: Sequence[Start], now: datetime) -> float:
    """What the longest bar stands for."""
    took = (
        one.took_s if one.took_s is not None else max((now - one.began).total_seconds(), 0.0) for one in found
    )
    return max(took, default=0.0)
