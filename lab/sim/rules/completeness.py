"""What an invocation that nothing disturbed must not leave undone, given what it was shown."""

from __future__ import annotations

import json
from collections.abc import Iterator

from lab.sim.faults import Call
from lab.sim.gate import STALL_S, time_of
from lab.sim.instances import ENDING_STATES, NEVER
from lab.sim.rules import Rule, limits
from lab.sim.rules.backoff import held_until
from lab.sim.rules.checker import SKEW_S
from lab.sim.rules.invocation_view import InvocationView, stays_in
from lab.sim.rules.replicas import STARTING_STATES, check_after_tick, regular
from spotrelay.core.instances import Instance, InstanceState, TargetState
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Rows
from spotrelay.core.spec import OnRebalance, OnUpdate, OnWarning, ServiceSpec
from spotrelay.memory import MemoryStore

SOON_S = 3.0
"""While anything moves, ticks follow each other in seconds: docs/reliability.md, `TICK_CLEANS_ROTATION`."""

MARGIN_S = 0.4
"""Whoever looks must find the moment past: a second later, by a clock that may be half a second off."""


def check_tick(view: InvocationView, memory: MemoryStore) -> None:
    """Check everything that a tick was shown."""
    assert view.spec is not None  # noqa: S101 - a tick has one
    for row in view.unchanged_rows():
        why = _overdue_change(view, view.spec, row)
        if why:
            view.broken(Rule.TICK_COMPLETE, f"{row}, {row.state}: {why}")
    for instance in _orphans(view):
        view.broken(Rule.TICK_COMPLETE, f"{instance.id}, launched at {instance.launched_at}, is nobody's")
    check_after_tick(view, view.spec)
    _check_calls(view, view.spec)
    _check_next(view, view.spec, memory)


def _overdue_change(view: InvocationView, spec: ServiceSpec, row: Replica) -> str:
    """Why the row should have been written; empty if it needn't."""
    instance = view.instance_of(row)
    if row.state is ReplicaState.REQUESTED:
        return ""
    if row.state is ReplicaState.DRAINING:
        return _overdue_while_draining(view, spec, row, instance)
    if instance is None:
        return _overdue_while_missing(view, row)
    if not instance.state.is_alive:
        return f"its instance is {instance.state}"
    is_warned = instance.id in view.invocation.warned or row.is_warned
    if row.state is ReplicaState.READY:
        if is_warned and not row.is_warned:
            return "its warning isn't noted"
        is_healthy = view.target(row) is TargetState.HEALTHY
        if is_healthy == (row.unhealthy_since is not None):
            return f"it is {view.target(row)}, unhealthy since {row.unhealthy_since}"
        return _overdue_while_warned(view, spec, row)
    if is_warned:
        return "EC2 takes it back before it is ready"
    if instance.state is not InstanceState.RUNNING:
        is_late = view.is_over(row.entered[ReplicaState.PROVISIONING], spec.initial_delay_s)
        return "it is overdue, and doesn't run yet" if is_late else ""
    return _overdue_while_starting(view, spec, row)


def _overdue_while_warned(view: InvocationView, spec: ServiceSpec, row: Replica) -> str:
    """The same for one that EC2 takes back and that is in rotation: docs/service-file.md, Interruptions."""
    if row.warned_at is None:
        return ""
    others = sum(r.stays and stays_in(r, view.now) for r in view.rows.replicas.values())
    if limits.is_enough(spec, others):
        return f"it serves on, and {others} others serve"
    safe, last = (moment + SKEW_S for moment in limits.last_moments(spec, row.warned_at))
    if last <= view.invocation.loaded_at:
        return "it is past its last moment"
    later = any(
        r.warned_at is not None and r.serves and (r.warned_at, r.id) > (row.warned_at, row.id)
        for r in view.rows.replicas.values()
        # One that it found ill just now is no longer a reason to go.
        if r.id in view.now.replicas and view.now.replicas[r.id].serves
    )
    if (others or later) and safe <= view.invocation.loaded_at:
        return "it is past its last safe moment"
    return ""


def _overdue_while_starting(view: InvocationView, spec: ServiceSpec, row: Replica) -> str:
    if row.state is ReplicaState.PROVISIONING:
        return "its instance runs"
    target = view.target(row)
    if target is TargetState.HEALTHY:
        return "it is healthy"
    is_judged = target not in (None, TargetState.INITIAL) or row.instance_id in view.invocation.silent
    if is_judged and view.is_over(row.entered[ReplicaState.PROVISIONING], spec.initial_delay_s):
        return "it is overdue"
    return ""


def _overdue_while_missing(view: InvocationView, row: Replica) -> str:
    """The same for one that EC2 doesn't show."""
    if not view.is_over(row.entered[ReplicaState.PROVISIONING], limits.UNSEEN_S):
        return ""
    if row.state is not ReplicaState.READY:
        return "EC2 doesn't show it"
    ready = [r for r in view.rows.replicas.values() if r.state is ReplicaState.READY]
    if view.target(row) is TargetState.HEALTHY:
        return "it is healthy" if row.unhealthy_since else ""
    if sum(view.instance_of(r) is None for r in ready) > limits.most_missing(len(ready)):
        return ""
    if row.unhealthy_since is None or view.is_over(row.unhealthy_since, limits.MISSING_S):
        return f"EC2 doesn't show it since {row.unhealthy_since}"
    return ""


