"""An instance's states: those that it had, the one that it has, and those that it is to have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from spotrelay.plane.core.instances import RECLAIMED, Instance, InstanceState, Refusal, RefusalKind
from spotrelay.plane.core.pools import Offering, PurchaseOption
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH

NEVER = float("inf")

Since = tuple[float, InstanceState]
"""A state, behind the time at which it begins."""


class Change(StrEnum):
    """What can be done to an instance, by us or by EC2."""

    LAUNCH = "launch"
    START = "start"
    STOP = "stop"
    TERMINATE = "terminate"


class Transition(NamedTuple):
    """Out of which states, by way of which, and into which."""

    out_of: tuple[InstanceState, ...]
    by_way_of: InstanceState
    into: InstanceState


_PENDING, _RUNNING = InstanceState.PENDING, InstanceState.RUNNING
_STOPPING, _STOPPED = InstanceState.STOPPING, InstanceState.STOPPED

ENDING_STATES = (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED)

TRANSITIONS = {
    Change.LAUNCH: Transition((), _PENDING, _RUNNING),
    Change.START: Transition((_STOPPED,), _PENDING, _RUNNING),
    Change.STOP: Transition((_PENDING, _RUNNING), _STOPPING, _STOPPED),
    Change.TERMINATE: Transition((_PENDING, _RUNNING, _STOPPING, _STOPPED), *ENDING_STATES),
}


@dataclass(slots=True, kw_only=True)
class Ec2Instance:
    """An instance as it is, whatever EC2 answers about it."""

    id: str
    offering: Offering
    launched_at: float
    states: list[Since]
    """Every state with its beginning, future ones included, in order; an instance's slots share them."""
    launch_id: str | None = None
    template: str | None = None
    """The launch template that it is from."""
    highest_id: int = 0
    """From its tag."""
    version: int | None = None
    """Of its launch template; None if something else launched it."""
    warned_at: float = NEVER
    end: str = ""
    """EC2's reason for its end."""
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

    def may(self, change: Change, now: float) -> bool:
        """Whether its state allows the change."""
        return self.state(now) in TRANSITIONS[change].out_of

    def enter(self, change: Change, now: float, done_at: float) -> Sequence[Since]:
        """Change its state; nothing else is to become of it any more. The states that it enters."""
        if not self.may(change, now):
            raise ValueError(f"{self.id} is {self.state(now)}: it can't {change}")
        entered = course(change, now, done_at)
        self.states[:] = [*(one for one in self.states if one[0] <= now), *entered]
        return entered

    def refusal_to_start(self, now: float) -> Refusal | None:
        """EC2's, for the state that it is in; what runs already is no error."""
        state = self.state(now)
        if state.is_alive or self.may(Change.START, now):
            return None
        return Refusal(RefusalKind.OTHER, "IncorrectInstanceState", f"it is {state}", self.offering)

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

    def shown_until(self, shown_s: float) -> float:
        """Until when it is described: so long after it was terminated."""
        since, state = self.states[-1]
        return since + shown_s if state is InstanceState.TERMINATED else NEVER

    def described(self, time: float) -> Instance:
        """EC2's description of it, as of a time."""
        state = self.state(time)
        if self.view is None or self.view.state is not state:
            address = f"10.0.{int(self.host[-4:-2], 16)}.{int(self.host[-2:], 16)}"
            self.view = Instance(
                self.host,
                state,
                self.offering,
                EPOCH + seconds(self.launched_at),
                self.launch_id,
                address,
                self.template,
                self.highest_id,
                "" if state.is_alive else self.end,
                self.version,
            )
        return self.view


def course(change: Change, now: float, done_at: float) -> list[Since]:
    """The states that a change brings."""
    transition = TRANSITIONS[change]
    return [(now, transition.by_way_of), (done_at, transition.into)]
