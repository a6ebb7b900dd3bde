"""A replica: one instance's place in a service, and its life from the request to the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from spotrelay.plane.core import slots
from spotrelay.plane.core.instances import Instance
from spotrelay.plane.core.pools import Offering, PurchaseOption


class ReplicaState(StrEnum):
    """Where a replica is in its life; see `TRANSITIONS` for the ways between."""

    REQUESTED = "REQUESTED"
    PROVISIONING = "PROVISIONING"
    STARTING = "STARTING"
    READY = "READY"
    DRAINING = "DRAINING"
    STANDBY = "STANDBY"
    """Its instance is prepared and stopped, to be resumed where a start would take too long."""
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"

    @property
    def is_active(self) -> bool:
        """Counts towards the replicas that should exist."""
        return self in _ACTIVE

    @property
    def is_ended(self) -> bool:
        """Nothing more will happen to it; it is history."""
        return self in _ENDED


class Phase(StrEnum):
    """What a start reaches, in order, beyond the states of its row."""

    BOOTED = "booted"
    """Its kernel began. This and what follows the instance tells itself, on its console."""
    SETS_UP = "sets_up"
    """The service's unit began: set-up first."""
    HAS_FILES = "has_files"
    """Tools, files, mounts and the container's image are there."""
    IS_SET_UP = "is_set_up"
    """`setup` has ended."""
    LOADS = "loads"
    """Its models are there, and `run` began."""
    ANSWERED = "answered"
    """It answered the readiness probe."""
    REGISTERED = "registered"
    """The load balancer was told to send it requests, once it passes that one's own check."""


TOLD_BY_INSTANCES = (Phase.BOOTED, Phase.SETS_UP, Phase.HAS_FILES, Phase.IS_SET_UP, Phase.LOADS)
"""Phases that nobody else can know."""

CONSOLE_MARK = "spotrelay-phases"
"""How the line begins in which an instance tells them."""


_ACTIVE = frozenset(
    {ReplicaState.REQUESTED, ReplicaState.PROVISIONING, ReplicaState.STARTING, ReplicaState.READY}
)


_ENDED = frozenset({ReplicaState.TERMINATED, ReplicaState.FAILED})


TRANSITIONS: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    # A request that is no longer wanted ends without ever having had an instance.
    ReplicaState.REQUESTED: frozenset(
        {ReplicaState.PROVISIONING, ReplicaState.TERMINATED, ReplicaState.FAILED}
    ),
    # A standby whose start was refused ends: its instance stands by again.
    ReplicaState.PROVISIONING: frozenset(
        {ReplicaState.STARTING, ReplicaState.DRAINING, ReplicaState.TERMINATED, ReplicaState.FAILED}
    ),
    ReplicaState.STARTING: frozenset(
        {ReplicaState.READY, ReplicaState.STANDBY, ReplicaState.DRAINING, ReplicaState.FAILED}
    ),
    # One that is resumed or tried out ends: its instance goes on under the replica that it becomes.
    ReplicaState.STANDBY: frozenset({ReplicaState.DRAINING, ReplicaState.TERMINATED}),
    ReplicaState.READY: frozenset({ReplicaState.DRAINING}),
    # One that has left comes back where nobody else serves.
    ReplicaState.DRAINING: frozenset({ReplicaState.STARTING, ReplicaState.TERMINATED}),
    ReplicaState.TERMINATED: frozenset(),
    ReplicaState.FAILED: frozenset(),
}


GONE = "instance "
"""How the reason of one begins whose instance was found gone, or ending: "instance terminated: Server.…"."""


TRIAL = "tried out"
"""The reason of a standby whose instance was started once to see that it comes back: a boot meets what the
one that prepared it didn't, such as a kernel that an upgrade had installed, or an empty instance store."""


class Others(Protocol):
    """Where a replica finds the others of its service: `rows.Rows` has them, and imports this module."""

    @property
    def replicas(self) -> Mapping[int, Replica]:
        """By ID."""


