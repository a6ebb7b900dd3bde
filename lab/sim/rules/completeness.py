"""The rules about what an undisturbed invocation must do, given what it was shown."""

from __future__ import annotations

import json
from itertools import takewhile

from lab.sim.faults import Call
from lab.sim.gate import time_of
from lab.sim.rules import Findings, Rule, limits, missing, moves
from lab.sim.rules.availability import check_came_back, is_unsure
from lab.sim.rules.backoff import held_until
from lab.sim.rules.desired import ends_between, in_effect
from lab.sim.rules.invocation_view import InvocationView, stays_in
from lab.sim.rules.limits import SKEW_S, STARTING_STATES
from lab.sim.rules.records import knows_no_document
from lab.sim.rules.replicas import check_after_tick, regular
from lab.sim.rules.rows import check_silence_noted
from lab.sim.rules.standby_rows import others_at_rest
from lab.sim.rules.standbys import check_resumed, is_asleep, overdue_change
from lab.world.instances import NEVER
from spotrelay.plane.core.instances import Instance, InstanceState, TargetState
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import OnRebalance, OnUpdate, OnWarning, ServiceSpec
from spotrelay.plane.memory import MemoryStore

SOON_S = 3.0
"""While anything changes, ticks follow each other within this time: docs/reliability.md, "seconds"."""


def check_tick(view: InvocationView, memory: MemoryStore, move_checker: moves.MoveChecker) -> Findings:
    """Check that a tick did everything that it was shown to be necessary, and nobody else meanwhile."""
    assert view.spec is not None  # noqa: S101 - a tick has one
    for row in view.unchanged_rows():
        why = overdue_change(view, row) if is_asleep(view, row) else _overdue_change(view, view.spec, row)
        if why:
            yield Rule.TICK_COMPLETE, f"{row}, {row.state}: {why}"
    yield from check_after_tick(view, view.spec)
    yield from check_silence_noted(view)
    yield from _check_refusing(view, view.spec)
    yield from check_came_back(view, view.spec)
    yield from check_resumed(view, view.spec)
    yield from moves.check_after_tick(view, view.spec, move_checker)
    yield from _check_needless_replicas(view, view.spec)
    yield from _check_change_at_once(view, view.spec)
    yield from _check_next(view, memory)


def _overdue_change(view: InvocationView, spec: ServiceSpec, row: Replica) -> str:
    """Why the tick should have changed the row; empty if it needn't."""
    instance = view.instance_of(row)
    if row.state is ReplicaState.REQUESTED:
        return ""
    if instance is None:
        return missing.overdue(view, row)
    if row.state is ReplicaState.DRAINING:
        return "its instance is terminated" if instance.state is InstanceState.TERMINATED else ""
    if row.missing_since is not None:
        return f"it is shown, missing since {row.missing_since}"
    if not instance.state.is_alive:
        return f"its instance is {instance.state}"
    is_warned = instance.id in view.invocation.warned or row.is_warned
    if is_warned and not row.is_warned:
        return "its warning isn't recorded"
    if row.state is ReplicaState.READY:
        return view.unnoted_health(row) or _overdue_while_warned(view, spec, row)
    return _overdue_while_warned(view, spec, row) or _overdue_while_rising(view, spec, row, instance)


