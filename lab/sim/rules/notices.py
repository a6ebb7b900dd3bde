"""The rule about what is told: events and gaps say what the rows that their tick read say.

Product code goes back from the end to find when a service ceased to be whole. Here it is told forwards: how
many served at every moment, by the same rows and those that had ended by then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from lab.sim.faults import Call
from lab.sim.gate import CallRecord, Invocation, time_of
from lab.sim.rules import Findings, Rule
from lab.sim.rules.invocation_view import InvocationView
from lab.sim.rules.limits import SKEW_S
from spotrelay.plane.core.notices import Notice, NoticeKind
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows, Told
from spotrelay.plane.memory import MemoryStore


def check(view: InvocationView, memory: MemoryStore) -> Findings:
    """Check what an undisturbed tick told, and that it told when the service ceased to be whole."""
    rows, before = view.rows, view.rows.told
    # Of a row that a table lost, nobody knows when its replica left.
    if view.spec is None or not before.revision or view.service in view.history.damaged:
        return
    told = list(_told(view.invocation, before.unsent))
    known = _known(rows, memory, view.service) if told else {}
    for notice in told:
        if notice.kind in (NoticeKind.REPLICA_READY, NoticeKind.REPLICA_REPLACED, NoticeKind.REPLICA_LOST):
            wrong = _wrong_facts(notice, known, before.lost)
            if wrong:
                yield Rule.NEWS_TRUE, f"{notice.id}: {wrong}"
    yield from _check_gap(view, before, told, known)
    yield from _check_unsent(view.invocation.calls)


def _known(rows: Rows, memory: MemoryStore, service: str) -> Mapping[int, Replica]:
    """The replicas that it read, and those that had ended by then."""
    ended = {r.id: r for r in memory.history(service, 1000) if r.id <= rows.highest_id}
    return {**rows.told.lost, **ended, **rows.replicas}


def _told(invocation: Invocation, unsent: Collection[Notice]) -> Iterable[Notice]:
    """The events that were told by this invocation for the first time."""
    again = {notice.id for notice in unsent}
    for record in invocation.calls:
        if record.call is Call.PUBLISH and isinstance(record.about, list | tuple):
            yield from (notice for notice in record.about if notice.id not in again)


def _check_unsent(calls: Iterable[CallRecord]) -> Findings:
    """Is what EventBridge took kept to be told again, or what it refused forgotten?"""
    refused: set[str] | None = None
    for record in calls:
        if record.call is Call.PUBLISH and isinstance(record.answer, Mapping):
            refused = set(record.answer)
        if refused is None or not isinstance(record.about, Told):
            continue
        if (unsent := {notice.id for notice in record.about.unsent}) != refused:
            yield Rule.NEWS_TRUE, f"{unsent} are to be told again, and {refused} were refused"


def _wrong_facts(notice: Notice, known: Mapping[int, Replica], lost: Mapping[int, Replica]) -> str:
    """What an event says of a replica that isn't so; empty: all of it is."""
    row = known.get(int(notice.subject))
    if row is None:
        return "there is no such replica"
    if notice.kind is NoticeKind.REPLICA_LOST:
        # What came back may be lost once more.
        if row.id in lost and lost[row.id].lost_at == row.lost_at:
            return "it was told lost before"
        return "" if notice.at == row.lost_at else f"it was lost at {row.lost_at}"
    ready = row
    if notice.kind is NoticeKind.REPLICA_REPLACED:
        ready = known.get(notice.facts["by"]["replica"], row)
        if ready.replaces != row.id:
            return f"{ready} replaces {ready.replaces}"
    elif notice.facts["fallback"] is not row.is_fallback or notice.facts["replaces"] != row.replaces:
        return f"it replaces {row.replaces}, a fallback: {row.is_fallback}"
    ready_at = ready.entered.get(ReplicaState.READY)
    return "" if notice.at == ready_at else f"{notice.at}, {ready} is ready since {ready_at}"


def _check_gap(
    view: InvocationView, before: Told, told: Collection[Notice], known: Mapping[int, Replica]
) -> Findings:
    """Did a gap begin, or end, if it should, and then when?"""
    assert view.spec is not None  # noqa: S101 - see `check`
    noted = [c for c in view.invocation.calls if c.call is Call.NOTE_TOLD and isinstance(c.about, Told)]
    after = noted[-1].about if noted else before
    assert isinstance(after, Told)  # noqa: S101 - as above
    desired, serving = view.spec.replicas, sum(r.serves for r in view.rows.replicas.values())
    needed = min(desired, before.whole_at)
    whole_at = desired if serving >= desired else before.whole_at
    # While a gap lasts, nothing is noted of the number.
    if after.whole_at != whole_at and not (serving < needed and before.gap_since is None):
        yield Rule.NEWS_TRUE, f"{after.whole_at} were whole, not {whole_at}"
    if (after.gap_since is not None) != (serving < needed):
        yield Rule.NEWS_TRUE, f"{serving} serve, {needed} needed, and a gap is told since {after.gap_since}"
    for notice in told:
        if notice.kind in (NoticeKind.FLEET_NOT_WHOLE, NoticeKind.FLEET_WHOLE):
            yield from _check_turn(view, notice, known, needed)


def _check_turn(view: InvocationView, notice: Notice, known: Mapping[int, Replica], needed: int) -> Findings:
    """When it ceased to be whole, or was again, by all rows."""
    came_back = {id_ for service, id_ in view.history.came_back if service == view.service}
    if came_back & known.keys() or any(r.unhealthy_since for r in known.values()):
        return  # no row says when it has served before, or answered its checks again
    is_end, since = notice.kind is NoticeKind.FLEET_WHOLE, view.rows.told.gap_since
    turns = [time_of(moment) for moment in _turns(known, needed, is_end=is_end)]
    turns = [turn for turn in turns if since is None or turn > time_of(since) - SKEW_S]
    earliest = latest = turns[-1] if turns else view.invocation.loaded_at
    if not turns or (since is not None and earliest < time_of(since) + SKEW_S):
        # Fewer are needed since, or one answers its checks again: the tick is the first to see it. By its
        # clock that may have been before the gap began.
        latest = view.history.scheduler.now
        # Of those that have ended since, nothing may be known any more that says when so few were enough.
        earliest = time_of(since) if since and needed < view.rows.told.whole_at else earliest
    told_at = time_of(notice.at)
    if not earliest - SKEW_S <= told_at <= latest + SKEW_S:
        yield Rule.NEWS_TRUE, f"{notice.id} at {told_at:.3f}, not {earliest:.3f}: {turns}"


def _turns(known: Mapping[int, Replica], needed: int, *, is_end: bool) -> list[datetime]:
    """The moments at which as many as needed came to serve, or ceased to."""
    changes: dict[datetime, int] = defaultdict(int)
    for row in known.values():
        ready_at, left_at = row.entered.get(ReplicaState.READY), _left_at(row)
        if ready_at is not None and (left_at is None or left_at > ready_at):
            changes[ready_at] += 1
            if left_at is not None:
                changes[left_at] -= 1
    found, serving = [], 0
    for moment, change in sorted(changes.items()):
        was_enough, serving = serving >= needed, serving + change
        if (serving >= needed) is is_end and was_enough is not is_end:
            found.append(moment)
    return found


def _left_at(row: Replica) -> datetime | None:
    """When it left the rotation; None: it serves."""
    if row.state is ReplicaState.READY:
        return None
    return row.entered.get(ReplicaState.DRAINING, row.since)
