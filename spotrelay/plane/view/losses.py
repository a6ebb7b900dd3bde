"""What was lost, what came in its place, and how long that took: told from a service's rows alone.

Every time is the product's own: when EC2 warned by the event (whole seconds), the rest by the controller's
clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from spotrelay.plane.core.pools import CapacityPool, Offering
from spotrelay.plane.core.replica import GONE, Replica, ReplicaState
from spotrelay.plane.serving.steps import NEEDLESS, WARNED


@dataclass(frozen=True, slots=True)
class Loss:
    """One replica whose instance EC2 took back, or that was found gone. None: it didn't happen (yet).

    Who restored the strength is the fallback, if there is one, and what replaced it otherwise.
    """

    replica: int
    offering: Offering | None
    reason: str
    """Why it left the rotation, for people."""
    at: datetime
    """When it was warned; without a warning, when it was found gone. The durations count from here."""
    warned_at: datetime | None
    out_at: datetime | None
    """When it left the rotation: at the warning, or later if it served on."""
    replaced_by: int | None
    """The replica that was requested in its place; that may have been lost or have failed, too."""
    fallback: int | None
    """The on-demand replica that served in its place before any replacement did."""
    launched_at: datetime | None
    """When who restored the strength had its instance."""
    ready_at: datetime | None
    """When who restored the strength served."""
    taken_at: datetime | None
    """When its instance was seen to be gone."""
    whole_at: datetime | None
    """When everything was restored that was lost in this time, which may be more than this replica."""
    is_missed: bool
    """Whether it needed a replacement: as many as wanted may have been left."""
    needless_at: datetime | None
    """When as many as wanted were there without a replacement: at once, or since fewer were wanted."""

    @property
    def is_warned(self) -> bool:
        """Whether a warning of EC2's arrived."""
        return self.warned_at is not None

    @property
    def pool(self) -> CapacityPool | None:
        """Where it was."""
        return self.offering.pool if self.offering else None

    @property
    def restored_by(self) -> int | None:
        """The fallback, or the replacement that was requested."""
        return self.fallback or self.replaced_by

    @property
    def out_s(self) -> float | None:
        """From the warning until it left the rotation."""
        return self._after(self.out_at)

    @property
    def launched_s(self) -> float | None:
        """From the warning until another instance was launched."""
        return self._after(self.launched_at)

    @property
    def ready_s(self) -> float | None:
        """From the warning until another replica served in its place."""
        return self._after(self.ready_at)

    @property
    def whole_s(self) -> float | None:
        """From the warning until the fleet was whole again."""
        return self._after(self.whole_at)

    def to_json(self) -> dict[str, Any]:
        """It as JSON: times in ISO 8601, durations in seconds from the warning on."""
        times = ("warned_at", "out_at", "launched_at", "ready_at", "taken_at", "needless_at", "whole_at")
        facts = {name: _iso(getattr(self, name)) for name in ("at", *times)}
        durations = {name: getattr(self, name) for name in ("out_s", "launched_s", "ready_s", "whole_s")}
        return {
            "replica": self.replica,
            "pool": str(self.pool) if self.pool else None,
            "purchase_option": str(self.offering.purchase_option) if self.offering else None,
            "is_warned": self.is_warned,
            "is_missed": self.is_missed,
            "reason": self.reason,
            "replaced_by": self.replaced_by,
            "fallback": self.fallback,
            **facts,
            **durations,
        }

    def _after(self, at: datetime | None) -> float | None:
        """Never negative: what was recommended to leave may have its replacement before the warning."""
        return None if at is None else round(max((at - self.at).total_seconds(), 0.0), 3)


def losses(replicas: Iterable[Replica]) -> list[Loss]:
    """What was lost, in the order in which it was; `replicas` are all rows that there are, ended ones too.

    A row doesn't say for whom a fallback stands in, nor whom it replaces if it was requested after a failure.
    That is told by time, and no fallback is told twice.
    """
    record = _Record.of(replicas)
    stand_ins: dict[int, Replica] = {}
    found = []
    for lost in sorted((r for r in record.rows.values() if _is_loss(r)), key=lambda r: (_lost_at(r), r.id)):
        loss = _loss(lost, record, stand_ins)
        if loss.fallback:
            stand_ins[loss.fallback] = stand_ins.get(lost.id, lost)
        found.append(loss)
    return _with_whole(found)


