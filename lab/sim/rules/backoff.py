"""The rule about replicas that never became ready: launches wait, and stop after the fifth failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lab.sim.gate import Commit, time_of
from lab.sim.instances import NEVER
from lab.sim.rules import Rule, limits
from lab.sim.rules.checker import SKEW_S
from lab.sim.rules.invocation_view import InvocationView
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Backoff


@dataclass(slots=True)
class BackoffChecker:
    """Checks the back-off after failures."""

    failed_at: dict[str, float] = field(default_factory=dict)

    def check(self, view: InvocationView, *, is_whole: bool) -> None:
        """Does the recorded back-off match the failures? `is_whole`: nothing disturbed the invocation."""
        failed: list[Replica] = []
        is_ready = False
        for commit in view.invocation.commits:
            failed += [r for r in commit.changes.update if r.state is ReplicaState.FAILED]
            is_ready = is_ready or any(_becomes_ready(row, commit) for row in commit.changes.update)
            if commit.changes.backoff is not None:
                self._check(view, commit, failed, commit.changes.backoff, is_ready=is_ready)
                failed, is_ready = [], False
        is_held = view.rows.backoff != Backoff()
        if is_whole and (is_held if is_ready else failed):
            view.report(
                Rule.FAILURE_BACKOFF,
                f"{[str(r) for r in failed]} failed, ready: {is_ready}; no back-off is recorded",
            )

    def _check(
        self,
        view: InvocationView,
        commit: Commit,
        failed: Sequence[Replica],
        recorded: Backoff,
        *,
        is_ready: bool,
    ) -> None:
        # If a probe fails later in the same tick, that is a decision of its own.
        if is_ready and (view.rows.backoff != Backoff() or not failed):
            if recorded != Backoff():
                view.report(Rule.FAILURE_BACKOFF, f"a replica became ready, and {recorded}")
            return
        if not failed:
            view.report(Rule.FAILURE_BACKOFF, f"nothing failed, and {recorded}")
            return
        service, version = commit.changes.service, max(replica.version for replica in failed)
        before = commit.before.backoff
        if before.version != version:
            before = Backoff()
        last = self.failed_at.get(service, -NEVER) if before.failures else NEVER
        # A failure by EC2's own fault never stops the launches.
        own = [r for r in failed if "Server." not in r.reason]
        started = max((time_of(r.entered[ReplicaState.PROVISIONING]) for r in own), default=-NEVER)
        self.failed_at[service] = commit.at
        counts = {before.failures + len(failed)}
        if started <= last + SKEW_S:
            capped = min(before.failures + len(failed), max(before.failures, limits.CRASH_LOOP - 1))
            # Near the last failure, or if that is unknown, both counts are right.
            is_known = started < last - view.lag_s - SKEW_S and service not in view.checker.damaged
            counts = {capped} if is_known else counts | {capped}
        if recorded.failures not in counts or recorded.version != version:
            view.report(Rule.FAILURE_BACKOFF, f"{len(failed)} failed after {before}, and {recorded}")
            return
        held_s = limits.doubled_s(recorded.failures, *limits.FAILURE_S)
        if not _is_now(view, commit, recorded.until, held_s):
            view.report(
                Rule.FAILURE_BACKOFF, f"held until {recorded.until} after {recorded.failures} failures"
            )
        if any(replica.is_fallback for replica in failed):
            held_s = min(held_s, limits.FALLBACK_FAILURE_MAX_S)
            is_right = _is_now(view, commit, recorded.fallback_until, held_s)
        else:
            is_right = recorded.fallback_until == before.fallback_until
        if not is_right:
            view.report(
                Rule.FAILURE_BACKOFF, f"after {before}, fallbacks are held until {recorded.fallback_until}"
            )


def _is_now(view: InvocationView, commit: Commit, until: datetime | None, held_s: float) -> bool:
    """Whether the commit was decided `held_s` before `until`."""
    if until is None:
        return False
    return view.invocation.began_at - SKEW_S <= time_of(until) - held_s <= commit.at + SKEW_S


def _becomes_ready(row: Replica, commit: Commit) -> bool:
    old = commit.before.replicas.get(row.id)
    return row.state is ReplicaState.READY and old is not None and old.state is not row.state


def is_looping(backoff: Backoff, version: int) -> bool:
    """Whether so many failures in a row have stopped the version's launches."""
    return backoff.version == version and backoff.failures >= limits.CRASH_LOOP


def held_until(view: InvocationView, *, is_fallback: bool) -> float:
    """When failures allow a launch again, by the rows that were read."""
    backoff, spec = view.rows.backoff, view.spec
    if spec is None or backoff.version != spec.version:
        return -NEVER
    if is_looping(backoff, spec.version) and not is_fallback:
        return NEVER
    until = backoff.fallback_until if is_fallback else backoff.until
    return -NEVER if until is None else time_of(until)


def is_held(view: InvocationView, *, is_fallback: bool = False) -> bool:
    """Whether failures may still have prevented a launch when the invocation began to read."""
    return held_until(view, is_fallback=is_fallback) + SKEW_S > view.invocation.loaded_at