def _overdue_while_draining(
    view: InvocationView, spec: ServiceSpec, row: Replica, instance: Instance | None
) -> str:
    """The same for one that drains; one whose instance is to be terminated is written with it."""
    if instance is None:
        is_in = view.health.get(row.instance_id or "") in (TargetState.HEALTHY, TargetState.INITIAL)
        is_old = view.is_over(row.entered[ReplicaState.PROVISIONING], limits.UNSEEN_S)
        is_gone = is_old and not is_in and view.target(row) is not TargetState.UNHEALTHY
        return "EC2 doesn't show its instance any more" if is_gone else ""
    if instance.state is InstanceState.TERMINATED:
        return "its instance is terminated"
    is_marked = instance.id in view.invocation.warned
    if is_marked and not row.is_warned:
        return "EC2 has warned it, and the row doesn't say so"
    if instance.state in ENDING_STATES or is_marked:
        return ""
    is_spared = row.warned_at is None or view.is_over(row.warned_at, limits.SPARED_END_S)
    is_done = view.target(row) is None and view.is_over(row.since, limits.DEREGISTRATION_LAG_S)
    # While requests may be under way it has that time once more: perhaps it was taken out late.
    is_busy = instance.state.is_alive and view.target(row) not in (None, TargetState.UNUSED)
    is_late = view.is_over(row.since, (1 + is_busy) * (limits.DEREGISTRATION_LAG_S + spec.drain_s))
    if (is_spared or instance.state is InstanceState.STOPPED) and (is_done or is_late):
        return f"drains since {time_of(row.since):.1f} s, and its instance is {instance.state}"
    return ""


def _orphans(view: InvocationView) -> Iterator[Instance]:
    """The instances of ours that should have got a row by now."""
    if view.now.intents or view.rows.intents:
        return
    owned = {row.instance_id for rows in (view.rows, view.now) for row in rows.replicas.values()}
    for instance in view.instances.values():
        is_ours = instance.launch_template_id is not None and instance.launch_id not in (None, "before")
        is_old = view.is_over(instance.launched_at, limits.ORPHAN_AFTER_S)
        if (
            instance.id not in owned
            and instance.state not in ENDING_STATES
            and instance.id not in view.invocation.warned
            and view.checker.recorded.get(instance.id, view.invocation.began_at) >= view.invocation.began_at
            and is_ours
            and is_old
        ):
            yield instance


