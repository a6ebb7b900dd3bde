"""Where a start's time went: its parts, by what is on record. What isn't is unknown, and never guessed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from spotrelay.plane.core.replica import TOLD_BY_INSTANCES, Phase, Replica, ReplicaState
from spotrelay.plane.view.words import duration


class Part(StrEnum):
    """What a start is made of, in order. Each ends where the next one begins."""

    REQUEST = "request"
    """From the decision until EC2's answer to CreateFleet; all tries, where pools refused."""
    LAUNCH = "launch"
    """Until its kernel began, or, where the instance doesn't say that, until EC2 calls it running."""
    BOOT = "boot"
    """Until the service's unit began."""
    FILES = "files"
    """Until tools, files, mounts and the container's image were there."""
    SET_UP = "set-up"
    """Until `setup` had ended."""
    MODELS = "models"
    """Until the models were there that set-up hadn't waited for: they are fetched since the boot."""
    LOAD = "load"
    """`run`, until it has answered the readiness probe."""
    INSTANCE = "instance"
    """From boot to load, where the instance told nothing of it: one of an earlier version."""
    REGISTRATION = "registration"
    """Until the load balancer is told."""
    CHECK = "check"
    """Until it passes the load balancer's own health check, and a tick has seen that."""


WHOSE: Mapping[Part, str] = MappingProxyType(
    {
        Part.REQUEST: "EC2",
        Part.LAUNCH: "EC2",
        Part.BOOT: "image",
        Part.FILES: "service file",
        Part.SET_UP: "service file",
        Part.MODELS: "service file",
        Part.LOAD: "engine",
        Part.INSTANCE: "image, service file",
        Part.REGISTRATION: "SpotRelay",
        Part.CHECK: "load balancer",
    }
)
"""Who can shorten it."""

_ENDS: Mapping[Part, ReplicaState | Phase] = MappingProxyType(
    {
        Part.REQUEST: ReplicaState.PROVISIONING,
        Part.LAUNCH: Phase.BOOTED,
        Part.BOOT: Phase.SETS_UP,
        Part.FILES: Phase.HAS_FILES,
        Part.SET_UP: Phase.IS_SET_UP,
        Part.MODELS: Phase.LOADS,
        Part.LOAD: Phase.ANSWERED,
        Part.INSTANCE: Phase.ANSWERED,
        Part.REGISTRATION: Phase.REGISTERED,
        Part.CHECK: ReplicaState.READY,
    }
)

_IN_DETAIL = frozenset({Part.BOOT, Part.FILES, Part.SET_UP, Part.MODELS, Part.LOAD})
"""What is told apart if the instance told anything at all."""

_UNDER_WAY = frozenset({ReplicaState.REQUESTED, ReplicaState.PROVISIONING, ReplicaState.STARTING})


@dataclass(frozen=True, slots=True)
class Stretch:
    """Time between two moments that are known: one part of a start, or several that nobody can tell apart."""

    parts: tuple[Part, ...]
    begins: datetime
    ends: datetime | None
    """None: it isn't over."""

    @property
    def took_s(self) -> float | None:
        """None: it isn't over. Clocks may be apart by a moment: it never took less than nothing."""
        return None if self.ends is None else max((self.ends - self.begins).total_seconds(), 0.0)

    @property
    def name(self) -> str:
        """In words."""
        return named(self.parts)

    @property
    def whose(self) -> str:
        """Who can shorten it."""
        return whose(self.parts)


@dataclass(frozen=True, slots=True)
class Start:
    """One replica's start."""

    replica: Replica
    is_resume: bool
    """Whether a stopped standby was resumed for it: no request, and no set-up."""
    stretches: tuple[Stretch, ...]

    @property
    def began(self) -> datetime:
        """When it was decided on."""
        return self.stretches[0].begins

    @property
    def took_s(self) -> float | None:
        """None: it isn't over."""
        last = self.stretches[-1].ends
        return None if last is None else max((last - self.began).total_seconds(), 0.0)

    def in_words(self, now: datetime) -> str:
        """On one line: how long each stretch took, and what it is at, as far as that is known."""
        said = [
            f"{one.name} {duration(one.took_s)}"
            if one.ends
            else f"then {duration(max((now - one.begins).total_seconds(), 0.0))} so far"
            for one in self.stretches
        ]
        return ", ".join(said)


def named(parts: Iterable[Part]) -> str:
    """One part's name, or those of several that nobody can tell apart."""
    return " + ".join(parts)


def whose(parts: Iterable[Part]) -> str:
    """Who can shorten it: of several parts all of them."""
    return ", ".join(dict.fromkeys(WHOSE[part] for part in parts))


def start_of(replica: Replica) -> Start | None:
    """The replica's start; None where it had none of its own, or none is on record.

    What was adopted or taken in ran already, and what came back into rotation had started before.
    """
    entered = replica.entered
    is_resume = replica.was_started_again
    first = ReplicaState.PROVISIONING if is_resume else ReplicaState.REQUESTED
    began, drained = entered.get(first), entered.get(ReplicaState.DRAINING)
    ready = entered.get(ReplicaState.READY)
    came_back = replica.comes_back or bool(ready and drained and ready > drained)
    if began is None or replica.is_adopted or came_back or _is_taken_in(replica):
        return None
    stretches: list[Stretch] = []
    waiting: list[Part] = []
    at = began
    told = replica.phases.keys() & set(TOLD_BY_INSTANCES)
    left_out = {Part.INSTANCE} if told else _IN_DETAIL
    for part, end in _ENDS.items():
        if part in left_out or (is_resume and part is Part.REQUEST):
            continue
        waiting.append(part)
        reached = replica.phases.get(end) if isinstance(end, Phase) else entered.get(end)
        if reached is None and end is Phase.BOOTED:
            reached = entered.get(ReplicaState.STARTING)
        if reached is None:
            continue
        # What took no time at all wasn't there: a service without files, set-up or models.
        if reached > at or end not in told or len(waiting) > 1:
            stretches.append(Stretch(tuple(waiting), at, reached))
        waiting, at = [], max(at, reached)
    if waiting and not replica.stands_by and replica.state in _UNDER_WAY:
        stretches.append(Stretch(tuple(waiting), at, None))
    return Start(replica, is_resume, tuple(stretches)) if stretches else None


def starts(replicas: Iterable[Replica]) -> list[Start]:
    """Their starts, the latest first: those that are over, and those that are under way."""
    known = (r for r in replicas if not r.stands_by)
    here = (r for r in known if ReplicaState.READY in r.entered or r.state in _UNDER_WAY)
    found = [start for r in here if (start := start_of(r)) is not None]
    return sorted(found, key=lambda start: start.began, reverse=True)


def stretches_of(found: Iterable[Start]) -> Mapping[tuple[Part, ...], list[float]]:
    """By the parts that couldn't be told apart, or the one: how long each start took for them."""
    took: dict[tuple[Part, ...], list[float]] = {}
    for start in found:
        for one in start.stretches:
            if one.took_s is not None:
                took.setdefault(one.parts, []).append(one.took_s)
    order = list(Part)
    return dict(sorted(took.items(), key=lambda item: [order.index(part) for part in item[0]]))


def _is_taken_in(replica: Replica) -> bool:
    """Whether its row was made of an instance that ran: nobody knows since when."""
    entered = replica.entered
    requested, began = entered.get(ReplicaState.REQUESTED), entered.get(ReplicaState.PROVISIONING)
    return began is not None and (requested is None or requested > began)
