"""The rules that hold after settling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from lab.sim.gate import at, time_of
from lab.sim.rules import Rule, limits
from lab.sim.rules.backoff import is_looping, rollout_stopped
from lab.sim.rules.desired import in_effect, rolled_back
from lab.sim.rules.history import MAX_DOCUMENT_AGE_S
from lab.sim.rules.limits import SKEW_S
from lab.sim.rules.load import asked_for
from lab.sim.rules.rows import NEEDLESS
from lab.sim.world import SimWorld
from lab.world.instances import ENDING_STATES
from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.notices import Notice, NoticeKind
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows, Source
from spotrelay.plane.core.scaling import Load
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH
from spotrelay.plane.serving import standby_count

UNREPLACED_REASONS = (
    "more replicas than wanted",
    "service removed",
    "Spot is back",
    "orphan: no replica and no launch intent knows it",
)
"""Reasons for which a replica goes without a replacement."""


def unrest(world: SimWorld) -> str:
    """What isn't at rest."""
    rows = [
        f"{r} {r.state}"
        for spec in world.scenario.specs
        for r in world.memory.load(spec.service).replicas.values()
        if r.state not in (ReplicaState.READY, ReplicaState.STANDBY)
    ]
    messages = [m.id for queue in (world.signals, world.ticks, world.leaves) for m in queue.messages]
    return f"rows {rows}, messages {messages}"


def check(world: SimWorld) -> None:
    """Check every rule that must hold now."""
    for spec in world.scenario.specs:
        _check_service(world, spec.service)
        _check_load(world, spec.service)
    _check_dead_letters(world)


def _check_service(world: SimWorld, service: str) -> None:
    now, report = world.scheduler.now, world.checker.report
    rows = world.memory.load(service)
    spec = in_effect(rolled_back(world.services.valid(service, now), rows), rows.requests, now)
    desired = spec.replicas if spec else 0
    ready = {r.instance_id for r in rows.replicas.values() if r.state is ReplicaState.READY}
    if not _is_crash_loop(spec, rows):
        _check_strength(world, service, desired, rows)
        if spec:
            _check_standbys(world, spec, rows)
        if spec and not rollout_stopped(spec, [rows.backoff], rows):
            _check_versions(world, spec, rows)
    _check_owned(world, service, spec, rows, ready)
    alive = {i.id for i in world.cloud.of(service) if i.is_alive(now) and not i.is_foreign}
    if ready - alive:
        report(Rule.NO_ROW_WITHOUT_INSTANCE, f"{service}: {sorted(i or '' for i in ready - alive)}")
    group = world.cloud.groups.get(service, {})
    # What is foreign there is nobody's business, and FOREIGN_UNTOUCHED's.
    targets = {
        i for i in group if world.cloud.in_rotation(service, i) and not world.cloud.instances[i].is_foreign
    }
    if targets != ready and spec:
        what = f"{service}: {sorted(targets)}, ready are {sorted(i or '' for i in ready)}"
        report(Rule.ONLY_READY_IN_ROTATION, what)
    if rows.intents:
        report(Rule.NO_OPEN_INTENT, f"{service}: {list(rows.intents)}")
    # At time 0, even an expired lease counts as held. A removed service has no tick that releases its lease.
    if spec and not world.memory.acquire(service, "nobody", at(0), 0):
        report(Rule.NO_LEASE_HELD, service)
    if service in world.checker.damaged:
        return
    history = {r.id: r for r in world.memory.history(service, 1000)}
    _check_replacements(world, {**rows.replicas, **history}, rows.highest_id)
    _check_told(world, spec, {**rows.replicas, **history}, rows)


