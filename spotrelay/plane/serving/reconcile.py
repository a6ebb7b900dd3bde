"""What should be, against what is: the level-triggered path, correct after any history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from spotrelay.plane.core import slots, timing
from spotrelay.plane.core.instances import Instance, InstanceState, TargetState
from spotrelay.plane.core.names import TAG_SERVICE
from spotrelay.plane.core.replica import GONE, Replica, ReplicaState
from spotrelay.plane.core.rows import LaunchIntent, Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import (
    changes,
    interruption,
    missing,
    moves,
    replacement,
    rollout,
    silence,
    standby,
    starts,
    steps,
    strength,
    supersede,
)
from spotrelay.plane.serving.interruption import for_warned, leave
from spotrelay.plane.serving.observation import Observation, staying_count
from spotrelay.plane.serving.steps import WARNED, HoldBack, Step


def decide(spec: ServiceSpec, seen: Observation, now: datetime) -> list[Step]:
    """Everything to do for a deployed service: each stage reads rows as those before it leave them."""
    decided: list[Step] = []
    for stage in STAGES:
        its = list(stage(spec, seen, now))
        if its:
            decided += its
            seen = seen.with_rows(changes.after(spec, seen.rows, its, now))
    return decided


def observed(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """What EC2 and the load balancer show put on record: at most one step of each replica's life."""
    yield from _for_the_record(spec, seen)
    adopted = _adoptions(spec, seen, now)
    replicas, unshown = seen.rows.replicas, missing.found(seen, now)
    of_missing = {id_: [*_for_missing(spec, replicas[id_], seen, unshown, now)] for id_ in unshown}
    ended = {id_ for id_, its in of_missing.items() if any(s.enters(ReplicaState.DRAINING) for s in its)}
    back = interruption.coming_back(spec, seen, now, ended)
    for replica in replicas.values():
        if replica.id in back:
            yield steps.come_back(replica, now)
        elif replica.id in unshown:
            yield from of_missing[replica.id]
        else:
            yield from _for_replica(spec, replica, seen, now)
    yield from (steps.adopt(replicas[id_], now, instance) for id_, instance in adopted.items())
    yield from _for_intents(seen, adopted, now)
    yield from _for_unowned(spec, seen, adopted, now)
    yield from _for_leftovers(seen)


