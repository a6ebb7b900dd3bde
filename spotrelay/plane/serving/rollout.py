"""Which version a replica is launched with, and whether another version may replace what there is.

Where a service rolls out, only a replacement that comes up beside a serving replica tries a new version. A
loss is replaced with a version that has served. A new version that fails stops the roll-out.

What is deployed is what should run, be its number higher or lower: CloudFormation takes a failed deployment
back, and so does an operator (`Rollback`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from spotrelay.plane.core import timing
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows, as_desired
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import failures
from spotrelay.plane.serving.observation import stays_from


def proven(spec: ServiceSpec, rows: Rows, lost: Replica | None = None) -> int:
    """The newest version that has served, and wasn't given up: what is missing is launched with it.

    Where none has, the version of what was lost, unless that one was given up: then the one that is deployed.
    """
    if spec.on_update is OnUpdate.KEEP:
        return spec.version
    # One that serves as a fallback may fail again and again on Spot: then the deployed one is its repair.
    is_repair = failures.is_crash_looping(rows.backoff.version, rows.backoff)
    given_up = rows.backoff.version if is_repair and rows.backoff.version < spec.version else None

    def may_be(version: int) -> bool:
        # What was adopted to be replaced has none.
        return version != given_up and 0 < version <= spec.version

    ready = (r for r in rows.replicas.values() if ReplicaState.READY in r.entered)
    have_served = [r for r in ready if may_be(r.version)]
    # Where none of them answers now, that says nothing about their versions.
    answering = [r for r in have_served if r.unhealthy_since is None]
    served = [r.version for r in answering or have_served]
    older = [version for version in served if version < spec.version]
    if older and is_stopped(spec, rows):
        return max(older)
    is_to_stay = lost is not None and may_be(lost.version)
    return max(served, default=lost.version if lost and is_to_stay else spec.version)


def has_served(rows: Rows, version: int) -> bool:
    """Whether a replica of the version serves, or did and is still there."""
    return any(r.version == version and ReplicaState.READY in r.entered for r in rows.replicas.values())


def to_launch(spec: ServiceSpec, rows: Rows, waiting: Replica) -> int:
    """With which version a replica is launched that was requested before.

    With the deployed one, unless that was given up: so to deploy again repairs what EC2 refuses. But a loss
    tries no new version while one that has served may be launched. And one that was given up and serves all
    the same is more than one that EC2 refuses.
    """
    if spec.on_update is OnUpdate.KEEP:
        return spec.version
    served = proven(spec, rows, waiting)
    if waiting.version > spec.version:
        return served
    is_refused = waiting.is_denied and waiting.version == served
    if is_stopped(spec, rows):
        is_serving = any(r.serves and r.version == spec.version for r in rows.replicas.values())
        return spec.version if is_refused and is_serving else served
    is_known = waiting.is_proven or has_served(rows, served)
    # What was to try a newer version beside one that serves tries the newest.
    return served if is_known and not is_refused and waiting.version <= served else spec.version


def as_launched(spec: ServiceSpec, rows: Rows, waiting: Replica, now: datetime) -> Replica:
    """A replica that was requested before, as it is launched now."""
    # What it comes to, the version that it is launched with answers for.
    version = to_launch(spec, rows, waiting)
    launched = replace(waiting, version=version, port=port_of(spec, rows, version))
    if version == waiting.version:
        return launched
    # How long EC2 has refused one version says nothing of the next.
    return replace(
        launched,
        entered={**waiting.entered, ReplicaState.REQUESTED: now},
        reason=deployed(version) if waiting.reason == deployed(waiting.version) else waiting.reason,
        is_denied=False,
        is_proven=has_served(rows, version),
    )


def is_called_off(spec: ServiceSpec, rows: Rows, waiting: Replica) -> bool:
    """Whether a replica was requested to try a version, and would be launched with one that serves already.

    That one was given up or taken back since, or another one is deployed.
    """
    if spec.on_update is OnUpdate.KEEP:
        return False
    version, before = to_launch(spec, rows, waiting), rows.replicas.get(waiting.replaces or 0)
    is_no_other = before is not None and before.version == version != waiting.version
    is_trial = waiting.version > version and not waiting.is_proven
    return is_trial or (is_no_other and waiting.reason == deployed(waiting.version))


def is_taken_back(spec: ServiceSpec, successor: Replica) -> bool:
    """Whether a replica came to try a version that was taken back since."""
    return spec.on_update is not OnUpdate.KEEP and successor.version > spec.version


def deployed(version: int) -> str:
    """Why a replica of another version is replaced."""
    return f"version {version} is deployed"


def is_next(spec: ServiceSpec, rows: Rows, replica: Replica, now: datetime) -> bool:
    """Whether a replica that serves may be replaced by one of the deployed version now."""
    return is_replaced(spec, rows, replica) and due_from(spec, rows, replica) <= now


def is_replaced(spec: ServiceSpec, rows: Rows, replica: Replica) -> bool:
    """Whether it will be: a fallback goes when Spot is back, of whatever version it is."""
    return may_repair(spec, rows, replica) and not replica.is_fallback


def may_repair(spec: ServiceSpec, rows: Rows, replica: Replica) -> bool:
    """Whether the deployed version is another than the replica's, and isn't given up."""
    return is_old(spec, replica) and not is_stopped(spec, rows)


def is_old(spec: ServiceSpec, replica: Replica) -> bool:
    """Whether the service rolls out another version than the replica's."""
    return spec.on_update is not OnUpdate.KEEP and replica.version != spec.version


