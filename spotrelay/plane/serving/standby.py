"""Standbys: on-demand instances that are prepared once, stopped, and resumed where a replica is missing.

A start may take longer than EC2's warning: the model is loaded from far away, engines are compiled. A stopped
instance has all of that on its disk and comes back within a minute. It is resumed as a *fallback*, with the
warning, the loss or the refused launch, and stands by again once Spot has stayed.

An instance passes from row to row: a standby that is resumed ends, and a new replica gets its instance. What
a row says is what its instance should be doing, so a tick finds out what somebody died over.

A new standby is tried out before it is relied on: it is started once more, has to answer, and stops again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import Instance, InstanceState
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import Signal, StateChange
from spotrelay.plane.serving import failures, rollout, steps
from spotrelay.plane.serving.observation import Observation, is_due, staying_count
from spotrelay.plane.serving.steps import Step

REASON = "standby"


def resume(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """Resume a standby for each replica that is missing from the rotation."""
    # What this very tick found ill may only be busy: the next one tells.
    # What this tick has only just given its row can't be written twice.
    known = {r.id for r in seen.known if not _is_gone(r, seen)}
    busy = sum(not seen.rows.replicas[id_].is_warned for id_ in seen.found_ill)
    yield from bridge(spec, seen.rows, known, now, busy=busy)


def bridge(
    spec: ServiceSpec, rows: Rows, known: Collection[int], now: datetime, *, busy: int = 0
) -> Iterator[Step]:
    """The standbys to resume, of those `known`: as many as don't serve, less those that are coming.

    One that is on its way back to stand by still runs, so it serves sooner than any. But it may be stopped at
    any moment, so those that stand by come first.
    """
    standbys = [r for r in rows.replicas.values() if r.id in known and _is_to_be_had(r, now)]
    missing = (
        spec.replicas - staying_count(rows) - busy - sum(is_coming(r, now) for r in rows.replicas.values())
    )
    if missing <= 0:
        return
    # One that never was resumed is expected to take as long as others.
    known_s = [r.resume_s for r in rows.replicas.values() if r.is_standby and r.resume_s is not None]
    usual_s = timing.middle_s(known_s) if known_s else None
    for replica in sorted(standbys, key=lambda r: (_drains(r), r.attempts, r.id))[:missing]:
        yield steps.resume(replica, now, "a replica is missing", usual_s)


def is_coming(replica: Replica, now: datetime) -> bool:
    """Whether it was resumed, isn't ready yet, and may soon be."""
    is_resumed = replica.state in _RISING and replica.is_standby and replica.is_fallback
    return is_resumed and not is_late(replica, now)


def is_late(replica: Replica, now: datetime) -> bool:
    """Whether its start was refused, or takes so long that something else should come, too."""
    if not (replica.is_standby and replica.state in _RISING):
        return False
    started = replica.entered[ReplicaState.PROVISIONING]
    resume_s = max(replica.resume_s or 0, timing.STANDBY_RESUME_S)
    return replica.retry_at is not None or now - started > seconds(timing.STANDBY_SLOW * resume_s)


def is_asleep(replica: Replica, instance: Instance) -> bool:
    """Whether it was resumed, and its instance is stopped."""
    is_resumed = replica.is_standby and replica.state is ReplicaState.PROVISIONING
    return is_resumed and instance.state in _STOPPED


def has_ended_before(replica: Replica) -> bool:
    """Whether it was started again and never ran: that its instance ended says nothing of its version."""
    return replica.was_started_again and replica.state is ReplicaState.PROVISIONING


def awaken(replica: Replica, now: datetime) -> Iterator[Step]:
    """What becomes of it: its start was refused, or is asked for again."""
    if replica.retry_at:
        yield steps.stand_by(replica, now)
    elif now - replica.since >= seconds(timing.AGAIN_S):
        yield steps.start_instance(replica)


def is_of_before(signal: Signal, replica: Replica) -> bool:
    """Whether it says what a standby's instance did before it was started again: it stopped, or was prepared.

    Events come late, and more than once. That an instance is gone is true whenever it comes.
    """
    if not (isinstance(signal, StateChange) and replica.was_started_again):
        return False
    runs_since = replica.entered.get(ReplicaState.STARTING, replica.entered[ReplicaState.PROVISIONING])
    # EC2's times have whole seconds.
    return signal.state not in _GONE and signal.at < runs_since.replace(microsecond=0)


def returns(replica: Replica, instance: Instance) -> bool:
    """Whether a replica that has left the rotation stands by again, rather than end."""
    is_there = instance.state.is_alive or instance.state in _STOPPED
    return replica.is_standby and replica.is_fallback and _is_well(replica) and is_there


def _is_well(replica: Replica) -> bool:
    return replica.unhealthy_since is None


