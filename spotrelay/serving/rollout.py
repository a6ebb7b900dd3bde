"""Which version a replica is launched with, and whether a new version may replace the ones before it.

Where a service rolls out, only a replacement that comes up beside a serving replica tries a new version. A
loss is replaced with a version that has served. A new version that fails stops the roll-out.
"""

from __future__ import annotations

from datetime import datetime

from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Rows
from spotrelay.core.spec import OnUpdate, ServiceSpec
from spotrelay.serving import failures
from spotrelay.serving.observation import stays_from


def proven(spec: ServiceSpec, rows: Rows, lost: Replica | None = None) -> int:
    """The newest version that has served, and wasn't given up: what is missing is launched with it.

    Where none has, the version of what was lost, unless that one was given up: then the one that is deployed.
    """
    if spec.on_update is OnUpdate.KEEP:
        return spec.version
    # One that serves as a fallback may fail again and again on Spot: then the deployed one is its repair.
    is_repair = failures.is_crash_looping(rows.backoff.version, rows.backoff)
    given_up = rows.backoff.version if is_repair and rows.backoff.version < spec.version else None
    ready = (r for r in rows.replicas.values() if ReplicaState.READY in r.entered)
    have_served = [r for r in ready if r.version != given_up]
    # Where none of them answers now, that says nothing about their versions.
    answering = [r for r in have_served if r.unhealthy_since is None]
    served = [r.version for r in answering or have_served]
    older = [version for version in served if version < spec.version]
    if older and is_stopped(spec, rows):
        return max(older)
    is_to_stay = lost is not None and lost.version != given_up
    return max(served, default=lost.version if lost and is_to_stay else spec.version)


def to_launch(spec: ServiceSpec, rows: Rows, waiting: Replica) -> int:
    """With which version a replica is launched that was requested before."""
    if spec.on_update is OnUpdate.KEEP:
        return spec.version
    served = proven(spec, rows, waiting)
    return served if is_stopped(spec, rows) else max(waiting.version, served)


def is_called_off(spec: ServiceSpec, rows: Rows, waiting: Replica) -> bool:
    """Whether a replica was requested to try a version that has been given up since."""
    return is_stopped(spec, rows) and waiting.version > to_launch(spec, rows, waiting)


def is_next(spec: ServiceSpec, rows: Rows, replica: Replica, now: datetime) -> bool:
    """Whether a replica that serves may be replaced by one of the deployed version now."""
    return is_replaced(spec, rows, replica) and due_from(spec, rows, replica) <= now


def is_replaced(spec: ServiceSpec, rows: Rows, replica: Replica) -> bool:
    """Whether it will be: a fallback goes when Spot is back, of whatever version it is."""
    return is_old(spec, replica) and not replica.is_fallback and not is_stopped(spec, rows)


def is_old(spec: ServiceSpec, replica: Replica) -> bool:
    """Whether the service rolls out a newer version than the replica's."""
    return spec.on_update is OnUpdate.REPLACE and replica.version < spec.version


def due_from(spec: ServiceSpec, rows: Rows, replica: Replica) -> datetime:
    """From when on a ready replica may be replaced: it has stayed, and no failure holds the version."""
    stays = stays_from(replica)
    return max(stays, failures.held_until(spec.version, rows.backoff) or stays)


def is_stopped(spec: ServiceSpec, rows: Rows) -> bool:
    """Whether the deployed version is given up: it failed repeatedly, or doesn't answer its health checks.

    A replica of it that gets ready lets the roll-out go on; so does another version.
    """
    if spec.on_update is OnUpdate.KEEP:
        return False
    backoff, known = rows.backoff, rows.replicas.values()
    # More in a row than come of one launch, which may fail together for a reason that isn't the version's.
    has_failed = backoff.version == spec.version and backoff.failures > spec.surge
    return has_failed or any(r.version == spec.version and r.unhealthy_since is not None for r in known)


def is_under_way(spec: ServiceSpec, rows: Rows, replica: Replica) -> bool:
    """Whether the replica is one of the new version, and others are still to follow it."""
    is_new = replica.version == spec.version
    return is_new and any(r.is_counted and is_old(spec, r) for r in rows.replicas.values())
