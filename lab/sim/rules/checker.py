"""The rules that hold at every step, checked where it happens.

Each rule has a name, by which the tests of the checker and `docs/reliability.md` know it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lab.sim.cloud import SimCloud
from lab.sim.gate import Invocation, time_of
from lab.sim.instances import NEVER, SimInstance
from lab.sim.rules import Rule, Violation, limits
from lab.sim.scheduler import Scheduler
from spotrelay.core.instances import InstanceState, TargetState
from spotrelay.core.pools import PurchaseOption
from spotrelay.core.ports import LaunchRequest
from spotrelay.core.replica import TRANSITIONS, Replica, ReplicaState
from spotrelay.core.rows import Changes, LaunchWindow
from spotrelay.core.spec import ServiceSpec
from spotrelay.memory import MemoryStore

if TYPE_CHECKING:
    from lab.sim.rules.launches import LaunchChecker

MAX_DOCUMENT_AGE_S = limits.TIMEOUT_S + limits.DOCUMENT_CACHE_S
"""A decision may go by a document that was read so long ago: a tick's time-out, and what `get` may keep."""

BLIND_S = 60.0
"""So long rows above a lost counter are taken for newborn."""

LAST_CHECK_S = limits.LAST_REPLICA_LEAD_S + 2.0, limits.LAST_REPLICA_LEAD_S - 2.0
"""The look at the last moment comes so long before the end, at the earliest and at the latest."""

SKEW_S = 1.5
"""By how much the functions' clocks may differ from EC2's, and a decision be ahead of its record."""

MAX_COMMIT_S = 25.0
"""How much older than its record an intent's own time may be: the commit can hang and still succeed."""


Documents = Callable[[str, float], Sequence[ServiceSpec]]
"""Service and time → the documents that were valid at any time since then."""


