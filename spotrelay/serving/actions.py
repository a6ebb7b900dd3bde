"""What a decision consists of. `controller` carries actions out, and is the only place that orders them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from spotrelay.core.instances import Instance
from spotrelay.core.pools import PurchaseOption
from spotrelay.core.replica import Replica, ReplicaState


@dataclass(frozen=True, slots=True)
class Drain:
    """Take the replica out of rotation; its requests finish."""

    replica: Replica
    reason: str
    warned_at: datetime | None = None
    replace: bool = True
    cool_pool: bool = False
    """Leave its pool alone for a while: EC2 is taking capacity back there."""


@dataclass(frozen=True, slots=True)
class ServeOn:
    """EC2 takes its instance back, and it goes on serving; its replacement is launched at once."""

    replica: Replica
    reason: str
    warned_at: datetime
    replace: bool = True


@dataclass(frozen=True, slots=True)
class NoteWarning:
    """EC2 takes back the instance of a replica that is draining for another reason: let EC2 do it."""

    replica: Replica
    warned_at: datetime


@dataclass(frozen=True, slots=True)
class NoteRebalance:
    """EC2 recommends to leave the replica's instance."""

    replica: Replica
    at: datetime


@dataclass(frozen=True, slots=True)
class Supersede:
    """Have a replacement come up before the replica goes."""

    replica: Replica
    reason: str


@dataclass(frozen=True, slots=True)
class TakeOut:
    """An instance is in rotation and shouldn't be."""

    instance_id: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """A replica serves on, and somebody must look when its time has come: to arrange that may have failed."""

    instance_id: str
    warned_at: datetime


@dataclass(frozen=True, slots=True)
class Start:
    """The instance runs, the service on it starts."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class Register:
    """Put it into rotation."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class MarkReady:
    """The load balancer found it healthy."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class NoteHealth:
    """Its health turned; `unhealthy_since` is None when it turned for the better."""

    replica: Replica
    unhealthy_since: datetime | None


@dataclass(frozen=True, slots=True)
class Fail:
    """It never became ready; its instance is terminated."""

    replica: Replica
    reason: str
    is_ec2s: bool = False
    """Whether EC2 says that it was EC2's own doing: no reason to give the version up."""


@dataclass(frozen=True, slots=True)
class End:
    """Its instance is gone, or it never had one."""

    replica: Replica
    reason: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """An instance that its launch intent asked for and that no row knows: the record got lost."""

    replica: Replica
    instance: Instance


@dataclass(frozen=True, slots=True)
class TakeIn:
    """An instance of ours that nothing on record knows gets a row, to serve on or to be drained and ended."""

    instance: Instance
    state: ReplicaState
    """READY if it serves, STARTING if it may come to, DRAINING if nobody needs it."""
    reason: str
    is_fallback: bool = False
    """Whether it was bought on-demand though the service wants Spot there."""


@dataclass(frozen=True, slots=True)
class RaiseHighestId:
    """The highest ID on record is lower than one that was given: the table was damaged, or restored."""

    highest_id: int


@dataclass(frozen=True, slots=True)
class Recount:
    """The table counts the replicas that serve wrongly."""


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Something that would be taken away, if what was seen were credible."""

    what: str
    """What isn't done, and to whom."""
    why: str
    remedy: str = ""
    """What a person can do about it; empty: tell the controller to go on, see `Controller.tick`."""


@dataclass(frozen=True, slots=True)
class CloseIntent:
    """A launch intent with nothing left to wait for."""

    intent_id: str


@dataclass(frozen=True, slots=True)
class Request:
    """Replicas that should exist and don't."""

    count: int
    reason: str
    purchase_option: PurchaseOption
    is_fallback: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """Replicas without an instance whose turn to be launched has come, all to be bought the same way."""

    replicas: tuple[Replica, ...]
    is_last_resort: bool = False
    """Whether they may go where they would rather not: on-demand isn't to be had either."""

    @property
    def purchase_option(self) -> PurchaseOption:
        """How they are to be bought."""
        return self.replicas[0].purchase_option


@dataclass(frozen=True, slots=True)
class Terminate:
    """An instance that has done its work, or that nobody wants."""

    instance_id: str
    reason: str
    replica: Replica
    """Whose instance it is; the row is written first, so that a warning noted meanwhile stops it."""


Action = (
    Drain
    | ServeOn
    | NoteWarning
    | NoteRebalance
    | Supersede
    | TakeOut
    | LookAgain
    | Start
    | Register
    | MarkReady
    | NoteHealth
    | Fail
    | End
    | Adopt
    | TakeIn
    | RaiseHighestId
    | Recount
    | HoldBack
    | CloseIntent
    | Request
    | Launch
    | Terminate
)
