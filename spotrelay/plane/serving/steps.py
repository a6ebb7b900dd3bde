"""What a decision consists of: steps, each with the rows that it reads, writes and creates.

| step | the row before | and after | besides |
|---|---|---|---|
| `start` | PROVISIONING | STARTING | enters the rotation, unless it is probed first |
| `register` | STARTING, READY | not written | enters the rotation |
| `mark_ready` | STARTING | READY | |
| `drain` | any that has an instance | DRAINING | leaves the rotation; may be a loss |
| `serve_on` | PROVISIONING to READY | warned, and lost | somebody looks again |
| `replace` | any | names its successor | creates that |
| `go_without` | any | its reason says so | |
| `come_back` | DRAINING | STARTING | enters the rotation, unless it is probed first |
| `fail` | PROVISIONING, STARTING | FAILED | leaves the rotation, its instance is terminated |
| `end` | REQUESTED, DRAINING | TERMINATED | leaves the rotation |
| `terminate` | DRAINING | as it is | its instance is terminated |
| `adopt` | REQUESTED | PROVISIONING | |
| `resume` | STANDBY, DRAINING | TERMINATED | creates a fallback with its instance, and starts that |
| `try_out` | STANDBY | TERMINATED | creates a standby with its instance, and starts that |
| `stand_by` | STARTING | STANDBY | its instance is stopped |
| | PROVISIONING, DRAINING | TERMINATED | creates a standby with its instance, and stops that |
| `start_instance` | PROVISIONING | not written | its instance is started |
| `stop_instance` | STANDBY | as it is | its instance is stopped |
| `note_…` | any | says so | |
| `request`, `take_in` | none | none | create rows |
| `launch` | none | REQUESTED | a launch intent is opened for it |

The rest is about no replica: `take_out`, `look_again`, `close_intent`, `raise_highest_id`, `recount`,
`give_up` and `hold_back`.

Steps about one replica follow each other: the next one's row before is the last one's row after. So what it
comes to is written once, see `Step.then`. `control.performing` carries steps out, and knows their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from spotrelay.plane.core.instances import Instance
from spotrelay.plane.core.pools import Cause, PurchaseOption
from spotrelay.plane.core.replica import TRIAL, Phase, Replica, ReplicaState

if TYPE_CHECKING:  # of ticks alone: a warning waits for every import of a cold start
    from spotrelay.plane.core.answers import Trouble

WARNED = "interruption warning"
"""Why a replica is replaced that EC2 takes back."""

NEEDLESS = "; as many as wanted are left"
"""Ends the reason of a loss that gets no replacement."""

CAME_BACK = "back in rotation: no other replica serves"
"""Why one starts that had left."""

IN_VAIN = "came back, and doesn't answer"
"""Why it leaves again."""

NO_PHASES: Mapping[Phase, datetime] = MappingProxyType({})
"""Its instance told nothing of its start, or that is on its row."""

NO_ID = 0
"""The ID of a row that a step creates: `changes` gives it one."""

NO_SERVICE = ""
"""The same of the service of one that comes of no other row."""


@dataclass(frozen=True, slots=True)
class HoldBack:
    """Something that would be taken away, if what was seen were credible."""

    what: str
    """What isn't done, and to whom."""
    why: str
    remedy: str = ""
    """What a person can do about it; empty: tell the controller to go on, see `holding`."""
    then: str = ""
    """What is done once a person says so; empty: nothing that would be for them to say."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: the rows that it makes of others, and what happens beside.

    One class for all: each dataclass costs a cold start half a millisecond.
    """

    name: str
    """What its log line is called: the names of all that it consists of."""
    before: Replica | None = None
    """The replica that it is about, as it was decided on."""
    after: Replica | None = None
    """The same as it is to be; None: its row isn't written."""
    creates: tuple[Replica, ...] = ()
    """Rows that don't exist yet. `changes` gives them their ID, and what follows from the document."""
    launches: tuple[Replica, ...] = ()
    """Rows that exist, whose turn to be launched has come: one version, bought one way."""
    is_last_resort: bool = False
    """Whether what is launched may go where it would rather not: on-demand isn't to be had either."""
    puts_in: str | None = None
    """The instance that it puts into rotation."""
    takes_out: str | None = None
    """The instance that it takes out of rotation. One that drains or ends may have come back by a race."""
    terminates: str | None = None
    starts: str | None = None
    """The stopped instance that it starts."""
    stops: str | None = None
    relies_on: Replica | None = None
    """Who serves on when its replica leaves: nothing is written if that row has changed since it was read."""
    looks_again: datetime | None = None
    """Somebody must look at an instance that was warned then: when its time has come."""
    teaches: Cause | None = None
    """Why to leave its pool alone for a while."""
    is_ec2s: bool = False
    """It failed, and EC2 says that this was EC2's own doing: no reason to give the version up."""
    closes: str | None = None
    """The launch intent that it closes."""
    raises_to: int = 0
    """The highest ID ever given, which the record doesn't know."""
    gives_up: int | None = None
    """The version that is given up."""
    recounts: bool = False
    """Whether it mends the table's count of the replicas that serve."""
    holds_back: HoldBack | None = None
    """What isn't done; then nothing else is, either."""
    says: Mapping[str, object] = field(default_factory=dict)
    """What its log line says beside the replica's facts."""

    @property
    def replica(self) -> Replica:
        """The replica that it is about; only of a step about one."""
        assert self.before is not None, f"{self.name} is about no replica"  # noqa: S101
        return self.before

    @property
    def row(self) -> Replica:
        """The replica as it leaves it."""
        return self.after or self.replica

    @property
    def reason(self) -> str:
        """Why, in words."""
        return str(self.says.get("reason", ""))

    def enters(self, state: ReplicaState) -> bool:
        """Whether its replica enters the state."""
        return self.after is not None and self.after.state is state and self.replica.state is not state

    @property
    def is_warning(self) -> bool:
        """Whether it puts on record that EC2 takes the instance back."""
        return self.after is not None and self.after.is_warned and not self.replica.is_warned

    @property
    def is_loss(self) -> bool:
        """Whether it finds the replica lost: EC2 takes its instance, or that is gone without our doing."""
        return self.after is not None and self.after.lost_at is not None and self.replica.lost_at is None

    def then(self, following: Step) -> Step:
        """Both, as one step: a replica's row is written once, and a loss never without its replacement."""
        both = {one: getattr(following, one) or getattr(self, one) for one in _FIELDS}
        both["name"] = f"{self.name}, {following.name}"
        both["before"] = self.before
        both["says"] = {**self.says, **following.says}
        return Step(**both)

    def with_replacement(self, now: datetime, version: int) -> Step:
        """This and the replacement for what it takes, for the same reason: one step, so one commit."""
        return self.then(replace(self.row, now, self.reason, version))

    def without_replacement(self) -> Step:
        """This, and the word that nothing comes in its place."""
        return self.then(go_without(self.row))


