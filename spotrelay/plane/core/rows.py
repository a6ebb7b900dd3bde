"""What the table holds of a service, what follows from it, and a change to it that is written as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from spotrelay.plane.core import timing
from spotrelay.plane.core.held import Held
from spotrelay.plane.core.incidents import Incidents
from spotrelay.plane.core.replica import Phase, Replica, ReplicaState
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds

if TYPE_CHECKING:  # of ticks alone: a warning waits for every import of a cold start
    from spotrelay.plane.core.notices import Notice
    from spotrelay.plane.core.scaling import OngoingTotal


Starts = Mapping[int, Mapping[Phase, datetime]]
"""By replica: what its instance told of its start."""


class Source(StrEnum):
    """Who says how many replicas a service should have. A later member outranks the ones before it."""

    SERVICE_FILE = "service file"
    LOAD = "load"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """So many replicas instead of the service file's number."""

    replicas: int
    until: datetime | None
    """From this moment on it doesn't count any more: nobody has to remember what a person asked for. None: it
    counts until another is made. Only the load's does: what was measured last holds while nothing is."""
    rising_since: datetime | None = None
    """Since when the load has been asking for more than `replicas`."""
    falling_since: datetime | None = None
    """Since when it has been asking for fewer."""
    unknown_since: datetime | None = None
    """Since when something serves, and not all of the load that it is to go by can be measured."""

    def counts(self, now: datetime) -> bool:
        """Whether it isn't over."""
        return self.until is None or now < self.until


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
    starts: Starts = field(default_factory=dict)
    """What instances told of starts that may not be on replicas' rows yet; only where every replica was read.
    By itself, because it is learned when nobody holds the lease: a row written then makes others conflict."""

    @property
    def last_document(self) -> ServiceSpec | None:
        """What to go by while nobody can say what is deployed.

        None if another control plane has the service, or its removal was told.
        """
        return self.document if self.is_claimed and not self.removal.told_at else None

    @property
    def look_again_s(self) -> float:
        """How soon to look again while something is under way: sooner while one that starts is asked.

        Who is registered waits for the load balancer alone, and so does a service without a readiness probe.
        """
        if self.document is not None and self.document.readiness_probe is None:
            return timing.TICK_IN_TRANSITION_S
        is_asked = any(
            r.state is ReplicaState.STARTING and (r.comes_back or Phase.REGISTERED not in r.phases)
            for r in self.replicas.values()
        )
        return timing.PROBE_AGAIN_S if is_asked else timing.TICK_IN_TRANSITION_S


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
    return row.but(revision=row.revision + 1)


def has_lost_its_ids(rows: Rows, now: datetime) -> bool:
    """Whether there are rows with IDs that, by the service's own entry, were never given, and not just now.

    Between a row's creation and its instance lies a launch, which is longer than any read.
    """
    newest = now - seconds(timing.LEASE_S)
    return any(
        id_ > rows.highest_id
        # A standby that is resumed, or stands by again, gets its row and its instance at once.
        and (replica.since < newest if replica.is_standby else _has_been_there(replica, newest))
        for id_, replica in rows.replicas.items()
    )


def _has_been_there(replica: Replica, newest: datetime) -> bool:
    return replica.instance_id is not None or replica.entered[ReplicaState.REQUESTED] < newest


# How many replicas a service should have, and who says so: the service file for good, others for a while.
# What follows is stored nowhere: it is derived wherever a document and a service's rows are both at hand.


@dataclass(frozen=True, slots=True)
class Desired:
    """How many replicas a service should have at a given time."""

    replicas: int
    source: Source
    until: datetime | None
    """When its request ends; None: it counts until the load, or another service file, says otherwise."""

    def applied_to(self, spec: ServiceSpec) -> ServiceSpec:
        """The document in effect: the service file's with this number of replicas, and those beyond it.

        The on-demand base is a part of the replicas, so fewer of these limit it. What a person asks for is
        the whole number: none means none.
        """
        beyond = 0 if self.source is Source.OPERATOR else spec.overprovision
        base = min(spec.base_on_demand, self.replicas)
        return replace(spec, replicas=self.replicas + beyond, base_on_demand=base, overprovision=beyond)


def derive(spec: ServiceSpec, requests: Mapping[Source, ScaleRequest], now: datetime) -> Desired:
    """What the highest source says whose request isn't over; without any, the service file's number."""
    for source in reversed(Source):
        request = requests.get(source)
        if source is Source.LOAD and spec.scaling is None:
            continue  # of an earlier service file, whose number followed the load
        if request is not None and request.counts(now):
            return Desired(request.replicas, source, request.until)
    return Desired(spec.replicas, Source.SERVICE_FILE, None)


def as_desired(spec: ServiceSpec, requests: Mapping[Source, ScaleRequest], now: datetime) -> ServiceSpec:
    """The document that decisions go by; the service file's own is kept as it is."""
    return derive(spec, requests, now).applied_to(spec)
