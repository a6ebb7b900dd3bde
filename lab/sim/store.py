"""The table. `memory` has what it does, `gate` makes its calls fail."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random
from typing import TypeVar

from lab.sim.alarms import SimAlarms
from lab.sim.faults import Call
from lab.sim.gate import CallGate, Commit
from lab.sim.rules.checker import Checker
from lab.sim.scheduler import Killed, Scheduler
from spotrelay.plane.core.held import Held
from spotrelay.plane.core.incidents import Incidents
from spotrelay.plane.core.pools import Cooldown, PoolMemory, Scope, Survey
from spotrelay.plane.core.ports import Conflict, PortError, Throttled
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import (
    Changes,
    Removal,
    Rollback,
    Rows,
    ScaleRequest,
    Source,
    Starts,
    Told,
)
from spotrelay.plane.core.scaling import OngoingTotal
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.memory import MemoryStore

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class SimStore:
    """`ports.Store`: strongly consistent, but several rows are read one after the other."""

    gate: CallGate
    checker: Checker
    scheduler: Scheduler
    random: Random
    memory: MemoryStore
    alarms: SimAlarms
    commits: dict[str, int] = field(default_factory=dict)
    """By service: the number of commits."""
    first_told: dict[str, Told] = field(default_factory=dict)
    """By service: what it had when it was first looked at, which is no news."""
    unknown_at: dict[str, list[float]] = field(default_factory=dict)
    """By service: when nobody could tell its document, kept or not."""

    def services(self) -> Sequence[str]:
        return self.gate(Call.SERVICES, None, self.memory.services)

    def forget(self, service: str) -> None:
        def effect() -> None:
            self.memory.forget(service)
            self.checker.note_in_effect(service)

        self.gate(Call.FORGET, service, effect)

    def locate(self, instance_ids: Collection[str]) -> Mapping[str, tuple[str, int]]:
        ids = sorted(instance_ids)  # a set's order differs from process to process
        return self.gate(Call.LOCATE, ids, lambda: self.memory.locate(ids))

    def read(self, service: str, replica_ids: Collection[int]) -> Rows:
        before, commits = self.memory.read(service, replica_ids), self.commits.get(service, 0)

        def effect() -> Rows:
            if commits == self.commits.get(service, 0):
                return before
            after = self.memory.read(service, replica_ids)
            highest_id = self.random.choice((before.highest_id, after.highest_id))
            return replace(self._mixed(before, after), highest_id=highest_id)

        return self.gate(Call.READ, replica_ids, effect, partly=effect)

    def load(self, service: str) -> Rows:
        before, commits = self.memory.load(service), self.commits.get(service, 0)
        invocation = self.gate.invocation
        invocation.tick_service, invocation.loaded_at = service, self.scheduler.now

        def effect() -> Rows:
            is_same = commits == self.commits.get(service, 0)
            rows = before if is_same else self._mixed(before, self.memory.load(service))
            invocation.rows = rows
            return rows

        return self.gate(Call.LOAD, service, effect, partly=effect)

    def document(self, service: str) -> ServiceSpec | None:
        def effect() -> ServiceSpec | None:
            found = self.memory.document(service)
            if found is None:
                self.unknown_at.setdefault(service, []).append(self.scheduler.now)
            return found

        return self.gate(Call.DOCUMENT, service, effect)

    def keep_document(self, spec: ServiceSpec, earlier: Mapping[int, ServiceSpec] | None = None) -> None:
        self.gate(Call.KEEP_DOCUMENT, spec, lambda: self.memory.keep_document(spec, earlier))

    def note_claim(self, service: str, *, is_ours: bool) -> None:
        self.gate(Call.NOTE_CLAIM, is_ours, lambda: self.memory.note_claim(service, is_ours=is_ours))

    def note_held(self, service: str, held: Held) -> None:
        self.gate(Call.NOTE_HELD, held, lambda: self.memory.note_held(service, held))

    def note_ongoing(self, service: str, total: OngoingTotal) -> None:
        self.gate(Call.NOTE_ONGOING, total, lambda: self.memory.note_ongoing(service, total))

    def note_starts(self, service: str, starts: Starts) -> None:
        self.gate(Call.NOTE_STARTS, starts, lambda: self.memory.note_starts(service, starts))

    def note_removal(self, service: str, removal: Removal) -> None:
        self.gate(Call.NOTE_REMOVAL, removal, lambda: self.memory.note_removal(service, removal))

    def note_request(self, service: str, source: Source, request: ScaleRequest | None) -> None:
        def effect() -> None:
            self.memory.note_request(service, source, request)
            self.checker.note_in_effect(service)

        self.gate(Call.NOTE_REQUEST, request, effect)

    def note_rollback(self, service: str, rollback: Rollback | None) -> None:
        self.memory.note_rollback(service, rollback)

    def history(self, service: str, limit: int) -> Sequence[Replica]:
        return self.gate(Call.HISTORY, service, lambda: self.memory.history(service, limit))

    def ended(self, service: str, replica_ids: Collection[int]) -> Sequence[Replica]:
        ids = sorted(replica_ids)
        return self.gate(Call.ENDED, ids, lambda: self.memory.ended(service, ids))

    def note_told(self, service: str, told: Told) -> None:
        def effect() -> None:
            self.memory.note_told(service, told)
            if told.revision == 0:
                self.first_told[service] = told

        self.gate(Call.NOTE_TOLD, told, effect)

    def note_incidents(self, service: str, incidents: Incidents) -> None:
        """Not through the gate, so that no other run changes by it."""
        invocation = self.gate.invocation
        if invocation.is_dead:
            raise Killed
        called_at = self.scheduler.now

        def effect() -> None:
            self.memory.note_incidents(service, incidents)
            self.checker.incident_checker.after_note(invocation, service, incidents, called_at)

        try:
            self.alarms.note(effect)
        except PortError as error:
            invocation.noted.append(error)
            raise
        invocation.noted.append(None)

    def commit(self, changes: Changes) -> None:
        invocation = self.gate.invocation
        before = Rows()
        called_at = self.scheduler.now

        def effect() -> None:
            nonlocal before
            service = changes.service
            before = self.memory.load(service)
            try:
                self.memory.commit(changes)
            except Conflict:
                invocation.disturbances += 1
                raise
            self.commits[service] = self.commits.get(service, 0) + 1
            commit = Commit(self.scheduler.now, changes, before, self.memory.load(service))
            invocation.commits.append(commit)
            self.checker.after_commit(invocation, commit)

        self.gate(Call.COMMIT, changes, effect)
        self.checker.launch_checker.after_commit(invocation, changes, before.replicas, called_at)

    def cool(self, cooldowns: Collection[Cooldown]) -> None:
        self.checker.launch_checker.cooldown_checker.before_cool(self.gate.invocation, cooldowns)

        def partly() -> None:
            self.memory.cool(list(cooldowns)[: len(cooldowns) // 2])
            raise Throttled("table: too many requests")

        self.gate(Call.COOL, cooldowns, lambda: self.memory.cool(cooldowns), partly=partly)

    def forgive(self, scopes: Collection[Scope]) -> None:
        self.checker.launch_checker.cooldown_checker.before_forgive(self.gate.invocation, scopes)
        self.gate(Call.FORGIVE, scopes, lambda: self.memory.forgive(scopes))

    def note_survey(self, survey: Survey) -> None:
        self.memory.note_survey(survey)

    def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
        memory = self.gate(Call.RECALL, None, lambda: self.memory.recall(service, region, now))
        self.checker.launch_checker.cooldown_checker.after_recall(self.gate.invocation, service, memory)
        return memory

    def acquire(self, service: str, holder: str, now: datetime, ttl_s: float) -> bool:
        invocation = self.gate.invocation

        def effect() -> bool:
            is_free = self.memory.acquire(service, holder, now, ttl_s)
            invocation.disturbances += not is_free
            return is_free

        return self.gate(Call.ACQUIRE, holder, effect)

    def release(self, service: str, holder: str) -> None:
        self.gate(Call.RELEASE, holder, lambda: self.memory.release(service, holder))

    def claim_tick(self, service: str, due: datetime, now: datetime, serving: datetime | None) -> bool:
        return self.gate(Call.CLAIM_TICK, due, lambda: self.memory.claim_tick(service, due, now, serving))

    def _mixed(self, before: Rows, after: Rows) -> Rows:
        """Rows that were read during a write: each from before or after it."""
        return replace(
            before,
            replicas=dict(sorted(self._either(before.replicas, after.replicas).items())),
            intents=self._either(before.intents, after.intents),
        )

    def _either(self, before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, V]:
        mixed = {}
        for key in dict.fromkeys((*before, *after)):
            value = self.random.choice((before, after)).get(key)
            if value is not None:
                mixed[key] = value
        return mixed