_FIELDS = tuple(one.name for one in fields(Step))


# What happens to a replica that has an instance.


def drain(
    row: Replica,
    now: datetime,
    reason: str,
    *,
    warned_at: datetime | None = None,
    cool_pool: bool = False,
    is_gone: bool = False,
    relies_on: Replica | None = None,
) -> Step:
    """Take the replica out of rotation; its requests finish.

    `cool_pool`: EC2 is taking capacity back there. `is_gone`: its instance has ended, or vanished, and it
    wasn't we who ended it. `relies_on`: who serves on, as it was read.
    """
    after = row.to(
        ReplicaState.DRAINING,
        now,
        reason,
        warned_at=warned_at or row.warned_at,
        lost_at=now if _is_lost(row, warned_at, is_gone=is_gone) else row.lost_at,
    )
    return Step(
        "Drain",
        row,
        after,
        takes_out=row.instance_id,
        relies_on=relies_on,
        teaches=Cause.LOSS if cool_pool else None,
        says={"reason": reason},
    )


def _is_lost(row: Replica, warned_at: datetime | None, *, is_gone: bool) -> bool:
    """Whether one is lost as it drains. What served on was lost with its warning."""
    is_news = warned_at is not None and not row.is_warned
    return (is_news or is_gone) and row.can_be_lost


def serve_on(row: Replica, now: datetime, reason: str, warned_at: datetime) -> Step:
    """EC2 takes its instance back, and it goes on serving."""
    after = row.but(warned_at=warned_at, lost_at=now if row.can_be_lost else row.lost_at)
    says = {"reason": reason}
    return Step("ServeOn", row, after, looks_again=warned_at, teaches=Cause.LOSS, says=says)


