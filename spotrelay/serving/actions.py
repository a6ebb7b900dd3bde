"""What a decision consists of. `controller` carries actions out, and is the only place that orders them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from spotrelay.core.answers import Trouble
from spotrelay.core.instances import Instance
from spotrelay.core.pools import PurchaseOption
from spotrelay.core.replica import TRIAL, Replica, ReplicaState

NEEDLESS = "; as many as wanted are left"
"""Ends the reason of a loss that gets no replacement."""

CAME_BACK = "back in rotation: no other replica serves"
"""Why one starts that had left."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What every action says of itself; most do nothing of it.

    One that has nothing to add to another's fields is no dataclass of its own: each costs a cold start half a
    millisecond.
    """

    @property
    def about(self) -> Replica | None:
        """The replica that it is about."""
        return None

    @property
    def writes(self) -> Replica | None:
        """The replica whose row must be written before anything else of it is done."""
        return self.about

    def after(self, row: Replica, now: datetime) -> Replica:
        """The row of the replica that it is about, once it has happened."""
        return row

    @property
    def takes_out(self) -> str | None:
        """The instance that it takes out of rotation."""
        return None

    @property
    def terminates(self) -> str | None:
        """The instance that it terminates."""
        return None

    @property
    def loses(self) -> bool:
        """Whether it finds the replica lost: EC2 takes its instance, or that is gone without our doing."""
        return False

    @property
    def starts(self) -> str | None:
        """The stopped instance that it starts."""
        return None

    @property
    def stops(self) -> str | None:
        """The instance that it stops."""
        return None


@dataclass(frozen=True, slots=True)
class _OfReplica(_Step):
    """Something happens to a replica."""

    replica: Replica

    @property
    def about(self) -> Replica | None:
        """See `_Step.about`."""
        return self.replica


class _Leaves(_OfReplica):
    """A replica goes. One that drains or ends already may have come back by a race; nobody looks again."""

    __slots__ = ()

    @property
    def takes_out(self) -> str | None:
        """See `_Step.takes_out`."""
        return self.replica.instance_id


@dataclass(frozen=True, slots=True)
class Drain(_Leaves):
    """Take the replica out of rotation; its requests finish."""

    reason: str
    warned_at: datetime | None = None
    cool_pool: bool = False
    """Leave its pool alone for a while: EC2 is taking capacity back there."""
    is_gone: bool = False
    """Its instance has ended, or vanished, and it wasn't we who ended it."""

    @property
    def loses(self) -> bool:
        """See `_Step.loses`. What served on was lost with its warning."""
        is_news = self.warned_at is not None and not self.replica.is_warned
        return (is_news or self.is_gone) and self.replica.can_be_lost

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        warned_at = self.warned_at or row.warned_at
        lost_at = now if self.loses else row.lost_at
        return row.to(ReplicaState.DRAINING, now, self.reason, warned_at=warned_at, lost_at=lost_at)


@dataclass(frozen=True, slots=True)
class ServeOn(_OfReplica):
    """EC2 takes its instance back, and it goes on serving."""

    reason: str
    warned_at: datetime

    @property
    def loses(self) -> bool:
        """See `_Step.loses`."""
        return self.replica.can_be_lost

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return replace(row, warned_at=self.warned_at, lost_at=now if self.loses else row.lost_at)


@dataclass(frozen=True, slots=True)
class NoteWarning(_Leaves):
    """EC2 takes back the instance of a replica that is draining for another reason: let EC2 do it."""

    warned_at: datetime

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return replace(row, warned_at=self.warned_at)


@dataclass(frozen=True, slots=True)
class NoteRebalance(_OfReplica):
    """EC2 recommends to leave the replica's instance."""

    at: datetime

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return replace(row, rebalance_at=self.at)


@dataclass(frozen=True, slots=True)
class Replace(_OfReplica):
    """Request a replacement: beside a loss in the same commit, else before the replica goes."""

    reason: str
    version: int
    max_price: float | None = None
    """Only where Spot costs no more, USD per hour: the replica is to move there; None: wherever it may be."""
    min_score: int | None = None
    """Only in zones that score this or more: the replica is to move there; None: wherever it may be."""

    @property
    def is_move(self) -> bool:
        """Whether nothing needs it but what is better elsewhere."""
        return self.max_price is not None or self.min_score is not None


class GoWithout(_OfReplica):
    """The replica goes and gets no replacement, because as many as wanted are left. Its row says so."""

    __slots__ = ()

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return row if row.state.is_active else replace(row, reason=f"{row.reason}{NEEDLESS}")


