"""The rules about rows: what they say is true, and nothing is given up before its time."""

from __future__ import annotations

from datetime import datetime

from lab.sim.gate import Commit, time_of
from lab.sim.rules import Findings, Rule, limits, missing
from lab.sim.rules.availability import is_served
from lab.sim.rules.history import MAX_DOCUMENT_AGE_S, in_force
from lab.sim.rules.invocation_view import InvocationView, answers
from lab.sim.rules.limits import SKEW_S
from lab.sim.rules.standby_rows import got_instance_of_another
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.spec import OnRebalance

NEEDLESS = "; as many as wanted are left"
"""The end of the reason of a loss that needs no replacement."""

CAME_BACK_IN_VAIN = "came back, and doesn't answer"

MAX_EVENT_AGE_S = 2 * limits.WARNING_S
"""An older warning counts as this old: otherwise its instance would be gone."""


def check(view: InvocationView, commit: Commit) -> Findings:
    """Check every row of a commit."""
    for row in commit.changes.create:
        yield from _check_state_times(view, commit, row, None)
        if row.state is not ReplicaState.REQUESTED and not got_instance_of_another(row):
            yield from _check_orphan_row(view, commit, row)
    for row in commit.changes.update:
        old = commit.before.replicas.get(row.id)
        if old is None:
            continue
        yield from _check_state_times(view, commit, row, old)
        yield from _check_warning(view, row, old)
        if old.state is ReplicaState.DRAINING and row.state is ReplicaState.STARTING:
            yield from _check_came_back(view, row)
            continue
        yield from missing.check_noted(view, commit, row, old)
        yield from _check_health(view, commit, row, old)
        yield from _check_silence(view, commit, row, old)
        yield from _check_recommendation(view, commit, row, old)
        if old.instance_id is None and row.instance_id is not None:
            yield from _check_assignment(view, commit, row)
        if row.state is not old.state and not row.state.is_active:
            if old.state.is_active:
                yield from _check_reason(view, commit, row, old)
                yield from _check_time(view, commit, row, old)
        elif (
            row.state is ReplicaState.READY
            and row.state is not old.state
            and view.target(row) is not TargetState.HEALTHY
        ):
            yield Rule.ROWS_MATCH_OBSERVATION, f"{row} becomes ready, and was shown {view.target(row)}"


def _check_state_times(view: InvocationView, commit: Commit, row: Replica, old: Replica | None) -> Findings:
    """Is each state recorded with its time, and never changed? Another version is requested anew."""
    for state, moment in row.entered.items():
        before = old.entered.get(state) if old else None
        is_now = view.invocation.began_at - SKEW_S <= time_of(moment) <= commit.at + SKEW_S
        # One that came back enters states once more, and another version is requested anew.
        is_back = old is not None and ReplicaState.DRAINING in old.entered and state is not old.state
        is_other = state is row.state is ReplicaState.REQUESTED and old and row.version != old.version
        if before is not None:
            is_right = moment == before or ((is_back or is_other) and is_now)
        elif old is None and got_instance_of_another(row) and state is ReplicaState.REQUESTED:
            # It is as old as the standby whose instance it gets.
            others = (r for r in commit.before.replicas.values() if r.instance_id == row.instance_id)
            is_right = moment in [r.entered[state] for r in others]
        elif old is None and state is ReplicaState.PROVISIONING and not got_instance_of_another(row):
            launched_at = view.history.cloud.instances[row.instance_id or ""].launched_at
            is_right = abs(time_of(moment) - launched_at) <= SKEW_S
        else:
            is_right = is_now
        if not is_right:
            what = f"{row} says that it entered {state} at {time_of(moment):.3f} s"
            yield Rule.ROWS_MATCH_OBSERVATION, what


def _check_warning(view: InvocationView, row: Replica, old: Replica) -> Findings:
    """Does the row say when EC2 warned its instance, and is that never changed?"""
    if row.warned_at == old.warned_at:
        return
    if old.warned_at is not None or row.warned_at is None:
        yield Rule.ROWS_MATCH_OBSERVATION, f"{row}, warned at {old.warned_at}, says {row.warned_at}"
        return
    warned_s = time_of(row.warned_at)
    oldest = view.invocation.began_at - MAX_EVENT_AGE_S - SKEW_S
    times = view.warnings.get(row.instance_id or "", ())
    if not any(
        abs(warned_s - time) <= SKEW_S or time <= oldest + 2 * SKEW_S <= warned_s + 4 * SKEW_S
        for time in times
    ):
        what = f"{row} says that it was warned at {warned_s:.3f} s, EC2 did at {times}"
        yield Rule.ROWS_MATCH_OBSERVATION, what


