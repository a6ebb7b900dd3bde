"""Checks an invocation at its end, against what it was shown.

`rows`, `replicas` and `backoff` check its commits. If nothing disturbed it, `completeness` checks whether it
did everything. Stale and wrong answers count as what it was shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.sim.gate import Invocation
from lab.sim.rules import completeness, notices, overrides, replicas, rows, versions
from lab.sim.rules.backoff import BackoffChecker
from lab.sim.rules.checker import BLIND_S, Checker
from lab.sim.rules.desired import ends_between, gone_by, in_effect, rolled_back
from lab.sim.rules.invocation_view import InvocationView
from spotrelay.core.rows import Rows
from spotrelay.memory import MemoryStore


@dataclass(slots=True)
class InvocationChecker:
    """Runs the checks of an invocation's end."""

    checker: Checker
    memory: MemoryStore
    warnings: dict[str, list[float]] = field(default_factory=dict)
    """Instance → when EC2 warned it."""
    recommendations: dict[str, list[float]] = field(default_factory=dict)
    """Instance → when EC2 recommended to leave it."""

    backoff_checker: BackoffChecker = field(default_factory=BackoffChecker)

    def note_event(self, body: str, instance_id: str, *, is_warning: bool) -> None:
        """Record an event of EC2's about an instance, or a slot of one."""
        if is_warning:
            self.warnings.setdefault(instance_id, []).append(self.checker.scheduler.now)
        elif "Rebalance Recommendation" in body:
            self.recommendations.setdefault(instance_id, []).append(self.checker.scheduler.now)

    def check(self, invocation: Invocation, *, came_to_end: bool) -> None:
        """Check an invocation that has ended, or was killed."""
        if self.checker.violations:
            return
        service = invocation.tick_service
        read = invocation.rows or Rows()
        # If a request ends meanwhile, nobody can tell by which number it decided.
        is_between = ends_between(read.requests, invocation.began_at, self.checker.scheduler.now)
        view = InvocationView(
            self.checker,
            invocation,
            service,
            read,
            self.memory.load(service) if service else Rows(),
            in_effect(
                rolled_back(invocation.specs.get(service), read),
                gone_by(invocation, read),
                invocation.loaded_at,
            ),
            {instance.id: instance for instance in invocation.observed},
            invocation.health or {},
            self.warnings,
            self.recommendations,
        )
        damaged = self.checker.is_damaged(service, invocation.began_at)
        is_whole = came_to_end and not (
            invocation.disturbances or damaged or is_between or invocation.saw_other_control_plane
        )
        if not damaged and not invocation.saw_other_control_plane:
            overrides.check(view, is_whole=is_whole)
        for commit in invocation.commits:
            # A restored table gives IDs again: rows with one ID may be of two replicas.
            if not self.checker.is_damaged(commit.changes.service, invocation.began_at):
                rows.check(view, commit)
            versions.check_rolled_back(self.checker, invocation, commit)
            is_uncertain = is_between or self.checker.is_damaged(service, invocation.began_at - BLIND_S)
            if view.is_tick and commit.changes.service == service and not is_uncertain:
                replicas.check(view, commit)
        if view.is_tick and not damaged:
            self.backoff_checker.check(view, is_whole=is_whole)
        if not is_whole:
            return
        if invocation.bodies:
            completeness.check_signals(view, self.memory)
        elif view.is_tick:
            rows.check_terminations(view)
            notices.check(view, self.memory)
            completeness.check_tick(view, self.memory)
