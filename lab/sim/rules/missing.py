"""The rules about replicas whose instance EC2 doesn't show: docs/reliability.md, "Fail static"."""

from __future__ import annotations

from collections.abc import Sequence

from lab.sim.gate import Commit, time_of
from lab.sim.rules import Findings, Rule, limits
from lab.sim.rules.invocation_view import InvocationView, answers
from lab.sim.rules.limits import SKEW_S
from lab.sim.rules.word import let_go, of_replica
from lab.world.instances import NEVER
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.replica import Replica, ReplicaState

READY, DRAINING = ReplicaState.READY, ReplicaState.DRAINING

LONG_AGO = float("-inf")


def check_noted(view: InvocationView, commit: Commit, row: Replica, old: Replica) -> Findings:
    """Does the row say since when EC2 hasn't shown its instance?"""
    since = row.missing_since
    if since == old.missing_since:
        return
    is_shown = view.instance_of(row) is not None
    is_new = since is not None and view.invocation.began_at - SKEW_S <= time_of(since) <= commit.at + SKEW_S
    if not (is_shown if since is None else is_new and old.missing_since is None and not is_shown):
        yield Rule.ROWS_MATCH_OBSERVATION, f"{row}: missing since {since}, not {old.missing_since}"


def check_gone(view: InvocationView, commit: Commit, row: Replica, old: Replica) -> Findings:
    """A replica goes because EC2 doesn't show its instance: is that credible?"""
    now = commit.at + SKEW_S
    is_over = old.warned_at is not None and now >= time_of(old.warned_at) + limits.WARNING_S
    is_taken = is_over and row.instance_id not in view.invocation.spared
    if now < _launched_at(old) + limits.UNSEEN_S:
        yield Rule.NOT_BEFORE_TIMEOUT, f"{row} counts as gone, and may not be shown yet"
    if is_taken or of_replica(row) in let_go(view.invocation):
        return
    if is_alone(view, old):
        yield Rule.LAST_ONE_KEPT, f"{row} counts as gone, is {view.target(row)}, and no other answers"
    is_overdue = old.state is not READY and now > overdue_at(view, old)
    # Whether a young one counts depends on the clock: what is right by either way to count is right.
    lost = all(too_many(view, old, at) for at in launched_by(view))
    if may_answer(view, old) or (lost and not is_overdue):
        yield Rule.NOT_BEFORE_TIMEOUT, f"{row} counts as gone, is {view.target(row)}"
    if old.missing_since is None or now < time_of(old.missing_since) + limits.MISSING_S:
        yield Rule.NOT_BEFORE_TIMEOUT, f"{row} counts as gone, missing since {old.missing_since}"


def _launched_at(row: Replica) -> float:
    """When its instance was launched; one that stood by has it from another row, and it was seen there."""
    launched_at = row.entered.get(ReplicaState.PROVISIONING)
    return LONG_AGO if launched_at is None else time_of(launched_at)


def overdue(view: InvocationView, row: Replica) -> str:
    """What the tick should have made of a replica that is missing, and didn't; empty: nothing."""
    if _launched_at(row) + limits.UNSEEN_S + SKEW_S > view.invocation.loaded_at:
        return ""
    target = view.target(row)
    is_spared = row.instance_id in view.invocation.spared
    if row.warned_at is not None and view.is_over(row.warned_at, limits.WARNING_S) and not is_spared:
        return "EC2 has taken it"
    if row.state is READY and (why := view.unnoted_health(row)):
        return why
    if target is TargetState.HEALTHY:
        return "it is healthy" if row.state is ReplicaState.STARTING else ""
    is_overdue = row.state is not READY and overdue_at(view, row) + SKEW_S <= view.invocation.loaded_at
    lost = any(too_many(view, row, at) for at in launched_by(view))
    if is_alone(view, row) or may_answer(view, row) or (lost and not is_overdue):
        return ""
    if row.missing_since is None or view.is_over(row.missing_since, limits.MISSING_S):
        return f"EC2 doesn't show it since {row.missing_since}"
    return ""


def may_answer(view: InvocationView, row: Replica) -> bool:
    """Whether it answers its checks, or did when the load balancer last knew."""
    target, is_ready = view.target(row), row.state is READY
    is_unknown = target is TargetState.UNAVAILABLE and is_ready and row.unhealthy_since is None
    return target is TargetState.HEALTHY or is_unknown


def is_alone(view: InvocationView, row: Replica) -> bool:
    """Whether it may serve, as far as the load balancer knows, and that shows no other that answers."""
    is_ready = row.state is READY and view.target(row) is not TargetState.UNHEALTHY
    is_unknown = row.state is ReplicaState.STARTING and view.target(row) is TargetState.UNAVAILABLE
    others = (r for r in view.rows.replicas.values() if r.id != row.id)
    return (is_ready or is_unknown) and not any(answers(view, r) for r in others)


def launched_by(view: InvocationView) -> tuple[float, float]:
    """The times between which lies the one by which an instance was launched that EC2 should show."""
    return (
        view.invocation.began_at - SKEW_S - limits.UNSEEN_S,
        view.history.scheduler.now + SKEW_S - limits.UNSEEN_S,
    )


def too_many(view: InvocationView, row: Replica, by: float) -> bool:
    """Whether too many are missing, of those that are shown or were launched by then."""
    there = [
        r
        for r in view.rows.replicas.values()
        if r.instance_id and r.state is not ReplicaState.STANDBY
        if view.instance_of(r) or _launched_at(r) <= by
    ]
    groups: list[tuple[Sequence[Replica], int]] = [(there, row.state is READY)]
    if row.state is READY:
        groups.append(([r for r in there if r.state is READY], 1))
    return any(
        sum(view.instance_of(r) is None for r in group) > max(len(group) / 2, least)
        for group, least in groups
    )


def overdue_at(view: InvocationView, row: Replica) -> float:
    """When it should be ready, or have finished its requests."""
    # Where its document is missing, the one that was kept counts.
    spec = view.spec or view.rows.document
    if spec is None:
        return NEVER
    if row.state is DRAINING:
        return time_of(row.since) + limits.way_out_s(spec, row) + limits.DEREGISTRATION_LAG_S
    return limits.is_overdue_at(row, spec)
