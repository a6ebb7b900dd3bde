"""The rules about who goes, who comes, and when: judged by what each invocation was shown.

An invocation is judged at its end: what it wrote (`truth`, `balance`), and, if nothing disturbed it, what it
left undone (`undone`). Whatever it was told, stale or wrong as it may be, it is held to that alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from lab.sim.gate import Invocation
from lab.sim.rules import completeness, replicas, rows
from lab.sim.rules.backoff import BackoffChecker
from lab.sim.rules.checker import BLIND_S, Checker
from lab.sim.rules.invocation_view import InvocationView
from spotrelay.core.rows import Rows
from spotrelay.memory import MemoryStore


@dataclass(slots=True)
class InvocationChecker:
    """Judges invocations."""

    checker: Checker
    memory: MemoryStore
    warnings: dict[str, list[float]] = field(default_factory=dict)
    """Instance → when EC2 warned it."""
    recommendations: dict[str, list[float]] = field(default_factory=dict)
    """Instance → when EC2 recommended to leave it."""

    backoff_checker: BackoffChecker = field(default_factory=BackoffChecker)

    def note_event(self, body: str, warned: str | None) -> None:
        """EC2 says something: an event's text, and the instance that it warns of, if it does."""
        if warned:
            self.warnings.setdefault(warned, []).append(self.checker.scheduler.now)
        elif "Rebalance Recommendation" in body:
            instance_id = json.loads(body)["detail"]["instance-id"]
            self.recommendations.setdefault(instance_id, []).append(self.checker.scheduler.now)

    def check(self, invocation: Invocation, *, came_to_end: bool) -> None:
        """An invocation is over, one way or the other."""
        if self.checker.violations:
            return
        service = invocation.tick_service
        view = InvocationView(
            self.checker,
            invocation,
            service,
            invocation.rows or Rows(),
            self.memory.load(service) if service else Rows(),
            invocation.specs.get(service),
            {instance.id: instance for instance in invocation.observed},
            invocation.health or {},
            self.warnings,
            self.recommendations,
        )
        damaged = self.checker.is_damaged(service, invocation.began_at)
        for commit in invocation.commits:
            # A table that was restored meanwhile gives IDs anew, and rows of one ID are not one replica's.
            if not self.checker.is_damaged(commit.changes.service, invocation.began_at):
                rows.check(view, commit)
            has_unreadable_document = self.checker.is_damaged(service, invocation.began_at - BLIND_S)
            if view.is_tick and commit.changes.service == service and not has_unreadable_document:
                replicas.check(view, commit)
        is_whole = came_to_end and not (
            invocation.disturbances or damaged or invocation.saw_other_control_plane
        )
        if view.is_tick and not damaged:
            self.backoff_checker.check(view, is_whole=is_whole)
        if not is_whole:
            return
        if invocation.bodies:
            completeness.check_signals(view, self.memory)
        elif view.is_tick:
            rows.check_terminations(view)
            completeness.check_tick(view, self.memory)
