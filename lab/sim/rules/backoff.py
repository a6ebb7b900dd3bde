"""The rule about replicas that never became ready: launches wait, and stop after the fifth failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from lab.sim.gate import Commit, time_of
from lab.sim.rules import Findings, Rule, limits
from lab.sim.rules.invocation_view import InvocationView
from lab.sim.rules.limits import SKEW_S
from lab.world.instances import NEVER
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, Rows
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec


@dataclass(slots=True)
class BackoffChecker:
    """Checks the back-off after failures."""

    failed_at: dict[str, float] = field(default_factory=dict)

    def check(self, view: InvocationView, *, is_whole: bool) -> Findings:
        """Does the recorded back-off match the failures? `is_whole`: nothing disturbed the invocation."""
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
                yield from self._check(view, commit, failed, commit.changes.backoff, ready)
                failed, ready = [], []
            elif ready:
                # Beside a success they didn't count, and those of the next decision begin anew.
                failed = [r for r in failed if r.version > max(ready)]
        is_held = bool(ready) and view.rows.backoff != _after_success(view.rows.backoff, ready)
        failed = [r for r in failed if r.version >= max((view.rows.backoff.version, *ready))]
        if is_whole and (is_held if ready else failed):
            yield Rule.FAILURE_BACKOFF, f"{[str(r) for r in failed]} failed, ready: {ready}; nothing follows"

    def _check(
        self,
        view: InvocationView,
        commit: Commit,
        failed: Sequence[Replica],
        recorded: Backoff,
        ready: Sequence[int],
    ) -> Findings:
        service, before = commit.changes.service, commit.before.backoff
        if before == Backoff() != view.rows.backoff and recorded.failures > len(failed):
            # An operator has just had the version tried again: a tick that read before that counts on.
            before = view.rows.backoff
        before, failed = _counted(before, failed, ready)
        if not failed:
            if recorded not in (before, _given_up(view, before)):
                yield Rule.FAILURE_BACKOFF, f"nothing failed after {before}, and {recorded}"
            return
        version = max(replica.version for replica in failed)
        if before.version != version:
            before = Backoff()
        counted = [r for r in failed if r.version == version]
        last = self.failed_at.get(service, -NEVER) if before.failures else NEVER
        # What EC2 calls its own doing is never the last straw.
        own = [r for r in counted if "Server." not in r.reason]
        started = max((time_of(r.entered[ReplicaState.PROVISIONING]) for r in own), default=-NEVER)
        self.failed_at[service] = commit.at
        counts = {before.failures + len(counted)}
        if started <= last + SKEW_S:
            capped = min(before.failures + len(counted), max(before.failures, limits.CRASH_LOOP - 1))
            # Near the last failure, or when nobody knows of it any more, either may be right.
            is_known = started < last - view.lag_s - SKEW_S and service not in view.checker.damaged
            # Another invocation, which still runs, may have written of a later failure.
            held_s = limits.doubled_s(before.failures, *limits.FAILURE_S) if before.failures else 0.0
            is_known &= (
                before.until is None or abs(time_of(before.until) - held_s - last) < SKEW_S + view.lag_s
            )
            counts = {capped} if is_known else counts | {capped}
        given_up = _given_up(view, before)
        least = given_up.failures if given_up else 0
        # One that is given up counts as failed so often at least; its launches wait for what did fail.
        waits_for = {count for count in counts if recorded.failures in (count, max(count, least))}
        if not waits_for or recorded.version != version:
            yield Rule.FAILURE_BACKOFF, f"{len(failed)} failed after {before}, and {recorded}"
            return
        if not (given_up and recorded.until is None):
            yield from _check_times(view, commit, before, recorded, min(waits_for), counted)


def _check_times(
    view: InvocationView,
    commit: Commit,
    before: Backoff,
    recorded: Backoff,
    failures: int,
    failed: Sequence[Replica],
) -> Findings:
    """Do launches wait for as long as so many failures demand?"""
    held_s = limits.doubled_s(failures, *limits.FAILURE_S)
    if not _is_now(view, commit, recorded.until, held_s):
        yield Rule.FAILURE_BACKOFF, f"held until {recorded.until} after {failures} failures"
    if any(replica.is_fallback for replica in failed):
        held_s = min(held_s, limits.FALLBACK_FAILURE_MAX_S)
        is_right = _is_now(view, commit, recorded.fallback_until, held_s)
    else:
        is_right = recorded.fallback_until == before.fallback_until
    if not is_right:
        yield Rule.FAILURE_BACKOFF, f"after {before}, fallbacks are held until {recorded.fallback_until}"


def _after_success(backoff: Backoff, ready: Sequence[int]) -> Backoff:
    """A replica that gets ready clears its own version and older ones."""
    return Backoff() if max(ready) >= backoff.version else backoff


def _counted(
    before: Backoff, failed: Sequence[Replica], ready: Sequence[int]
) -> tuple[Backoff, list[Replica]]:
    """The back-off that failures add to, and the failures: of no older version, and not beside a success."""
    failed = [r for r in failed if r.version >= before.version]
    if ready and _after_success(before, ready) != before:
        before = _after_success(before, ready)
        failed = [r for r in failed if r.version > max(ready)]
    return before, failed


def _given_up(view: InvocationView, before: Backoff) -> Backoff | None:
    """The back-off if the version is given up, because a replica of it is ill; None: it may not be."""
    spec = view.spec
    rows = (*view.rows.replicas.values(), *view.now.replicas.values())
    is_ill = any(spec and r.version == spec.version and r.unhealthy_since for r in rows)
    latest = view.checker.scheduler.now - limits.ROLLOUT_REFUSED_S
    is_refused = any(
        r.state is ReplicaState.REQUESTED and r.attempts and time_of(r.since) <= latest for r in rows
    )
    is_refused &= spec is not None and spec.on_update is OnUpdate.BLUE_GREEN
    if spec is None or spec.on_update is OnUpdate.KEEP or not (is_ill or is_refused):
        return None
    before = before if before.version == spec.version else Backoff(version=spec.version)
    return replace(before, failures=max(before.failures, limits.ROLLOUT_FAILURES), until=None)


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


def rollout_stopped(spec: ServiceSpec, known: Sequence[Backoff], rows: Rows) -> bool:
    """Whether the deployed version failed too often, by all that is known, or a replica of it is ill."""
    if spec.on_update is OnUpdate.KEEP:
        return False
    has_failed = all(b.version == spec.version and b.failures >= limits.ROLLOUT_FAILURES for b in known)
    # What was adopted came of no roll-out.
    of_version = [r for r in rows.replicas.values() if r.version == spec.version and not r.is_adopted]
    return has_failed or any(r.unhealthy_since for r in of_version)


def has_stopped_short(spec: ServiceSpec, rows: Rows) -> bool:
    """Whether the deployed version failed too often, and replicas of another one are left."""
    if spec.on_update is OnUpdate.KEEP or rows.backoff.version != spec.version:
        return False
    left = [r for r in rows.replicas.values() if r.is_counted and not r.is_fallback]
    is_left = any(r.version != spec.version for r in left)
    return is_left and rows.backoff.failures >= limits.ROLLOUT_FAILURES


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
