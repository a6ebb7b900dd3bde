"""The services' alarms, as CloudWatch evaluates them, and what may happen to what ticks tell them.

Everything is drawn by a generator of its own: what a run's alarms hear changes nothing else of it. So these
faults are no pairs that a campaign must try: two runs in three draw them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from lab.sim.faults import Fault
from lab.sim.gate import Invocation, Word
from lab.sim.scheduler import Scheduler
from lab.sim.timeline import Timeline
from spotrelay.plane.core.names import Alarm
from spotrelay.plane.core.ports import Conflict, Denied, PortError, Throttled, Unavailable

SHARES = (0.0, 0.1, 0.4)
"""How often one of a run's writes fails, or a value gets lost."""

GOES_ON_S = 1500.0
"""For so long after all other faults: an incident is told minutes after what caused it, and may end when a
refusal of EC2's is 20 minutes old."""

LOST_IN_A_ROW = 2
"""An alarm hears in three minutes that its incident is over: all three are lost where functions die, too."""

LATE_S = 20.0
"""A write may take effect this long after its caller gave up."""

PAUSE_SHARE, PAUSE_S, PAUSES_WITHIN_S = 0.3, 3600.0, 1200.0
"""How often, for how long, and how soon after all other faults the schedule stops while alarms wait: the run
has time for another end of what rings after that."""

MINUTE_S = 60.0

WRITE_FAULTS: dict[Fault, type[PortError]] = {
    Fault.THROTTLED: Throttled,
    Fault.DENIED: Denied,
    Fault.CONFLICT: Conflict,
    Fault.FAILED: Unavailable,
    Fault.LOST: Unavailable,
    Fault.LATE: Unavailable,
}
"""How putting incidents on record can go wrong, and what its caller gets."""

Key = tuple[str, Alarm]


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest minute of which an alarm has a value, and whether that, or the largest of it, is a 1."""

    minute: int
    is_ringing: bool


@dataclass(slots=True)
class SimAlarms:
    """All alarms. They take the maximum of a minute; where there is no value, their state stays."""

    scheduler: Scheduler
    seed: int
    faults_s: float
    timeline: Timeline | None = None
    heard: dict[Key, Heard] = field(default_factory=dict)
    lost: dict[tuple[Key, bool], int] = field(default_factory=dict)
    """By alarm and value: how many got lost in a row, with an invocation that was killed or on their way."""
    has_paused: bool = False
    random: Random = field(init=False)
    fails: float = field(init=False)
    """The share of writes that go wrong."""
    loses: float = field(init=False)
    """The share of values that get lost."""

    def __post_init__(self) -> None:
        self.random = Random(f"incidents-{self.seed}")  # noqa: S311 - to be repeated
        self.fails, self.loses = self.random.choice(SHARES), self.random.choice(SHARES)

    @property
    def is_faulty(self) -> bool:
        """Whether writes and values still go wrong."""
        return self.scheduler.now < self.faults_s + GOES_ON_S

    def rings(self, service: str, alarm: Alarm) -> bool | None:
        """Whether an alarm rings; None: it has no data."""
        heard = self.heard.get((service, alarm))
        return heard.is_ringing if heard else None

    def is_deaf(self, service: str, alarm: Alarm) -> bool:
        """Whether too much got lost of what it was told to end: it rings until it is told anew."""
        return self.lost.get(((service, alarm), False), 0) > LOST_IN_A_ROW

    def note(self, effect: Callable[[], None]) -> None:
        """Put incidents on record, or fail to.

        Raises:
            PortError: as drawn, or as `effect` does.
        """
        if not self.is_faulty or self.random.random() >= self.fails:
            effect()
            return
        fault = self.random.choice(list(WRITE_FAULTS))
        self._say(f"incidents: {fault}")
        if fault is Fault.LOST:
            _run_unanswered(effect)
        elif fault is Fault.LATE:
            done_at = self.scheduler.now + self.random.uniform(0, LATE_S)
            self.scheduler.at(done_at, lambda: _run_unanswered(effect))
        raise WRITE_FAULTS[fault](f"incidents: {fault}")

    def pause_s(self) -> float:
        """For how long no tick comes now, once in a run."""
        is_soon = self.scheduler.now < self.faults_s + PAUSES_WITHIN_S
        is_paused = is_soon and not self.has_paused and self.random.random() < PAUSE_SHARE
        self.has_paused |= is_paused
        return PAUSE_S if is_paused else 0.0

    def hear(self, invocation: Invocation) -> None:
        """An invocation has ended: alarms hear what it told, unless it was killed."""
        for word in invocation.words:
            key = word.service, word.alarm
            if invocation.is_dead or self._gets_lost(key, word):
                self.lost[key, word.lasts] = self.lost.get((key, word.lasts), 0) + 1
                self._say(f"{word.service}: {word.lasts:d} gets lost on its way to {word.alarm}")
                continue
            self.lost.pop((key, False), None)
            if word.lasts:  # a 0 of a tick that looked earlier makes no lost 1 good
                self.lost.pop((key, True), None)
            before = self.rings(*key)
            self._take(key, word)
            if self.rings(*key) is not before:
                self._say(f"{word.service}: {word.alarm} {'rings' if word.lasts else 'is OK'}")

    def _take(self, key: Key, word: Word) -> None:
        """A value arrives. One of an earlier minute than the newest changes nothing."""
        minute, known = int(word.at // MINUTE_S), self.heard.get(key)
        if known is None or known.minute < minute:
            self.heard[key] = Heard(minute, word.lasts)
        elif known.minute == minute:
            self.heard[key] = Heard(minute, known.is_ringing or word.lasts)

    def _gets_lost(self, key: Key, word: Word) -> bool:
        is_allowed = self.lost.get((key, word.lasts), 0) < LOST_IN_A_ROW
        return self.is_faulty and is_allowed and self.random.random() < self.loses

    def _say(self, what: str) -> None:
        if self.timeline is not None:
            self.timeline.add(self.scheduler.now, "alarms", None, what, None)


def _run_unanswered(effect: Callable[[], None]) -> None:
    with suppress(Conflict):
        effect()