def _check_owned(
    world: SimWorld, service: str, spec: ServiceSpec | None, rows: Rows, ready: set[str | None]
) -> None:
    """Has every instance of ours a row?"""
    now, report = world.scheduler.now, world.checker.report
    # Of a service that is gone, nobody looks for what lost its tag and has it back now.
    there = {
        i.id
        for i in world.cloud.of(service)
        if i.state(now) not in ENDING_STATES and not i.is_foreign and not (spec is None and i.was_untagged)
    }
    # Of a service that is gone from the table and from CloudFormation nobody can tell what was its.
    there -= {r.instance_id for r in rows.replicas.values() if r.state is ReplicaState.STANDBY}
    # Slots that nobody has go with the others of their instance.
    there = {i for i in there if not any(slot.id in ready for slot in world.cloud.slots_at(i))}
    if not ready:
        # In a crash loop the load balancer never shows anybody of ours again: a person says whose they are.
        kept = {one.what for one in rows.held.back}
        there = {i for i in there if f"{host(i)} is left alone" not in kept}
    if there - ready and (spec or service not in world.checker.damaged):
        report(Rule.NO_INSTANCE_WITHOUT_ROW, f"{service}: {sorted(there - ready)}")


def _check_told(world: SimWorld, spec: ServiceSpec | None, known: Mapping[int, Replica], rows: Rows) -> None:
    """Was what happened told, and nothing else?"""
    if spec is None or world.services.was_removed(spec.service, 0.0, world.scheduler.now):
        return
    service, report = spec.service, world.checker.report
    begun = world.store.first_told.get(service)
    if begun is None:
        return
    told = [notice for _, notice in world.notices.told if notice.service == service]
    new = [r for r in known.values() if r.id in begun.replicas or r.id > begun.highest_id]
    for kind, happened in (
        (NoticeKind.REPLICA_LOST, {str(r.id) for r in new if r.lost_at and not r.stands_by}),
        (
            NoticeKind.REPLICA_READY,
            {str(r.id) for r in new if ReplicaState.READY in r.entered and not begun.replicas.get(r.id)},
        ),
    ):
        heard = {notice.subject for notice in told if notice.kind is kind}
        # One that gets ready once it is known to be lost may do so before that was told. Clocks differ.
        skew = seconds(SKEW_S)
        late = {
            str(r.id)
            for r in new
            if r.lost_at and r.lost_at <= r.entered.get(ReplicaState.READY, EPOCH) + skew
        }
        # One that came back may have been lost before, by mistake, and again since.
        back = {str(r.id) for r in new if (service, r.id) in world.checker.came_back}
        either = back if kind is NoticeKind.REPLICA_LOST else late | back
        if heard - either != happened - either:
            report(Rule.NEWS_TOLD, f"{service}: {kind} of {sorted(heard)}, not {sorted(happened)}")
    lost = {r.id: r for r in new if r.lost_at}
    _check_replaced(world, told, known)
    awaited = {r.replaces for r in rows.replicas.values() if ReplicaState.READY not in r.entered}
    if not rows.told.lost.keys() <= rows.replicas.keys() | awaited:
        report(Rule.NEWS_TRUE, f"{service}: {sorted(rows.told.lost)} are kept as lost")
    heard = {n.subject for n in told if n.kind is NoticeKind.REPLICA_LOST and n.facts["warned"]}
    # One that was found gone may be warned later: EC2's events come in any order.
    if not heard <= {str(r.id) for r in lost.values() if r.warned_at}:
        report(Rule.NEWS_TOLD, f"{service}: {sorted(heard)} are told to have been warned")
    gaps, ends = (
        {notice.subject for notice in told if notice.kind is kind}
        for kind in (NoticeKind.FLEET_NOT_WHOLE, NoticeKind.FLEET_WHOLE)
    )
    serving = sum(r.serves for r in rows.replicas.values())
    if serving >= spec.replicas and not ends >= gaps:
        report(Rule.NEWS_TOLD, f"{service}: gaps since {sorted(gaps - ends)} are told to last")
    # A table that forgot what was told can't know when a gap began.
    if not gaps >= ends:
        report(Rule.NEWS_TOLD, f"{service}: gaps since {sorted(ends - gaps)} end, and never began")