def due_from(spec: ServiceSpec, rows: Rows, replica: Replica) -> datetime:
    """From when on a ready replica may be replaced: it has stayed, and no failure holds the version."""
    stays = stays_from(replica)
    return max(stays, failures.held_until(spec.version, rows.backoff) or stays)


def baked_at(spec: ServiceSpec, successor: Replica) -> datetime:
    """When a ready replica of a new version may be relied on: it may turn ill soon after it got ready."""
    if spec.bake_s is not None:
        return successor.entered[ReplicaState.READY] + seconds(spec.bake_s)
    if changes_at_once(spec):
        return successor.entered[ReplicaState.READY]
    return stays_from(successor)


def is_stopped(spec: ServiceSpec, rows: Rows) -> bool:
    """Whether the deployed version is given up, or one of it doesn't answer its health checks at present.

    A replica of it that gets ready lets the roll-out go on; so does another version.
    """
    if spec.on_update is OnUpdate.KEEP:
        return False
    known = rows.replicas.values()
    return has_failed(spec, rows) or any(
        r.version == spec.version and r.unhealthy_since is not None and not r.is_adopted for r in known
    )


def has_failed(spec: ServiceSpec, rows: Rows) -> bool:
    """Whether the deployed version failed repeatedly, or was given up."""
    backoff = rows.backoff
    return backoff.version == spec.version and backoff.failures >= timing.ROLLOUT_FAILURES


def is_under_way(spec: ServiceSpec, rows: Rows, replica: Replica) -> bool:
    """Whether the replica is one of the new version, and others are still to follow it."""
    is_new = replica.version == spec.version
    return is_new and any(r.is_counted and is_old(spec, r) for r in rows.replicas.values())


# All at once.


def changes_at_once(spec: ServiceSpec) -> bool:
    """Whether no client is to meet both versions for longer than the change takes."""
    return spec.on_update is OnUpdate.BLUE_GREEN


def old_ones(spec: ServiceSpec, rows: Rows) -> list[Replica]:
    """The regular replicas that are still to be replaced by the deployed version, or are being so."""
    return [r for r in rows.replicas.values() if r.is_counted and not r.is_fallback and is_old(spec, r)]


def is_waiting(spec: ServiceSpec, rows: Rows, replica: Replica) -> bool:
    """Whether a replica of the new version stays outside the rotation until all of them are up.

    Where none of the old ones serves, there is nothing to be kept apart from.
    """
    is_new = replica.version == spec.version and replica.state.is_active and not replica.stands_by
    if not (changes_at_once(spec) and is_new) or ReplicaState.READY in replica.entered:
        return False
    return any(r.serves and is_old(spec, r) for r in rows.replicas.values())


def admitted(spec: ServiceSpec, rows: Rows, answering: Iterable[Replica]) -> list[Replica]:
    """Of the replicas that answer their probe, those that enter the rotation now.

    Where all change at once, the new ones enter only together: what isn't there yet keeps the others out.
    """
    answering = list(answering)
    up = {r.id for r in answering if r.version == spec.version and not r.is_warned}
    up |= {r.id for r in rows.replicas.values() if r.stays and r.version == spec.version}
    is_complete = len(up) >= spec.replicas and all(_heir(spec, rows, r) in up for r in old_ones(spec, rows))
    return [r for r in answering if is_complete or not is_waiting(spec, rows, r)]