def warned(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """What EC2 takes back leaves the rotation, or serves on until its time has come."""
    replicas = seen.rows.replicas
    warned_at = {
        r.id: seen.warned[r.instance_id]
        for r in seen.known
        if r.instance_id is not None and r.instance_id in seen.warned
        if interruption.may_serve_on(r) and not r.is_warned
    }
    staying = sum(r.stays and r.id not in warned_at for r in replicas.values())
    for id_, at in warned_at.items():
        step = for_warned(replicas[id_], at, spec, staying, now, f"{WARNED}, found by the tick")
        if step is not None:
            yield step
    # What this very tick found warned or ill neither leaves nor counts: it has time, and the next tick looks.
    said: dict[str, datetime | None] = {**dict.fromkeys(seen.spared), **seen.warned}
    gone = {*warned_at, *seen.found_ill, *interruption.unconfirmed(seen)}
    last = interruption.last_serving(r for r in replicas.values() if r.id not in gone)
    for replica in interruption.leaving(spec, seen.rows, gone, now, said):
        yield leave(replica, now, last)


Stage = Callable[[ServiceSpec, Observation, datetime], Iterable[Step]]

STAGES: tuple[Stage, ...] = (
    observed,
    silence.take_out,
    warned,
    replacement.decide,
    supersede.decide,
    moves.give_up,
    standby.resume,
    strength.decide,
    standby.keep,
    moves.decide,
)
"""What is so, what refuses its probe, what EC2 takes back, what replaces these, what else should be replaced,
which moves come to nothing, what standbys bridge, how many there should be, how many stand by, and, where all
is well, what moves."""


def retire(seen: Observation, now: datetime) -> list[Step]:
    """Everything to do for a service that was removed: end what there is, request nothing.

    Its stack waits for that with the load balancer, so replicas are drained, but in a hurry: somebody waits.
    """
    spec = seen.rows.document
    hurried = spec and replace(spec, drain_unhurried_s=0)
    retired: list[Step] = list(_for_the_record(spec, seen))
    unshown = missing.found(seen, now)
    for replica in seen.rows.replicas.values():
        instance = seen.instance_of(replica)
        health = seen.health_of(replica)
        if replica.state is ReplicaState.REQUESTED:
            retired.append(steps.end(replica, now, "service removed"))
        elif replica.state is not ReplicaState.DRAINING:
            retired.append(steps.drain(replica, now, "service removed"))
        elif replica.id in unshown:
            # Nothing of it is to serve, so it is no matter how many are missing.
            retired += [*_kept_out(replica, seen), *missing.once_certain(replica, now)]
        else:
            retired.extend(_for_draining(hurried, replica, instance, health, seen, now))
    expired = (i.id for i in seen.rows.intents.values() if _is_expired(i.created_at, now))
    retired.extend(map(steps.close_intent, expired))
    # Of a service that is gone none serves any more, whatever the load balancer doesn't show.
    retired.extend(_for_unowned(spec and replace(spec, replicas=0), seen, {}, now))
    return retired


def is_gone(seen: Observation) -> bool:
    """Whether nothing of ours is left of a service whose stack is gone, so that nobody need look again."""
    ours = (i for i in seen.instances.values() if _is_ours(i, seen.rows.document, seen))
    is_over = all(i.state is InstanceState.TERMINATED for i in ours)
    return is_over and not seen.rows.replicas and not seen.rows.intents


def awaiting_probe(spec: ServiceSpec, seen: Observation) -> dict[int, Instance]:
    """By replica ID, the instances that are to be probed before they come into rotation."""
    waiting = {}
    for replica in seen.rows.replicas.values():
        instance = seen.instance_of(replica)
        if (
            replica.state is ReplicaState.STARTING
            and instance is not None
            and instance.state is InstanceState.RUNNING
            and instance.address is not None
            and seen.health.get(instance.id) in _OUT
            and rollout.of_version(spec, seen.rows, replica.version).readiness_probe is not None
        ):
            waiting[replica.id] = instance
    return waiting


def trusted(spec: ServiceSpec, seen: Observation, unasked: Collection[str], now: datetime) -> set[str]:
    """Of the instances that the prober couldn't ask, those that enter the rotation all the same.

    Nobody is healthy, and the load balancer itself asks what the prober would have asked.
    """
    if TargetState.HEALTHY in seen.health.values():
        return set()
    return {
        replica.instance_id
        for replica in seen.rows.replicas.values()
        if replica.instance_id is not None
        and replica.instance_id in unasked
        and replica.state is ReplicaState.STARTING
        and now - replica.entered[ReplicaState.STARTING] >= seconds(timing.UNASKED_S)
        and (probe := rollout.of_version(spec, seen.rows, replica.version).readiness_probe) is not None
        and probe.is_health_check
    }


def watched(spec: ServiceSpec, seen: Observation) -> dict[int, Instance]:
    """By replica ID, the instances in rotation that are asked whether they still answer the probe."""
    watched = {}
    for replica in seen.rows.replicas.values():
        probe = rollout.of_version(spec, seen.rows, replica.version).readiness_probe
        if probe is None or probe.failure_threshold_s is None or replica.is_adopted:
            continue
        instance = seen.instance_of(replica)
        is_asked = replica.stays and instance is not None and instance.state is InstanceState.RUNNING
        if is_asked and instance is not None and instance.address and instance.id not in seen.warned:
            watched[replica.id] = instance
    return watched


def late(spec: ServiceSpec, rows: Rows, silent: Collection[str], now: datetime) -> list[Step]:
    """Give up the starting replicas that have just not answered their probe, and have had their time.

    Not without having been asked: one may be late only because no tick came to ask it. `rows` also says what
    the deployed versions of before gave theirs.
    """
    starting = (r for r in rows.replicas.values() if r.state is ReplicaState.STARTING and not r.is_warned)
    asked = ((r, rollout.of_version(spec, rows, r.version)) for r in starting if r.instance_id in silent)
    return [_never_ready(its, replica, now) for replica, its in asked if is_overdue(its, replica, now)]


def is_overdue(spec: ServiceSpec, replica: Replica, now: datetime) -> bool:
    """Whether a replica that is on its way should be ready by now.

    Its time begins when the instance runs. One that never comes to run has as much from its launch on.
    """
    since = replica.entered.get(ReplicaState.STARTING, replica.entered[ReplicaState.PROVISIONING])
    return now - since > seconds(spec.initial_delay_s + timing.BOOT_S)


def _for_replica(spec: ServiceSpec, replica: Replica, seen: Observation, now: datetime) -> Iterator[Step]:
    if replica.state in (ReplicaState.REQUESTED, ReplicaState.STANDBY):
        return  # `strength` and `standby` look after what has no instance yet, or a stopped one
    assert replica.instance_id is not None, f"{replica} is {replica.state} without an instance"  # noqa: S101
    instance = seen.instance_of(replica)
    health = seen.health_of(replica)
    if replica.missing_since and instance is not None:
        found = steps.note_missing(replica, None)
        yield found
        replica = found.row
    if replica.state is ReplicaState.DRAINING:
        yield from _for_draining(spec, replica, instance, health, seen, now)
    elif instance is None:
        return  # too young to be shown
    elif standby.is_asleep(replica, instance):
        yield from standby.awaken(replica, now)
    elif not instance.state.is_alive:
        yield _for_dead(replica, instance, seen, now)
    elif replica.state is ReplicaState.READY:
        if late := starts.not_yet_noted(replica, seen.rows.starts):
            told = steps.note_start(replica, late)
            yield told
            replica = told.row
        # Of one that this tick finds warned only that is noted: `warned` decides what becomes of it.
        if replica.is_warned or replica.instance_id not in seen.warned:
            yield from _for_ready(replica, health, seen, now)
    else:
        yield from _for_rising(spec, replica, instance, health, seen, now)


def _for_the_record(spec: ServiceSpec | None, seen: Observation) -> Iterator[Step]:
    """Mend what the service's own entry in the table says wrongly: after damage, or a restored backup."""
    # What was launched since the rows were read may bear a higher ID than they say, with nothing wrong: then
    # this is decided on rows that have changed, and refused.
    owned = {r.instance_id for r in seen.rows.replicas.values()}
    ours = (i for i in seen.instances.values() if i.id in owned or _is_ours(i, spec, seen))
    tagged = (i.highest_id for i in ours)
    highest_id = max((*seen.rows.replicas, *tagged, seen.ended_id))
    if highest_id > seen.rows.highest_id:
        yield steps.raise_highest_id(highest_id)
    if seen.read.is_whole and staying_count(seen.read) != seen.read.serving:
        yield steps.recount()


def _for_missing(
    spec: ServiceSpec, replica: Replica, seen: Observation, unshown: Collection[int], now: datetime
) -> Iterator[Step]:
    if replica.state is ReplicaState.DRAINING:
        yield from _kept_out(replica, seen)
        is_late = strength.drained_at(spec, replica) <= now
    else:
        its = rollout.of_version(spec, seen.rows, replica.version)
        is_late = replica.state is not ReplicaState.READY and is_overdue(its, replica, now)
    yield from missing.decide(replica, seen, unshown, now, is_overdue=is_late)


def _for_dead(replica: Replica, instance: Instance, seen: Observation, now: datetime) -> Step:
    """Its instance ended. If it was never ready, and EC2 didn't take it back, then it has failed.

    An instance may end at birth for a reason that the next one meets, too: a volume limit, a key that nobody
    may use, a script that shuts down. Without the brake on failures it would be replaced within seconds, for
    ever.
    """
    reason = f"{GONE}{instance.state}"
    if instance.state_reason:
        reason = f"{reason}: {instance.state_reason}"
    warned_at = replica.warned_at or seen.warned.get(instance.id)
    is_taken = instance.was_reclaimed or warned_at is not None
    if is_taken or ReplicaState.READY in replica.entered or standby.has_ended_before(replica):
        return steps.drain(replica, now, reason, warned_at=warned_at, cool_pool=is_taken, is_gone=True)
    return steps.fail(replica, now, f"{reason}, before it was ready", is_ec2s=instance.ended_by_ec2)


def _for_rising(
    spec: ServiceSpec,
    replica: Replica,
    instance: Instance,
    health: TargetState | None,
    seen: Observation,
    now: datetime,
) -> Iterator[Step]:
    is_running = instance.state is InstanceState.RUNNING
    spec = rollout.of_version(spec, seen.rows, replica.version)
    if replica.state is ReplicaState.STARTING and health is TargetState.HEALTHY:
        told = starts.not_yet_noted(replica, seen.rows.starts)
        yield steps.mark_ready(replica, now, told, instance.address if spec.peers else None)
    elif is_running and replica.state is ReplicaState.PROVISIONING:
        yield steps.start(replica, now)
    elif is_running and health in _OUT and spec.readiness_probe is None and not replica.stands_by:
        yield steps.register(replica)
    elif replica.is_warned or instance.id in seen.warned:
        return  # it leaves when its time is over, and isn't to blame
    # One that nobody has judged yet is late through no fault of its own: perhaps no tick came to put it in.
    # `late` looks after those that are probed.
    elif is_overdue(spec, replica, now) and (not is_running or (health is not None and health.is_judged)):
        yield _never_ready(spec, replica, now)


def _never_ready(spec: ServiceSpec, replica: Replica, now: datetime) -> Step:
    if ReplicaState.READY in replica.entered:
        return steps.drain(replica, now, steps.IN_VAIN)
    return steps.fail(replica, now, f"not ready {spec.initial_delay_s:.0f} s after its instance booted")


def _for_ready(
    replica: Replica, health: TargetState | None, seen: Observation, now: datetime
) -> Iterator[Step]:
    """Note whether it answers its checks.

    A fallback gets no replacement, and goes once it is given up. But not while it is alone: a load balancer
    whose targets are all unhealthy sends requests to all of them, and it may serve them, late. Source:
    https://docs.aws.amazon.com/elasticloadbalancing/latest/application/target-group-health-checks.html
    """
    if noted := missing.health_noted(replica, health, now):
        yield noted
    elif health in (TargetState.HEALTHY, TargetState.UNAVAILABLE):
        return
    elif strength.is_given_up(replica, now) and seen.stays_without(replica):
        yield steps.drain(replica, now, f"unhealthy for {timing.UNHEALTHY_GIVEN_UP_S:.0f} s")
    elif health in _OUT:
        yield steps.register(replica)  # somebody took it out of rotation behind our back


def _for_draining(
    spec: ServiceSpec | None,
    replica: Replica,
    instance: Instance | None,
    health: TargetState | None,
    seen: Observation,
    now: datetime,
) -> Iterator[Step]:
    is_in_rotation = health is not None and health.is_in_rotation
    is_unseen = health is None and bool(_unseen(seen))
    yield from _kept_out(replica, seen)
    if instance is None:
        return  # too young to be shown
    if instance.state is InstanceState.TERMINATED:
        yield steps.end(replica, now, replica.reason)
        return
    row = replica
    if instance.id in seen.warned and not replica.is_warned:
        noted = steps.note_warning(replica, seen.warned[instance.id])
        yield noted
        row = noted.row
    drained_for = now - replica.since
    is_done = health is None and not is_unseen and drained_for >= seconds(timing.DRAIN_SETTLE_S)
    drain_s = interruption.finishes_within_s(spec, replica) if spec else 0
    # It may have been taken out only just now. The load balancer shows that only of one that has the longest
    # time of all: every target is `draining` for that long, even if it is idle.
    is_draining = health is TargetState.DRAINING and (not spec or drain_s >= spec.deregistration_delay_s)
    is_busy = instance.state.is_alive and (is_unseen or is_in_rotation or is_draining)
    is_out_of_time = drained_for >= (1 + is_busy) * seconds(drain_s + timing.DRAIN_SETTLE_S)
    if _is_left_to_ec2(replica, instance, seen, now) or not (is_done or is_out_of_time):
        return
    others = [r for r in seen.rows.replicas.values() if r.shares_with(replica)]
    is_first_to_go = any(r.state is not ReplicaState.DRAINING or r.id > replica.id for r in others)
    if is_first_to_go or _shares_with_unowned(replica, seen):
        yield steps.end(row, now, row.reason)  # its instance hosts another: the last one ends it
    elif others:
        return
    elif standby.returns(replica, instance):
        yield steps.stand_by(row, now)
    else:
        yield from _terminate(instance, seen, f"drained: {row.reason}", row)


def _shares_with_unowned(replica: Replica, seen: Observation) -> bool:
    """Whether another slot of its instance is in rotation whose row got lost: that one is taken in soon."""
    owned = {r.instance_id for r in seen.rows.replicas.values()}
    return any(
        slots.host(slot) == slots.host(replica.instance_id or "") and health.is_in_rotation
        for slot, health in seen.health.items()
        if slot not in owned
    )


def _kept_out(replica: Replica, seen: Observation) -> Iterator[Step]:
    """A registration that raced the drain, or a drain that nobody heard."""
    health = seen.health_of(replica)
    is_unseen = health is None and bool(_unseen(seen))
    if replica.instance_id and (is_unseen or health not in (None, TargetState.DRAINING)):
        yield steps.take_out(replica.instance_id)


def _unseen(seen: Observation) -> list[int]:
    """The replicas that are ready and that the load balancer doesn't show: it may hide others, too."""
    ready = (r for r in seen.rows.replicas.values() if r.state is ReplicaState.READY)
    return [r.id for r in ready if r.instance_id not in seen.health]


def _is_left_to_ec2(replica: Replica, instance: Instance, seen: Observation, now: datetime) -> bool:
    """Whether EC2 ends the instance. One that it stopped or spared is ours again, and we pay for it."""
    if replica.warned_at is None or instance.state is InstanceState.STOPPED:
        return False
    was_spared = now >= interruption.ends_at(replica.warned_at) + seconds(timing.RECLAIM_GRACE_S)
    return instance.id in seen.warned or not was_spared


def _adoptions(spec: ServiceSpec, seen: Observation, now: datetime) -> dict[int, Instance]:
    """Instances that an open intent asked for and no row owns, by the replica that waits for one."""
    overdue = [i for i in seen.rows.intents.values() if now - i.created_at >= seconds(timing.ADOPT_AFTER_S)]
    owned = {r.instance_id for r in seen.rows.replicas.values()}
    found: dict[str | None, list[Instance]] = defaultdict(list)
    for instance in sorted(seen.instances.values(), key=lambda i: i.id):
        # Of one that hosts several, the load balancer may know other slots: they come with the first.
        is_first = slots.port(instance.id) is None
        if (
            instance.state.is_alive
            and is_first
            and instance.id not in owned
            and instance.id not in seen.warned
            # Whoever may tag an instance could name the intent, and be sent our clients' requests.
            and _is_ours(instance, spec, seen)
        ):
            found[instance.launch_id].append(instance)
    adopted: dict[int, Instance] = {}
    for intent in overdue:
        waiting = _waiting_for(intent, seen.rows)
        its = rollout.of_version(spec, seen.rows, waiting[0].version) if waiting else spec
        given = [slot for instance in found[intent.id] for slot in slots.of(instance, its)]
        adopted |= {r.id: i for r, i in zip(waiting, given, strict=False)}
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


def _for_intents(seen: Observation, adopted: Mapping[int, Instance], now: datetime) -> Iterator[Step]:
    """Close what every replica got its instance from, and what is so old that nothing more will come of it.

    An intent whose replicas seem to want nothing of it stays until then: it may be newer than the rows, which
    are read one after the other.
    """
    for intent in seen.rows.intents.values():
        waiting = {r.id for r in _waiting_for(intent, seen.rows)}
        is_adopted = bool(waiting) and waiting <= adopted.keys()
        if is_adopted or _is_expired(intent.created_at, now):
            yield steps.close_intent(intent.id)


def unowned(seen: Observation, now: datetime) -> list[Instance]:
    """The running instances with the service's tag that no row has, and that no launch is about to record."""
    owned = {r.instance_id for r in seen.rows.replicas.values()}
    return [
        instance
        for instance in seen.instances.values()
        if instance.id not in owned
        and instance.state not in _GOING
        and now - instance.launched_at >= seconds(timing.ORPHAN_GRACE_S)
    ]


def _for_unowned(
    spec: ServiceSpec | None, seen: Observation, adopted: Mapping[int, Instance], now: datetime
) -> Iterator[Step]:
    """Instances of ours that nothing on record knows: their row got lost, or their launch was given up.

    Each gets a row, with a new ID, and then goes the way of every replica: what serves goes on serving, what
    doesn't is drained and ended. An instance that anybody may have tagged is none of ours.
    """
    taken = {instance.id for instance in adopted.values()}
    base = strength.base_left(spec, seen) if spec else 0
    unseen = _unseen(seen) if spec is not None else []
    is_blind = bool(unseen) or (spec is not None and spec.replicas > 0 and not seen.shows_ours)
    shown = f"replica {unseen[0]} either, which is ready" if unseen else "any instance at all"
    blind = f"the load balancer doesn't show {shown}"
    for instance in unowned(seen, now):
        health = seen.health.get(instance.id)
        is_in_rotation = health is not None and health.is_in_rotation
        if instance.id in taken or (instance.id in seen.warned and not is_in_rotation):
            continue
        version = _version_of(instance, spec)
        if not _is_ours(instance, spec, seen):
            foreign = HoldBack(
                f"{instance.id} is left alone",
                f"it bears the service's tag, and is from launch template {instance.launch_template_id}",
                f"whose is it? Remove its tag {TAG_SERVICE}, or terminate it",
            )
            yield steps.hold_back(foreign)
            continue
        if spec is None or not is_in_rotation:
            # What the load balancer doesn't show may serve all the same, if it doesn't even show our own.
            left = HoldBack(f"{instance.id} is left alone", blind, then="it is drained and terminated")
            if is_blind and instance.id not in seen.of_ended and not seen.is_vouched_for(left):
                yield steps.hold_back(left)
            else:
                yield steps.take_in(now, instance, ReplicaState.DRAINING, ORPHAN, version)
            continue
        may_be_base = instance.offering.purchase_option.fallback is None
        is_healthy = health is TargetState.HEALTHY
        yield steps.take_in(
            now,
            instance,
            ReplicaState.READY if is_healthy else ReplicaState.STARTING,
            "serves, and nothing on record knew it"
            if is_healthy
            else "in rotation, and nothing on record knew it",
            version,
            is_fallback=may_be_base and base <= 0,
            port=seen.ports.get(slots.host(instance.id)),
        )
        base -= may_be_base


def _version_of(instance: Instance, spec: ServiceSpec | None) -> int:
    """Which version an instance is of that no row tells about; 0: there is no document to go by."""
    is_of_template = spec is not None and instance.launch_template_id == spec.launch_template_id
    return (instance.version if is_of_template else None) or (spec.version if spec else 0)


def _for_leftovers(seen: Observation) -> Iterator[Step]:
    """What is dead leaves the rotation, though its row may have ended before anybody told the balancer."""
    owned = {r.instance_id for r in seen.rows.replicas.values()}
    for instance_id, health in seen.health.items():
        instance = seen.instances.get(instance_id)
        is_dead = instance is not None and not instance.state.is_alive
        if is_dead and health is not TargetState.DRAINING and instance_id not in owned:
            yield steps.take_out(instance_id)


def _is_ours(instance: Instance, spec: ServiceSpec | None, seen: Observation) -> bool:
    """Whether we launched it. Anybody can set our tags, but not EC2's, nor write into the table."""
    option = instance.offering.purchase_option
    # Where there is a template for on-demand, instances from before there was one may still run. What an
    # operator went back to may not name it.
    rows = seen.rows
    documents = [document for document in (spec, rows.document, *rows.earlier.values()) if spec and document]
    ours = {id_ for doc in documents for id_ in (doc.launch_template_id, doc.template(option).id)}
    is_from_ours = instance.launch_template_id in ours
    return instance.id in seen.recorded or (is_from_ours and instance.launch_id is not None)


ORPHAN = "orphan: no replica and no launch intent knows it"


def _terminate(instance: Instance, seen: Observation, why: str, replica: Replica) -> Iterator[Step]:
    """Terminate it, unless EC2 is about to: an interruption by EC2 may make its first hour free."""
    # A stopped Spot instance is no use to us and still costs its disk.
    if instance.state not in _GOING and instance.id not in seen.warned:
        yield steps.terminate(replica, instance.id, why)


_OUT = (None, TargetState.DRAINING)
"""What isn't in rotation: it never was, or was taken out, which is shown for minutes."""

_GOING = frozenset({InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED})


def _is_expired(created_at: datetime, now: datetime) -> bool:
    return now - created_at >= seconds(timing.INTENT_EXPIRES_S)