def _check_replaced(world: SimWorld, told: Collection[Notice], known: Mapping[int, Replica]) -> None:
    """Was every loss told to be replaced whose replacement was told to be ready?"""
    heard = {(n.kind, n.subject) for n in told}
    lost = {str(r.id) for r in known.values() if (NoticeKind.REPLICA_LOST, str(r.id)) in heard}
    for row in known.values():
        subject = str(row.replaces)
        if subject not in lost or (NoticeKind.REPLICA_READY, str(row.id)) not in heard:
            continue
        lost_at = known[int(subject)].lost_at
        is_for_loss = lost_at is not None and row.entered[ReplicaState.REQUESTED] + seconds(SKEW_S) >= lost_at
        if is_for_loss and (NoticeKind.REPLICA_REPLACED, subject) not in heard:
            world.checker.report(Rule.NEWS_TRUE, f"{row} is ready, and {subject} isn't told to be replaced")


def _check_load(world: SimWorld, service: str) -> None:
    """Is the load's number what the load asks for?"""
    spec = world.services.valid(service, world.scheduler.now)
    if spec is None or spec.scaling is None:
        return
    rows = world.memory.load(service)
    known = rows.requests.get(Source.LOAD)
    load = world.loads.ongoing(world.scheduler.now) or 0.0
    wanted = asked_for(spec, spec.scaling, Load(load, ongoing=load), rows).number
    if known is None or known.replicas != wanted:
        world.checker.report(Rule.LOAD_AT_REST, f"{spec.service}: {wanted} are asked for, not {known}")


def _is_crash_loop(spec: ServiceSpec | None, rows: Rows) -> bool:
    """Whether a crash loop waits for a deployment; fallbacks serve meanwhile, if the service wants them."""
    if spec is None or not is_looping(rows.backoff, spec.version):
        return False
    serving = sum(r.serves for r in rows.replicas.values())
    has_fallbacks = spec.use_spot and spec.on_demand_fallback and spec.base_on_demand < spec.replicas
    return serving >= spec.replicas or not has_fallbacks


def _check_strength(world: SimWorld, service: str, desired: int, rows: Rows) -> None:
    """Are as many ready as desired, each with its purchase option, and no others?"""
    report = world.checker.report
    replicas = [r for r in rows.replicas.values() if not r.stands_by]
    states = [f"{r.id} {r.state}" for r in replicas]
    if len(states) != desired or any(r.state is not ReplicaState.READY for r in replicas):
        report(Rule.DESIRED_AT_REST, f"{service}: {desired} desired, instances are {states}")
    for row in replicas:
        if row.is_fallback or (row.offering and row.offering.purchase_option is not row.purchase_option):
            report(Rule.DESIRED_AT_REST, f"{row} is to be {row.purchase_option}, and is {row.offering}")


def _check_versions(world: SimWorld, spec: ServiceSpec, rows: Rows) -> None:
    """Where versions roll out, nothing of another one is left."""
    old = [
        f"{r} v{r.version}" for r in rows.replicas.values() if r.version != spec.version and not r.stands_by
    ]
    if old and spec.on_update is not OnUpdate.KEEP:
        world.checker.report(Rule.ROLLED_OUT, f"{spec.service} v{spec.version} is deployed, there are {old}")


def _check_standbys(world: SimWorld, spec: ServiceSpec, rows: Rows) -> None:
    """Are there as many standbys as wanted, all of them stopped?"""
    standbys = [r for r in rows.replicas.values() if r.is_standby]
    now = world.scheduler.now
    until = rows.standby_backoff.until
    if until is not None and now < time_of(until) + limits.PROGRESS_S:
        return  # the next one waits, or has only just not to
    instances = [world.cloud.instances[r.instance_id or ""] for r in standbys if r.instance_id]
    states = [i.state(now) for i in instances]
    wanted = _standbys_wanted(world, spec, rows) if spec.standby_auto else spec.standby
    if len(standbys) != wanted or any(r.state is not ReplicaState.STANDBY for r in standbys):
        shown = [f"{r} {r.state}" for r in standbys]
        world.checker.report(Rule.STANDBYS_AT_REST, f"{spec.service}: {wanted} wanted, there are {shown}")
    elif untried := [str(r) for r in standbys if r.resume_s is None and not r.retry_at]:
        world.checker.report(Rule.STANDBY_TRIED, f"{spec.service}: {untried} were never tried out")
    elif any(state is not InstanceState.STOPPED for state in states):
        world.checker.report(Rule.STANDBYS_AT_REST, f"{spec.service}: standbys are {states}")


