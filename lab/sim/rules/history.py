"""What has happened in a run, as far as rules need to know it, and which of them were broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lab.sim.cloud import SimCloud
from lab.sim.gate import Invocation, time_of
from lab.sim.rules import Rule, Violation, limits
from lab.sim.rules.desired import gone_by, in_effect, rolled_back
from lab.sim.rules.limits import SKEW_S
from lab.sim.rules.standby_rows import created_at
from lab.sim.scheduler import Scheduler
from lab.world.instances import NEVER
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import LaunchWindow
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.memory import MemoryStore

MAX_DOCUMENT_AGE_S = limits.TIMEOUT_S + limits.DOCUMENT_CACHE_S
"""How old the document of a decision may be: a tick's time-out, and the cache of `get`."""

BLIND_S = 60.0
"""For so long after a lost counter, rows above it count as new."""

Documents = Callable[[str, float], Sequence[ServiceSpec]]
"""Service and time → the documents that were valid at any time since then."""


@dataclass(slots=True)
class History:
    """What has happened, and what rules were broken."""

    scheduler: Scheduler
    cloud: SimCloud
    documents: Documents = lambda _service, _since: ()
    was_removed: Callable[[str, float, float], bool] = lambda _service, _since, _until: False
    """Service and two times → whether its stack was gone at any time between."""
    note_in_effect: Callable[[str], None] = lambda _service: None
    """Records a service's document in effect, after what it follows from has changed."""
    violations: list[Violation] = field(default_factory=list)
    intents: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Every intent that was ever recorded: its replicas."""
    opened: dict[str, float] = field(default_factory=dict)
    """When each was recorded."""
    warned_rows: dict[str, float] = field(default_factory=dict)
    """Instance → when its row first said that it is warned."""
    ids: dict[str, int] = field(default_factory=dict)
    """By service: the highest ID that was given."""
    requested: dict[str, datetime] = field(default_factory=dict)
    """By service: when that replica was requested."""
    replacements: dict[tuple[str, int], int] = field(default_factory=dict)
    """Replica → its replacement."""
    recorded: dict[str, float] = field(default_factory=dict)
    """Instance → when it first had a row."""
    drained: dict[str, tuple[float, Invocation]] = field(default_factory=dict)
    """Instance → when its row began to drain, and which invocation wrote it."""
    windows: dict[str, LaunchWindow] = field(default_factory=dict)
    """By service: the last minute in which launches were counted."""
    quiet_since: float = 0.0
    """When faults end."""
    damaged: dict[str, float] = field(default_factory=dict)
    """By service: when its rows were damaged or restored. What they say of the past is no longer checked.
    What happens to serving replicas is."""
    came_back: set[tuple[str, int]] = field(default_factory=set)
    """The replicas that left and came back."""
    said_gone: set[tuple[str, int]] = field(default_factory=set)
    """The replicas that left because an operator says that their instances are gone."""
    failed: set[str] = field(default_factory=set)
    """Services with a replica that never became ready."""
    leave_checks: dict[str, list[float]] = field(default_factory=dict)
    """By service: when the warned replicas that serve on will be checked."""
    changed_at: float = 0.0
    """When a row or an intent last changed."""

    def damage(self, services: Iterable[str]) -> None:
        """Record that the rows of services are damaged now."""
        self.damaged |= dict.fromkeys(services, self.scheduler.now)
        for service in list(services):
            self.note_in_effect(service)
            self.windows.pop(service, None)
            self.requested.pop(service, None)
            self.replacements = {key: by for key, by in self.replacements.items() if key[0] != service}

    def is_damaged(self, service: str, since: float) -> bool:
        """Whether the service's rows were damaged or restored since then."""
        return service in self.damaged and self.damaged[service] >= since

    def row_before(self, invocation: Invocation, instance_id: str, store: MemoryStore) -> Replica | None:
        """An instance's row, if it had one when the invocation began, and it wasn't damaged since."""
        located = store.locate([instance_id])
        if self.recorded.get(instance_id, NEVER) >= invocation.began_at or instance_id not in located:
            return None
        # Of an instance that hosts several replicas the first slot's entry leads to the others.
        first = host(instance_id)
        if self.recorded.get(first, NEVER) >= invocation.began_at or not store.locate([first]):
            return None
        service, replica_id = located[instance_id]
        row = store.read(service, [replica_id]).replicas.get(replica_id)
        if row is None or self.is_damaged(service, invocation.began_at):
            return None
        is_new = time_of(created_at(row)) >= invocation.began_at - SKEW_S
        return None if is_new else row

    def report(self, rule: Rule, what: str) -> None:
        """Record a violation; the first one ends the run."""
        self.violations.append(Violation(rule, self.scheduler.now, what))
        self.scheduler.stop()

    def in_force(self, invocation: Invocation, service: str) -> Sequence[ServiceSpec]:
        """The documents that a decision may use: recent ones, and those that it read."""
        recent = in_force(self.documents, service, self.scheduler.now)
        return [*recent, *self._as_read(invocation, service)]

    def _as_read(self, invocation: Invocation, service: str) -> Sequence[ServiceSpec]:
        """The document on record and the deployed one, with what was requested when the rows were read.

        They are read one after the other: what a tick goes by may never have been in effect.
        """
        rows = invocation.rows
        if rows is None:
            return []
        read = [rolled_back(spec, rows) for spec in (rows.document, invocation.specs.get(service))]
        times = (invocation.loaded_at, self.scheduler.now)
        requests = gone_by(invocation, rows)
        return [in_effect(spec, requests, time) for spec in read if spec for time in times]


def in_force(documents: Documents, service: str, time: float) -> Sequence[ServiceSpec]:
    """The documents that a decision may use then: if there is none, the earlier ones stay valid."""
    return documents(service, time - MAX_DOCUMENT_AGE_S) or documents(service, 0.0)