def replace(
    row: Replica,
    now: datetime,
    reason: str,
    version: int,
    *,
    max_price: float | None = None,
    min_score: int | None = None,
) -> Step:
    """Request a replacement: with a loss, as one step, or before the replica goes.

    `max_price`: only where Spot costs no more, USD per hour; `min_score`: only in zones that score this or
    more. Then nothing needs it but what is better there.
    """
    is_move = max_price is not None or min_score is not None
    after = row.but(move_tried_at=now) if is_move else row
    successor = Replica.requested(
        row.service,
        NO_ID,
        version,
        now,
        reason=reason,
        purchase_option=row.purchase_option,
        replaces=row.id,
        is_proven=version == row.version and (row.is_proven or ReplicaState.READY in row.entered),
        max_price=max_price,
        min_score=min_score,
        # On both, because only one of them stays; and a pool that loses what moved there gets no other soon.
        move_tried_at=after.move_tried_at,
    )
    return Step("Replace", row, after, (successor,), says={"reason": reason})


def go_without(row: Replica) -> Step:
    """The replica goes and gets no replacement, because as many as wanted are left. Its row says so."""
    after = row if row.state.is_active else row.but(reason=f"{row.reason}{NEEDLESS}")
    return Step("GoWithout", row, after)


def start(row: Replica, now: datetime) -> Step:
    """The instance runs, the service on it starts."""
    return Step("Start", row, row.to(ReplicaState.STARTING, now))


def register(row: Replica) -> Step:
    """Put it into rotation. Its row says already that it starts."""
    return Step("Register", row, puts_in=row.instance_id)


def mark_ready(
    row: Replica,
    now: datetime,
    phases: Mapping[Phase, datetime] = NO_PHASES,
    address: str | None = None,
) -> Step:
    """The load balancer found it healthy.

    `phases`: what its instance told of its start meanwhile. Peers reach it at its `address`, if they may.
    """
    resume_s, began = row.resume_s, row.entered.get(ReplicaState.PROVISIONING)
    if row.is_standby and began and ReplicaState.READY not in row.entered:
        resume_s = (now - began).total_seconds()
    reached = {**row.phases, **phases}
    after = row.to(
        ReplicaState.READY,
        now,
        resume_s=resume_s,
        trouble=None,
        is_crashing=False,
        phases=reached,
        address=address,
    )
    return Step("MarkReady", row, after, says=_told(phases))