def _overdue_while_warned(view: InvocationView, spec: ServiceSpec, row: Replica) -> str:
    """The same for a warned replica that serves or may come to: docs/service-file.md, Interruptions."""
    if row.warned_at is None:
        return ""
    staying = (r for r in view.rows.replicas.values() if r.stays and stays_in(r, view.now))
    others = sum(not is_unsure(view, r) for r in staying)
    later = any(
        r.warned_at is not None and r.serves and (r.warned_at, r.id) > (row.warned_at, row.id)
        for r in view.rows.replicas.values()
        # A replica that it has just found unhealthy is no longer a reason to leave.
        if r.id in view.now.replicas and view.now.replicas[r.id].serves and not is_unsure(view, r)
    )
    if row.instance_id in view.invocation.spared and not (others or later):
        return ""  # EC2 doesn't take it back, and nobody else serves
    if limits.is_enough(spec, others):
        return f"it serves on, and {others} others serve"
    # EC2 may have taken the warning back, and warned it once more since.
    warned_at = max(row.warned_at, view.invocation.warned.get(row.instance_id or "", row.warned_at))
    safe, last = (moment + SKEW_S for moment in limits.last_moments(spec, warned_at))
    if last <= view.invocation.loaded_at:
        return "it is past its last moment"
    if (others or later) and safe <= view.invocation.loaded_at:
        return "it is past its drain deadline"
    return ""


def _overdue_while_rising(view: InvocationView, spec: ServiceSpec, row: Replica, instance: Instance) -> str:
    """The same for one that isn't ready yet."""
    if instance.state is not InstanceState.RUNNING:
        is_late = not row.is_warned and limits.is_overdue_at(row, spec) + SKEW_S <= view.invocation.loaded_at
        return "it is overdue, and doesn't run yet" if is_late else ""
    if row.state is ReplicaState.PROVISIONING:
        return "its instance runs"
    target = view.target(row)
    if target is TargetState.HEALTHY:
        return "it is healthy"
    is_shown = target not in (None, TargetState.INITIAL, TargetState.UNAVAILABLE)
    is_judged = is_shown or row.instance_id in view.invocation.silent
    if (
        is_judged
        and not row.is_warned
        and limits.is_overdue_at(row, spec) + SKEW_S <= view.invocation.loaded_at
    ):
        return "it is overdue"
    return ""


def _check_change_at_once(view: InvocationView, spec: ServiceSpec) -> Findings:
    """An old replica made place for the new ones: did all of them, and do as many new ones serve?"""
    if spec.on_update is not OnUpdate.BLUE_GREEN:
        return
    why = f"version {spec.version} is deployed"
    old = [r for r in view.rows.replicas.values() if r.is_counted and r.version != spec.version]
    now = view.now.replicas
    gone = [r for r in old if r.id in now and now[r.id].state is ReplicaState.DRAINING]
    gone = [r for r in gone if r.serves and now[r.id].reason == why]
    left = [r for r in old if r.id in now and now[r.id].is_counted]
    new = sum(r.stays and r.version == spec.version for r in now.values())
    if gone and (left or new < spec.replicas):
        yield Rule.CHANGED_AT_ONCE, f"{gone[0]} goes, {left} stay, and {new} of the new ones serve"


def _check_needless_replicas(view: InvocationView, spec: ServiceSpec) -> Findings:
    """Does no warned replica serve on though enough others serve?"""
    # One decision may take several commits.
    leaving = {
        (row.service, row.id)
        for commit in view.invocation.commits
        for row in commit.changes.update
        if not row.stays
    }
    for commit in view.invocation.commits:
        for row in commit.changes.update:
            old = commit.before.replicas.get(row.id)
            if old is None or old.is_warned or row.warned_at is None or row.state is not ReplicaState.READY:
                continue
            after = (r for r in commit.after.replicas.values() if (r.service, r.id) not in leaving)
            others = sum(r.stays and stays_in(r, commit.before) for r in after)
            is_counted = row.service not in view.history.damaged  # else the count is unknown
            if is_counted and limits.is_enough(spec, others):
                yield Rule.TICK_COMPLETE, f"{row} serves on, and {others} others serve"


def _check_refusing(view: InvocationView, spec: ServiceSpec) -> Findings:
    """Did those leave that refuse their probe, while enough others answer theirs?"""
    known = view.rows.replicas.values()
    answering = [r for r in known if r.stays and r.silent_since is None and stays_in(r, view.now)]
    if not limits.is_enough_answering(spec, sum(view.target(r) is TargetState.HEALTHY for r in answering)):
        return
    for row in view.unchanged_rows():
        if row.stays and row.refusals >= limits.REFUSALS:
            yield Rule.REFUSING_LEAVES, f"{row} refuses its probe, and {len(answering)} others answer"


