"""The rules about what serves, about rows, launch intents and calls: checked at every step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lab.sim.faults import Call
from lab.sim.gate import Commit, Invocation, time_of
from lab.sim.instances import SimInstance
from lab.sim.rules import Rule, limits
from lab.sim.rules.availability import check_rotation_kept
from lab.sim.rules.history import BLIND_S, MAX_DOCUMENT_AGE_S, History
from lab.sim.rules.incidents import IncidentChecker
from lab.sim.rules.launches import LaunchChecker
from lab.sim.rules.limits import SKEW_S
from lab.sim.rules.moves import MoveChecker
from lab.sim.rules.standby_rows import created_at, is_late
from lab.sim.rules.standbys import StandbyChecker
from lab.sim.rules.word import let_go, of_replica
from lab.world.instances import NEVER
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.ports import LaunchRequest
from spotrelay.plane.core.replica import TRANSITIONS, Replica, ReplicaState
from spotrelay.plane.core.rows import Changes, LaunchWindow
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec
from spotrelay.plane.memory import MemoryStore

LAST_CHECK_S = limits.LAST_REPLICA_LEAD_S + 2.0, limits.LAST_REPLICA_LEAD_S - 2.0
"""How long before the end the check at the last moment comes: at the earliest, and at the latest."""

MAX_COMMIT_S = 25.0
"""How much older than its commit an intent's own time may be: the commit can hang and still succeed."""


