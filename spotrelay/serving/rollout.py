"""Which version a replica is launched with, and whether a new version may replace the ones before it.

Where a service rolls out, only a replacement that comes up beside a serving replica tries a new version. A
loss is replaced with a version that has served. A new version that fails stops the roll-out.
"""

from __future__ import annotations

from datetime import datetime

from spotrelay.core import timing
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Rows
from spotrelay.core.spec import OnUpdate, ServiceSpec
from spotrelay.serving import failures


def proven(spec: ServiceSpec, rows: Rows, lost: Replica | None = None) -> int:
    """The newest version that has served: what is missing is launched with it.

    Where none has, the version of what was lost, and else the one that is deployed.
    """
    if spec.on_update is OnUpdate.KEEP:
        return spec.version
    known = rows.replicas.values()
    served = (r.version for r in known if ReplicaState.READY in r.entered and r.unhealthy_since is None)
    return max(served, default=lost.version if lost else spec.version)


def to_launch(spec: ServiceSpec, rows: Rows, waiting: Replica) -> int:
    """With which version a replica is launched that was requested before."""
    if spec.on_update is OnUpdate.KEEP:
        return spec.version
    return max(waiting.version, proven(spec, rows, waiting))


def may_go_on(spec: ServiceSpec, rows: Rows, now: datetime) -> bool:
    """Whether the next replica may be replaced by one of the deployed version."""
    is_held = failures.is_held(spec.version, rows.backoff, now)
    return spec.on_update is OnUpdate.REPLACE and not is_stopped(spec, rows) and not is_held


def is_stopped(spec: ServiceSpec, rows: Rows) -> bool:
    """Whether the deployed version is given up: it failed repeatedly, or doesn't answer its health checks.

    A replica of it that gets ready, or healthy again, lets the roll-out go on; so does another version.
    """
    if spec.on_update is OnUpdate.KEEP:
        return False
    backoff, known = rows.backoff, rows.replicas.values()
    has_failed = backoff.version == spec.version and backoff.failures >= timing.ROLLOUT_FAILURES
    return has_failed or any(r.version == spec.version and r.unhealthy_since is not None for r in known)
