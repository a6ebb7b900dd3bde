"""The rules about what is held back: that it is on record, and that an override is bound to it.

What an operator is shown is the record, so that is checked against what each tick holds back. An override
may let go on what it was given for, as far as that has been on record without a break since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lab.sim.faults import Call
from lab.sim.gate import Commit, time_of
from lab.sim.rules import Findings, Rule, limits, missing
from lab.sim.rules.invocation_view import InvocationView
from lab.sim.rules.limits import SKEW_S
from lab.sim.rules.word import OF_DOCUMENT, let_go, of_replica
from spotrelay.plane.core.held import Held
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Removal

DRAINING = ReplicaState.DRAINING


def check(view: InvocationView, *, is_whole: bool) -> Findings:
    """Check a tick that has ended, or was killed."""
    calls = [record.call for record in view.invocation.calls]
    if Call.LOAD not in calls or view.invocation.rows is None:
        return
    is_whole = is_whole and Call.FORGET not in calls and Call.RELEASE in calls
    if is_whole:
        yield from _check_record(view)
    if view.invocation.override is not None:
        yield from _check_override(view, is_whole=is_whole)


def _check_record(view: InvocationView) -> Findings:
    """Is what the tick holds back on record, each since when it is, and written only if it has changed?"""
    invocation, before = view.invocation, view.rows.held
    notes = [record.about for record in invocation.calls if record.call is Call.NOTE_HELD]
    after = next((note for note in reversed(notes) if isinstance(note, Held)), before)
    on_record = {(one.what, one.why) for one in after.back}
    if on_record != set(invocation.held_back):
        yield Rule.HELD_ON_RECORD, f"{on_record} is on record, {invocation.held_back} is held back"
    if before in notes:
        yield Rule.HELD_ON_RECORD, f"{before} is written again"
    earliest, latest = invocation.began_at - SKEW_S, view.history.scheduler.now + SKEW_S
    for one in set(after.back) - set(before.back):
        is_known = any(replace(one, since=other.since) == other for other in before.back)
        if is_known or not earliest <= time_of(one.since) <= latest:
            yield Rule.HELD_ON_RECORD, f"{one} is held back since {time_of(one.since):.3f} s"


def _check_override(view: InvocationView, *, is_whole: bool) -> Findings:
    """Is carried out what the override was given for, or else nothing?"""
    invocation, allowed = view.invocation, let_go(view.invocation)
    done = set(_carried_out(view))
    if done - allowed:
        yield Rule.OVERRIDE_BOUND, f"{done - allowed} is carried out, and it is given for {allowed}"
    if done and invocation.held_back:
        yield Rule.OVERRIDE_BOUND, f"{done} is carried out, and there is {invocation.held_back}"
    override, answer = invocation.override, view.rows.held.answer
    if not is_whole or override is None or (answer and answer.given_at == override.given_at):
        return  # what was answered is answered once, however often its message comes
    wanted = set(_credible_by_word(view, allowed))
    if wanted - done:
        yield Rule.OVERRIDE_BOUND, f"{wanted - done} isn't carried out, and that is what is seen"
    if override.given_at is None:
        return  # nobody waits for an answer
    notes = [record.about for record in invocation.calls if record.call is Call.NOTE_HELD]
    answers = [note.answer for note in notes if isinstance(note, Held) and note.answer]
    if not any(a.given_at == override.given_at and done <= set(a.done) for a in answers):
        yield Rule.OVERRIDE_BOUND, f"{done} is carried out, and the answer is {answers}"
    if any(not (a.done or a.lapsed) for a in answers):
        yield Rule.OVERRIDE_BOUND, f"nothing is carried out, and the answer is {answers}"


def _carried_out(view: InvocationView) -> Iterator[str]:
    """What the tick did that no answer alone makes credible."""
    for commit in view.invocation.commits:
        for row in commit.changes.update:
            if _is_taken_for_gone(view, commit, row):
                yield of_replica(row)
    told = (record.about for record in view.invocation.calls if record.call is Call.NOTE_REMOVAL)
    if view.rows.removal.told_at is None and any(isinstance(r, Removal) and r.told_at for r in told):
        yield OF_DOCUMENT


def _is_taken_for_gone(view: InvocationView, commit: Commit, row: Replica) -> bool:
    """Whether a replica that EC2 doesn't show counts as gone, which what was seen doesn't make credible."""
    old = commit.before.replicas.get(row.id)
    if old is None or view.instance_of(row) is not None or (old.state is DRAINING and not row.state.is_ended):
        return False
    is_gone = row.reason.startswith("instance gone") and not row.state.is_active
    now = commit.at + SKEW_S
    is_taken = old.warned_at is not None and now >= time_of(old.warned_at) + limits.WARNING_S
    is_needed = missing.may_answer(view, old) or missing.is_alone(view, old)
    return is_gone and is_needed and not is_taken


def _unseen(view: InvocationView) -> list[Replica]:
    """The replicas whose instance EC2 doesn't show, those included that may be too young to be shown."""
    there = (r for r in view.rows.replicas.values() if r.instance_id)
    return [r for r in there if r.state is not ReplicaState.STANDBY and view.instance_of(r) is None]


def _credible_by_word(view: InvocationView, allowed: frozenset[str]) -> Iterator[str]:
    """What must be carried out: all that may be held back now is what the override may let go on."""
    owned = {row.instance_id for row in view.rows.replicas.values()}
    has_document = any(r.call is Call.GET and r.answer is not None for r in view.invocation.calls)
    is_clear = has_document and not view.instances.keys() - owned
    unseen = _unseen(view)
    # Of the reasons only this one says exactly what was seen then and is seen now.
    answering = {one.what for one in view.rows.held.back if one.why.endswith("and it answers its checks")}
    is_clear = is_clear and all(view.target(row) is TargetState.HEALTHY for row in unseen)
    if not view.is_tick or not is_clear or not {of_replica(row) for row in unseen} <= allowed & answering:
        return
    for row in unseen:
        is_old = view.is_over(row.entered[ReplicaState.PROVISIONING], limits.UNSEEN_S)
        if is_old and row.state is not DRAINING:
            yield of_replica(row)