@dataclass(frozen=True, slots=True)
class TakeOut(_Step):
    """An instance is in rotation and shouldn't be."""

    instance_id: str

    @property
    def takes_out(self) -> str | None:
        """See `_Step.takes_out`."""
        return self.instance_id


@dataclass(frozen=True, slots=True)
class LookAgain(_Step):
    """A replica serves on, and somebody must look when its time has come: to arrange that may have failed."""

    instance_id: str
    warned_at: datetime


class Start(_OfReplica):
    """The instance runs, the service on it starts."""

    __slots__ = ()

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return row.to(ReplicaState.STARTING, now)


class Register(_OfReplica):
    """Put it into rotation."""

    __slots__ = ()

    @property
    def writes(self) -> Replica | None:
        """Nothing: its row says already that it starts."""
        return None


class MarkReady(_OfReplica):
    """The load balancer found it healthy."""

    __slots__ = ()

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        resume_s, began = row.resume_s, row.entered.get(ReplicaState.PROVISIONING)
        if row.is_standby and began and ReplicaState.READY not in row.entered:
            resume_s = (now - began).total_seconds()
        return row.to(ReplicaState.READY, now, resume_s=resume_s, trouble=None, is_crashing=False)


@dataclass(frozen=True, slots=True)
class NoteHealth(_OfReplica):
    """Its health turned; `unhealthy_since` is None when it turned for the better."""

    unhealthy_since: datetime | None

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return replace(row, unhealthy_since=self.unhealthy_since)


@dataclass(frozen=True, slots=True)
class NoteMissing(_OfReplica):
    """EC2 doesn't show its instance, and should; `missing_since` is None when it does again."""

    missing_since: datetime | None

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return replace(row, missing_since=self.missing_since)


class ComeBack(_OfReplica):
    """One that has left the rotation, and still runs, comes back: nobody else serves.

    It starts once more: it is asked, registered and found healthy like any other, whatever it left for.
    """

    __slots__ = ()

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return row.to(
            ReplicaState.STARTING,
            now,
            CAME_BACK,
            lost_at=row.lost_at if row.is_warned else None,
            unhealthy_since=None,
            missing_since=None,
            silent_since=None,
            refusals=0,
            busy_since=None,
            finished=None,
        )


@dataclass(frozen=True, slots=True)
class NoteSilence(_OfReplica):
    """It serves and no longer answers its readiness probe; `silent_since` is None when it does again.

    The rest is what is known of why: see the fields of these names in `Replica`.
    """

    silent_since: datetime | None
    refusals: int = 0
    busy_since: datetime | None = None
    finished: float | None = None

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return replace(
            row,
            silent_since=self.silent_since,
            refusals=self.refusals,
            busy_since=self.busy_since,
            finished=self.finished,
        )


@dataclass(frozen=True, slots=True)
class NoteTrouble(_OfReplica):
    """It starts, and tells why it isn't ready; None: it no longer does."""

    trouble: Trouble | None

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        words, is_crash = (self.trouble.words, self.trouble.is_crash) if self.trouble else (None, False)
        return replace(row, trouble=words, is_crashing=is_crash)


@dataclass(frozen=True, slots=True)
class Fail(_Leaves):
    """It never became ready; its instance is terminated."""

    reason: str
    is_ec2s: bool = False
    """Whether EC2 says that it was EC2's own doing: no reason to give the version up."""

    @property
    def terminates(self) -> str | None:
        """See `_Step.terminates`."""
        return self.replica.instance_id

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return row.to(ReplicaState.FAILED, now, self.reason)


@dataclass(frozen=True, slots=True)
class End(_Leaves):
    """Its instance is gone, or it never had one."""

    reason: str

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return row.to(ReplicaState.TERMINATED, now, self.reason)


@dataclass(frozen=True, slots=True)
class Resume(_OfReplica):
    """A standby becomes a fallback: a new replica gets its instance, which is started."""

    reason: str

    @property
    def starts(self) -> str | None:
        """See `_Step.starts`."""
        return self.replica.instance_id

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return row.to(ReplicaState.TERMINATED, now, "resumed")


class TryOut(_OfReplica):
    """A standby that was never resumed is started once: a new standby gets its instance, and shows whether
    that comes back."""

    __slots__ = ()

    @property
    def starts(self) -> str | None:
        """See `_Step.starts`."""
        return self.replica.instance_id

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return row.to(ReplicaState.TERMINATED, now, TRIAL)


