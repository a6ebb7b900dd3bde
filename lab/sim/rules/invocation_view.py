"""What one invocation was shown, what it wrote, and what has become of that: by which it is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from lab.sim.gate import Invocation, time_of
from lab.sim.rules import Rule
from lab.sim.rules.checker import SKEW_S, Checker
from spotrelay.core.instances import Instance, TargetState
from spotrelay.core.replica import Replica
from spotrelay.core.rows import Rows
from spotrelay.core.spec import ServiceSpec


@dataclass(slots=True)
class InvocationView:
    """What an invocation knew, and what has become of it."""

    checker: Checker
    invocation: Invocation
    service: str
    rows: Rows
    """As it read them."""
    now: Rows
    """As they are at its end."""
    spec: ServiceSpec | None
    """The document that it was given; None if it was given none."""
    instances: Mapping[str, Instance]
    health: Mapping[str, TargetState]
    warnings: Mapping[str, list[float]]
    """Instance → when EC2 warned it."""
    recommendations: Mapping[str, list[float]]
    """Instance → when EC2 recommended to leave it."""

    @property
    def is_tick(self) -> bool:
        """Whether it looked at EC2 and the load balancer, and had a document to go by."""
        invocation = self.invocation
        return self.spec is not None and invocation.observed_at is not None and invocation.health is not None

    @property
    def lag_s(self) -> float:
        """How much older than a commit of its the decision may be."""
        return self.checker.scheduler.now - self.invocation.began_at

    @property
    def is_alone(self) -> bool:
        """Whether nobody else has written a row since it began to read."""
        known = self.rows.replicas
        for commit in self.invocation.commits:
            if commit.before.replicas != known:
                return False
            known = commit.after.replicas
        return known == self.now.replicas

    def report(self, rule: Rule, what: str) -> None:
        """Note a violation."""
        self.checker.report(rule, f"{self.invocation.name}: {what}")

    def instance_of(self, row: Replica) -> Instance | None:
        """The row's instance, as EC2 showed it."""
        return self.instances.get(row.instance_id or "")

    def target(self, row: Replica) -> TargetState | None:
        """The row's target, as the load balancer showed it."""
        return self.health.get(row.instance_id or "")

    def is_over(self, moment: datetime, after_s: float = 0.0) -> bool:
        """Whether the time so long after a moment had certainly passed when it began to read."""
        return time_of(moment) + after_s + SKEW_S <= self.invocation.loaded_at

    def is_before(self, moment: datetime) -> bool:
        """Whether a moment had certainly passed when it began."""
        return time_of(moment) + SKEW_S <= self.invocation.began_at

    def unchanged_rows(self) -> Iterator[Replica]:
        """The rows that it read and that nobody has written since."""
        for row in self.rows.replicas.values():
            kept = self.now.replicas.get(row.id)
            # What is above the highest ID was created while the rows were read.
            if kept is not None and kept.revision == row.revision and row.id <= self.rows.highest_id:
                yield row


def stays_in(row: Replica, rows: Rows) -> bool:
    """Whether a replica stays in service, as these rows have it."""
    found = rows.replicas.get(row.id)
    return found is not None and found.stays
