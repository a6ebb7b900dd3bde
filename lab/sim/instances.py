"""The true state of instances, whatever EC2 answers."""

from __future__ import annotations

from dataclasses import dataclass

from lab.sim.gate import at
from spotrelay.plane.core.answers import Trouble, Work
from spotrelay.plane.core.instances import RECLAIMED, Instance, InstanceState
from spotrelay.plane.core.pools import Offering, PurchaseOption
from spotrelay.plane.core.slots import host

NEVER = float("inf")

ENDING_STATES = (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED)

FINISHES_S = 20.0
"""How long a busy server takes for a request."""

FULL = 3.0
"""So many requests a server can hold at most."""

SHOWN_S = 600.0
"""How long a terminated instance is still described."""


@dataclass(slots=True)
class SimInstance:
    """An instance, with its past and its future; of one that hosts several replicas, one of its slots.

    Slots differ in what concerns their servers. All else is the same of all of them.
    """

    id: str
    service: str | None
    """From its tag; None for a foreign one."""
    offering: Offering
    launched_at: float
    visible_at: float
    ready_at: float
    """When its server answers; never, if it is broken."""
    states: list[tuple[float, InstanceState]]
    """Every state with its beginning, future ones included, in order."""
    launch_id: str | None = None
    template: str | None = None
    """The launch template that it is from."""
    broken_at: float = NEVER
    """When its server stops answering."""
    mute_at: float = NEVER
    """When its server answers no probe any more, and its health checks still."""
    refuses: tuple[float, float] = (NEVER, NEVER)
    """From when until when it refuses its probe at once, though it passes its health checks."""
    busy: tuple[float, float] = (NEVER, NEVER)
    """From when until when it is too busy for its probe: its count of finished requests rises."""
    warned_at: float = NEVER
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
    highest_id: int = 0
    """From its tag."""
    version: int | None = None
    """Of its launch template; None if something else launched it."""
    end: str = ""
    """EC2's reason for its end."""
    slots: tuple[str, ...] = ()
    """The IDs of all slots of its instance, if that hosts several replicas: see `core.slots`."""
    view: Instance | None = None
    """The last description; replaced when the state changes."""

    @property
    def host(self) -> str:
        """The instance itself, as EC2 names it."""
        return host(self.id)

    def state(self, time: float) -> InstanceState:
        """Its state at a time."""
        for since, state in reversed(self.states):
            if since <= time:
                return state
        return InstanceState.PENDING

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

    def is_alive(self, time: float) -> bool:
        """Whether it is pending or running then."""
        return self.state(time).is_alive

    def is_being_taken(self, time: float) -> bool:
        """Whether EC2 has warned it by then, and hasn't ended it yet."""
        return self.warned_at <= time and self.state(time).is_alive

    def is_on_record(self, time: float) -> bool:
        """Whether its Spot request says by then that EC2 takes it back: it says so for long after its end."""
        return self.is_being_taken(time) or (self.warned_at <= time and self.end.startswith(RECLAIMED))

    def is_fulfilled(self, time: float) -> bool:
        """Whether its Spot request says then that EC2 doesn't take it back."""
        is_spot = self.offering.purchase_option is PurchaseOption.SPOT
        return is_spot and self.is_alive(time) and not self.is_being_taken(time)

    def died_at(self) -> float:
        """When it stopped being alive, or will, as far as is known."""
        # A standby that was stopped may have been started again.
        last = next((i for i, (_, state) in reversed([*enumerate(self.states)]) if state.is_alive), -1)
        return self.states[last + 1][0] if last + 1 < len(self.states) else NEVER

    def shown_until(self) -> float:
        """Until when it is described."""
        since, state = self.states[-1]
        return since + SHOWN_S if state is InstanceState.TERMINATED else NEVER

    def described(self, time: float) -> Instance:
        """EC2's description of it, as of a time."""
        state = self.state(time)
        if self.view is None or self.view.state is not state:
            address = f"10.0.{int(self.host[-4:-2], 16)}.{int(self.host[-2:], 16)}"
            self.view = Instance(
                self.host,
                state,
                self.offering,
                at(self.launched_at),
                self.launch_id,
                address,
                self.template,
                self.highest_id,
                "" if state.is_alive else self.end,
                self.version,
            )
        return self.view
