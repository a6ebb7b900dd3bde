"""Checks an invocation at its end, against what it was shown.

`rows` and `backoff` check its commits. `replicas` checks which replicas a tick added and removed, by the rows
that it read and by those that it left: where somebody else wrote rows meanwhile, as beside three commits in a
hundred, nobody can tell whose decision they show. If nothing disturbed it, `completeness` checks whether it
did everything. Stale and wrong answers count as what it was shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.sim.gate import Invocation
from lab.sim.rules import Findings, backoff, completeness, notices, overrides, replicas, rows, versions
from lab.sim.rules.checker import Checker
from lab.sim.rules.desired import ends_between, gone_by, in_effect, rolled_back
from lab.sim.rules.history import BLIND_S
from lab.sim.rules.invocation_view import InvocationView
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.memory import MemoryStore


@dataclass(slots=True)
class InvocationChecker:
    """Runs the checks of an invocation's end."""

    checker: Checker
    memory: MemoryStore
    warnings: dict[str, list[float]] = field(default_factory=dict)
    """Instance → when EC2 warned it."""
    recommendations: dict[str, list[float]] = field(default_factory=dict)
    """Instance → when EC2 recommended to leave it."""

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
        view = self._view(invocation)
        for rule, what in self._findings(view, came_to_end=came_to_end):
            self.checker.report(rule, f"{invocation.name}: {what}")

    def _findings(self, view: InvocationView, *, came_to_end: bool) -> Findings:
        invocation, is_ours = view.invocation, not view.invocation.saw_other_control_plane
        # If a request ends meanwhile, nobody can tell by which number it decided.
        is_between = ends_between(view.rows.requests, invocation.began_at, self.checker.scheduler.now)
        is_damaged = self.checker.is_damaged(view.service, invocation.began_at)
        is_whole = came_to_end and is_ours and not (invocation.disturbances or is_damaged or is_between)
        if is_ours and not is_damaged:
            yield from overrides.check(view, is_whole=is_whole)
        for commit in invocation.commits:
            # A restored table gives IDs again: rows with one ID may be of two replicas.
            if not self.checker.is_damaged(commit.changes.service, invocation.began_at):
                yield from rows.check(view, commit)
            yield from versions.check_rolled_back(view, commit)
        if view.is_tick:
            is_uncertain = is_between or self.checker.is_damaged(view.service, invocation.began_at - BLIND_S)
            if came_to_end and view.is_alone and not is_uncertain:
                yield from replicas.check(view)
            if not is_damaged:
                yield from backoff.check(view, is_whole=is_whole)
        if is_whole:
            yield from self._omissions(view)

    def _omissions(self, view: InvocationView) -> Findings:
        """What it had to do, as nothing disturbed it, and hasn't."""
        if view.invocation.bodies:
            yield from completeness.check_signals(view, self.memory)
        elif view.is_tick:
            yield from rows.check_terminations(view)
            yield from notices.check(view, self.memory)
            if view.is_alone:
                yield from completeness.check_tick(view, self.memory, self.checker.move_checker)

    def _view(self, invocation: Invocation) -> InvocationView:
        service, read = invocation.tick_service, invocation.rows or Rows()
        deployed = rolled_back(invocation.specs.get(service), read)
        return InvocationView(
            self.checker,
            invocation,
            service,
            read,
            self.memory.load(service) if service else Rows(),
            in_effect(deployed, gone_by(invocation, read), invocation.loaded_at),
            {instance.id: instance for instance in invocation.observed},
            invocation.health or {},
            self.warnings,
            self.recommendations,
        )
