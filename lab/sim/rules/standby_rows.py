"""What rows of standbys, and of what was resumed, say."""

from __future__ import annotations

from datetime import datetime

from lab.sim.gate import time_of
from lab.sim.rules import limits
from lab.sim.rules.limits import STARTING_STATES
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows


def got_instance_of_another(row: Replica) -> bool:
    """Whether the row was created with another's instance: a standby was resumed, or stands by again."""
    if row.was_started_again:
        return True
    is_back = row.state is ReplicaState.STANDBY or ReplicaState.STANDBY in row.entered
    return row.is_standby and is_back and ReplicaState.PROVISIONING not in row.entered


def was_refused(before: Replica, row: Replica) -> bool:
    """Whether EC2 refused to start it, so that it was nowhere and stands by again, under another ID.

    A restored row may say that it is prepared once more.
    """
    is_resumed = before.is_standby and before.state is ReplicaState.PROVISIONING
    return is_resumed and before.retry_at is not None and row.state.is_ended


def created_at(row: Replica) -> datetime:
    """When the row was created. One that got another's instance keeps the time when that was requested."""
    times = sorted(row.entered.values())
    return times[1] if got_instance_of_another(row) else row.entered[ReplicaState.REQUESTED]


def others_at_rest(rows: Rows) -> list[Replica]:
    """All rows but those that stand by: these may stay so for weeks."""
    return [r for r in rows.replicas.values() if r.state is not ReplicaState.STANDBY]


def is_coming(row: Replica, now: float) -> bool:
    """Whether it was resumed so lately, and not refused, that nothing else is to come in its place."""
    is_rising = row.state in STARTING_STATES and row.is_standby and row.is_fallback
    if not is_rising or row.retry_at is not None:
        return False
    slow_s = limits.STANDBY_SLOW * max(row.resume_s or 0, limits.STANDBY_RESUME_S)
    return now <= time_of(row.entered[ReplicaState.PROVISIONING]) + slow_s


def is_late(row: Replica, now: float) -> bool:
    """Whether it was resumed, isn't ready, and others are to come in its place."""
    return row.state in STARTING_STATES and row.is_standby and row.is_fallback and not is_coming(row, now)