def may_change(spec: ServiceSpec, rows: Rows, now: datetime) -> bool:
    """Whether there are old ones, and all that is to come in their place serves, for long enough."""
    old = old_ones(spec, rows)
    serving = [r for r in rows.replicas.values() if r.stays and r.version == spec.version]
    settled = {r.id for r in serving if baked_at(spec, r) <= now}
    return bool(old) and len(serving) >= spec.replicas and all(_heir(spec, rows, r) in settled for r in old)


def _heir(spec: ServiceSpec, rows: Rows, replica: Replica) -> int | None:
    """What comes in the place of an old one: what was to replace it may be old by now, too."""
    successor = rows.replicas.get(replica.replaced_by or 0)
    # It came later: a damaged table may say that two replace each other.
    if successor is None or successor.id <= replica.id or not is_old(spec, successor):
        return replica.replaced_by
    return _heir(spec, rows, successor)


def is_refused_for_good(spec: ServiceSpec, rows: Rows, now: datetime) -> bool:
    """Whether EC2 has refused one that the others wait for, for so long that it can't hold both versions."""
    latest = now - seconds(timing.ROLLOUT_REFUSED_S)
    return any(
        r.state is ReplicaState.REQUESTED and r.attempts > 0 and r.since <= latest
        for r in rows.replicas.values()
        if is_waiting(spec, rows, r)
    )


# What belongs to a version.


def port_of(spec: ServiceSpec, rows: Rows, version: int) -> int | None:
    """What the servers of a version listen on; None: these rows don't tell."""
    if version == spec.version:
        return spec.port
    if earlier := _document(rows, version):
        return earlier.port
    return next((r.port for r in rows.replicas.values() if r.version == version and r.port), None)


def ports(spec: ServiceSpec, rows: Rows) -> dict[str, int]:
    """By instance, what its server listens on, as far as these rows tell."""
    by_version = {v: port_of(spec, rows, v) for v in {r.version for r in rows.replicas.values()}}
    known = {r.instance_id: r.listens_on or by_version[r.version] for r in rows.replicas.values()}
    return {instance_id: port for instance_id, port in known.items() if instance_id and port}


def of_version(spec: ServiceSpec, rows: Rows, version: int) -> ServiceSpec:
    """The document with what belongs to a replica's version: port, slots, and how it says that it is up.

    An old version would never pass the new one's probe, which may ask for another model.
    """
    if version == spec.version:
        return spec
    earlier = _document(rows, version)
    if earlier is None:
        port = port_of(spec, rows, version) or spec.port
        return replace(spec.in_version(version), port=port, slots={})
    return replace(
        spec,
        version=version,
        on_demand_template=earlier.on_demand_template,
        port=earlier.port,
        slots=earlier.slots,
        # The function that asks is the deployed version's: without one nobody can be asked.
        readiness_probe=spec.readiness_probe and earlier.readiness_probe,
        initial_delay_s=earlier.initial_delay_s,
        busy=earlier.busy,
    )


def _document(rows: Rows, version: int) -> ServiceSpec | None:
    """The document of a version that isn't in effect."""
    last = rows.document
    return last if last and last.version == version else rows.earlier.get(version)


def in_effect(spec: ServiceSpec, rows: Rows, now: datetime) -> ServiceSpec:
    """The document that decisions go by: the deployed one, but for what operators and the load ask for.

    An operator may ask for an earlier version; both may ask for another number of replicas.
    """
    back = rows.rollback
    if back is not None and back.version == spec.version:
        spec = replace(of_version(spec, rows, back.to), port=back.port)
    return as_desired(spec, rows.requests, now)


def earlier_kept(kept: ServiceSpec | None, deployed: ServiceSpec, rows: Rows) -> dict[int, ServiceSpec]:
    """The documents to keep beside the deployed one: what replicas have or go back to, and the one before."""
    known = {**rows.earlier, **({kept.version: kept} if kept else {})}
    in_use = {r.version for r in rows.replicas.values()} | ({rows.rollback.to} if rows.rollback else set())
    before = max((version for version in known if version < deployed.version), default=None)
    return {v: doc for v, doc in known.items() if v != deployed.version and (v in in_use or v == before)}