class IllegalTransitionError(ValueError):
    """A replica was asked to go where its state doesn't lead: a bug of ours, never an input's fault."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a service, from the decision to have it until its instance is gone.

    `revision` counts the stored versions of the row: a write names the revision that it was decided on,
    so that of two deciders only one wins (see `ports.Store.commit`).
    """

    service: str
    id: int
    version: int
    state: ReplicaState
    reason: str
    entered: Mapping[ReplicaState, datetime]
    offering: Offering | None = None
    instance_id: str | None = None
    """Its instance, or the slot there that hosts it: see `core.slots`."""
    launch_id: str | None = None
    """The launch intent that is to bring, or brought, the instance."""
    attempts: int = 0
    """Launches that every pool refused."""
    retry_at: datetime | None = None
    """No launch before this, after a refusal."""
    is_denied: bool = False
    """EC2 refused the last try for what it asked, such as an image or a key: only a person mends that, and
    perhaps with another version."""
    blocked_at: datetime | None = None
    """When EC2 last refused to launch it until a person mends the cause: what it asked, or a quota."""
    is_proven: bool = False
    """What it came in place of had served, in the same version: so that is what it is launched as, while EC2
    doesn't refuse it."""
    purchase_option: PurchaseOption = PurchaseOption.SPOT
    """How it is to be bought; `offering` says where it was."""
    is_fallback: bool = False
    """Bought on-demand in addition, while a Spot replica isn't ready; never replaced itself."""
    is_standby: bool = False
    """Its instance is a standby's: prepared once, and stopped while nobody needs it. A fallback that has one
    is a standby that was resumed."""
    is_adopted: bool = False
    """An operator handed its instance over, which something else launched: it is of none of our versions,
    and the readiness probe may not reach it."""
    launch: str | None = None
    """How its launch was decided and what EC2 answered, for people."""
    replaces: int | None = None
    replaced_by: int | None = None
    warned_at: datetime | None = None
    """When EC2 said that it takes the instance back. Such an instance is never terminated by us."""
    lost_at: datetime | None = None
    """When it was found lost: EC2 had warned, or its instance had ended or vanished without our doing."""
    address: str | None = None
    """Where peers reach its instance, since it was ready; None: nobody is to fetch models from it."""
    port: int | None = None
    """What its service listens on; None: it was launched before versions could differ in that."""
    slots: int = 1
    """How many replicas its instance hosts, this one among them; see `core.slots`."""
    unhealthy_since: datetime | None = None
    missing_since: datetime | None = None
    """Since when EC2 doesn't show its instance, and should: see `serving.missing`."""
    silent_since: datetime | None = None
    """Since when it doesn't answer the readiness probe, though it serves. A proof that it is busy begins this
    anew: see `serving.silence`."""
    refusals: int = 0
    """How often in a row it refused the readiness probe at once, as far as it matters."""
    busy_since: datetime | None = None
    """Since when it has been silent and proved to be busy."""
    finished: float | None = None
    """How many requests it had answered, by its own count, when it was last silent."""
    resume_s: float | None = None
    """What the last resume of its standby's instance, or its trial, took until it was ready; of one that had
    neither yet, what its service's others took."""
    trouble: str | None = None
    """Why it isn't ready yet, by its own account; for people."""
    is_crashing: bool = False
    """Its trouble is that its server keeps ending."""
    phases: Mapping[Phase, datetime] = field(default_factory=dict)
    """What its start has reached and when, as far as that is known: for people, nothing is decided by it."""
    rebalance_at: datetime | None = None
    """When EC2 recommended to leave its instance."""
    max_price: float | None = None
    """It was requested for another to move to cheaper Spot: only where that costs no more, USD per hour."""
    min_score: int | None = None
    """It was requested for another to move by placement scores: only to zones that score this or more."""
    move_tried_at: datetime | None = None
    """When it, or what it came in place of, was last to move."""
    revision: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """What a later version noted of it, for after a rollback. Nothing here reads it."""

    @classmethod
    def requested(
        cls,
        service: str,
        id_: int,
        version: int,
        now: datetime,
        *,
        reason: str,
        port: int | None = None,
        purchase_option: PurchaseOption = PurchaseOption.SPOT,
        replaces: int | None = None,
        is_fallback: bool = False,
        is_standby: bool = False,
        is_proven: bool = False,
        max_price: float | None = None,
        min_score: int | None = None,
        move_tried_at: datetime | None = None,
    ) -> Replica:
        """A replica that should exist and has no instance yet."""
        state = ReplicaState.REQUESTED
        return cls(
            service,
            id_,
            version,
            state,
            reason,
            {state: now},
            port=port,
            purchase_option=purchase_option,
            replaces=replaces,
            is_fallback=is_fallback,
            is_standby=is_standby,
            is_proven=is_proven,
            max_price=max_price,
            min_score=min_score,
            move_tried_at=move_tried_at,
        )

    def to(self, state: ReplicaState, now: datetime, reason: str | None = None, **changes: Any) -> Replica:
        """The replica in its next state.

        Raises:
            IllegalTransitionError: the state machine has no such way.
        """
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransitionError(f"{self}: {self.state} does not lead to {state}")
        entered = {**{s: at for s, at in self.entered.items() if s is not state}, state: now}
        return self.but(state=state, entered=entered, reason=reason or self.reason, **changes)

    def but(self, **changes: Any) -> Replica:
        """The same with these fields changed, as `dataclasses.replace` makes it.

        In half the time: a batch of ten warnings does it forty times, each with forty fields.

        Raises:
            TypeError: there is no such field.
        """
        made = object.__new__(Replica)
        for name in _FIELDS:
            object.__setattr__(made, name, changes.pop(name) if name in changes else getattr(self, name))
        if changes:
            raise TypeError(f"a replica has no {', '.join(changes)}")
        return made

    def provisioned(self, instance: Instance, now: datetime, **changes: Any) -> Replica:
        """The replica with the instance, or the slot of one, that it waited for."""
        return self.to(
            ReplicaState.PROVISIONING,
            now,
            offering=instance.offering,
            instance_id=instance.id,
            slots=instance.slots,
            retry_at=None,
            is_denied=False,
            **changes,
        )

    @property
    def listens_on(self) -> int | None:
        """The port of its server: its slot's, or the service's."""
        return slots.port(self.instance_id or "") or self.port

    @property
    def siblings(self) -> list[str]:
        """The other slots of its instance, as the first one tells them."""
        if self.instance_id is None or self.port is None or slots.port(self.instance_id):
            return []
        return [slots.slot(self.instance_id, number, self.port) for number in range(1, self.slots)]

    def shares_with(self, other: Replica) -> bool:
        """Whether the other one is on the same instance."""
        ids = (self.instance_id, other.instance_id)
        return None not in ids and len({slots.host(id_ or "") for id_ in ids}) == 1 and self.id != other.id

    @property
    def since(self) -> datetime:
        """When it entered its present state."""
        return self.entered[self.state]

    def superseded_in(self, rows: Others) -> bool:
        """Its replacement is active already: the two of them count as one."""
        successor = rows.replicas.get(self.replaced_by or 0)
        return self.state.is_active and successor is not None and successor.is_counted

    @property
    def is_move(self) -> bool:
        """It was requested for another to move: to cheaper Spot, or to where Spot is likelier to be had."""
        return self.max_price is not None or self.min_score is not None

    def moves_in(self, rows: Others) -> bool:
        """It was requested to come in place of one that is there and needn't go: nothing waits for it."""
        before = rows.replicas.get(self.replaces or 0)
        return self.is_move and before is not None and before.is_counted

    @property
    def related(self) -> list[int]:
        """What must be known beside it to judge its loss: what is to take over, and what it is to move."""
        takes_over = self.replaced_by if self.state.is_active else None
        was_to_move = self.replaces if self.is_move else None
        return [id_ for id_ in (takes_over, was_to_move) if id_]

    @property
    def is_warned(self) -> bool:
        """EC2 is taking its instance back."""
        return self.warned_at is not None

    @property
    def gone_at(self) -> datetime | None:
        """When EC2 warned that it takes its instance, or else when that was found gone; None: it has it.

        Rows of before `lost_at` was noted tell the second by their reason.
        """
        if self.warned_at is not None or self.lost_at is not None:
            return self.warned_at or self.lost_at
        return self.entered.get(ReplicaState.DRAINING) if self.reason.startswith(GONE) else None

    @property
    def can_be_lost(self) -> bool:
        """Whether something is lost with it: once, and not with what stands by or only comes back."""
        return self.lost_at is None and not (self.stands_by or self.comes_back)

    @property
    def comes_back(self) -> bool:
        """Whether it had left, and starts once more because nobody else serves."""
        return self.state is ReplicaState.STARTING and ReplicaState.DRAINING in self.entered

    @property
    def is_counted(self) -> bool:
        """Whether it is one of those that should exist.

        What EC2 takes back is extra while it lasts, and so is what comes back, until it serves.
        """
        return self.state.is_active and not (self.is_warned or self.stands_by or self.comes_back)

    @property
    def stands_by(self) -> bool:
        """Whether it is a standby, or is being prepared as one: it serves nobody."""
        return self.is_standby and not self.is_fallback

    @property
    def is_tried(self) -> bool:
        """Whether it is a standby that is being tried out, or was."""
        return self.reason == TRIAL

    @property
    def was_started_again(self) -> bool:
        """Whether it got a standby's instance, which then was started: it was resumed, or tried out."""
        return self.is_standby and (self.is_fallback or self.is_tried)

    @property
    def serves(self) -> bool:
        """Whether it is ready and passes its checks."""
        return self.state is ReplicaState.READY and self.unhealthy_since is None

    @property
    def left_at(self) -> datetime | None:
        """When it ceased to serve; None if it never did, or serves."""
        if ReplicaState.READY not in self.entered or self.serves:
            return None
        times = (self.unhealthy_since, self.entered.get(ReplicaState.DRAINING))
        return min((at for at in times if at), default=self.since if self.state.is_ended else None)

    @property
    def stays(self) -> bool:
        """Whether it serves, and EC2 hasn't said that it takes it back."""
        return self.serves and not self.is_warned

    def __str__(self) -> str:
        return f"{self.service}#{self.id}"


_FIELDS = tuple(one.name for one in fields(Replica))