def come_back(row: Replica, now: datetime) -> Step:
    """One that has left the rotation, and still runs, comes back: nobody else serves.

    It starts once more: it is asked, registered and found healthy like any other, whatever it left for.
    """
    after = row.to(
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
    return Step("ComeBack", row, after)


def fail(row: Replica, now: datetime, reason: str, *, is_ec2s: bool = False) -> Step:
    """It never became ready; its instance is terminated. `is_ec2s`: see `Step`."""
    return Step(
        "Fail",
        row,
        row.to(ReplicaState.FAILED, now, reason),
        takes_out=row.instance_id,
        terminates=row.instance_id,
        teaches=Cause.FAILURE,
        is_ec2s=is_ec2s,
        says={"reason": reason},
    )


def end(row: Replica, now: datetime, reason: str) -> Step:
    """Its instance is gone, or it never had one."""
    after = row.to(ReplicaState.TERMINATED, now, reason)
    return Step("End", row, after, takes_out=row.instance_id, says={"reason": reason})


def terminate(row: Replica, instance_id: str, reason: str) -> Step:
    """An instance that has done its work, or that nobody wants.

    Its replica's row is written first, so that a warning noted meanwhile stops it.
    """
    says = {"instance_id": instance_id, "reason": reason}
    return Step("Terminate", row, row, terminates=instance_id, says=says)


def adopt(row: Replica, now: datetime, instance: Instance) -> Step:
    """An instance that its launch intent asked for and that no row knows: the record got lost."""
    return Step("Adopt", row, row.provisioned(instance, now))


# What is noted of it.


def note_warning(row: Replica, warned_at: datetime) -> Step:
    """EC2 takes back the instance of a replica that is draining for another reason: let EC2 do it."""
    return Step("NoteWarning", row, row.but(warned_at=warned_at), takes_out=row.instance_id)


def note_rebalance(row: Replica, at: datetime) -> Step:
    """EC2 recommends to leave the replica's instance."""
    return Step("NoteRebalance", row, row.but(rebalance_at=at), teaches=Cause.REBALANCE)


def note_health(row: Replica, unhealthy_since: datetime | None) -> Step:
    """Its health turned; None: for the better."""
    return Step("NoteHealth", row, row.but(unhealthy_since=unhealthy_since))


def note_missing(row: Replica, missing_since: datetime | None) -> Step:
    """EC2 doesn't show its instance, and should; None: it does again."""
    return Step("NoteMissing", row, row.but(missing_since=missing_since))


def note_silence(
    row: Replica,
    silent_since: datetime | None,
    *,
    refusals: int = 0,
    busy_since: datetime | None = None,
    finished: float | None = None,
) -> Step:
    """It serves and no longer answers its readiness probe; None: it does again.

    The rest is what is known of why: see the fields of these names in `Replica`.
    """
    known = {"refusals": refusals, "busy_since": busy_since, "finished": finished}
    after = row.but(silent_since=silent_since, **known)
    return Step("NoteSilence", row, after, says={name: fact for name, fact in known.items() if fact})


def note_trouble(row: Replica, trouble: Trouble | None) -> Step:
    """It starts, and tells why it isn't ready; None: it no longer does."""
    words, is_crash = (trouble.words, trouble.is_crash) if trouble else (None, False)
    return Step("NoteTrouble", row, row.but(trouble=words, is_crashing=is_crash))


def note_start(row: Replica, phases: Mapping[Phase, datetime]) -> Step:
    """What its start has reached, beside what is known of it."""
    return Step("NoteStart", row, row.but(phases={**row.phases, **phases}), says=_told(phases))


def _told(phases: Mapping[Phase, datetime]) -> dict[str, object]:
    return {"phases": {phase.value: at.isoformat() for phase, at in phases.items()}} if phases else {}


# Standbys.


def resume(row: Replica, now: datetime, reason: str, resume_s: float | None = None) -> Step:
    """A standby becomes a fallback: a new replica gets its instance, which is started.

    `resume_s`: what it is expected to take if it never was one.
    """
    fallback = _with_instance_of(row, ReplicaState.PROVISIONING, now).but(
        reason=reason,
        is_fallback=True,
        resume_s=row.resume_s or resume_s,
        launch=f"resumed: {row} stood by in {row.offering}",
    )
    after = row.to(ReplicaState.TERMINATED, now, "resumed")
    return Step("Resume", row, after, (fallback,), starts=row.instance_id, says={"reason": reason})


def try_out(row: Replica, now: datetime) -> Step:
    """A standby that was never resumed is started once: a new standby gets its instance, and shows whether
    that comes back."""
    standby = _with_instance_of(row, ReplicaState.PROVISIONING, now).but(reason=TRIAL)
    after = row.to(ReplicaState.TERMINATED, now, TRIAL)
    return Step("TryOut", row, after, (standby,), starts=row.instance_id)


def stand_by(row: Replica, now: datetime) -> Step:
    """Its instance is stopped, and stands by: one that was prepared or tried out, or has been a fallback.

    What has been a fallback, and what was refused its start, ends: a new standby gets its instance. One whose
    start was refused is left alone for a while.
    """
    if row.state is ReplicaState.STARTING:
        took_s = (now - row.entered[ReplicaState.PROVISIONING]).total_seconds()
        after = row.to(ReplicaState.STANDBY, now, resume_s=took_s if row.is_tried else row.resume_s)
        return Step("StandBy", row, after, stops=row.instance_id)
    standby = _with_instance_of(row, ReplicaState.STANDBY, now).but(
        reason="standby",
        attempts=0 if ReplicaState.READY in row.entered else row.attempts,
        retry_at=row.retry_at,
    )
    after = row.to(ReplicaState.TERMINATED, now, "stands by again")
    return Step("StandBy", row, after, (standby,), stops=row.instance_id)


def start_instance(row: Replica) -> Step:
    """A standby was resumed or is tried out, and its instance is stopped: whoever was to start it may have
    died. Its row says already that it starts."""
    return Step("StartInstance", row, starts=row.instance_id)


def stop_instance(row: Replica) -> Step:
    """A standby's instance runs: who should have stopped it may have died.

    Or it has just been resumed. So its row is written, as it is, and that fails if it is no standby any more.
    """
    return Step("StopInstance", row, row, stops=row.instance_id)


def _with_instance_of(other: Replica, state: ReplicaState, now: datetime) -> Replica:
    """Another replica with the same instance; when that was asked for stays on record: it ages."""
    return Replica(
        other.service,
        NO_ID,
        other.version,
        state,
        other.reason,
        {ReplicaState.REQUESTED: other.entered[ReplicaState.REQUESTED], state: now},
        offering=other.offering,
        instance_id=other.instance_id,
        launch_id=other.launch_id,
        attempts=other.attempts,
        port=other.port,
        purchase_option=other.purchase_option,
        is_standby=True,
        resume_s=other.resume_s,
        # Whoever still holds a row of this ID, of before the table was lost, has another revision.
        revision=int(now.timestamp()),
    )


# What there is no row of yet, and what waits to be launched.


def request(
    now: datetime,
    count: int,
    reason: str,
    purchase_option: PurchaseOption,
    version: int,
    *,
    is_fallback: bool = False,
    is_standby: bool = False,
) -> Step:
    """Replicas that should exist and don't."""
    one = Replica.requested(
        NO_SERVICE,
        NO_ID,
        version,
        now,
        reason=reason,
        purchase_option=purchase_option,
        is_fallback=is_fallback,
        is_standby=is_standby,
    )
    return Step("Request", creates=(one,) * count, says={"reason": reason, "count": count})


def take_in(
    now: datetime,
    instance: Instance,
    state: ReplicaState,
    reason: str,
    version: int,
    *,
    is_fallback: bool = False,
    port: int | None = None,
) -> Step:
    """An instance of ours that nothing on record knows gets a row, to serve on or to be drained and ended.

    As if it had just come to where it is: READY if it serves, STARTING if it may come to, DRAINING if nobody
    needs it. `is_fallback`: it was bought on-demand though the service wants Spot there. `port`: what its
    instance's first server is registered with; None: it isn't in rotation.
    """
    launched_at = min(instance.launched_at, now)
    row = Replica(
        NO_SERVICE,
        NO_ID,
        version,
        state,
        reason,
        {ReplicaState.REQUESTED: now, ReplicaState.PROVISIONING: launched_at, state: now},
        offering=instance.offering,
        instance_id=instance.id,
        slots=instance.slots,
        launch_id=instance.launch_id,
        port=port,
        purchase_option=instance.offering.purchase_option,
        is_fallback=is_fallback,
        # Whoever still holds a row of this ID, of before the table was lost, has another revision.
        revision=int(now.timestamp()),
    )
    return Step("TakeIn", creates=(row,), says={"reason": reason, "instance_id": instance.id})


def launch(*waiting: Replica, is_last_resort: bool = False) -> Step:
    """Replicas without an instance whose turn has come. `is_last_resort`: see `Step`."""
    return Step("Launch", launches=waiting, is_last_resort=is_last_resort)


# What is about no replica.


def take_out(instance_id: str) -> Step:
    """An instance is in rotation and shouldn't be."""
    return Step("TakeOut", takes_out=instance_id, says={"instance_id": instance_id})


def look_again(instance_id: str, warned_at: datetime) -> Step:
    """A replica serves on, and somebody must look when its time has come: to arrange that may have failed."""
    return Step("LookAgain", looks_again=warned_at, says={"instance_id": instance_id})


def close_intent(intent_id: str) -> Step:
    """A launch intent with nothing left to wait for."""
    return Step("CloseIntent", closes=intent_id)


def raise_highest_id(highest_id: int) -> Step:
    """The highest ID on record is lower than one that was given: the table was damaged, or restored."""
    return Step("RaiseHighestId", raises_to=highest_id)


def recount() -> Step:
    """The table counts the replicas that serve wrongly."""
    return Step("Recount", recounts=True)


def give_up(version: int) -> Step:
    """A version that is rolled out doesn't answer its health checks: no more replicas get it."""
    return Step("GiveUp", gives_up=version)


def hold_back(held: HoldBack) -> Step:
    """What was seen isn't credible: nothing is done about it."""
    return Step("HoldBack", holds_back=held)
