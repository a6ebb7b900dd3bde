"""What one invocation was shown, and the state at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from lab.sim.faults import Call
from lab.sim.gate import Invocation, time_of
from lab.sim.rules.history import History
from lab.sim.rules.limits import SKEW_S
from lab.world.instances import NEVER
from spotrelay.plane.core.instances import Instance, TargetState
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec


@dataclass(slots=True)
class InvocationView:
    """What one invocation was shown, and the state at its end."""

    history: History
    invocation: Invocation
    service: str
    rows: Rows
    """The rows as it read them."""
    now: Rows
    """The rows at its end."""
    spec: ServiceSpec | None
    """The document that it read, if any."""
    instances: Mapping[str, Instance]
    health: Mapping[str, TargetState]
    warnings: Mapping[str, list[float]]
    """Instance → when EC2 warned it."""
    recommendations: Mapping[str, list[float]]
    """Instance → when EC2 recommended to leave it."""

    @property
    def is_tick(self) -> bool:
        """Whether it looked at EC2 and the load balancer, and had a document."""
        invocation = self.invocation
        return self.spec is not None and invocation.observed_at is not None and invocation.health is not None

    @property
    def lag_s(self) -> float:
        """How much older its decisions may be than their commits."""
        return self.history.scheduler.now - self.invocation.began_at

    @property
    def is_alone(self) -> bool:
        """Whether all that became of the rows that it read is what it decided.

        Nobody else has written any meanwhile, not even while it read them, and none of its commits failed.
        """
        known = self.rows.replicas
        for commit in self.invocation.commits:
            if commit.before.replicas != known:
                return False
            known = commit.after.replicas
        has_failed = any(c.call is Call.COMMIT and c.is_error for c in self.invocation.calls)
        is_torn = any(id_ > self.rows.highest_id for id_ in self.rows.replicas)
        return known == self.now.replicas and not (has_failed or is_torn)

    @property
    def created(self) -> list[Replica]:
        """The rows that it created, as it did."""
        return [row for commit in self.invocation.commits for row in commit.changes.create]

    @property
    def written(self) -> list[tuple[Replica, Replica]]:
        """Each row that it had read and wrote: as it read it, and as it wrote it last."""
        last = {row.id: row for commit in self.invocation.commits for row in commit.changes.update}
        return [(self.rows.replicas[id_], row) for id_, row in last.items() if id_ in self.rows.replicas]

    @property
    def decided_at(self) -> float:
        """When the first of its rows was written: by then it had decided."""
        return next((commit.at for commit in self.invocation.commits if commit.changes.stored), NEVER)

    def instance_of(self, row: Replica) -> Instance | None:
        """The row's instance, as EC2 showed it."""
        return self.instances.get(row.instance_id or "")

    def target(self, row: Replica) -> TargetState | None:
        """The row's target, as the load balancer showed it."""
        return self.health.get(row.instance_id or "")

    def unnoted_health(self, row: Replica) -> str:
        """What the load balancer showed of a ready replica, if its row says something else."""
        target = self.target(row)
        is_other = (target is TargetState.HEALTHY) == (row.unhealthy_since is not None)
        is_known = target is not TargetState.UNAVAILABLE
        return f"it is {target}, unhealthy since {row.unhealthy_since}" if is_known and is_other else ""

    def is_over(self, moment: datetime, after_s: float = 0.0) -> bool:
        """Whether `after_s` after the moment had certainly passed when it began to read."""
        return time_of(moment) + after_s + SKEW_S <= self.invocation.loaded_at

    def is_before(self, moment: datetime) -> bool:
        """Whether the moment had certainly passed when it began."""
        return time_of(moment) + SKEW_S <= self.invocation.began_at

    def unchanged_rows(self) -> Iterator[Replica]:
        """The rows that it read and that weren't written since."""
        for row in self.rows.replicas.values():
            current = self.now.replicas.get(row.id)
            if current is not None and current.revision == row.revision:
                yield row


def stays_in(row: Replica, rows: Rows) -> bool:
    """Whether a replica stays in service according to these rows."""
    found = rows.replicas.get(row.id)
    return found is not None and found.stays


def answers(view: InvocationView, row: Replica) -> bool:
    """Whether a replica that stays was shown to answer its checks."""
    is_healthy = view.target(row) is TargetState.HEALTHY
    return row.is_counted and is_healthy and row.instance_id not in view.invocation.warned
