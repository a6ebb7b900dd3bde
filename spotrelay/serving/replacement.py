"""What comes of a lost replica's place: a replacement, or nothing if as many as wanted are left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Rows
from spotrelay.core.spec import OnUpdate, ServiceSpec
from spotrelay.serving import rollout
from spotrelay.serving.actions import Action, Drain, GoWithout, Replace, ServeOn
from spotrelay.serving.observation import Observation, counted
from spotrelay.serving.rotation import WARNED


def decide(spec: ServiceSpec, seen: Observation, _: datetime) -> Iterator[Replace | GoWithout]:
    """Replace what the tick found lost, as far as it is missed.

    The service may have been scaled in, or instances that had been lost sight of were taken in again.
    """
    lost = [
        replica
        for replica in seen.read.replicas.values()
        if replica.state.is_active
        and (row := seen.rows.replicas.get(replica.id))
        and not row.is_counted
        and (replica.is_counted or not row.state.is_active)
    ]
    # Nothing waits for what was to come where another stays for it.
    moving = {r.id for r in lost if r.moves_in(seen.rows)}
    missed = [r.id for r in lost if r.id not in moving and _is_missed(r, seen.read)]
    # One that is due to go needs its replacement, and the next one if that is lost. A roll-out can wait, and
    # so can a move.
    due = {
        replica.id
        for replica in seen.read.replicas.values()
        if replica.superseded_in(seen.read)
        and (successor := seen.read.replicas[replica.replaced_by or 0]).version == replica.version
        and not successor.is_move
    }
    left = sum(not replica.is_fallback and replica.id not in due for replica in counted(seen.rows))
    needless = set(missed[: max(len(missed) + left - spec.replicas, 0)])
    replaced = {*missed} - needless
    for replica in lost:
        row = seen.rows.replicas[replica.id]
        if replica.id in replaced:
            reason = WARNED if row.state.is_active else row.reason
            yield Replace(row, reason, rollout.proven(spec, seen.rows, replica))
        elif replica.id in needless | moving or _goes_without(replica):
            yield GoWithout(row)


def beside(action: Action, spec: ServiceSpec | None, rows: Rows) -> Iterator[Action]:
    """What a signal leads to and, if that is a loss, what comes of its place.

    Whether as many as wanted are left, only a tick can see.
    """
    yield action
    if not isinstance(action, Drain | ServeOn):
        return
    lost = action.replica
    is_moving = lost.moves_in(rows)
    if not is_moving and _is_missed(lost, rows):
        yield Replace(lost, action.reason, _version(spec, rows, lost) if spec else 0)
    elif is_moving or _goes_without(lost):
        yield GoWithout(lost)


def _version(spec: ServiceSpec, rows: Rows, lost: Replica) -> int:
    """Which version comes in its place.

    A signal's document may be one of before the last deployment, which looks as if that had been taken back.
    What was lost is right then; if it was taken back indeed, the tick replaces it once more.
    """
    is_newer = spec.on_update is not OnUpdate.KEEP and lost.version > spec.version
    # A rollback is as new as the rows.
    is_newer &= rows.rollback is None or lost.version > rows.rollback.version
    if is_newer and ReplicaState.READY in lost.entered:
        return lost.version
    return rollout.proven(spec, rows, lost)


def _is_missed(replica: Replica, rows: Rows) -> bool:
    """Whether its loss leaves one fewer, and nothing came in its place before.

    A fallback gets no replacement: whether another is wanted, the tick decides. A replica that serves on got
    its replacement with the warning, and what becomes of that is the replacement's own story. So did one that
    came back, when it left.
    """
    return not (replica.is_fallback or replica.is_warned or replica.comes_back or replica.superseded_in(rows))


def _goes_without(replica: Replica) -> bool:
    """Whether it served on, and got no replacement with the warning."""
    return replica.is_warned and replica.replaced_by is None and not replica.is_fallback