@dataclass(slots=True)
class Checker:
    """Watches what the production code does."""

    scheduler: Scheduler
    cloud: SimCloud
    documents: Documents = lambda _service, _since: ()
    was_removed: Callable[[str, float, float], bool] = lambda _service, _since, _until: False
    """Service and two times → whether its stack was gone at any time between."""
    violations: list[Violation] = field(default_factory=list)
    intents: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Every intent that was ever on record: its replicas."""
    opened: dict[str, float] = field(default_factory=dict)
    """When each was put on record."""
    warned_rows: dict[str, float] = field(default_factory=dict)
    """Instance → when its row came to say that it is warned."""
    ids: dict[str, int] = field(default_factory=dict)
    """By service, the highest ID that was given."""
    requested: dict[str, datetime] = field(default_factory=dict)
    """By service, when its replica was requested."""
    replacements: dict[tuple[str, int], int] = field(default_factory=dict)
    """Replica → its replacement."""
    recorded: dict[str, float] = field(default_factory=dict)
    """Instance → when a row came to have it."""
    drained: dict[str, tuple[float, Invocation]] = field(default_factory=dict)
    """Instance → when its row came to drain, and by whom."""
    windows: dict[str, LaunchWindow] = field(default_factory=dict)
    """By service: the minute that launches were counted in last."""
    quiet_since: float = 0.0
    """When things stop going wrong."""
    damaged: dict[str, float] = field(default_factory=dict)
    """By service: when somebody damaged its rows, or restored them. What they say of the past is no longer
    checked; what becomes of what serves is."""
    failed: set[str] = field(default_factory=set)
    """Services of which a replica has failed to become ready."""
    leave_checks: dict[str, list[float]] = field(default_factory=dict)
    """By service: when somebody will look at the replicas that serve on."""
    changed_at: float = 0.0
    """When a row or an intent last changed."""
    launch_checker: LaunchChecker = field(init=False)
    """Watches launches, and what is learned from them."""

    def damage(self, services: Iterable[str]) -> None:
        """Note that somebody damages the rows of services."""
        self.damaged |= dict.fromkeys(services, self.scheduler.now)
        for service in services:
            self.windows.pop(service, None)
            self.requested.pop(service, None)
            self.replacements = {key: by for key, by in self.replacements.items() if key[0] != service}

    def is_damaged(self, service: str, since: float) -> bool:
        """Whether somebody has damaged the service's rows since then, or restored them."""
        return service in self.damaged and self.damaged[service] >= since

    def row_before(self, invocation: Invocation, instance_id: str, store: MemoryStore) -> Replica | None:
        """An instance's row, if it had one when the invocation began and nobody has damaged it since."""
        located = store.locate([instance_id])
        if self.recorded.get(instance_id, NEVER) >= invocation.began_at or instance_id not in located:
            return None
        service, replica_id = located[instance_id]
        row = store.read(service, [replica_id]).replicas.get(replica_id)
        if row is None or self.is_damaged(service, invocation.began_at):
            return None
        is_new = time_of(row.entered[ReplicaState.REQUESTED]) >= invocation.began_at - SKEW_S
        return None if is_new else row

    def broken(self, rule: Rule, what: str) -> None:
        """Note a violation; the first one ends the run."""
        self.violations.append(Violation(rule, self.scheduler.now, what))
        self.scheduler.stop()

    # What was written.

    def after_commit(
        self,
        invocation: Invocation,
        changes: Changes,
        before: Mapping[int, Replica],
        after: Mapping[int, Replica],
    ) -> None:
        """A commit took effect: the service's living rows before and after it."""
        self.changed_at = self.scheduler.now
        self._check_serving_count(changes, after)
        self._check_departures(invocation, changes, before, after)
        self._check_launch_rate(changes)
        if changes.create:
            self._check_creations(invocation, changes, before, after)
            self._check_fallbacks(invocation, changes, before, after)
        if changes.open_intent:
            self.intents[changes.open_intent.id] = changes.open_intent.replica_ids
            self.opened[changes.open_intent.id] = self.scheduler.now
        for row in changes.update:
            old = before.get(row.id)
            # A restored table may count up to the very revision that was read before.
            is_confused = self.is_damaged(changes.service, invocation.began_at)
            is_legal = old is not None and (row.state is old.state or row.state in TRANSITIONS[old.state])
            if not (is_legal or is_confused):
                self.broken(Rule.LEGAL_TRANSITIONS, f"{row}: from {old and old.state} to {row.state}")
        for row in (*changes.create, *changes.update):
            if row.instance_id is not None:
                self._note_write(invocation, row.instance_id, row, before.get(row.id))
        for intent_id in changes.close_intents:
            self._check_intent_close(invocation, intent_id, after)

    def _note_write(
        self, invocation: Invocation, instance_id: str, row: Replica, old: Replica | None
    ) -> None:
        """The row of an instance was written: remember when, and what it came to say."""
        now = self.scheduler.now
        invocation.row_writes[instance_id] = now
        self.recorded.setdefault(instance_id, now)
        if old and old.instance_id is None:
            self._check_instance(row)
        if row.state is ReplicaState.DRAINING and old and old.state is not row.state:
            self.drained[instance_id] = now, invocation
        if row.state is ReplicaState.FAILED:
            self.failed.add(row.service)
        if row.warned_at:
            self.warned_rows.setdefault(instance_id, now)

    def _check_creations(
        self,
        invocation: Invocation,
        changes: Changes,
        before: Mapping[int, Replica],
        after: Mapping[int, Replica],
    ) -> None:
        service = changes.service
        highest = self.ids.get(service, 0)
        given = [row.id for row in changes.create]
        first = highest + 1
        if service in self.damaged:
            # Of what the table has forgotten nobody can know but by an instance's tag.
            tagged = max((instance.highest_id for instance in invocation.observed), default=0)
            first = max(given[0], tagged + 1)
        if given != list(range(first, first + len(given))):
            self.broken(Rule.IDS_IN_ORDER, f"{service}: {given} given after {highest}")
        self.ids[service] = max(highest, *given)
        requested = max(row.entered[ReplicaState.REQUESTED] for row in changes.create)
        earliest = self.requested.get(service, requested) - timedelta(seconds=SKEW_S)
        if requested < earliest and not self.is_damaged(service, invocation.began_at):
            self.broken(Rule.IDS_IN_ORDER, f"{service}: {given} were requested before {highest}")
        self.requested[service] = requested
        # What is missing leaves the last one that was read in force.
        documents = self._in_force(invocation, service)
        most = max((spec.replicas + spec.surge for spec in documents), default=0)
        for is_fallback in (False, True):
            was, active = (
                sum(r.is_counted and r.is_fallback is is_fallback for r in rows.values())
                for rows in (before, after)
            )
            found = sum(r.state is not ReplicaState.REQUESTED for r in changes.create)
            has_unreadable_document = self.is_damaged(service, self.scheduler.now - BLIND_S)
            if active - found > max(most, was) and not has_unreadable_document:
                kind = "fallbacks" if is_fallback else "regular replicas"
                self.broken(Rule.NEVER_ABOVE_SURGE, f"{service}: {active} active {kind}, {most} allowed")
        for row in changes.create:
            if row.replaces is None:
                continue
            earlier = self.replacements.get((service, row.replaces))
            if earlier is not None and earlier in after and after[earlier].is_counted:
                self.broken(
                    Rule.ONE_REPLACEMENT_PER_REPLICA,
                    f"{row} replaces {row.replaces}, which {earlier} replaces",
                )
            self.replacements[service, row.replaces] = row.id

    def _in_force(self, invocation: Invocation, service: str) -> Sequence[ServiceSpec]:
        """The documents that a decision may go by: valid a while ago or kept, where none is to be read."""
        documents = in_force(self.documents, service, self.scheduler.now)
        kept = invocation.rows.document if invocation.rows else None
        return [*documents, kept] if kept else documents

    def _check_fallbacks(
        self,
        invocation: Invocation,
        changes: Changes,
        before: Mapping[int, Replica],
        after: Mapping[int, Replica],
    ) -> None:
        """Rows are created: are there fallbacks among them, or are fallbacks replaced?"""
        service = changes.service
        for row in changes.create:
            replaced = before.get(row.replaces or 0)
            if replaced is not None and replaced.is_fallback:
                self.broken(Rule.ONE_FALLBACK_PER_REPLICA, f"{row} replaces {replaced}, a fallback")
        if not any(row.is_fallback and row.state is ReplicaState.REQUESTED for row in changes.create):
            return
        documents = self._in_force(invocation, service)
        if not any(spec.use_spot and spec.on_demand_fallback for spec in documents):
            self.broken(Rule.ONE_FALLBACK_PER_REPLICA, f"{service} wants none, and gets some")
        # Decided on what was loaded; what came since would have taken the IDs.
        loaded = invocation.loaded.values()
        # After a failure there may be no row for what is missing, for as long as nothing is tried again.
        most = max((spec.replicas for spec in documents), default=0)
        kept = (r for r in loaded if r.id in after and after[r.id].stays)
        there = sum(r.is_counted and not r.is_fallback and r.stays for r in kept)
        has_failed = service in self.failed or any(r.state is ReplicaState.FAILED for r in changes.update)
        missing = max(most - there, 0) if has_failed else sum(map(_is_spot_on_its_way, loaded))
        standing = sum(row.is_fallback and row.state.is_active for row in after.values())
        if standing > missing:
            self.broken(
                Rule.ONE_FALLBACK_PER_REPLICA,
                f"{service}: {standing} fallbacks for {missing} that aren't ready",
            )

    def _check_serving_count(self, changes: Changes, after: Mapping[int, Replica]) -> None:
        """Does the table know how many serve?"""
        if changes.serving is None or changes.service in self.damaged:
            return
        staying = sum(row.stays for row in after.values())
        if changes.serving[1] != staying:
            self.broken(
                Rule.SERVING_COUNT_EXACT, f"{changes.service}: {changes.serving[1]} counted, {staying} serve"
            )

    def _check_departures(
        self,
        invocation: Invocation,
        changes: Changes,
        before: Mapping[int, Replica],
        after: Mapping[int, Replica],
    ) -> None:
        """Replicas that served leave: who is left, and may they?"""
        service, now = changes.service, self.scheduler.now
        documents = self.documents(service, now - MAX_DOCUMENT_AGE_S)
        # Of a removal that was told, and a document that can't be read, nobody knows that it is back.
        since = now - MAX_DOCUMENT_AGE_S if invocation.has_unreadable_document else invocation.began_at
        if self.was_removed(service, since, now):
            return
        staying = sum(row.stays for row in after.values())
        serving = sum(row.serves for row in after.values())
        if service in self.damaged:
            # Rows may be missing of what serves all the same, of what EC2 has warned, and of what is gone.
            leaving = {row.instance_id for row in changes.update if not row.state.is_active}
            others = [i for i in self.cloud.of(service) if i.id not in leaving and self.cloud.serves(i)]
            # Until a tick has looked, nobody knows.
            if others or self.is_damaged(service, now - MAX_DOCUMENT_AGE_S):
                return
        for row in changes.update:
            old = before.get(row.id)
            if old is None or not old.serves or row.state.is_active:
                continue
            instance = self.cloud.instances[row.instance_id or ""]
            if not instance.is_alive(now) or _is_said_gone(instance, invocation):
                continue
            if row.warned_at is None:
                if staying < min(spec.replicas for spec in documents):
                    self.broken(
                        Rule.NEVER_BELOW_DESIRED, f"{row} is taken out ({row.reason}), {staying} others serve"
                    )
            elif not self._may_leave(row.warned_at, staying, serving, documents):
                self.broken(
                    Rule.WARNED_SERVES_WHILE_NEEDED,
                    f"{row}, warned {row.warned_at}, leaves, {staying} others serve",
                )

    def _may_leave(
        self, warned_at: datetime, staying: int, serving: int, documents: Sequence[ServiceSpec]
    ) -> bool:
        for spec in documents:
            safe, last = limits.last_moments(spec, warned_at)
            is_due = (last if serving == 0 else safe) - SKEW_S <= self.scheduler.now
            if is_due or limits.is_enough(spec, staying):
                return True
        return False

    def _check_launch_rate(self, changes: Changes) -> None:
        """Launches are ordered: are they too many for their minute?"""
        intent, service = changes.open_intent, changes.service
        if intent is None or changes.window is None:
            return  # a next step of what was counted already
        before, window = self.windows.get(service, LaunchWindow()), changes.window[1]
        self.windows[service] = window
        specs = self.documents(service, 0.0)
        counted = len(intent.replica_ids)
        is_same = before.since is not None and window.since == before.since
        is_next = before.since is None or (
            window.since is not None
            and (window.since - before.since).total_seconds() >= limits.LAUNCH_WINDOW_S
        )
        is_counted = window.launched == counted + (before.launched if is_same else 0)
        if not (is_counted and (is_same or is_next)) and service not in self.damaged:
            self.broken(
                Rule.LAUNCH_RATE_LIMITED, f"{service}: {counted} more than {before}, and it says {window}"
            )
        if window.launched > max((spec.max_launches_per_minute for spec in specs), default=0):
            self.broken(Rule.LAUNCH_RATE_LIMITED, f"{service}: {window.launched} launches in a minute")

    def _check_instance(self, row: Replica) -> None:
        """A replica gets its instance: was that launched for it?"""
        instance = self.cloud.instances[row.instance_id or ""]
        if row.id not in self.intents.get(instance.launch_id or "", ()):
            self.broken(
                Rule.INSTANCE_MATCHES_LAUNCH, f"{row} gets {instance.id}, which {instance.launch_id} brought"
            )

    def _check_intent_close(
        self, invocation: Invocation, intent_id: str, after: Mapping[int, Replica]
    ) -> None:
        """An intent is closed: is anything left of it?"""
        if intent_id in invocation.answered:
            return
        waiting = [
            r
            for id_ in self.intents.get(intent_id, ())
            if (r := after.get(id_)) and r.state is ReplicaState.REQUESTED and r.launch_id == intent_id
        ]
        if not waiting:
            return
        if self.scheduler.now - self.opened[intent_id] < limits.TIMEOUT_S - MAX_COMMIT_S:
            self.broken(Rule.INTENT_OPEN_WHILE_PENDING, f"{intent_id} closed, {waiting[0]} waits for it")
        for seen in invocation.observed:  # by a tick; the others close only what they launched themselves
            instance = self.cloud.instances[seen.id]
            if (
                seen.launch_id == intent_id
                and seen.id not in self.recorded
                and instance.is_alive(self.scheduler.now)
                and not instance.is_being_taken(self.scheduler.now)
            ):
                self.broken(
                    Rule.ADOPTED_BEFORE_INTENT_CLOSES,
                    f"{intent_id} closed, {instance.id} is there, {waiting[0]} waits",
                )

    # Calls.

    def before_launch(self, request: LaunchRequest) -> None:
        """A launch is about to take effect."""
        replicas = self.intents.get(request.launch_id)
        if replicas is None:
            self.broken(Rule.INTENT_BEFORE_LAUNCH, f"{request.launch_id} was never on record")
        elif request.count > len(replicas):
            self.broken(Rule.INTENT_BEFORE_LAUNCH, f"{request.launch_id}: {request.count} for {replicas}")
        known = self.cloud.answers.get(request.launch_id)
        if known and known[0] != request:
            self.broken(Rule.INTENT_BEFORE_LAUNCH, f"{request.launch_id} launches twice, and differently")

    def before_terminate(self, invocation: Invocation, instance_ids: Collection[str]) -> None:
        """TerminateInstances is about to take effect."""
        now = self.scheduler.now
        for instance_id in instance_ids:
            instance = self.cloud.instances.get(instance_id)
            if instance is None or instance.is_foreign:
                self.broken(Rule.FOREIGN_UNTOUCHED, f"{instance_id} terminated")
                continue
            if instance_id not in invocation.row_writes:
                self.broken(
                    Rule.ROW_BEFORE_EFFECT, f"{instance_id} terminated, and nothing was written about it"
                )
            if self.cloud.serves(instance):
                self.broken(Rule.DEREGISTERED_BEFORE_TERMINATED, f"{instance_id} terminated in rotation")
            if instance.state(now) in (InstanceState.PENDING, InstanceState.RUNNING):
                told = invocation.warned_at is not None and instance.warned_at <= invocation.warned_at
                decided_at = invocation.row_writes.get(instance_id, invocation.loaded_at)
                noted = self.warned_rows.get(instance_id, NEVER) < decided_at
                # Else EC2 has spared it, or warned it once more since.
                noted = noted and instance.warned_at < decided_at
                if told or noted:
                    self.broken(
                        Rule.WARNED_NOT_TERMINATED, f"{instance_id} terminated, warned {instance.warned_at}"
                    )

    def before_route(self, spec: ServiceSpec, instance_ids: Collection[str]) -> None:
        """Targets are about to be registered or deregistered."""
        for instance_id in instance_ids:
            instance = self.cloud.instances.get(instance_id)
            if instance is None or instance.is_foreign or instance.launched_for != spec.service:
                self.broken(Rule.FOREIGN_UNTOUCHED, f"{instance_id} put into or taken out of {spec.service}")

    def before_deregister(
        self, invocation: Invocation, spec: ServiceSpec, instance_ids: Collection[str], store: MemoryStore
    ) -> None:
        """Targets are about to be deregistered: do their rows say so?"""
        service, now = spec.service, self.scheduler.now
        if self.is_damaged(service, invocation.began_at):
            return
        history = {r.instance_id for r in store.history(service, 1000)}
        rows = {r.instance_id: r for r in store.load(service).replicas.values()}
        for instance_id in instance_ids:
            instance = self.cloud.instances.get(instance_id)
            if (
                instance is None
                or not instance.serves(now)
                or not self.cloud.in_rotation(service, instance_id)
            ):
                continue
            row = rows.get(instance_id)
            if (row is None and instance_id not in history) or (row is not None and row.state.is_active):
                self.broken(
                    Rule.ROW_BEFORE_EFFECT, f"{instance_id} leaves the rotation, and its row is {row}"
                )

    def end_in_rotation(self, instance: SimInstance) -> None:
        """EC2 takes an instance that it had warned, and clients were still sent to it."""
        now = self.scheduler.now
        due = self.leave_checks.get(instance.service or "", ())
        earliest, latest = (now - left_s for left_s in LAST_CHECK_S)
        if earliest < self.quiet_since or instance.service in self.damaged:
            return
        if self.was_removed(instance.service or "", now - limits.WARNING_S, now):
            return  # nobody replaces it, and its ticks are few until the removal is certain
        is_looked_at = any(earliest <= time <= latest for time in due)
        if is_looked_at and self.warned_rows.get(instance.id, now) < earliest:
            self.broken(Rule.WARNED_OUT_BEFORE_END, f"{instance.id} is in rotation at its end")

    def check_progress(self, services: Collection[str], store: MemoryStore) -> None:
        """Nothing goes wrong any more: is what there is to do done in time?"""
        now, quiet_since = self.scheduler.now, self.quiet_since
        if now < quiet_since + limits.PROGRESS_S:
            return
        for service in services:
            for row in store.load(service).replicas.values():
                self._look_at(row, now - limits.PROGRESS_S)
        for instance in self.cloud.instances.values():
            is_new = quiet_since < instance.launched_at < now - limits.PROGRESS_S and instance.is_alive(now)
            if is_new and not instance.is_foreign and instance.id not in self.recorded:
                self.broken(
                    Rule.PROGRESS_IN_MINUTES,
                    f"{instance.id}, launched at {instance.launched_at:.0f} s, is nobody's",
                )

    def _look_at(self, row: Replica, since: float) -> None:
        instance_id = row.instance_id or ""
        target = self.cloud.in_rotation(row.service, instance_id)
        if target is None or time_of(row.since) > since:
            return
        is_healthy = self.cloud.health(row.service, since).get(instance_id) is TargetState.HEALTHY
        if row.state is ReplicaState.STARTING and is_healthy:
            self.broken(Rule.PROGRESS_IN_MINUTES, f"{row} is healthy, and not ready")
        if row.state is ReplicaState.DRAINING and target.registered_at < since:
            self.broken(Rule.PROGRESS_IN_MINUTES, f"{row} drains, and is in rotation")

    # Ends of invocations.

    def after_tick(self, invocation: Invocation) -> None:
        """A tick came to its end, and looked."""
        service = invocation.tick_service
        if invocation.disturbances or invocation.observed_at is None or invocation.warned_at is None:
            return
        if self.was_removed(service, invocation.began_at, self.scheduler.now):
            return  # what is dead goes with its load balancer
        shown = {instance.id for instance in invocation.observed}
        rows = {row.instance_id: row for row in invocation.loaded.values()}
        for instance_id, target in self.cloud.groups.get(service, {}).items():
            is_anothers = target.registered_at >= invocation.began_at and target.by is not invocation
            if target.drained_at <= self.scheduler.now or is_anothers:
                continue
            instance = self.cloud.instances[instance_id]
            if instance_id not in shown:
                continue
            row = rows.get(instance_id)
            is_known = row is not None and row.state is not ReplicaState.DRAINING
            if not is_known and instance_id not in (invocation.health or ()):
                continue  # a wrong answer of the load balancer's hides what only that would tell
            if instance.died_at() <= invocation.observed_at:
                self.broken(Rule.TICK_CLEANS_ROTATION, f"{instance_id} is dead and in rotation")
            elif (
                instance_id in rows
                and instance.warned_at <= invocation.warned_at
                and instance.warned_at + limits.WARNING_S - limits.LAST_REPLICA_LEAD_S
                <= invocation.loaded_at - SKEW_S
                and instance_id not in invocation.row_writes  # that it is ill was news: the next tick's
            ):
                self.broken(
                    Rule.TICK_CLEANS_ROTATION, f"{instance_id} is past its last moment and in rotation"
                )
            elif (
                instance_id in rows
                and rows[instance_id].state is ReplicaState.DRAINING
                and instance_id in (invocation.health or ())
            ):
                self.broken(Rule.TICK_CLEANS_ROTATION, f"{instance_id} drains and is in rotation")

    def after_acknowledge(self, invocation: Invocation, instance_id: str, store: MemoryStore) -> None:
        """A message with a warning was done with."""
        row = self.row_before(invocation, instance_id, store)
        if row is None or invocation.saw_other_control_plane:
            return  # nobody's yet when it was looked up, or lost: the tick will see the warning; or not ours
        instance = self.cloud.instances[instance_id]
        is_hibernated = instance.died_at() <= instance.warned_at < NEVER
        serves_on = row.state is ReplicaState.READY and row.is_warned and not is_hibernated
        if serves_on:
            return
        if row.state is not ReplicaState.DRAINING or not row.is_warned:
            self.broken(Rule.WARNING_HANDLED, f"{row} is {row.state} after its warning")
        target = self.cloud.in_rotation(row.service, instance_id)
        drained_at = time_of(row.since)
        by = self.drained.get(instance_id)
        is_anothers = by is not None and by[0] >= invocation.began_at and by[1] is not invocation
        is_told = store.load(row.service).removal.told_at is not None
        if is_anothers or is_told or self.was_removed(row.service, invocation.began_at, self.scheduler.now):
            return  # whoever has drained it takes it out; of a removed service a tick does
        # What was put back since, by an invocation that didn't know, is for the tick to find.
        if target is not None and target.registered_at < drained_at - SKEW_S:
            self.broken(Rule.WARNING_HANDLED, f"{instance_id} is in rotation after its warning")

    def note_crash(self, error: Exception | str) -> None:
        """An exception that isn't a port's left the production code."""
        self.broken(Rule.ONLY_PORT_ERRORS, error if isinstance(error, str) else repr(error))

    def note_caught(self, error: str) -> None:
        """The production code caught an exception and went on."""
        if not error.startswith(("Conflict(", "Throttled(", "Unavailable(", "Denied(")):
            self.note_crash(error)


def in_force(documents: Documents, service: str, time: float) -> Sequence[ServiceSpec]:
    """Those that a decision may go by then; what is missing leaves those of before in force."""
    return documents(service, time - MAX_DOCUMENT_AGE_S) or documents(service, 0.0)


def _is_said_gone(instance: SimInstance, invocation: Invocation) -> bool:
    """Whether a person vouches for it that an instance is gone, since it isn't shown."""
    return invocation.is_override and instance.id not in {i.id for i in invocation.observed}


def _is_spot_on_its_way(row: Replica) -> bool:
    return (
        row.purchase_option is PurchaseOption.SPOT
        and not row.is_fallback
        and row.state.is_active
        and row.state is not ReplicaState.READY
    )
