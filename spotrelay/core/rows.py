"""What the table holds of a service, and a change to it that is written as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from spotrelay.core.desired import ScaleRequest, Source
from spotrelay.core.held import Held
from spotrelay.core.incidents import Incidents
from spotrelay.core.replica import Replica
from spotrelay.core.spec import ServiceSpec

if TYPE_CHECKING:  # of ticks alone: a warning waits for every import of a cold start
    from spotrelay.core.notices import Notice
    from spotrelay.core.scaling import OngoingTotal


@dataclass(frozen=True, slots=True)
class LaunchIntent:
    """Written before an instance is asked for, so that a crash in between leaves a trace to heal from."""

    id: str
    service: str
    replica_ids: tuple[int, ...]
    created_at: datetime
    highest_id: int = 0
    """The highest replica ID given by then. Its instances bear it, should the table get lost."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to hold new launches after replicas that never became ready."""

    failures: int = 0
    """In a row, of one version."""
    until: datetime | None = None
    version: int = 0
    fallback_until: datetime | None = None
    """The same for on-demand fallbacks: those are held only after one of them failed, and never for good."""


@dataclass(frozen=True, slots=True)
class LaunchWindow:
    """The minute that the launch-rate brake counts in: its start, and the replicas launched since."""

    since: datetime | None = None
    launched: int = 0


@dataclass(frozen=True, slots=True)
class Removal:
    """What speaks for it that a service's stack is gone. One sign alone is not enough to end its replicas."""

    told_at: datetime | None = None
    """When we were told: by the event of its parameter's deletion, or by a person."""
    absent: int = 0
    """Ticks in a row, since then, that found no document."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """An operator gives a deployed version up. It counts until another one is deployed."""

    version: int
    """The one that is given up."""
    to: int
    """The one that replicas have instead."""
    port: int
    """What that one listens on: who reads a few rows doesn't know its document."""


@dataclass(frozen=True, slots=True)
class Told:
    """What was told of a service so far: what happened since is what its rows say beyond it. Ticks write it.

    Not with the rows, which commits write, so that neither makes the other conflict.
    """

    revision: int = 0
    """How often it was written; 0: never. A write names the revision that it was decided on."""
    highest_id: int = 0
    """Every replica up to it was seen."""
    replicas: Mapping[int, bool] = field(default_factory=dict)
    """The replicas that live, and neither leave nor are lost: whether it was told that they are ready."""
    lost: Mapping[int, Replica] = field(default_factory=dict)
    """The replicas that were told lost, as they were then, while they live or another is to replace them."""
    whole_at: int = 0
    """How many replicas served when there were last as many as desired."""
    gap_since: datetime | None = None
    """Since when there are fewer; None: there are as many, or never were."""
    unsent: tuple[Notice, ...] = ()
    """What couldn't be told, to be tried again."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What the table says about one service: the whole of it, or the replicas that were asked for."""

    highest_id: int = 0
    """The highest replica ID ever given."""
    serving: int = 0
    """Replicas that stay (`Replica.stays`), as the table counts them: what a few rows can't tell."""
    is_whole: bool = False
    """Whether every replica was read."""
    removal: Removal = Removal()
    """Only where every replica was read."""
    document: ServiceSpec | None = None
    """The last runtime document that could be read; only where every replica was read."""
    is_claimed: bool = True
    """Whether it was ours to act on when the document was read last; only where every replica was read."""
    earlier: Mapping[int, ServiceSpec] = field(default_factory=dict)
    """By version, the documents of before that replicas may still have, or go back to; as `document`."""
    rollback: Rollback | None = None
    """What an operator asks to go back to."""
    replicas: Mapping[int, Replica] = field(default_factory=dict)
    """By ID, ended ones excluded."""
    intents: Mapping[str, LaunchIntent] = field(default_factory=dict)
    """Open launch intents by ID; empty where only some replicas were read."""
    backoff: Backoff = Backoff()
    standby_backoff: Backoff = Backoff()
    """The same of standbys that couldn't be prepared: it holds up standbys, and nothing else."""
    window: LaunchWindow = LaunchWindow()
    requests: Mapping[Source, ScaleRequest] = field(default_factory=dict)
    """What is asked for instead of the service file's `replicas`, also where it is over by now."""
    told: Told = Told()
    """Only where every replica was read."""
    held: Held = field(default_factory=Held)
    """What the last tick held back; only where every replica was read."""
    incidents: Incidents = field(default_factory=Incidents)
    """What its alarms were told; only where every replica was read."""
    ongoing: OngoingTotal | None = None
    """The requests that replicas had when they were last asked; only where every replica was read."""

    @property
    def last_document(self) -> ServiceSpec | None:
        """What to go by while nobody can say what is deployed.

        None if another control plane has the service, or its removal was told.
        """
        return self.document if self.is_claimed and not self.removal.told_at else None


@dataclass(frozen=True, slots=True)
class Changes:
    """What one decision writes about one service: all of it or none.

    DynamoDB takes 100 items in a transaction; here a row costs at most 3 (one that ends: the row, its place
    in history, its instance's entry), a new highest ID 2, an intent 1. Whoever makes one keeps to `MAX_ROWS`.
    """

    MAX_ROWS: ClassVar[int] = 30
    """Created rows, updated rows and closed intents that fit, whatever becomes of them."""
    MAX_SIZE: ClassVar[int] = 100
    """Items in a transaction of DynamoDB."""

    service: str
    highest_id: tuple[int, int] | None = None
    """(as read, to be): creating rows takes it, and fails if anybody gave IDs since."""
    serving: tuple[int, int] | None = None
    """(as read, to be) of `Rows.serving`: taking out what serves takes it, and fails if the others that it
    was decided on have become fewer since. Two of the last ones never leave because each relies on the other.
    """
    create: tuple[Replica, ...] = ()
    """Rows that don't exist yet."""
    update: tuple[Replica, ...] = ()
    """Rows as they are to be, each still with the revision that it was read with."""
    open_intent: LaunchIntent | None = None
    close_intents: tuple[str, ...] = ()
    """A launch intent that is closed already is no conflict."""
    backoff: Backoff | None = None
    standby_backoff: Backoff | None = None
    window: tuple[LaunchWindow, LaunchWindow] | None = None
    """(as read, to be): launching takes it, and fails if anybody launched since."""
    held: int = 0
    """Replicas that the launch-rate brake makes wait; not stored, only told."""
    is_last_resort: bool = False
    """Whether the launch may go where it would rather not; not stored."""

    @property
    def size(self) -> int:
        """Items that it writes, at most: the service's entries, intents, rows with instance and history."""
        rows = sum(3 if r.state.is_ended else 2 for r in (*self.create, *self.update))
        return 2 + rows + len(self.close_intents) + (self.open_intent is not None)

    @property
    def stored(self) -> tuple[Replica, ...]:
        """The rows as the table has them after the commit: an updated one with its revision + 1."""
        return (*self.create, *map(_stored, self.update))

    @property
    def to_launch(self) -> tuple[Replica, ...]:
        """The stored rows that the opened intent is for."""
        ids = self.open_intent.replica_ids if self.open_intent else ()
        return (
            *(r for r in self.create if r.id in ids),
            *(_stored(r) for r in self.update if r.id in ids),
        )


def _stored(row: Replica) -> Replica:
    return replace(row, revision=row.revision + 1)