def _check_next(view: InvocationView, memory: MemoryStore) -> Findings:
    """Does another tick follow within seconds while anything changes, and none at rest?"""
    now, next_due = view.history.scheduler.now, memory.damage(view.service).next_tick
    rows = view.now
    replicas = others_at_rest(rows)
    is_moving = bool(rows.intents) or any(
        row.state in STARTING_STATES and not _was_spared(view, row) for row in replicas
    )
    next_tick = None if next_due is None else time_of(next_due)
    is_soon = next_tick is not None and view.invocation.began_at - SKEW_S < next_tick <= now + SOON_S + SKEW_S
    # A slow invocation may overwrite the time with one that is past. The message is on its way all the same:
    # this one's, or that of whoever had claimed it before.
    was_claimed = any(c.call is Call.CLAIM_TICK and c.answer is False for c in view.invocation.calls)
    is_sent = (was_claimed and next_tick is not None and next_tick <= now) or any(
        moment and time_of(moment) <= now + SOON_S + SKEW_S for moment in view.invocation.scheduled_ticks
    )
    if is_moving and not (is_soon or is_sent):
        yield Rule.NEXT_TICK_IN_TIME, f"something changes, and the next tick is due at {next_tick}"
    yield from _check_wait(view, next_tick)


def _was_spared(view: InvocationView, row: Replica) -> bool:
    """Whether EC2 should have taken it long ago: whatever it waits for won't come within seconds."""
    return row.warned_at is not None and view.is_over(row.warned_at, limits.WARNING_S)


def _check_wait(view: InvocationView, next_tick: float | None) -> Findings:
    """Only waiting replicas are left: does the next tick come when the first is due?"""
    spec, now = view.spec, view.history.scheduler.now
    replicas = others_at_rest(view.rows)
    waiting = [row for row in replicas if row.state is ReplicaState.REQUESTED]
    if spec is None or _has_acted(view) or view.rows.intents:
        return
    if any(r.is_fallback or r.stands_by for r in replicas):
        return
    if not all(row.stays or row in waiting for row in replicas):
        return
    missing = spec.replicas - len(regular(view.rows))
    if missing < 0 or not (missing or waiting):
        return
    if spec.on_update is not OnUpdate.KEEP and any(row.version != spec.version for row in replicas):
        return  # which version is launched next, and may have to wait, depends on what has served
    launches_from = held_until(view, spec.version, is_fallback=False)
    retries = [time_of(row.retry_at) if row.retry_at else now for row in waiting]
    first = max(min([now] * bool(missing) + retries), launches_from)
    what = f"the first launch is due at {first:.1f} s"
    if first < NEVER and (next_tick is None or next_tick > max(first, now + SOON_S) + SKEW_S):
        yield Rule.NEXT_TICK_IN_TIME, f"{what}, and the next tick at {next_tick}"
    due = [time_of(moment) for moment in view.invocation.scheduled_ticks if moment]
    # A replacement that must stay for a while before its predecessor goes is another reason to look.
    is_replacing = any(row.superseded_in(view.rows) for row in replicas)
    if due and not is_replacing and min(due) < first - SKEW_S and first > now + 2 * SOON_S:
        yield Rule.NEXT_TICK_IN_TIME, f"{what}, and the next tick at {due}"


_ACTS = frozenset({Call.REGISTER, Call.DEREGISTER, Call.TERMINATE, Call.START, Call.STOP})
"""Calls that change something although no row is written."""


def _has_acted(view: InvocationView) -> bool:
    """Whether it changed anything: then another tick checks the result."""
    return bool(view.invocation.commits) or any(record.call in _ACTS for record in view.invocation.calls)


