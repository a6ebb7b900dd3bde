"""What the calls of an invocation say, in the order of their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.sim.faults import Call
from lab.sim.gate import CallRecord, first
from spotrelay.plane.core.ports import PortError, UnreadableDocument
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes, Rows


@dataclass(frozen=True, slots=True)
class TriedCommit:
    """A commit that was tried."""

    position: int
    """Where it is among the calls."""
    record: CallRecord
    changes: Changes
    known: Mapping[tuple[str, int], Replica]
    """By service and ID: the rows as they were known then."""
    is_outcome: bool
    """Whether it only notes what came of a launch or of a start, and is part of no decision."""


def commits(records: Sequence[CallRecord]) -> Iterator[TriedCommit]:
    """All commits that were tried."""
    opened: set[str] = set()
    known: dict[tuple[str, int], Replica] = {}
    for position, record in enumerate(records):
        if isinstance(record.answer, Rows):
            known |= {(r.service, r.id): r for r in record.answer.replicas.values()}
        changes = record.about
        if record.call is not Call.COMMIT or not isinstance(changes, Changes):
            continue
        is_outcome = bool(opened & set(changes.close_intents)) or _is_about_refused_start(changes)
        yield TriedCommit(position, record, changes, known, is_outcome)
        if changes.open_intent:
            opened.add(changes.open_intent.id)
        if not record.is_error:
            known |= {(r.service, r.id): r for r in changes.stored}


def is_mending(about: object) -> bool:
    """Whether a commit only repairs the highest ID, and is part of no decision."""
    return isinstance(about, Changes) and not (about.create or about.update or about.close_intents)


def _is_about_refused_start(changes: Changes) -> bool:
    """Whether a commit only notes that EC2 refused to start standbys."""
    if changes.create or changes.close_intents or not changes.update:
        return False
    return all(
        r.is_standby and r.is_fallback and r.state is ReplicaState.PROVISIONING and r.retry_at
        for r in changes.update
    )


def after_release(records: Sequence[CallRecord], call: Call) -> CallRecord | None:
    """A tick's call after it has let others in: it only counts by the answer."""
    released = next((i for i, c in enumerate(records) if c.call is Call.RELEASE), len(records))
    return next((c for c in records[released:] if c.call is call), None)


def knows_no_document(records: Sequence[CallRecord]) -> bool:
    """Whether nobody could say what is deployed, and the table has no document to go by."""
    unknown = PortError | UnreadableDocument
    is_silent = any(c.call is Call.GET and isinstance(c.answer, unknown) for c in records)
    return is_silent and any(c.call is Call.DOCUMENT and c.answer is None for c in records)


def has(records: Sequence[CallRecord], call: Call) -> bool:
    """Whether such a call succeeded."""
    return any(c.call is call and not c.is_error for c in records)


def last(records: Sequence[CallRecord], call: Call) -> object:
    """The last answer to such a call, or its error; None if there was no call."""
    return first(reversed(records), call)
