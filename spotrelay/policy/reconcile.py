"""What should be, against what is: the level-triggered path, correct after any history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

from spotrelay.model import (
    Instance,
    InstanceState,
    LaunchIntent,
    Replica,
    ReplicaState,
    Rows,
    ServiceSpec,
    TargetState,
    seconds,
)
from spotrelay.policy import rebalance, strength, timing
from spotrelay.policy.actions import (
    Action,
    Adopt,
    CloseIntent,
    Drain,
    End,
    Fail,
    MarkReady,
    NoteHealth,
    NoteWarning,
    Register,
    Start,
    TakeOut,
    Terminate,
)
from spotrelay.policy.interruption import unreplaced
from spotrelay.policy.observation import Observation


def decide(spec: ServiceSpec, seen: Observation, now: datetime) -> list[Action]:
    """Everything to do for a deployed service."""
    actions: list[Action] = []
    adopted = _adoptions(seen, now)
    for replica in seen.rows.replicas.values():
        if replica.id not in adopted:
            actions.extend(_for_replica(spec, replica, seen, now))
    actions.extend(adopted.values())
    actions.extend(_for_intents(seen, adopted, now))
    actions.extend(_for_unowned(seen, adopted, now))
    actions = [unreplaced(action, seen.rows) for action in actions]
    actions.extend(rebalance.decide(spec, seen, actions, now))
    actions.extend(strength.decide(spec, seen, actions, now))
    return _one_for_each(actions)


def _one_for_each(actions: list[Action]) -> list[Action]:
    """One action for a replica, since a commit writes a row once: of two the later one.

    A replica that is one too many needn't become ready first, nor come into rotation.
    """
    rows = [getattr(action, "replica", None) for action in actions]
    last = {row.id: position for position, row in enumerate(rows) if isinstance(row, Replica)}
    return [
        action
        for position, (action, row) in enumerate(zip(actions, rows, strict=True))
        if not isinstance(row, Replica) or last[row.id] == position
    ]


def retire(seen: Observation, now: datetime) -> list[Action]:
    """Everything to do for a service whose stack is gone: end what there is, request nothing.

    Its target group went with the stack, so there are no requests left to wait for.
    """
    actions: list[Action] = []
    for replica in seen.rows.replicas.values():
        instance = seen.instances.get(replica.instance_id or "")
        if replica.state is ReplicaState.REQUESTED:
            actions.append(End(replica, "service removed"))
        elif replica.state is not ReplicaState.DRAINING:
            actions.append(Drain(replica, "service removed", replace=False))
        elif instance is None and _may_be_unseen(replica, now):
            continue
        elif instance is None or instance.state is InstanceState.TERMINATED:
            actions.append(End(replica, replica.reason))
        elif not _is_left_to_ec2(replica, instance):
            actions.extend(_terminate(instance, seen, "service removed", replica))
    actions.extend(CloseIntent(i.id) for i in seen.rows.intents.values() if _is_expired(i.created_at, now))
    actions.extend(_for_unowned(seen, {}, now))
    return actions


def is_gone(seen: Observation) -> bool:
    """Whether nothing is left of a service whose stack is gone, so that nobody need look again."""
    is_over = all(i.state is InstanceState.TERMINATED for i in seen.instances.values())
    return is_over and not seen.rows.replicas and not seen.rows.intents


def awaiting_probe(spec: ServiceSpec, seen: Observation) -> dict[int, Instance]:
    """By replica ID, the instances that are to be probed before they come into rotation."""
    if spec.readiness_probe is None:
        return {}
    waiting = {}
    for replica in seen.rows.replicas.values():
        instance = seen.instances.get(replica.instance_id or "")
        if (
            replica.state is ReplicaState.STARTING
            and instance is not None
            and instance.state is InstanceState.RUNNING
            and instance.address is not None
            and instance.id not in seen.health
            and instance.id not in seen.warned
        ):
            waiting[replica.id] = instance
    return waiting


def late(spec: ServiceSpec, rows: Rows, silent: Collection[str], now: datetime) -> list[Action]:
    """Give up the starting replicas that have just not answered their probe, and have had their time.

    Not without having been asked: one may be late only because no tick came to ask it.
    """
    return [
        _never_ready(spec, replica)
        for replica in rows.replicas.values()
        if replica.state is ReplicaState.STARTING
        and replica.instance_id in silent
        and is_overdue(spec, replica, now)
    ]


def is_overdue(spec: ServiceSpec, replica: Replica, now: datetime) -> bool:
    """Whether a replica that is on its way should be ready by now."""
    return now - replica.entered[ReplicaState.PROVISIONING] > seconds(spec.initial_delay_s)


def _for_replica(spec: ServiceSpec, replica: Replica, seen: Observation, now: datetime) -> Iterator[Action]:
    if replica.state is ReplicaState.REQUESTED:
        return  # `strength` looks after what has no instance yet
    assert replica.instance_id is not None, f"{replica} is {replica.state} without an instance"  # noqa: S101
    instance = seen.instances.get(replica.instance_id)
    health = seen.health.get(replica.instance_id)
    if replica.state is ReplicaState.DRAINING:
        yield from _for_draining(spec, replica, instance, health, seen, now)
    elif replica.instance_id in seen.warned:
        yield Drain(replica, "interruption warning, found by the tick", warned_at=now, cool_pool=True)
    elif instance is None:
        if not _may_be_unseen(replica, now):
            yield Drain(replica, "instance gone")
    elif not instance.state.is_alive:
        yield Drain(replica, f"instance {instance.state}")
    elif replica.state is ReplicaState.READY:
        yield from _for_ready(replica, health, now)
    else:
        yield from _for_rising(spec, replica, instance, health, now)


def _may_be_unseen(replica: Replica, now: datetime) -> bool:
    """Whether its instance is so young that EC2 may not describe it yet."""
    return now - replica.entered[ReplicaState.PROVISIONING] < seconds(timing.VISIBLE_WITHIN_S)


def _for_rising(
    spec: ServiceSpec, replica: Replica, instance: Instance, health: TargetState | None, now: datetime
) -> Iterator[Action]:
    is_running = instance.state is InstanceState.RUNNING
    if replica.state is ReplicaState.STARTING and health is TargetState.HEALTHY:
        yield MarkReady(replica)
    elif is_running and replica.state is ReplicaState.PROVISIONING:
        yield Start(replica)
    elif is_running and health is None and spec.readiness_probe is None:
        yield Register(replica)
    # One that nobody has judged yet is late through no fault of its own: perhaps no tick came to put it in.
    # `late` looks after those that are probed.
    elif is_overdue(spec, replica, now) and (not is_running or health not in (None, TargetState.INITIAL)):
        yield _never_ready(spec, replica)


def _never_ready(spec: ServiceSpec, replica: Replica) -> Fail:
    return Fail(replica, f"not ready {spec.initial_delay_s:.0f} s after its launch")


def _for_ready(replica: Replica, health: TargetState | None, now: datetime) -> Iterator[Action]:
    if health is TargetState.HEALTHY:
        if replica.unhealthy_since:
            yield NoteHealth(replica, None)
    elif replica.unhealthy_since is None:
        yield NoteHealth(replica, now)
    elif now - replica.unhealthy_since > seconds(timing.UNHEALTHY_REPLACED_S):
        yield Drain(replica, f"unhealthy for {timing.UNHEALTHY_REPLACED_S:.0f} s")
    elif health is None:
        yield Register(replica)  # somebody took it out of rotation behind our back


def _for_draining(
    spec: ServiceSpec,
    replica: Replica,
    instance: Instance | None,
    health: TargetState | None,
    seen: Observation,
    now: datetime,
) -> Iterator[Action]:
    if replica.instance_id and health is not None and health.is_in_rotation:
        yield TakeOut(replica.instance_id)  # a registration that raced the drain
    if instance is None or instance.state is InstanceState.TERMINATED:
        if instance is not None or not _may_be_unseen(replica, now):
            yield End(replica, replica.reason)
        return
    if instance.id in seen.warned and not replica.is_warned:
        yield NoteWarning(replica, now)
    drained_for = now - replica.since
    is_done = health is None and drained_for >= seconds(timing.DRAIN_SETTLE_S)
    is_out_of_time = drained_for >= seconds(spec.drain_s + timing.DRAIN_SETTLE_S)
    if not _is_left_to_ec2(replica, instance) and (is_done or is_out_of_time):
        yield from _terminate(instance, seen, f"drained: {replica.reason}", replica)


def _is_left_to_ec2(replica: Replica, instance: Instance) -> bool:
    """Whether EC2 ends the instance. One that it stopped instead is ours again, and we pay for its disk."""
    return replica.is_warned and instance.state is not InstanceState.STOPPED


def _adoptions(seen: Observation, now: datetime) -> dict[int, Adopt]:
    """Instances that an open intent asked for and no row owns, given to the replicas that wait for them."""
    overdue = [i for i in seen.rows.intents.values() if now - i.created_at >= seconds(timing.ADOPT_AFTER_S)]
    if not overdue:
        return {}
    owned = {r.instance_id for r in seen.rows.replicas.values()}
    found: dict[str | None, list[Instance]] = defaultdict(list)
    for instance in sorted(seen.instances.values(), key=lambda i: i.id):
        if instance.state.is_alive and instance.id not in owned and instance.id not in seen.warned:
            found[instance.launch_id].append(instance)
    adopted: dict[int, Adopt] = {}
    for intent in overdue:
        waiting = _waiting_for(intent, seen.rows)
        adopted |= {r.id: Adopt(r, i) for r, i in zip(waiting, found[intent.id], strict=False)}
    return adopted


def _waiting_for(intent: LaunchIntent, rows: Rows) -> list[Replica]:
    """The replicas that the intent is to bring an instance, and that have none."""
    return [
        r
        for id_ in intent.replica_ids
        if (r := rows.replicas.get(id_)) is not None
        and r.state is ReplicaState.REQUESTED
        and r.launch_id == intent.id
    ]


def _for_intents(seen: Observation, adopted: Mapping[int, Adopt], now: datetime) -> Iterator[Action]:
    """Close what every replica got its instance from, and what is so old that nothing more will come of it.

    An intent whose replicas seem to want nothing of it stays until then: it may be newer than the rows, which
    are read one after the other.
    """
    for intent in seen.rows.intents.values():
        waiting = {r.id for r in _waiting_for(intent, seen.rows)}
        is_adopted = bool(waiting) and waiting <= adopted.keys()
        if is_adopted or _is_expired(intent.created_at, now):
            yield CloseIntent(intent.id)


def _for_unowned(seen: Observation, adopted: Mapping[int, Adopt], now: datetime) -> Iterator[Action]:
    owned = {r.instance_id for r in seen.rows.replicas.values()} | {a.instance.id for a in adopted.values()}
    for instance in seen.instances.values():
        if instance.id in owned:
            continue
        if now - instance.launched_at >= seconds(timing.ORPHAN_GRACE_S):
            yield from _terminate(instance, seen, "orphan: no replica and no launch intent knows it")


def _terminate(
    instance: Instance, seen: Observation, why: str, replica: Replica | None = None
) -> Iterator[Terminate]:
    """Terminate it, unless EC2 is about to: an interruption by EC2 may make its first hour free."""
    # A stopped Spot instance is no use to us and still costs its disk.
    if instance.state not in _GOING and instance.id not in seen.warned:
        yield Terminate(instance.id, why, replica)


_GOING = frozenset({InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED})


def _is_expired(created_at: datetime, now: datetime) -> bool:
    return now - created_at >= seconds(timing.INTENT_EXPIRES_S)