def _check_came_back(view: InvocationView, row: Replica) -> Findings:
    """A replica comes back: does nobody serve, is it on record, and is nothing of before?"""
    if is_served(view):
        yield Rule.COMES_BACK, f"{row} comes back, and others serve"
    of_before = (row.unhealthy_since, row.missing_since, row.refusals, *_silence(row))
    if row.reason != "back in rotation: no other replica serves" or any(of_before):
        yield Rule.ROWS_MATCH_OBSERVATION, f"{row} comes back: {row.reason!r}, {of_before}"


def _check_health(view: InvocationView, commit: Commit, row: Replica, old: Replica) -> Findings:
    """Does the row say since when its replica was seen unhealthy?"""
    since = row.unhealthy_since
    if since == old.unhealthy_since:
        return
    is_healthy = view.target(row) is TargetState.HEALTHY
    if since is None:
        is_right = is_healthy
    else:
        is_new = old.unhealthy_since is None and time_of(since) >= view.invocation.began_at - SKEW_S
        is_right = is_new and not is_healthy and time_of(since) <= commit.at + SKEW_S
        # What the load balancer doesn't know says nothing.
        is_right = is_right and view.target(row) is not TargetState.UNAVAILABLE
    if not is_right:
        yield Rule.ROWS_MATCH_OBSERVATION, f"{row}: unhealthy since {since}, not {old.unhealthy_since}"


def _check_silence(view: InvocationView, commit: Commit, row: Replica, old: Replica) -> Findings:
    """Does the row say since when its replica has been asked in vain?"""
    since, invocation = row.silent_since, view.invocation
    if _silence(row) == _silence(old):
        return
    answers, id_ = invocation.answers, row.instance_id or ""
    if id_ not in invocation.probed or id_ in answers.answering:
        is_right = id_ in answers.answering and _silence(row) == (None, 0, None, None)
    else:
        is_new = since is not None and invocation.began_at - SKEW_S <= time_of(since) <= commit.at + SKEW_S
        may_begin = old.silent_since is None or _is_excused(view, old, commit.at - SKEW_S)
        must_begin = old.silent_since is None or _is_excused(view, old, commit.at + SKEW_S)
        is_old = since is not None and since == old.silent_since
        is_right = (is_new and may_begin) or (is_old and not must_begin)
        refused = min(old.refusals + 1, limits.REFUSALS)
        is_right = is_right and row.refusals == (refused if id_ in answers.refusing else 0)
    if not is_right:
        is_anew = None not in (since, old.silent_since) and row.refusals == 0
        rule = Rule.BUSY_STAYS if is_anew else Rule.ROWS_MATCH_OBSERVATION
        yield rule, f"{row}: silent {_silence(row)}, not {_silence(old)}"


def _silence(row: Replica) -> tuple[datetime | None, int, datetime | None, float | None]:
    """What a row says of its replica's silence."""
    return row.silent_since, row.refusals, row.busy_since, row.finished


def _is_excused(view: InvocationView, old: Replica, now: float) -> bool:
    """Whether a silent replica showed that it is busy, and may still be."""
    work = view.invocation.answers.work.get(old.instance_id or "")
    document = view.spec or view.rows.document  # where the deployed one is missing, the last one counts
    busy = document.busy if document else None
    if work is None or busy is None or old.finished is None or old.silent_since is None:
        return False
    since = time_of(old.busy_since or old.silent_since)
    is_over = now - since >= busy.longest_s
    return work.finished > old.finished and work.ongoing >= busy.limit and not is_over


def check_silence_noted(view: InvocationView) -> Findings:
    """A tick asked replicas that serve, once a minute all of them: does each row say what it answered?"""
    for row in view.unchanged_rows():
        if not row.stays:
            continue
        if row.instance_id not in view.invocation.probed:
            if _is_to_be_asked(view, row):
                yield Rule.TICK_COMPLETE, f"{row} serves, and wasn't asked"
            continue
        if _is_excused(view, row, view.history.scheduler.now + SKEW_S):
            yield Rule.BUSY_STAYS, f"{row} is busy, and still silent since {row.silent_since}"
        is_silent = row.instance_id in view.invocation.silent
        is_refusal = row.instance_id in view.invocation.answers.refusing
        is_right = is_silent is (row.silent_since is not None)
        if not is_right or (is_refusal and row.refusals < limits.REFUSALS):
            yield Rule.TICK_COMPLETE, f"{row} was asked, and its row says {_silence(row)}"


