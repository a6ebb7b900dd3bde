"""Instances with their servers, and with what befalls both."""

from __future__ import annotations

from dataclasses import dataclass

from lab.world.instances import NEVER, Ec2Instance
from spotrelay.plane.core.answers import Trouble, Work
from spotrelay.plane.core.instances import InstanceState

FINISHES_S = 20.0
"""How long a busy server takes for a request."""

FULL = 3.0
"""So many requests a server can hold at most."""

SHOWN_S = 600.0
"""How long a terminated instance is still described."""


@dataclass(slots=True, kw_only=True)
class SimInstance(Ec2Instance):
    """An instance with its server; of one that hosts several replicas, one of its slots.

    Slots differ in what concerns their servers. All else is the same of all of them.
    """

    service: str | None
    """From its tag; None for a foreign one."""
    visible_at: float
    ready_at: float
    """When its server answers; never, if it is broken."""
    broken_at: float = NEVER
    """When its server stops answering."""
    mute_at: float = NEVER
    """When its server answers no probe any more, and its health checks still."""
    refuses: tuple[float, float] = (NEVER, NEVER)
    """From when until when it refuses its probe at once, though it passes its health checks."""
    busy: tuple[float, float] = (NEVER, NEVER)
    """From when until when it is too busy for its probe: its count of finished requests rises."""
    spared_at: float = NEVER
    """When EC2 took its last warning back."""
    sick: tuple[float, float] = (NEVER, NEVER)
    """From when until when its server doesn't answer."""
    launched_for: str | None = None
    """The service that it was launched for, whatever its tags say."""
    is_protected: bool = False
    """AWS refuses to terminate it."""
    was_untagged: bool = False
    """Whether it lost its tag at some time: then nobody knew it."""
    slots: tuple[str, ...] = ()
    """The IDs of all slots of its instance, if that hosts several replicas: see `core.slots`."""

    @property
    def is_foreign(self) -> bool:
        """Whether it isn't from our launch template."""
        return self.template is None

    def is_sick(self, time: float) -> bool:
        """Whether it doesn't answer then, for a while."""
        return self.sick[0] <= time < self.sick[1]

    def serves(self, time: float) -> bool:
        """Whether it answers requests then."""
        answers = self.ready_at <= time < self.broken_at and not self.is_sick(time)
        return answers and self.state(time) is InstanceState.RUNNING

    def refuses_probe(self, time: float) -> bool:
        """Whether it answers its probe with an error then."""
        return self.serves(time) and time < self.mute_at and self.refuses[0] <= time < self.refuses[1]

    def is_busy(self, time: float) -> bool:
        """Whether its probe waits then, behind other requests."""
        return self.busy[0] <= time < self.busy[1]

    def answers_probe(self, time: float) -> bool:
        """Whether it answers its probe in time then."""
        is_silent = time >= self.mute_at or self.is_busy(time) or self.refuses_probe(time)
        return self.serves(time) and not is_silent

    def work(self, time: float) -> Work | None:
        """What it says that it has done and has to do then: one that hangs has probes in its queue."""
        if not self.serves(time):
            return None
        worked_s = max(min(time, self.busy[1], self.mute_at) - self.busy[0], 0.0)
        return Work(worked_s // FINISHES_S, FULL if self.is_busy(time) or time >= self.mute_at else FULL - 1)

    def trouble(self, time: float) -> Trouble | None:
        """What it tells then of a server that never starts."""
        crashes = self.ready_at == NEVER and self.state(time) is InstanceState.RUNNING
        return Trouble("crashes", is_crash=True) if crashes else None

    def died_at(self) -> float:
        """When it stopped being alive, or will, as far as is known."""
        # A standby that was stopped may have been started again.
        last = next((i for i, (_, state) in reversed([*enumerate(self.states)]) if state.is_alive), -1)
        return self.states[last + 1][0] if last + 1 < len(self.states) else NEVER