@dataclass(slots=True)
class Checker(History):
    """Checks each commit, each call and each end of an invocation, and records what later checks need."""

    standby_checker: StandbyChecker = field(init=False)
    """Checks standbys."""
    move_checker: MoveChecker = field(init=False)
    """Checks moves to cheaper Spot."""
    launch_checker: LaunchChecker = field(init=False)
    """Checks launches, and the cooldowns that follow from them."""
    incident_checker: IncidentChecker = field(init=False)
    """Checks what alarms hear."""

    # Commits.

    def after_commit(self, invocation: Invocation, commit: Commit) -> None:
        """A commit took effect."""
        self.changed_at = self.scheduler.now
        changes, before, after = commit.changes, commit.before.replicas, commit.after.replicas
        # A version that turned ill while it was rolled out has failed, too, and no row says so.
        if changes.backoff is not None and changes.backoff.failures:
            self.failed.add(changes.service)
        self._check_serving_count(changes, after)
        self._check_departures(invocation, commit)
        self._check_launch_rate(changes)
        self.standby_checker.after_commit(invocation, commit)
        self.move_checker.after_commit(invocation, commit)
        if changes.create:
            self._check_ids(invocation, changes)
            self._check_surge(invocation, commit)
            self._check_replacements(changes, after)
            self._check_fallbacks(invocation, commit)
        if changes.open_intent:
            self.intents[changes.open_intent.id] = changes.open_intent.replica_ids
            self.opened[changes.open_intent.id] = self.scheduler.now
        for row in changes.update:
            old = before.get(row.id)
            # A restored table may reach the revision that was read before.
            is_uncertain = self.is_damaged(changes.service, invocation.began_at)
            is_legal = old is not None and (row.state is old.state or row.state in TRANSITIONS[old.state])
            if not (is_legal or is_uncertain):
                self.report(Rule.LEGAL_TRANSITIONS, f"{row}: from {old and old.state} to {row.state}")
        self.came_back |= {(row.service, row.id) for row in changes.update if row.comes_back}
        said = let_go(invocation)
        self.said_gone |= {(row.service, row.id) for row in changes.update if of_replica(row) in said}
        self.said_gone -= self.came_back
        for row in (*changes.create, *changes.update):
            if row.instance_id is not None:
                self._note_write(invocation, row.instance_id, row, before.get(row.id))
        for intent_id in changes.close_intents:
            self._check_intent_close(invocation, intent_id, after)

    def _note_write(
        self, invocation: Invocation, instance_id: str, row: Replica, old: Replica | None
    ) -> None:
        """Record when the row of an instance was written, and what is new in it."""
        now = self.scheduler.now
        invocation.row_writes[instance_id] = now
        self.recorded.setdefault(instance_id, now)
        if old and old.instance_id is None:
            self._check_instance(row)
        if row.state is ReplicaState.DRAINING and old and old.state is not row.state:
            self.drained[instance_id] = now, invocation
        if row.warned_at:
            self.warned_rows.setdefault(instance_id, now)

    def _check_ids(self, invocation: Invocation, changes: Changes) -> None:
        """Rows are created: do they get the next IDs?"""
        service = changes.service
        highest = self.ids.get(service, 0)
        given = [row.id for row in changes.create]
        first = highest + 1
        if service in self.damaged:
            # For what the table has forgotten, only the instances' tags are left.
            tagged = max((instance.highest_id for instance in invocation.observed), default=0)
            first = max(given[0], tagged + 1)
        if given != list(range(first, first + len(given))):
            self.report(Rule.IDS_IN_ORDER, f"{service}: {given} given after {highest}")
        self.ids[service] = max(highest, *given)
        requested = max(created_at(row) for row in changes.create)
        earliest = self.requested.get(service, requested) - timedelta(seconds=SKEW_S)
        if requested < earliest and not self.is_damaged(service, invocation.began_at):
            self.report(Rule.IDS_IN_ORDER, f"{service}: {given} were requested before {highest}")
        self.requested[service] = requested

    def _check_surge(self, invocation: Invocation, commit: Commit) -> None:
        """Rows are created: are there too many by now?"""
        service, before, after = commit.changes.service, commit.before.replicas, commit.after.replicas
        # If the document is missing, the last one that was read stays valid.
        documents = self.in_force(invocation, service)
        # What EC2 recommends to leave is replaced all at once, and what came back has been replaced.
        extra = [r for r in after.values() if r.rebalance_at or (service, r.id) in self.came_back]
        at_rest = max((limits.most_regular(spec) for spec in documents), default=0)
        now = self.scheduler.now + SKEW_S  # one that is about to be late may be so by another clock
        for is_fallback, most in ((False, at_rest + sum(r.is_counted for r in extra)), (True, at_rest)):
            was, active = (
                sum(
                    r.is_counted and r.is_fallback is is_fallback and not is_late(r, now)
                    for r in rows.values()
                )
                for rows in (before, after)
            )
            found = sum(r.state is not ReplicaState.REQUESTED for r in commit.changes.create)
            is_uncertain = self.is_damaged(service, self.scheduler.now - BLIND_S)
            if active - found > max(most, was) and not is_uncertain:
                kind = "fallbacks" if is_fallback else "regular replicas"
                self.report(Rule.NEVER_ABOVE_SURGE, f"{service}: {active} active {kind}, {most} allowed")

    def _check_replacements(self, changes: Changes, after: Mapping[int, Replica]) -> None:
        """Rows are created: is nothing replaced that has its replacement?"""
        service = changes.service
        for row in changes.create:
            if row.replaces is None:
                continue
            earlier = after.get(self.replacements.get((service, row.replaces), 0))
            # A restored row may be what somebody read before, and be overwritten as if nothing had happened.
            if (
                earlier is not None
                and earlier.is_counted
                and not self.is_damaged(service, time_of(created_at(earlier)) - BLIND_S)
            ):
                what = f"{row} replaces {row.replaces}, which {earlier.id} replaces"
                self.report(Rule.ONE_REPLACEMENT_PER_REPLICA, what)
            self.replacements[service, row.replaces] = row.id

    def _check_fallbacks(self, invocation: Invocation, commit: Commit) -> None:
        """Rows are created: are fallbacks wanted and needed, and is none of them replaced?"""
        changes, before, after = commit.changes, commit.before.replicas, commit.after.replicas
        service = changes.service
        for row in changes.create:
            replaced = before.get(row.replaces or 0)
            if replaced is not None and replaced.is_fallback:
                self.report(Rule.ONE_FALLBACK_PER_REPLICA, f"{row} replaces {replaced}, a fallback")
        if not any(row.is_fallback and row.state is ReplicaState.REQUESTED for row in changes.create):
            return
        documents = self.in_force(invocation, service)
        if not any(spec.use_spot and spec.on_demand_fallback for spec in documents):
            self.report(Rule.ONE_FALLBACK_PER_REPLICA, f"{service} wants none, and gets some")
        # The decision used the rows that it loaded: newer rows would have taken its IDs.
        loaded = invocation.loaded.values()
        # After a failure, missing replicas have no row until the back-off is over.
        most = max((spec.replicas for spec in documents), default=0)
        kept = (r for r in loaded if r.id in after and after[r.id].stays)
        there = sum(r.is_counted and not r.is_fallback and r.stays for r in kept)
        has_failed = service in self.failed
        missing = max(most - there, 0) if has_failed else sum(map(_is_unready_spot, loaded))
        now = self.scheduler.now + SKEW_S  # one that is about to be late may be so by another clock
        fallbacks = sum(
            r.is_fallback and r.is_counted and not (is_late(r, now) or limits.is_given_up(r, now))
            for r in after.values()
        )
        if fallbacks > missing:
            what = f"{service}: {fallbacks} fallbacks for {missing} that aren't ready"
            self.report(Rule.ONE_FALLBACK_PER_REPLICA, what)
        needed = max((spec.replicas - spec.overprovision for spec in documents), default=0)
        bought = sum(
            row.is_fallback and row.is_counted and not (row.is_standby or limits.is_given_up(row, now))
            for row in after.values()
        )
        if any(row.is_fallback and not row.is_standby for row in changes.create) and bought > needed:
            what = f"{service}: {bought} fallbacks, and {needed} replicas are needed"
            self.report(Rule.NOTHING_BOUGHT_BEYOND, what)

    def _check_serving_count(self, changes: Changes, after: Mapping[int, Replica]) -> None:
        """Is the table's count of serving replicas right?"""
        if changes.serving is None or changes.service in self.damaged:
            return
        staying = sum(row.stays for row in after.values())
        if changes.serving[1] != staying:
            what = f"{changes.service}: {changes.serving[1]} counted, {staying} serve"
            self.report(Rule.SERVING_COUNT_EXACT, what)

    def _check_departures(self, invocation: Invocation, commit: Commit) -> None:
        """Serving replicas leave: are enough left?"""
        changes, before, after = commit.changes, commit.before.replicas, commit.after.replicas
        service, now = changes.service, self.scheduler.now
        recent = self.documents(service, now - MAX_DOCUMENT_AGE_S)
        documents = [*recent, *self._as_read(invocation, service)]
        # After a removal, an invocation that can't read the document doesn't know that the service is back.
        since = now - MAX_DOCUMENT_AGE_S if invocation.has_unreadable_document else invocation.began_at
        if self.was_removed(service, since, now):
            return
        # A tick may have seen that one serves again, and write so in a later commit.
        well = [self._as_seen(row) for row in after.values()]
        staying, serving = sum(row.stays for row in well), sum(row.serves for row in well)
        if service in self.damaged:
            # Rows may be missing for instances that serve, that EC2 has warned, or that are gone.
            leaving = {row.instance_id for row in changes.update if not row.state.is_active}
            others = [i for i in self.cloud.of(service) if i.id not in leaving and self.cloud.serves(i)]
            # The rows are uncertain until a tick has repaired them.
            if others or self.is_damaged(service, now - MAX_DOCUMENT_AGE_S):
                return
        for row in changes.update:
            old = before.get(row.id)
            if old is None or not old.serves or row.state.is_active:
                continue
            instance = self.cloud.instances[row.instance_id or ""]
            if not instance.is_alive(now) or _is_declared_gone(row, invocation):
                continue
            if row.warned_at is None:
                if staying < min(spec.replicas for spec in documents):
                    self._check_departure_below(invocation, row, after, documents)
            elif not self._may_leave(row.warned_at, staying, serving, documents):
                what = f"{row}, warned {row.warned_at}, leaves, {staying} others serve"
                self.report(Rule.WARNED_SERVES_WHILE_NEEDED, what)

    def _check_departure_below(
        self,
        invocation: Invocation,
        row: Replica,
        after: Mapping[int, Replica],
        documents: Sequence[ServiceSpec],
    ) -> None:
        """Fewer than desired are left: does it refuse its probe, while enough others answer theirs?"""
        if not row.reason.startswith("refuses its readiness probe"):
            self.report(Rule.NEVER_BELOW_DESIRED, f"{row} is taken out ({row.reason})")
            return
        health = invocation.health or {}
        answering = sum(
            r.silent_since is None
            and health.get(r.instance_id or "") is TargetState.HEALTHY
            and r.id in after
            and after[r.id].stays
            for r in invocation.loaded.values()
        )
        if not any(limits.is_enough_answering(spec, answering) for spec in documents):
            self.report(Rule.REFUSING_LEAVES, f"{row} is taken out, and {answering} others answer")

    def _as_seen(self, row: Replica) -> Replica:
        is_well = row.unhealthy_since and self.cloud.serves(self.cloud.instances[row.instance_id or ""])
        return replace(row, unhealthy_since=None) if is_well else row

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
        """An intent is opened: are its launches within the limit per minute?"""
        intent, service = changes.open_intent, changes.service
        if intent is None or changes.window is None:
            return  # the next step of a launch that was counted already
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
            what = f"{service}: {counted} more than {before}, and the table says {window}"
            self.report(Rule.LAUNCH_RATE_LIMITED, what)
        if window.launched > max((spec.max_launches_per_minute for spec in specs), default=0):
            self.report(Rule.LAUNCH_RATE_LIMITED, f"{service}: {window.launched} launches in a minute")

    def _check_instance(self, row: Replica) -> None:
        """A replica gets its instance: was it launched for that replica?"""
        instance = self.cloud.instances[row.instance_id or ""]
        if row.id not in self.intents.get(instance.launch_id or "", ()):
            what = f"{row} gets {instance.id}, which is from {instance.launch_id}"
            self.report(Rule.INSTANCE_MATCHES_LAUNCH, what)

    def _check_intent_close(
        self, invocation: Invocation, intent_id: str, after: Mapping[int, Replica]
    ) -> None:
        """An intent is closed: does no replica wait for it?"""
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
            self.report(Rule.INTENT_OPEN_WHILE_PENDING, f"{intent_id} closed, {waiting[0]} waits for it")
        for seen in invocation.observed:  # by a tick; other invocations close only their own intents
            instance = self.cloud.instances[seen.id]
            if (
                seen.launch_id == intent_id
                and seen.id not in self.recorded
                and instance.is_alive(self.scheduler.now)
                and not instance.is_being_taken(self.scheduler.now)
            ):
                what = f"{intent_id} closed, {instance.id} is there, {waiting[0]} waits"
                self.report(Rule.ADOPTED_BEFORE_INTENT_CLOSES, what)

    # Calls.

    def before_launch(self, request: LaunchRequest) -> None:
        """A launch is about to take effect."""
        replicas = self.intents.get(request.launch_id)
        if replicas is None:
            self.report(Rule.INTENT_BEFORE_LAUNCH, f"{request.launch_id} was never recorded")
        elif request.count > len(replicas):
            self.report(Rule.INTENT_BEFORE_LAUNCH, f"{request.launch_id}: {request.count} for {replicas}")
        known = self.cloud.answers.get(request.launch_id)
        if known and known[0] != request:
            what = f"{request.launch_id} launches twice, with different requests"
            self.report(Rule.INTENT_BEFORE_LAUNCH, what)

    def before_terminate(self, invocation: Invocation, instance_ids: Collection[str]) -> None:
        """TerminateInstances is about to take effect."""
        now = self.scheduler.now
        for instance_id in instance_ids:
            instance = self.cloud.instances.get(instance_id)
            if instance is None or instance.is_foreign:
                self.report(Rule.FOREIGN_UNTOUCHED, f"{instance_id} terminated")
                continue
            slots = self.cloud.slots_of(instance)
            if not any(slot.id in invocation.row_writes for slot in slots):
                self.report(Rule.ROW_BEFORE_EFFECT, f"{instance_id} terminated, and its row wasn't written")
            for slot in filter(self.cloud.serves, slots):
                self.report(Rule.DEREGISTERED_BEFORE_TERMINATED, f"{slot.id} terminated in rotation")
            if instance.state(now) in (InstanceState.PENDING, InstanceState.RUNNING):
                is_shown = invocation.warned_at is not None and instance.warned_at <= invocation.warned_at
                decided_at = min(invocation.row_writes.get(s.id, invocation.loaded_at) for s in slots)
                is_on_record = min(self.warned_rows.get(s.id, NEVER) for s in slots) < decided_at
                # Otherwise EC2 has spared it, or warned it again since.
                is_on_record = is_on_record and instance.warned_at < decided_at
                if is_shown or is_on_record:
                    what = f"{instance_id} terminated, warned {instance.warned_at}"
                    self.report(Rule.WARNED_NOT_TERMINATED, what)

    def before_route(self, spec: ServiceSpec, instance_ids: Collection[str]) -> None:
        """Targets are about to be registered or deregistered."""
        for instance_id in instance_ids:
            instance = self.cloud.instances.get(instance_id)
            if instance is None or instance.is_foreign or instance.launched_for != spec.service:
                what = f"{instance_id} registered or deregistered for {spec.service}"
                self.report(Rule.FOREIGN_UNTOUCHED, what)

    def before_enter(self, spec: ServiceSpec, instance_ids: Collection[str], store: MemoryStore) -> None:
        """Targets are about to be registered: do new ones enter together, if they must?"""
        rows = store.load(spec.service).replicas.values()
        is_kept_apart = any(r.serves and r.version != spec.version for r in rows)
        # By what was done to them: of these some may have been lost since.
        new = {
            id_
            for id_ in (*instance_ids, *self.cloud.groups.get(spec.service, ()))
            if (self.cloud.instances[id_].version or 1) == spec.version
            and (id_ in instance_ids or self.cloud.in_rotation(spec.service, id_))
        }
        entering = {r.instance_id for r in rows if r.state is ReplicaState.STARTING} & new & set(instance_ids)
        if (
            spec.on_update is OnUpdate.BLUE_GREEN
            and is_kept_apart
            and entering
            and len(new) < spec.replicas
            and spec.service not in self.damaged
        ):
            what = f"{sorted(map(str, entering))} enter, which makes {len(new)} of v{spec.version}"
            self.report(Rule.CHANGED_AT_ONCE, what)

    def check_probed(
        self, invocation: Invocation, spec: ServiceSpec, instance_ids: Collection[str], store: MemoryStore
    ) -> None:
        """Targets are about to be registered: have those that start just answered their probe?"""
        probe = spec.readiness_probe
        if probe is None or spec.service in self.damaged:
            return
        was_refused = any(record.call is Call.PROBE and record.is_error for record in invocation.calls)
        is_any_healthy = TargetState.HEALTHY in (invocation.health or {}).values()
        may_be_trusted = was_refused and not is_any_healthy and probe.is_health_check
        for row in store.load(spec.service).replicas.values():
            is_asked = row.instance_id in invocation.answers.answering
            if row.instance_id not in instance_ids or row.state is not ReplicaState.STARTING or is_asked:
                continue
            starts_at = time_of(row.entered[ReplicaState.STARTING])
            if not may_be_trusted or self.scheduler.now + SKEW_S < starts_at + limits.UNASKED_S:
                self.report(Rule.PROBED_BEFORE_ENTRY, f"{row} enters the rotation, and answered no probe")

    def before_deregister(
        self,
        invocation: Invocation,
        spec: ServiceSpec,
        instance_ids: Collection[str],
        store: MemoryStore,
        leaving: Collection[str | None],
    ) -> None:
        """Targets are about to be deregistered: were their rows written? Those of `leaving`, when asked."""
        service, now = spec.service, self.scheduler.now
        if self.is_damaged(service, invocation.began_at):
            return
        check_rotation_kept(self, invocation, spec, instance_ids, store)
        history = {r.instance_id for r in store.history(service, 1000)}
        rows = {r.instance_id: r for r in store.load(service).replicas.values()}
        for instance_id in instance_ids:
            instance = self.cloud.instances.get(instance_id)
            if (
                instance is None
                or instance_id in leaving
                or not instance.serves(now)
                or not self.cloud.in_rotation(service, instance_id)
            ):
                continue
            row = rows.get(instance_id)
            if (row is None and instance_id not in history) or (row is not None and row.state.is_active):
                what = f"{instance_id} leaves the rotation, and its row is {row}"
                self.report(Rule.ROW_BEFORE_EFFECT, what)

    def end_in_rotation(self, instance: SimInstance) -> None:
        """EC2 ends a warned instance that is in rotation."""
        now = self.scheduler.now
        due = self.leave_checks.get(instance.service or "", ())
        earliest, latest = (now - left_s for left_s in LAST_CHECK_S)
        if earliest < self.quiet_since or instance.service in self.damaged:
            return
        if self.was_removed(instance.service or "", now - limits.WARNING_S, now):
            return  # its ticks are few until the removal is certain
        is_checked = any(earliest <= time <= latest for time in due)
        if is_checked and self.warned_rows.get(instance.id, now) < earliest:
            self.report(Rule.WARNED_OUT_BEFORE_END, f"{instance.id} is in rotation at its end")

    def check_progress(self, services: Collection[str], store: MemoryStore) -> None:
        """No call fails any more: is everything done within minutes?"""
        now, quiet_since = self.scheduler.now, self.quiet_since
        if now < quiet_since + limits.PROGRESS_S:
            return
        held = set[str]()
        for service in services:
            rows = store.load(service)
            held |= {one.what for one in rows.held.back}
            for row in rows.replicas.values():
                self._check_progress_of(row, now - limits.PROGRESS_S)
        for instance in self.cloud.instances.values():
            is_new = quiet_since < instance.launched_at < now - limits.PROGRESS_S and instance.is_alive(now)
            is_recorded = any(slot.id in self.recorded for slot in self.cloud.slots_of(instance))
            # While the load balancer shows nobody, a person says whose it is.
            is_held = f"{instance.id} is left alone" in held
            if is_new and not (instance.is_foreign or is_recorded or is_held):
                what = f"{instance.id}, launched at {instance.launched_at:.0f} s, has no row"
                self.report(Rule.PROGRESS_IN_MINUTES, what)

    def _check_progress_of(self, row: Replica, since: float) -> None:
        instance_id = row.instance_id or ""
        target = self.cloud.in_rotation(row.service, instance_id)
        if target is None or time_of(row.since) > since:
            return
        # A server may answer for a moment, and then no more.
        is_healthy = all(
            self.cloud.health(row.service, time).get(instance_id) is TargetState.HEALTHY
            for time in (since, self.scheduler.now)
        )
        if row.state is ReplicaState.STARTING and is_healthy:
            self.report(Rule.PROGRESS_IN_MINUTES, f"{row} is healthy, and not ready")
        if row.state is ReplicaState.DRAINING and target.registered_at < since:
            self.report(Rule.PROGRESS_IN_MINUTES, f"{row} drains, and is in rotation")

    # Ends of invocations.

    def after_tick(self, invocation: Invocation) -> None:
        """A tick came to its end, and had looked at EC2."""
        service = invocation.tick_service
        if invocation.disturbances or invocation.observed_at is None or invocation.warned_at is None:
            return
        if self.was_removed(service, invocation.began_at, self.scheduler.now):
            return  # its load balancer goes, too
        shown = {instance.id for instance in invocation.observed}
        rows = {row.instance_id: row for row in invocation.loaded.values()}
        written = (row for commit in invocation.commits for row in commit.changes.update)
        came_back = {row.instance_id for row in written if row.comes_back}
        created = (row for commit in invocation.commits for row in commit.changes.create)
        came_back |= {row.instance_id for row in created if row.is_standby and row.is_fallback}
        for instance_id, target in self.cloud.groups.get(service, {}).items():
            is_others = target.registered_at >= invocation.began_at and target.by is not invocation
            if target.drained_at <= self.scheduler.now or is_others:
                continue
            instance = self.cloud.instances[instance_id]
            if instance_id not in shown:
                continue
            row = rows.get(instance_id)
            is_known = row is not None and row.state is not ReplicaState.DRAINING
            if not is_known and instance_id not in (invocation.health or ()):
                continue  # a wrong answer hides a target that only the load balancer knows
            if instance.died_at() <= invocation.observed_at:
                self.report(Rule.TICK_CLEANS_ROTATION, f"{instance_id} is dead and in rotation")
            elif (
                instance_id in rows
                and instance.warned_at <= invocation.warned_at
                and instance.warned_at + limits.WARNING_S - limits.LAST_REPLICA_LEAD_S
                <= invocation.loaded_at - SKEW_S
                and instance_id
                not in invocation.row_writes  # it was just found unhealthy; the next tick decides
            ):
                what = f"{instance_id} is past its last moment and in rotation"
                self.report(Rule.TICK_CLEANS_ROTATION, what)
            elif (
                instance_id in rows
                and rows[instance_id].state is ReplicaState.DRAINING
                and instance_id in (invocation.health or ())
                and instance_id not in came_back
            ):
                self.report(Rule.TICK_CLEANS_ROTATION, f"{instance_id} drains and is in rotation")

    def after_acknowledge(self, invocation: Invocation, instance_id: str, store: MemoryStore) -> None:
        """A warning's message was deleted."""
        row = self.row_before(invocation, instance_id, store)
        if row is None or invocation.saw_other_control_plane:
            return  # it had no row, or isn't ours; a tick will see the warning
        instance = self.cloud.instances[instance_id]
        # What EC2 had spared may have been hibernated since.
        died_at = instance.died_at()
        is_hibernated = died_at <= invocation.began_at and died_at <= instance.warned_at < NEVER
        serves_on = row.state.is_active and row.is_warned and not is_hibernated
        if serves_on:
            return
        if row.state is not ReplicaState.DRAINING or not row.is_warned:
            self.report(Rule.WARNING_HANDLED, f"{row} is {row.state} after its warning")
        target = self.cloud.in_rotation(row.service, instance_id)
        drained_at = time_of(row.since)
        by = self.drained.get(instance_id)
        is_others = by is not None and by[0] >= invocation.began_at and by[1] is not invocation
        rows = store.load(row.service)
        is_removed = rows.removal.told_at is not None
        # Where nobody stays, it may be the one that still answers: somebody looks again, and asks EC2. An
        # entry that was lost counts nobody until a tick does.
        stays = rows.serving > 0 and any(r.stays for r in rows.replicas.values())
        is_looked_at = any(c.call is Call.SCHEDULE_LEAVE for c in invocation.calls)
        if not (stays or is_hibernated) and (is_looked_at or self.scheduler.now >= died_at):
            return
        if is_others or is_removed or self.was_removed(row.service, invocation.began_at, self.scheduler.now):
            return  # the invocation that drains it deregisters it; a tick does for a removed service
        # If another invocation has registered it since, a tick finds it.
        if target is not None and target.registered_at < drained_at - SKEW_S:
            self.report(Rule.WARNING_HANDLED, f"{instance_id} is in rotation after its warning")

    def note_crash(self, error: Exception | str) -> None:
        """An exception that isn't a port's left a function."""
        self.report(Rule.ONLY_PORT_ERRORS, error if isinstance(error, str) else repr(error))

    def note_caught(self, error: str) -> None:
        """A function caught an exception and went on."""
        if not error.startswith(("Conflict(", "Throttled(", "Unavailable(", "Denied(")):
            self.note_crash(error)


def _is_declared_gone(row: Replica, invocation: Invocation) -> bool:
    """Whether an operator's override says that a replica's instance, which EC2 doesn't show, is gone."""
    is_shown = row.instance_id in {i.id for i in invocation.observed}
    return not is_shown and of_replica(row) in let_go(invocation)


def _is_unready_spot(row: Replica) -> bool:
    return (
        row.purchase_option is PurchaseOption.SPOT
        and not row.is_fallback
        and row.state.is_active
        and row.state is not ReplicaState.READY
    )