def _standbys_wanted(world: SimWorld, spec: ServiceSpec, rows: Rows) -> int:
    """As many as pay: the number on record, which the service's own record must still lead to."""
    kept = rows.document.standby if rows.document else -1
    ended = world.memory.history(spec.service, standby_count.RECORD)
    found = standby_count.derive(replace(spec, standby=kept), rows, ended)
    if found.count != kept or not 0 <= kept <= max(spec.replicas, 0) + 1:
        world.checker.report(Rule.STANDBYS_COUNTED, f"{spec.service}: {kept} are kept, but {found}")
    return kept


def _check_replacements(world: SimWorld, all_: dict[int, Replica], highest_id: int) -> None:
    """Does every loss have one replacement, and every replacement one loss?"""
    report = world.checker.report
    if set(all_) != set(range(1, highest_id + 1)):
        report(Rule.IDS_IN_ORDER, f"{sorted(all_)} are on record of {highest_id}")
    for row in all_.values():
        if row.replaced_by is not None:
            successor = all_.get(row.replaced_by)
            if successor is None or successor.replaces != row.id:
                what = f"{row} was replaced by {row.replaced_by}, which doesn't know it"
                report(Rule.ONE_REPLACEMENT_PER_LOSS, what)
        elif _needs_replacement(world, row):
            report(Rule.ONE_REPLACEMENT_PER_LOSS, f"{row} was lost ({row.reason}), and wasn't replaced")
        if row.replaces is not None:
            replaced = all_.get(row.replaces)
            # In place of one that left and came back another was requested.
            is_back = (row.service, row.id) in world.checker.came_back
            may_differ = is_back or row.state is not ReplicaState.READY
            if replaced is None or (replaced.replaced_by != row.id and not may_differ):
                report(Rule.ONE_REPLACEMENT_PER_LOSS, f"{row} replaces {row.replaces}, which doesn't know it")


def _needs_replacement(world: SimWorld, row: Replica) -> bool:
    """Whether a replica ended that should have been replaced."""
    if (
        row.state is not ReplicaState.TERMINATED
        or row.instance_id is None
        or row.reason in UNREPLACED_REASONS
    ):
        return False
    if row.is_fallback or row.is_standby or row.reason.endswith(NEEDLESS):
        return False
    if (row.service, row.id) in world.checker.came_back:
        return False  # it was replaced when it left, if it had to be
    drained_at = time_of(row.entered[ReplicaState.DRAINING])
    # A decision may be as old as its reads; where nobody could say what is wanted, a later tick requests it.
    return not world.was_removed(row.service, drained_at - MAX_DOCUMENT_AGE_S, drained_at + SKEW_S)


def _check_dead_letters(world: SimWorld) -> None:
    report = world.checker.report
    queues = (world.signals, world.ticks, world.leaves)
    # If a message couldn't be set aside at any of its attempts, it ends in the queue's own dead-letter queue.
    letters = Counter(world.dead_letters.letters) + Counter(m.body for queue in queues for m in queue.dead)
    for body, sent in world.malformed.items():
        if letters[body] < sent:
            report(Rule.DEAD_LETTERS_EXACT, f"{letters[body]} of {sent} malformed ones: {body[:100]}")
    for body in set(world.dead_letters.letters):
        if not world.malformed[body]:
            report(Rule.DEAD_LETTERS_EXACT, f"nothing is wrong with {body[:100]}")
    for queue in queues:
        for message in queue.dead:
            if message.failed_deliveries < queue.settings.max_receives:
                report(Rule.DEAD_LETTERS_EXACT, f"{message.id}: {message.body[:100]}")