# Events.


def check_signals(view: InvocationView, memory: MemoryStore) -> Findings:
    """Check that the events of a batch are recorded, as far as their replicas were on record."""
    if view.spec is not None and view.spec.may_have_standbys:
        yield from check_resumed(view, view.spec)
    if knows_no_document(view.invocation.calls):
        return  # its signals wait
    for body in view.invocation.bodies:
        event = json.loads(body)
        instance_id, kind = event["detail"]["instance-id"], event["detail-type"]
        for slot in view.history.cloud.slots_at(instance_id):
            row = view.history.row_before(view.invocation, slot.id, memory)
            if row is not None and (why := _unrecorded_event(view, row, kind, event["detail"])):
                yield Rule.EVENTS_RECORDED, f"{row}, {row.state}: {why}"
    services = {commit.changes.service for commit in view.invocation.commits}
    if len(services) == 1 and (spec := view.invocation.specs.get(*services)):
        # A batch may be about several services, and read one that it writes nothing of.
        # What it was decided on was read before the decision was written; it reads on while it acts.
        calls = view.invocation.calls
        decided = [*takewhile(lambda record: record.call is not Call.COMMIT or record.is_error, calls)]
        answers = (record.answer for record in reversed(decided))
        rows = next(
            a for a in answers if isinstance(a, Rows) and services == {r.service for r in a.replicas.values()}
        )
        began, now = view.invocation.began_at, view.history.scheduler.now
        if not ends_between(rows.requests, began, now):
            yield from _check_needless_replicas(view, in_effect(spec, rows.requests, now))


def _unrecorded_event(view: InvocationView, row: Replica, kind: str, detail: dict[str, str]) -> str:
    """Which event the row should record; empty if it needn't."""
    spec = view.invocation.specs.get(row.service)
    answers = (record.answer for record in view.invocation.calls)
    read = [a.replicas[row.id] for a in answers if isinstance(a, Rows) and row.id in a.replicas]
    # A tick may make it ready at the same time.
    was_starting = any(r.state in STARTING_STATES and r.instance_id == row.instance_id for r in read)
    is_starting = row.state in STARTING_STATES or was_starting
    if row.was_started_again and detail.get("state") in ("running", "stopping", "stopped"):
        return ""  # it may be of before; the tick sees what is so
    is_all = sum(host(row.instance_id or "") in body for body in view.invocation.bodies) == 1
    if is_starting and not row.is_warned and "State-change" in kind:
        # The event doesn't say whether it failed or EC2 took it. The tick asks EC2.
        is_news = row.state is ReplicaState.PROVISIONING and detail["state"] == "running"
        return "it runs" if is_news and is_all else ""
    match kind, detail.get("state"):
        case "EC2 Instance State-change Notification", "running":
            return "it runs" if row.state is ReplicaState.PROVISIONING and not row.is_warned else ""
        case "EC2 Instance State-change Notification", "terminated":
            was_draining = row.state is ReplicaState.DRAINING and view.is_before(row.since)
            return "it is terminated" if row.state.is_active or was_draining else ""
        case "EC2 Instance State-change Notification", "shutting-down" | "stopping" | "stopped":
            return "it is shutting down" if row.state.is_active else ""
        case "EC2 Spot Instance Interruption Warning", _:
            leaves = spec is not None and spec.on_warning is OnWarning.LEAVE
            if not row.is_warned:
                return "it is warned"
            return "it is warned" if leaves and row.state.is_active else ""
        case "EC2 Instance Rebalance Recommendation", _:
            follows = spec is not None and spec.on_rebalance is OnRebalance.REPLACE
            is_noted = row.rebalance_at is not None or not row.state.is_active or row.is_warned
            is_noted |= is_starting and not is_all  # that it ends outweighs the rest
            return "EC2 recommends to leave it" if follows and not is_noted else ""
        case _:
            return ""