def _is_to_be_asked(view: InvocationView, row: Replica) -> bool:
    """Whether a minute's tick asks one that serves if it still answers its readiness probe."""
    spec, instance = view.spec, view.instance_of(row)
    if spec is None or spec.readiness_probe is None or row.version != spec.version or row.is_adopted:
        return False
    is_replaced = spec.readiness_probe.failure_threshold_s is not None
    is_there = instance is not None and instance.state is InstanceState.RUNNING and bool(instance.address)
    is_warned = row.instance_id in view.invocation.warned
    return view.invocation.is_minutes and is_replaced and is_there and not is_warned


def _check_recommendation(view: InvocationView, commit: Commit, row: Replica, old: Replica) -> Findings:
    """Is a recommendation recorded once, with its time, if the service follows them?"""
    if row.rebalance_at == old.rebalance_at:
        return
    documents = in_force(view.history.documents, row.service, commit.at)
    is_followed = any(spec.on_rebalance is OnRebalance.REPLACE for spec in documents)
    times = view.recommendations.get(row.instance_id or "", ())
    is_right = row.rebalance_at is not None and any(
        abs(time_of(row.rebalance_at) - time) < 0.001 for time in times
    )
    if old.rebalance_at is not None or not is_right or not is_followed:
        what = f"{row}: recommended to leave at {row.rebalance_at}, not {old.rebalance_at}"
        yield Rule.ROWS_MATCH_OBSERVATION, what


def _check_assignment(view: InvocationView, commit: Commit, row: Replica) -> Findings:
    """A replica gets an instance: is it of the row's version, and not adopted too soon?"""
    version = view.history.cloud.instances[row.instance_id or ""].version
    if version is not None and row.version != version:
        what = f"{row} is of version {row.version}, {row.instance_id} of {version}"
        yield Rule.ROWS_MATCH_OBSERVATION, what
    if row.launch_id in view.invocation.answered:
        return
    intent = commit.before.intents.get(row.launch_id or "")
    if intent and commit.at + SKEW_S < time_of(intent.created_at) + limits.ADOPTION_AFTER_S:
        yield Rule.NOT_BEFORE_TIMEOUT, f"{row} adopts {row.instance_id} too soon"


def _check_orphan_row(view: InvocationView, commit: Commit, row: Replica) -> Findings:
    """An instance without a row gets one: is it due, and in the right state?"""
    instance = view.history.cloud.instances[row.instance_id or ""]
    if commit.at + SKEW_S < instance.launched_at + limits.ORPHAN_AFTER_S:
        what = f"{row} is created for {instance.id}, launched at {instance.launched_at:.0f} s"
        yield Rule.NOT_BEFORE_TIMEOUT, what
    if row.purchase_option is not instance.offering.purchase_option:
        yield Rule.ROWS_MATCH_OBSERVATION, f"{row} is {row.purchase_option}, its instance isn't"
    others = (r for r in commit.after.replicas.values() if r.instance_id == instance.id)
    if sum(1 for _ in others) > 1:
        yield Rule.INSTANCE_MATCHES_LAUNCH, f"{row} is created for {instance.id}, which has a row"
    target = view.target(row)
    is_in = target is not None and target.is_in_rotation
    wanted = (
        ReplicaState.DRAINING
        if not is_in or view.spec is None
        else ReplicaState.READY
        if target is TargetState.HEALTHY
        else ReplicaState.STARTING
    )
    if row.state is not wanted and view.is_tick:
        yield Rule.ROWS_MATCH_OBSERVATION, f"{row} is {row.state}, the load balancer says {target}"


def _check_reason(view: InvocationView, commit: Commit, row: Replica, old: Replica) -> Findings:
    """A replica goes: is what its row says true, as far as it is about the world, and is it replaced?"""
    reason = row.reason.removesuffix(NEEDLESS)
    is_right = _is_true(view, commit, row, old, reason)
    if reason != row.reason:
        # A replacement that it got earlier may be going, too.
        is_right = is_right and row.replaced_by == old.replaced_by and not row.is_fallback
    elif row.state is ReplicaState.FAILED:
        pass  # its replacement waits for the back-off
    elif reason.startswith(("interruption warning", "instance ")) and row.service in view.invocation.specs:
        is_right = is_right and (row.replaced_by is not None or row.is_fallback or old.comes_back)
    if not is_right:
        yield Rule.ROWS_MATCH_OBSERVATION, f"{row} goes, replaced by {row.replaced_by}: {row.reason!r}"