def keep(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """Prepare what is missing of the standbys, one at a time, and give up what is too many, old or gone."""
    rows = seen.rows
    there = [r for r in rows.replicas.values() if r.is_standby and _is_kept(r)]
    for replica in there:
        yield from _as_it_should_be(replica, seen, now)
    standbys = [r for r in there if not _is_gone(r, seen)]
    stale = {r.id for r in standbys if _is_stale(spec, r, rows, now)}
    preparing = [r for r in standbys if r.state in _PREPARING and r.stands_by]
    is_whole = staying_count(rows) >= spec.replicas
    version = rollout.proven(spec, rows)
    is_held = failures.is_standby_held(version, rows.standby_backoff, now)
    fresh = sorted((r for r in standbys if r.id not in stale), key=lambda r: r.id)[: spec.standby]
    untried = [r for r in fresh if r.state is ReplicaState.STANDBY and r.resume_s is None]
    # The old ones go as the new ones have proved themselves, then the newest.
    beyond = max(len(standbys) - len(preparing) - len(untried) - spec.standby, 0)
    # One at a time, so that the others can be had meanwhile.
    tried = next((r for r in untried if _may_be_tried(r, seen, now)), None)
    option = spec.steady_option
    wanted = spec.standby if option.can_be_stopped else 0
    if len(standbys) - len(stale) < wanted and not preparing and is_whole and not is_held:
        yield steps.request(now, 1, REASON, option, version, is_standby=True)
    elif tried and not preparing and is_whole and not beyond:
        yield steps.try_out(tried, now)
    due = tuple(rollout.as_launched(spec, rows, r, now) for r in preparing if is_due(r, seen, now))
    if due and is_whole:
        yield steps.launch(*due)
    idle = [r for r in standbys if r.state is ReplicaState.STANDBY and r.id in seen.read.replicas]
    for replica in sorted(idle, key=lambda r: (r.id not in stale, -r.id))[:beyond]:
        yield steps.drain(
            replica, now, "another standby is there" if replica.id in stale else "more standbys than wanted"
        )


def _may_be_tried(replica: Replica, seen: Observation, now: datetime) -> bool:
    """Whether it can be started now: it is there, stopped, and EC2 hasn't just refused that."""
    instance = seen.instance_of(replica)
    is_stopped = instance is not None and instance.state is InstanceState.STOPPED
    return is_stopped and replica.id in seen.read.replicas and _is_to_be_had(replica, now)


def _is_kept(replica: Replica) -> bool:
    """Whether it is a standby, or will be one again: what is given up drains, and so does what returns."""
    return replica.state is not ReplicaState.DRAINING or (replica.is_fallback and _is_well(replica))


def _as_it_should_be(replica: Replica, seen: Observation, now: datetime) -> Iterator[Step]:
    """What a standby's instance does, against what its row says."""
    instance = seen.instance_of(replica)
    if replica.state is not ReplicaState.STANDBY or instance is None or replica.id not in seen.read.replicas:
        return
    if _is_gone(replica, seen):
        yield steps.drain(replica, now, f"instance {instance.state}", is_gone=True)
    elif instance.state.is_alive and now - replica.since >= seconds(timing.AGAIN_S):
        yield steps.stop_instance(replica)


def _is_gone(replica: Replica, seen: Observation) -> bool:
    """Whether it stands by, or is on its way back to, and its instance ended."""
    instance = seen.instance_of(replica)
    is_ended = instance is not None and instance.state in _GONE
    return replica.state in (ReplicaState.STANDBY, ReplicaState.DRAINING) and is_ended


def _is_to_be_had(replica: Replica, now: datetime) -> bool:
    # What this very run took out of rotation, it did for a reason.
    is_waiting = replica.state is ReplicaState.STANDBY or (_drains(replica) and replica.since < now)
    return is_waiting and (replica.retry_at is None or now >= replica.retry_at)


def _drains(replica: Replica) -> bool:
    """Whether it has served, left the rotation to stand by again, and its instance isn't stopped yet."""
    is_leaving = replica.state is ReplicaState.DRAINING and replica.is_standby
    return is_leaving and _is_well(replica) and ReplicaState.READY in replica.entered


def _is_stale(spec: ServiceSpec, replica: Replica, rows: Rows, now: datetime) -> bool:
    """Whether another should be prepared in its place."""
    is_old = now - replica.entered[ReplicaState.REQUESTED] > seconds(timing.STANDBY_MAX_AGE_S)
    is_other = replica.version != rollout.proven(spec, rows)
    is_stuck = replica.attempts >= timing.STANDBY_TRIES
    return replica.state is ReplicaState.STANDBY and (is_old or is_other or is_stuck)


_PREPARING = frozenset({ReplicaState.REQUESTED, ReplicaState.PROVISIONING, ReplicaState.STARTING})

_RISING = frozenset({ReplicaState.PROVISIONING, ReplicaState.STARTING})

_GONE = frozenset({InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED})

_STOPPED = frozenset({InstanceState.STOPPING, InstanceState.STOPPED})
