"""The rules about who is healthy and in rotation, whatever the rows say."""

from __future__ import annotations

from collections.abc import Collection

from lab.sim.faults import Call, Fault
from lab.sim.gate import Invocation, time_of
from lab.sim.rules import Findings, Rule, limits
from lab.sim.rules.history import History
from lab.sim.rules.invocation_view import InvocationView
from lab.sim.rules.limits import SKEW_S
from lab.sim.rules.word import let_go, of_replica
from lab.world.instances import NEVER
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.spec import OnWarning, ServiceSpec
from spotrelay.plane.memory import MemoryStore

SPARED_LAG_S = 10.0
"""By then EC2 says that it doesn't take an instance back any more."""


def check_rotation_kept(
    history: History, invocation: Invocation, spec: ServiceSpec, leaving: Collection[str], store: MemoryStore
) -> None:
    """Targets are about to be deregistered: is anybody left who answers, if one of them does?"""
    service, now = spec.service, history.scheduler.now
    is_wanted = spec.replicas > 0 and spec.on_warning is not OnWarning.LEAVE
    if not is_wanted or service in history.damaged:
        return
    if history.was_removed(service, invocation.began_at - limits.TIMEOUT_S, now):
        return
    rows = store.load(service).replicas.values()
    # One that has just died may be counted on: nobody knows yet, or only since this was decided.
    decided = [row for commit in invocation.commits[-1:] for row in commit.after.replicas.values()]
    counted_on = any(r.serves and r.instance_id not in leaving for r in (*rows, *decided))
    group = history.cloud.groups.get(service, {})
    answering = {id_ for id_ in group if history.cloud.answers_checks(service, id_, invocation.began_at)}
    # What AWS does once it has answered with an error, nobody can take back.
    is_late = any(Fault.LATE in str(r.answer) for r in invocation.calls if r.call is Call.DEREGISTER)
    if counted_on or not answering or answering - set(leaving) or is_late:
        return
    of_rows = {r.instance_id: r for r in rows}
    for instance_id in sorted(answering):
        row, instance = of_rows.get(instance_id), history.cloud.instances[instance_id]
        # If EC2 took its warning back, whoever asks is told so some seconds later.
        knows = not invocation.disturbances and instance.spared_at < invocation.began_at - SPARED_LAG_S
        thought = time_of(row.warned_at) if row and row.warned_at and not knows else NEVER
        earliest = min(instance.warned_at, thought) + limits.WARNING_S - limits.LAST_REPLICA_LEAD_S
        is_right = now + SKEW_S >= earliest or (row and limits.refuses_for_good(row))
        is_said = row and (of_replica(row) in let_go(invocation) or (service, row.id) in history.said_gone)
        is_right = is_right or is_said
        if instance.is_alive(now) and not is_right:
            what = f"{instance_id} leaves, whose row is {row}, and no other answers"
            history.report(Rule.SOMEBODY_ANSWERS, what)


def is_unsure(view: InvocationView, row: Replica) -> bool:
    """Whether what was just seen says that it doesn't serve, whatever its row says."""
    known = view.instance_of(row)
    is_dead = known is not None and not known.state.is_alive
    return is_dead or view.target(row) not in (TargetState.HEALTHY, TargetState.UNAVAILABLE)


def is_served(view: InvocationView) -> bool:
    """Whether anybody serves, by the rows and by what the load balancer shows."""
    rows = view.rows.replicas.values()
    draining = {r.instance_id for r in rows if r.state is ReplicaState.DRAINING or _is_ended(view, r)}
    answering = {id_ for id_, state in view.health.items() if state is TargetState.HEALTHY}
    serving = (r for r in rows if r.serves and not is_unsure(view, r))
    return any(r.instance_id not in draining for r in serving) or bool(answering - draining)


def _is_ended(view: InvocationView, row: Replica) -> bool:
    """Whether this very tick ends it because EC2 doesn't show it: if it may do that, `missing` says."""
    after = view.now.replicas.get(row.id, row)
    return view.instance_of(row) is None and row.state.is_active and not after.state.is_active


def check_came_back(view: InvocationView, spec: ServiceSpec) -> Findings:
    """Nobody serves: do as many come back that have left and still run as are wanted?"""
    known = view.rows.replicas
    came = sum(row.comes_back for row in known.values())
    new = [
        row
        for old, row in view.written
        if old.state is ReplicaState.DRAINING and row.state is ReplicaState.STARTING
    ]
    silent = [row for row in new if view.target(row) is not TargetState.HEALTHY]
    if len(new) > spec.replicas or (silent and came + len(silent) > spec.replicas):
        yield Rule.COMES_BACK, f"{len(new)} come back beside {came}, and {spec.replicas} are wanted"
    if is_served(view) or came + len(new) >= spec.replicas:
        return
    for row in view.unchanged_rows():
        if _may_come_back(view, spec, row):
            yield Rule.COMES_BACK, f"{row} has left and runs, and nobody serves"


def _may_come_back(view: InvocationView, spec: ServiceSpec, row: Replica) -> bool:
    instance = view.instance_of(row)
    answers = view.target(row) is TargetState.HEALTHY
    has_left = row.state is ReplicaState.DRAINING and (answers or ReplicaState.READY in row.entered)
    is_there = answers if instance is None else instance.state is InstanceState.RUNNING
    warned_at = min(
        filter(None, (row.warned_at, view.invocation.warned.get(row.instance_id or ""))), default=None
    )
    deadline = NEVER if warned_at is None else limits.last_moments(spec, warned_at)[0]
    leaves = warned_at is not None and spec.on_warning is OnWarning.LEAVE
    has_time = not leaves and view.history.scheduler.now + SKEW_S < deadline
    return has_left and is_there and (answers or not row.is_standby) and has_time