def _is_true(view: InvocationView, commit: Commit, row: Replica, old: Replica, reason: str) -> bool:
    """Whether the world is as the reason says; of a reason that is about the service alone nobody asks."""
    match reason:
        case "more replicas than wanted" | "Spot is back":
            return row.is_fallback is (reason == "Spot is back")
        case "service removed":
            return view.history.was_removed(row.service, 0.0, commit.at)
        case "instance gone":
            return view.instance_of(row) is None
        case "refuses its readiness probe":
            return old.refusals >= limits.REFUSALS
    if reason.startswith("interruption warning"):
        return row.is_warned
    if reason.startswith("unhealthy for "):
        return old.unhealthy_since is not None or old.replaced_by is not None
    if not reason.startswith("instance "):
        return True
    instance = view.history.cloud.instances[row.instance_id or ""]
    states = [state for since, state in instance.states if since <= commit.at and not state.is_alive]
    state, _, words = reason.removeprefix("instance ").removesuffix(", before it was ready").partition(": ")
    # If EC2 took it, or it was ready, it hasn't failed.
    was_asleep = row.is_standby and row.is_fallback and old.state is ReplicaState.PROVISIONING
    was_ready = old.state is ReplicaState.READY
    may_fail = not (was_asleep or was_ready or row.is_warned or words.startswith("Server.SpotInstance"))
    shown = view.instance_of(row)  # EC2 may say something else by now
    is_known = words in ("", instance.end, shown.state_reason if shown else "")
    return state in states and is_known and (row.state is not ReplicaState.FAILED or may_fail)


def _check_time(view: InvocationView, commit: Commit, row: Replica, old: Replica) -> Findings:
    """A replica goes: is its time over?"""
    now = commit.at + SKEW_S
    documents = view.history.documents(row.service, commit.at - MAX_DOCUMENT_AGE_S)
    reason = row.reason.removesuffix(NEEDLESS)
    started = old.entered.get(ReplicaState.PROVISIONING)
    if reason == CAME_BACK_IN_VAIN or (
        row.state is ReplicaState.FAILED and not reason.startswith("instance ")
    ):
        due = min((limits.is_overdue_at(old, spec) for spec in documents), default=0.0)
        if started is None or now <= due:
            yield Rule.NOT_BEFORE_TIMEOUT, f"{row} is given up as never ready, launched at {started}"
        instance = view.instance_of(row)
        is_running = instance is not None and instance.state is InstanceState.RUNNING
        unjudged = (TargetState.HEALTHY, TargetState.INITIAL, TargetState.UNAVAILABLE)
        if is_running and view.target(row) in unjudged:
            yield Rule.NOT_BEFORE_TIMEOUT, f"{row} is given up as never ready, and is {view.target(row)}"
    elif reason == "instance gone":
        yield from missing.check_gone(view, commit, row, old)
    elif reason.startswith("unhealthy for ") and old.is_fallback and old.unhealthy_since is not None:
        is_due = now >= time_of(old.unhealthy_since) + limits.FALLBACK_UNHEALTHY_S
        if not is_due:
            yield Rule.NOT_BEFORE_TIMEOUT, f"{row} goes: {row.reason}, since {old.unhealthy_since}"
        if not any(r.id != row.id and answers(view, r) for r in view.rows.replicas.values()):
            yield Rule.LONE_FALLBACK_STAYS, f"{row} goes: {row.reason}, and no other answers"


def _drained_longest(view: InvocationView, row: Replica) -> bool:
    """Whether no other row of its instance, as a restored table may have, has drained for longer."""
    others = (r for r in view.rows.replicas.values() if r.instance_id == row.instance_id)
    return row.since == min(r.since for r in others if r.state is ReplicaState.DRAINING)


def check_terminations(view: InvocationView) -> Findings:
    """Had terminated replicas the time for their requests?"""
    assert view.spec is not None  # noqa: S101 - a tick has one
    for row in view.rows.replicas.values():
        at = view.invocation.terminated.get(row.instance_id or "")
        if at is None or row.state is not ReplicaState.DRAINING or not _drained_longest(view, row):
            continue
        drained_s = at + SKEW_S - time_of(row.since)
        known = view.instance_of(row)
        if known is not None and known.state is InstanceState.TERMINATED:
            continue  # it finishes nothing any more, and another row of its instance has failed
        is_deregistered = view.target(row) is None and drained_s >= limits.DEREGISTRATION_LAG_S
        drain_s = view.spec.drain_s if known is None else limits.way_out_s(view.spec, row)
        if not is_deregistered and drained_s < drain_s + limits.DEREGISTRATION_LAG_S:
            yield Rule.NOT_BEFORE_TIMEOUT, f"{row} is terminated, draining for {drained_s - SKEW_S:.1f} s"
        is_stopped = known is not None and known.state is InstanceState.STOPPED
        if row.warned_at and not is_stopped and at + SKEW_S < time_of(row.warned_at) + limits.SPARED_END_S:
            yield Rule.NOT_BEFORE_TIMEOUT, f"{row} is terminated, warned at {row.warned_at}"
