"""Replicas whose instance EC2 doesn't show, and should.

EC2 shows what it terminated for an hour. What it doesn't show at all was hidden by a wrong or partial answer,
or by somebody who changed its tags, far more often than it was lost unseen. So a replica counts as gone if

- the load balancer, which sees for itself, doesn't call it healthy, nor did when it last knew;
- no more than half of the others are missing, too: of those that are ready, and of all that have an instance;
- it isn't the last one that serves;
- it has been missing for half a minute.

One that is ready and is kept is replaced like any other that the load balancer doesn't call healthy:
another one serves first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.replica import GONE, Replica, ReplicaState
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import interruption, steps
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.steps import HoldBack, Step

COUNTS_AS_GONE = "it counts as gone: it leaves the rotation, and is replaced if it is needed"
"""What an override lets happen to one that doesn't leave already."""


def found(seen: Observation, now: datetime) -> set[int]:
    """The replicas whose instance EC2 doesn't show, and should; a standby's is needed by nobody."""
    return {r.id for r in _to_be_shown(seen, now) if r.instance_id not in seen.instances}


def may_be_unseen(replica: Replica, now: datetime) -> bool:
    """Whether its instance is so young that EC2 may not describe it yet."""
    launched_at = replica.entered.get(ReplicaState.PROVISIONING)
    # One that stood by got its instance from another row, and that was seen.
    return launched_at is not None and now - launched_at < seconds(timing.VISIBLE_WITHIN_S)


def decide(
    replica: Replica, seen: Observation, missing: Collection[int], now: datetime, *, is_overdue: bool
) -> Iterator[Step]:
    """What becomes of a replica that is among the `missing`.

    `is_overdue`: it should be ready by now, or have finished its requests.
    """
    health = seen.health_of(replica)
    is_over = replica.warned_at is not None and now >= interruption.ends_at(replica.warned_at)
    is_taken = is_over and replica.instance_id not in seen.spared
    why = _answers(replica, seen) or ("" if is_overdue else _is_too_much(replica, seen, missing, now))
    kept = HoldBack(
        f"replica {replica.id} is kept",
        f"EC2 doesn't show {replica.instance_id}, {why}",
        then="it counts as ended" if replica.state is ReplicaState.DRAINING else COUNTS_AS_GONE,
    )
    if is_taken or (why and seen.is_vouched_for(kept)):
        yield _gone(replica, now)
        return
    if replica.state is ReplicaState.READY:
        noted = health_noted(replica, health, now)
    elif replica.state is ReplicaState.STARTING and health is TargetState.HEALTHY:
        noted = steps.mark_ready(replica, now)
    else:
        noted = None
    if noted:
        yield noted
    if why:
        yield steps.hold_back(kept)
    else:
        yield from once_certain(noted.row if noted else replica, now)


def once_certain(replica: Replica, now: datetime) -> Iterator[Step]:
    """It is noted as missing; once it has been so for long enough, it counts as gone."""
    if replica.missing_since is None:
        yield steps.note_missing(replica, now)
    elif now - replica.missing_since >= seconds(timing.MISSING_S):
        yield _gone(replica, now)


def health_noted(replica: Replica, health: TargetState | None, now: datetime) -> Step | None:
    """What the load balancer says of one that is ready; what it doesn't know changes nothing."""
    if health is TargetState.UNAVAILABLE:
        return None
    if health is TargetState.HEALTHY:
        return steps.note_health(replica, None) if replica.unhealthy_since else None
    return steps.note_health(replica, now) if replica.unhealthy_since is None else None


def _gone(replica: Replica, now: datetime) -> Step:
    if replica.state is ReplicaState.DRAINING:
        return steps.end(replica, now, replica.reason)
    return steps.drain(replica, now, f"{GONE}gone", warned_at=replica.warned_at, is_gone=True)


def _answers(replica: Replica, seen: Observation) -> str:
    """That it answers its checks, or may do so and nobody else does; empty: it doesn't."""
    health = seen.health_of(replica)
    if health is TargetState.HEALTHY:
        return "and it answers its checks"
    is_ready, is_unknown = replica.state is ReplicaState.READY, health is TargetState.UNAVAILABLE
    if is_ready and is_unknown and replica.unhealthy_since is None:
        return "and it answered when the load balancer last knew"
    # What starts, and is registered, may answer by now: its row is behind what the load balancer would know.
    may_serve = is_ready or (is_unknown and replica.state is ReplicaState.STARTING)
    if may_serve and health is not TargetState.UNHEALTHY and not seen.stays_without(replica):
        return "and no other replica answers its checks"
    return ""


def _is_too_much(replica: Replica, seen: Observation, missing: Collection[int], now: datetime) -> str:
    """How many are missing at the same time, if that is too many to be true; else empty."""
    there = _to_be_shown(seen, now)
    ready = [r for r in there if r.state is ReplicaState.READY]
    is_ready = replica.state is ReplicaState.READY
    for group in (ready, there) if is_ready else (there,):
        lost = sum(r.id in missing for r in group)
        # The load balancer has judged one that is ready and alone: see `_answers`.
        if lost > max(len(group) * timing.CREDIBLE_SHARE, is_ready):
            return f"nor those of {lost} of {len(group)} {'ready ' * (group is ready)}replicas in all"
    return ""


def _to_be_shown(seen: Observation, now: datetime) -> list[Replica]:
    """The replicas that have an instance which EC2 shows, or should."""
    there = [r for r in seen.rows.replicas.values() if r.instance_id and r.state is not ReplicaState.STANDBY]
    return [r for r in there if r.instance_id in seen.instances or not may_be_unseen(r, now)]