def outages(replicas: Iterable[Replica], since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """When nobody was in rotation, between `since` and `until`, by the rows."""
    served = [
        (r.entered[ReplicaState.READY], r.left_at or until)
        for r in replicas
        if ReplicaState.READY in r.entered
    ]
    return list(uncovered(served, since, until))


def uncovered(
    spans: Iterable[tuple[datetime, datetime]], since: datetime, until: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """The parts of the time from `since` to `until` that none of the spans covers."""
    at = since
    for begin, end in [*sorted(spans), (until, until)]:
        if min(begin, until) > at:
            yield at, min(begin, until)
        at = max(at, end)


def requested_at(replica: Replica) -> datetime:
    """When it was decided to have it, or, of a standby that was resumed, to have its instance."""
    return replica.entered[ReplicaState.REQUESTED]


def asked_at(fallback: Replica) -> datetime:
    """When it was asked to stand in: a standby was requested long before, and then resumed."""
    return fallback.entered[ReplicaState.PROVISIONING] if fallback.is_standby else requested_at(fallback)


def _is_loss(row: Replica) -> bool:
    """Whether its instance was lost while it was wanted, and not after it had left for another reason."""
    was_leaving = ReplicaState.DRAINING in row.entered and not row.reason.startswith((WARNED, GONE))
    return row.gone_at is not None and not (row.stands_by or was_leaving)


def _lost_at(row: Replica) -> datetime:
    """The warning of one that was found gone may come afterwards."""
    times = (row.gone_at, row.entered.get(ReplicaState.DRAINING))
    return min(at for at in times if at is not None)


@dataclass(frozen=True, slots=True)
class _Record:
    """All rows, and what is looked for among them, in order: there may be ten thousand."""

    rows: Mapping[int, Replica]
    in_nobodys_place: Sequence[Replica]
    """Those that were requested because too few were there, by ID: after a failure, for instance."""
    fallbacks: Sequence[Replica]
    """Those that came to serve, by when they did."""

    @classmethod
    def of(cls, replicas: Iterable[Replica]) -> _Record:
        rows = {r.id: r for r in replicas}
        free = (r for r in rows.values() if r.replaces is None and not (r.is_fallback or r.is_standby))
        served = (r for r in rows.values() if r.is_fallback and ReplicaState.READY in r.entered)
        return cls(
            rows,
            sorted(free, key=lambda r: r.id),
            sorted(served, key=lambda r: (r.entered[ReplicaState.READY], r.id)),
        )

    def successors(self, lost: Replica) -> Iterator[Replica]:
        """What was requested in its place, then what in the place of that, and so on."""
        row: Replica | None = lost
        while row and (row := self._successor(row)):
            yield row

    def _successor(self, row: Replica) -> Replica | None:
        """The next one has a higher ID: nothing is its own successor, whatever a damaged row says."""
        if row.replaced_by is not None:
            return self.rows.get(row.replaced_by) if row.replaced_by > row.id else None
        if not _leaves_a_place(row):
            return None
        since = row.since if row.state is ReplicaState.FAILED else _lost_at(row)
        first = bisect_right(self.in_nobodys_place, row.id, key=lambda r: r.id)
        return next((r for r in islice(self.in_nobodys_place, first, None) if requested_at(r) >= since), None)

    def fallback(
        self, since: datetime, successor: Replica | None, told: Collection[int], lost: Replica
    ) -> Replica | None:
        """The first one that was asked for since then, and served before the successor did."""
        by_then = successor.entered.get(ReplicaState.READY) if successor else None
        first = bisect_left(self.fallbacks, since, key=lambda r: r.entered[ReplicaState.READY])
        for one in islice(self.fallbacks, first, None):
            if by_then is not None and one.entered[ReplicaState.READY] >= by_then:
                return None
            if asked_at(one) >= since and one.id not in told and one.id != lost.id:
                return one
        return None


def _leaves_a_place(row: Replica) -> bool:
    """Whether the next replica replaces none in particular: after a failure, and after a loss while the
    service's stack was gone."""
    return row.state is ReplicaState.FAILED or (_is_loss(row) and not (row.is_fallback or _is_needless(row)))


def _is_needless(row: Replica) -> bool:
    """Whether as many as wanted were left."""
    return row.reason.endswith(NEEDLESS)


def _loss(lost: Replica, record: _Record, stand_ins: Mapping[int, Replica]) -> Loss:
    """`stand_ins`: for whom each fallback stands in, by its ID, as far as that has been told."""
    # Nothing is requested in the place of a fallback: it goes on to wait for what it stood in for.
    chain = list(record.successors(stand_ins.get(lost.id, lost)))
    ready = (r for r in chain if ReplicaState.READY in r.entered)
    successor = next(ready, chain[-1] if chain else None)
    since = _lost_at(lost) if lost.is_fallback else requested_at(chain[0]) if chain else None
    fallback = record.fallback(since, successor, stand_ins.keys(), lost) if since else None
    entered = restorer.entered if (restorer := fallback or successor) else {}
    # A loss and its replacement are one commit: without one as many as wanted are left, or nothing is wanted.
    is_missed = bool(chain or fallback or lost.replaced_by)
    return Loss(
        replica=lost.id,
        offering=lost.offering,
        reason=lost.reason,
        at=_lost_at(lost),
        warned_at=lost.warned_at,
        out_at=lost.entered.get(ReplicaState.DRAINING),
        replaced_by=lost.replaced_by,
        fallback=fallback.id if fallback else None,
        launched_at=entered.get(ReplicaState.PROVISIONING),
        ready_at=entered.get(ReplicaState.READY),
        taken_at=lost.entered.get(ReplicaState.TERMINATED),
        whole_at=None,
        is_missed=is_missed,
        needless_at=_given_up_at(successor) if is_missed else _lost_at(lost),
    )


def _given_up_at(successor: Replica | None) -> datetime | None:
    """When the last one in the line went without having served, and nothing had to come in its place."""
    if successor is None or ReplicaState.READY in successor.entered:
        return None
    if successor.state is ReplicaState.FAILED or (_is_loss(successor) and not _is_needless(successor)):
        return None
    ends = (successor.entered.get(state) for state in (ReplicaState.DRAINING, ReplicaState.TERMINATED))
    return min((at for at in ends if at), default=None)


def _with_whole(found: list[Loss]) -> list[Loss]:
    """The fleet is whole once nothing is missing: losses that overlap wait for the last of them."""
    whole: list[Loss] = []
    together: list[Loss] = []
    until: datetime | None = None
    for loss in found:
        if together and until is not None and loss.at > until:
            whole += (replace(one, whole_at=until) for one in together)
            together, until = [], None
        restored_at = max(at, loss.at) if (at := loss.ready_at or loss.needless_at) else None
        if not together:
            until = restored_at
        elif until is not None:
            until = max(until, restored_at) if restored_at else None
        together.append(loss)
    return [*whole, *(replace(one, whole_at=until) for one in together)]


def _iso(at: datetime | None) -> str | None:
    return at.isoformat(timespec="milliseconds") if at else None