class StandBy(_OfReplica):
    """Its instance is stopped, and stands by: one that was prepared or tried out, or has been a fallback.

    What has been a fallback, and what was refused its start, ends: a new standby gets its instance.
    """

    __slots__ = ()

    @property
    def stops(self) -> str | None:
        """See `_Step.stops`."""
        return self.replica.instance_id

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        if row.state is ReplicaState.STARTING:
            took_s = (now - row.entered[ReplicaState.PROVISIONING]).total_seconds()
            return row.to(ReplicaState.STANDBY, now, resume_s=took_s if row.is_tried else row.resume_s)
        return row.to(ReplicaState.TERMINATED, now, "stands by again")


class StartInstance(_OfReplica):
    """A standby was resumed or is tried out, and its instance is stopped: whoever was to start it may have
    died."""

    __slots__ = ()

    @property
    def writes(self) -> Replica | None:
        """Nothing: its row says already that it starts."""
        return None

    @property
    def starts(self) -> str | None:
        """See `_Step.starts`."""
        return self.replica.instance_id


class StopInstance(_OfReplica):
    """A standby's instance runs: who should have stopped it may have died.

    Or it has just been resumed. So its row is written, as it is, and that fails if it is no standby any more.
    """

    __slots__ = ()

    @property
    def stops(self) -> str | None:
        """See `_Step.stops`."""
        return self.replica.instance_id


@dataclass(frozen=True, slots=True)
class Adopt(_OfReplica):
    """An instance that its launch intent asked for and that no row knows: the record got lost."""

    instance: Instance

    def after(self, row: Replica, now: datetime) -> Replica:
        """See `_Step.after`."""
        return row.provisioned(self.instance, now)


@dataclass(frozen=True, slots=True)
class TakeIn(_Step):
    """An instance of ours that nothing on record knows gets a row, to serve on or to be drained and ended."""

    instance: Instance
    state: ReplicaState
    """READY if it serves, STARTING if it may come to, DRAINING if nobody needs it."""
    reason: str
    is_fallback: bool = False
    """Whether it was bought on-demand though the service wants Spot there."""
    port: int | None = None
    """What its instance's first server is registered with; None: it isn't in rotation."""


@dataclass(frozen=True, slots=True)
class RaiseHighestId(_Step):
    """The highest ID on record is lower than one that was given: the table was damaged, or restored."""

    highest_id: int


class Recount(_Step):
    """The table counts the replicas that serve wrongly."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class HoldBack(_Step):
    """Something that would be taken away, if what was seen were credible."""

    what: str
    """What isn't done, and to whom."""
    why: str
    remedy: str = ""
    """What a person can do about it; empty: tell the controller to go on, see `holding`."""
    then: str = ""
    """What is done once a person says so; empty: nothing that would be for them to say."""


@dataclass(frozen=True, slots=True)
class GiveUp(_Step):
    """A version that is rolled out doesn't answer its health checks: no more replicas get it."""

    version: int


@dataclass(frozen=True, slots=True)
class CloseIntent(_Step):
    """A launch intent with nothing left to wait for."""

    intent_id: str


@dataclass(frozen=True, slots=True)
class Request(_Step):
    """Replicas that should exist and don't."""

    count: int
    reason: str
    purchase_option: PurchaseOption
    version: int
    is_fallback: bool = False
    is_standby: bool = False


@dataclass(frozen=True, slots=True)
class Launch(_Step):
    """Replicas without an instance whose turn to be launched has come: one version, bought one way."""

    replicas: tuple[Replica, ...]
    is_last_resort: bool = False
    """Whether they may go where they would rather not: on-demand isn't to be had either."""

    @property
    def purchase_option(self) -> PurchaseOption:
        """How they are to be bought."""
        return self.replicas[0].purchase_option

    @property
    def version(self) -> int:
        """Which version of the launch template they are launched with."""
        return self.replicas[0].version

    @property
    def is_standby(self) -> bool:
        """Whether they are to stand by."""
        return self.replicas[0].stands_by


@dataclass(frozen=True, slots=True)
class Terminate(_OfReplica):
    """An instance that has done its work, or that nobody wants.

    Its replica's row is written first, so that a warning noted meanwhile stops it.
    """

    instance_id: str
    reason: str

    @property
    def terminates(self) -> str | None:
        """See `_Step.terminates`."""
        return self.instance_id


Action = (
    Drain
    | ServeOn
    | NoteWarning
    | NoteRebalance
    | Replace
    | GoWithout
    | GiveUp
    | TakeOut
    | LookAgain
    | Start
    | Register
    | MarkReady
    | NoteHealth
    | NoteMissing
    | NoteSilence
    | NoteTrouble
    | ComeBack
    | Fail
    | End
    | Resume
    | TryOut
    | StandBy
    | StartInstance
    | StopInstance
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