def _check_calls(view: InvocationView, spec: ServiceSpec) -> None:
    """Is somebody called back for each that serves on?"""
    leaves = [c.at + c.delay_s for c in view.invocation.calls if c.call is Call.SCHEDULE_LEAVE]
    # What is decided together may be written one after the other.
    going = {
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
            after = (r for r in commit.after.replicas.values() if (r.service, r.id) not in going)
            others = sum(r.stays and stays_in(r, commit.before) for r in after)
            is_counted = row.service not in view.checker.damaged  # else nobody knows how many serve
            if is_counted and limits.is_enough(spec, others):
                view.broken(Rule.TICK_COMPLETE, f"{row} serves on, and {others} others serve")
            for moment in limits.last_moments(spec, row.warned_at):
                latest = max(moment, commit.at) + SKEW_S + 1 + 2 * STALL_S
                if not any(moment + MARGIN_S <= time <= latest for time in leaves):
                    view.broken(
                        Rule.LAST_MOMENT_CHECKED,
                        f"{row}, to leave at {moment:.1f} s; looks are due at {leaves}",
                    )


def _check_next(view: InvocationView, spec: ServiceSpec, memory: MemoryStore) -> None:
    """Does another tick come in seconds while anything moves, and none while everything rests?"""
    now, kept = view.checker.scheduler.now, memory.damage(view.service)
    rows = view.now
    replicas = rows.replicas.values()
    # What others have written since, they have announced.
    is_moving = view.is_alone and (
        bool(rows.intents) or any(row.state in STARTING_STATES for row in replicas)
    )
    next_tick = None if kept.next_tick is None else time_of(kept.next_tick)
    is_soon = next_tick is not None and view.invocation.began_at - SKEW_S < next_tick <= now + SOON_S + SKEW_S
    # Whoever was slow may write over it, with a time that is past: the message is on its way all the same.
    is_sent = any(
        moment and time_of(moment) <= now + SOON_S + SKEW_S for moment in view.invocation.scheduled_ticks
    )
    if is_moving and not (is_soon or is_sent):
        view.broken(Rule.NEXT_TICK_IN_TIME, f"something moves, and the next is due at {next_tick}")
    _check_wait(view, next_tick)
    is_whole = len(regular(rows)) == spec.replicas
    at_rest = all(
        row.stays and not row.is_fallback for all_ in (view.rows, rows) for row in all_.replicas.values()
    )
    is_calm = at_rest and is_whole and not (view.rows.intents or rows.intents or _has_acted(view))
    if is_calm and view.invocation.scheduled_ticks:
        view.broken(
            Rule.NEXT_TICK_IN_TIME,
            f"everything rests, and the next is due at {view.invocation.scheduled_ticks}",
        )


def _check_wait(view: InvocationView, next_tick: float | None) -> None:
    """Nothing moves but what waits for its turn: does the next tick come then, neither late nor before?"""
    spec, now = view.spec, view.checker.scheduler.now
    replicas = view.rows.replicas.values()
    waiting = [row for row in replicas if row.state is ReplicaState.REQUESTED]
    is_still = not (_has_acted(view) or view.rows.intents) and view.is_alone
    if spec is None or not is_still or any(r.is_fallback for r in replicas):
        return
    if not all(row.stays or row in waiting for row in replicas):
        return
    missing = spec.replicas - len(regular(view.rows))
    if missing < 0 or not (missing or waiting):
        return
    if spec.on_update is OnUpdate.REPLACE and any(row.version != spec.version for row in replicas):
        return  # which version is launched next, and may have to wait, depends on what has served
    launches_from = held_until(view, spec.version, is_fallback=False)
    retries = [time_of(row.retry_at) if row.retry_at else now for row in waiting]
    first = max(min([now] * bool(missing) + retries), launches_from)
    what = f"what is missing waits until {first:.1f} s"
    if first < NEVER and (next_tick is None or next_tick > max(first, now + SOON_S) + SKEW_S):
        view.broken(Rule.NEXT_TICK_IN_TIME, f"{what}, and the next is due at {next_tick}")
    due = [time_of(moment) for moment in view.invocation.scheduled_ticks if moment]
    if due and min(due) < first - SKEW_S and first > now + 2 * SOON_S:
        view.broken(Rule.NEXT_TICK_IN_TIME, f"{what}, and the next is due at {due}")


_ACTS = frozenset({Call.REGISTER, Call.DEREGISTER, Call.TERMINATE})
"""What changes something though no row is written."""


def _has_acted(view: InvocationView) -> bool:
    """Whether it changed anything: then another tick looks what came of it."""
    return bool(view.invocation.commits) or any(record.call in _ACTS for record in view.invocation.calls)


# Events.


def check_signals(view: InvocationView, memory: MemoryStore) -> None:
    """Check everything that a batch of events told about replicas that were on record."""
    for body in view.invocation.bodies:
        event = json.loads(body)
        instance_id, kind = event["detail"]["instance-id"], event["detail-type"]
        row = view.checker.row_before(view.invocation, instance_id, memory)
        if row is not None and (why := _unrecorded_event(view, row, kind, event["detail"])):
            view.broken(Rule.EVENTS_RECORDED, f"{row}, {row.state}: {why}")
    services = {commit.changes.service for commit in view.invocation.commits}
    if len(services) == 1 and (spec := view.invocation.specs.get(services.pop())):
        _check_calls(view, spec)


def _unrecorded_event(view: InvocationView, row: Replica, kind: str, detail: dict[str, str]) -> str:
    """Why the row should say something else after an event; empty if it needn't."""
    spec = view.invocation.specs.get(row.service)
    answers = (record.answer for record in view.invocation.calls)
    read = [a.replicas[row.id] for a in answers if isinstance(a, Rows) and row.id in a.replicas]
    # A tick may make it ready at this very moment.
    was_rising = any(r.state in STARTING_STATES and r.instance_id == row.instance_id for r in read)
    is_rising = row.state in STARTING_STATES or was_rising
    if is_rising and not row.is_warned and "State-change" in kind:
        # Whether it failed or EC2 took it, the event doesn't say: the tick asks.
        is_all = sum((row.instance_id or "") in body for body in view.invocation.bodies) == 1
        is_news = row.state is ReplicaState.PROVISIONING and detail["state"] == "running"
        return "it runs" if is_news and is_all else ""
    match kind, detail.get("state"):
        case "EC2 Instance State-change Notification", "running":
            return "it runs" if row.state is ReplicaState.PROVISIONING else ""
        case "EC2 Instance State-change Notification", "terminated":
            was_draining = row.state is ReplicaState.DRAINING and view.is_before(row.since)
            return "it is terminated" if row.state.is_active or was_draining else ""
        case "EC2 Instance State-change Notification", "shutting-down" | "stopping" | "stopped":
            return "it is going" if row.state.is_active else ""
        case "EC2 Spot Instance Interruption Warning", _:
            leaves = spec is not None and spec.on_warning is OnWarning.LEAVE
            if not row.is_warned:
                return "it is warned"
            return "it is warned" if row.state in STARTING_STATES or (leaves and row.state.is_active) else ""
        case "EC2 Instance Rebalance Recommendation", _:
            follows = spec is not None and spec.on_rebalance is OnRebalance.REPLACE
            is_noted = row.rebalance_at is not None or not row.state.is_active or row.is_warned
            return "it is recommended to leave it" if follows and not is_noted else ""
        case _:
            return ""
