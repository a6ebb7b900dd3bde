"""The rule about replicas that never became ready: launches wait, and stop after the fifth failure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lab.sim.gate import Commit, time_of
from lab.sim.rules import Findings, Rule, limits
from lab.sim.rules.invocation_view import InvocationView
from lab.sim.rules.limits import SKEW_S
from lab.world.instances import NEVER
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, Rows
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec


def check(view: InvocationView, *, is_whole: bool) -> Findings:
    """Do launches wait after failures? `is_whole`: nothing disturbed the invocation."""
    failed: list[Replica] = []
    ready: list[int] = []
    for commit in view.invocation.commits:
        # Neither of these two holds up anything that is needed.
        failed += [
            r
            for r in commit.changes.update
            if r.state is ReplicaState.FAILED and not r.stands_by and not r.is_move
        ]
        ready += [row.version for row in commit.changes.update if _becomes_ready(row, commit)]
        if commit.changes.backoff is not None:
            yield from _check_times(view, commit, commit.changes.backoff)
            failed, ready = [], []
        elif ready:
            # Beside a success they didn't count, and those of the next decision begin anew.
            failed = [r for r in failed if r.version > max(ready)]
    # What gets ready clears its own version and older ones, unless another one of it is given up beside it.
    ill = {r.version for c in view.invocation.commits for r in c.changes.update if r.unhealthy_since}
    is_clear = bool(ready) and max(ready) >= view.rows.backoff.version and max(ready) not in ill
    is_held = is_clear and view.rows.backoff != Backoff()
    counted = max((*(backoff.version for backoff in backoffs(view)), *ready))
    failed = [r for r in failed if r.version >= counted]
    if is_whole and (is_held if ready else failed):
        yield Rule.FAILURE_BACKOFF, f"{[str(r) for r in failed]} failed, ready: {ready}; nothing follows"


def _check_times(view: InvocationView, commit: Commit, recorded: Backoff) -> Findings:
    """Do launches wait for as long as so many failures demand, or fewer, where the version is given up?"""
    before, longest_s = commit.before.backoff, limits.FALLBACK_FAILURE_MAX_S
    waits_s = [limits.doubled_s(times, *limits.FAILURE_S) for times in range(1, recorded.failures + 1)]
    for until, was, of_s in (
        (recorded.until, before.until, waits_s),
        (recorded.fallback_until, before.fallback_until, [min(wait_s, longest_s) for wait_s in waits_s]),
    ):
        if until not in (None, was, view.rows.backoff.until, view.rows.backoff.fallback_until) and not any(
            _is_now(view, commit, until, wait_s) for wait_s in of_s
        ):
            yield Rule.FAILURE_BACKOFF, f"held until {until} after {recorded.failures} failures"


def _is_now(view: InvocationView, commit: Commit, until: datetime | None, held_s: float) -> bool:
    """Whether the commit was decided `held_s` before `until`."""
    if until is None:
        return False
    return view.invocation.began_at - SKEW_S <= time_of(until) - held_s <= commit.at + SKEW_S


def _becomes_ready(row: Replica, commit: Commit) -> bool:
    old = commit.before.replicas.get(row.id)
    is_known = old is not None and ReplicaState.READY in old.entered
    return ReplicaState.READY in row.entered and old is not None and not is_known


def is_looping(backoff: Backoff, version: int) -> bool:
    """Whether so many failures in a row have stopped the version's launches."""
    return backoff.version == version and backoff.until is not None and backoff.failures >= limits.CRASH_LOOP


def has_failed(spec: ServiceSpec, backoff: Backoff) -> bool:
    """Whether the deployed version failed too often, or was given up."""
    return backoff.version == spec.version and backoff.failures >= limits.ROLLOUT_FAILURES


def rollout_stopped(spec: ServiceSpec, known: Sequence[Backoff], rows: Rows) -> bool:
    """Whether the deployed version failed too often, by all that is known, or a replica of it is ill."""
    if spec.on_update is OnUpdate.KEEP:
        return False
    is_failed = all(has_failed(spec, backoff) for backoff in known)
    # What was adopted came of no roll-out.
    of_version = [r for r in rows.replicas.values() if r.version == spec.version and not r.is_adopted]
    return is_failed or any(r.unhealthy_since for r in of_version)


def has_stopped_short(spec: ServiceSpec, rows: Rows) -> bool:
    """Whether the deployed version failed too often, and replicas of another one are left."""
    if spec.on_update is OnUpdate.KEEP or not has_failed(spec, rows.backoff):
        return False
    left = [r for r in rows.replicas.values() if r.is_counted and not r.is_fallback]
    return any(r.version != spec.version for r in left)


def backoffs(view: InvocationView) -> list[Backoff]:
    """As it was read, and as each of the invocation's commits leaves it."""
    recorded = (commit.changes.backoff for commit in view.invocation.commits)
    return [view.rows.backoff, *(backoff for backoff in recorded if backoff is not None)]


def held_until(view: InvocationView, version: int, *, is_fallback: bool) -> float:
    """Until when failures keep a version from being launched, by the shortest of what is known."""
    return min(_until(backoff, version, is_fallback=is_fallback) for backoff in backoffs(view))


def is_held(view: InvocationView, *, is_fallback: bool = False) -> bool:
    """Whether they may still have done so when it began to read, or do since."""
    # Where versions roll out, what is missing may be launched with any that served.
    spec, rows = view.spec, view.rows.replicas.values()
    versions = {spec.version, *(r.version for r in rows)} if spec else set()
    if spec and spec.on_update is OnUpdate.KEEP:
        versions = {spec.version}
    return any(
        _until(backoff, version, is_fallback=is_fallback) + SKEW_S > view.invocation.loaded_at
        for backoff in backoffs(view)
        for version in versions
    )


def _until(backoff: Backoff, version: int, *, is_fallback: bool) -> float:
    if version != backoff.version:
        return -NEVER
    if is_looping(backoff, version) and not is_fallback:
        return NEVER
    until = backoff.fallback_until if is_fallback else backoff.until
    return -NEVER if until is None else time_of(until)
