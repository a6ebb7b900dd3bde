"""The rules about standbys: prepared once, stopped, and resumed where a replica is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from lab.sim.cloud import SimCloud
from lab.sim.gate import Commit, Invocation
from lab.sim.rules import Findings, Rule, limits
from lab.sim.rules.history import History
from lab.sim.rules.invocation_view import InvocationView
from lab.sim.rules.limits import SKEW_S, STARTING_STATES
from lab.sim.rules.standby_rows import got_instance_of_another, is_coming
from lab.world.instances import ENDING_STATES
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.memory import MemoryStore

PREPARING_STATES = (ReplicaState.REQUESTED, *STARTING_STATES)

STOPPED_STATES = (InstanceState.STOPPING, InstanceState.STOPPED)

GIVEN_UP_REASONS = ("more standbys than wanted", "another standby is there", "service removed")


@dataclass(slots=True)
class StandbyChecker:
    """Checks standbys at every commit and call."""

    history: History
    cloud: SimCloud
    memory: Callable[[], MemoryStore]
    failed: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """By service and version: when standbys failed, since one was prepared."""

    def after_commit(self, invocation: Invocation, commit: Commit) -> None:
        """A commit took effect."""
        changes, before, after = commit.changes, commit.before.replicas, commit.after.replicas
        report = self.history.report
        if changes.service in self.history.damaged or not any(r.is_standby for r in changes.stored):
            return
        owners: dict[str, Replica] = {}
        for row in after.values():
            if row.instance_id and owners.setdefault(row.instance_id, row) is not row:
                what = f"{owners[row.instance_id]} and {row} have {row.instance_id}"
                report(Rule.ONE_ROW_PER_INSTANCE, what)
        preparing = [r for r in after.values() if r.stands_by and r.state in PREPARING_STATES]
        if len(preparing) > 1:
            report(Rule.STANDBYS_PREPARED_SINGLY, f"{[str(r) for r in preparing]} are prepared at once")
        self._check_backoff(invocation, changes, before)
        self._check_preparation(invocation, changes, after)
        self._check_trial(invocation, changes, after)
        self._check_sent_back(invocation, commit)
        for row in changes.create:
            if got_instance_of_another(row):
                self._check_heir(changes, row, before)
        for row in changes.stored:
            old = before.get(row.id)
            is_new = row.state is ReplicaState.STANDBY and (old is None or old.state is not row.state)
            if is_new and self.cloud.in_rotation(row.service, row.instance_id or ""):
                report(Rule.STANDBY_OUT_OF_ROTATION, f"{row} stands by, and {row.instance_id} is in rotation")

    def _check_preparation(
        self, invocation: Invocation, changes: Changes, after: Mapping[int, Replica]
    ) -> None:
        """A standby is launched: was the service whole?"""
        intent = changes.open_intent
        if intent is None or not any(r.stands_by for r in changes.stored if r.id in intent.replica_ids):
            return
        if changes.close_intents:
            return  # the next step of a launch that has begun
        self._check_whole(invocation, changes, after, f"{intent} is for a standby")

    def _check_trial(self, invocation: Invocation, changes: Changes, after: Mapping[int, Replica]) -> None:
        """A standby is tried out, so it can't be had: was the service whole, and is it the first time?"""
        for row in changes.create:
            if row.is_tried:
                self._check_whole(invocation, changes, after, f"{row} is tried out")
                if row.resume_s is not None:
                    self.history.report(Rule.STANDBY_TRIED, f"{row} is tried out again")

    def _check_whole(
        self, invocation: Invocation, changes: Changes, after: Mapping[int, Replica], what: str
    ) -> None:
        # By what it read, less what it has taken out itself.
        staying = sum(r.stays and r.id in after and after[r.id].stays for r in invocation.loaded.values())
        staying = max(staying, sum(r.stays for r in after.values()))
        wanted = min((s.replicas for s in self.history.in_force(invocation, changes.service)), default=0)
        if staying < wanted:
            self.history.report(Rule.STANDBYS_PREPARED_SINGLY, f"{what}, {staying} of {wanted} serve")

    def _check_backoff(self, invocation: Invocation, changes: Changes, before: Mapping[int, Replica]) -> None:
        """A standby is asked for: was none of its version tried in vain just now?"""
        now = self.history.scheduler.now
        for row in changes.update:
            key = row.service, row.version
            if row.stands_by and row.state is ReplicaState.FAILED:
                # It counts from when that was decided. One version's is on record, the last one's.
                self.failed = {of: times for of, times in self.failed.items() if of == key or of[0] != key[0]}
                self.failed.setdefault(key, []).append(invocation.began_at)
            elif row.state is ReplicaState.STANDBY and before[row.id].state is not row.state:
                self.failed = {of: times for of, times in self.failed.items() if of[0] != row.service}
        for row in changes.create:
            times = self.failed.get((row.service, row.version), [])
            is_asked_for = row.stands_by and row.state is ReplicaState.REQUESTED
            if is_asked_for and times:
                held_s = limits.doubled_s(len(times), *limits.STANDBY_FAILURE_S)
                if now < times[-1] + held_s - SKEW_S:
                    self.history.report(Rule.STANDBY_BACKOFF, f"{row} is asked for, others failed at {times}")

    def _check_sent_back(self, invocation: Invocation, commit: Commit) -> None:
        """One that was just resumed drains because Spot is back: is it?"""
        changes, before, after = commit.changes, commit.before.replicas, commit.after.replicas
        now = invocation.began_at - SKEW_S  # one may have become late since
        back = [
            r
            for r in changes.update
            if r.reason == "Spot is back"
            and not r.state.is_active
            and r.id in before
            and is_coming(before[r.id], self.history.scheduler.now + SKEW_S)
        ]
        if not back:
            return
        # By what it read, and by what is so: one may just have become ready, another may only be busy.
        health, loaded = invocation.health or {}, invocation.loaded.values()
        own = {r.id for commit in invocation.commits for r in commit.changes.stored}
        # What answers again may be written by the next commit of the same decision.
        well = {id_ for id_, state in health.items() if state is TargetState.HEALTHY}
        ready = (r for r in loaded if r.state is ReplicaState.READY and not r.is_warned)
        read = {r.id for r in ready if r.stays or r.instance_id in well}
        staying = sum(
            r.stays or (r.id in read and (r.state.is_active or r.id not in own)) for r in after.values()
        )
        coming = sum(is_coming(r, now) for r in after.values())
        wanted = min((s.replicas for s in self.history.in_force(invocation, changes.service)), default=0)
        if staying + coming < wanted:
            self.history.report(Rule.RESUMED_KEPT, f"{back[0]} is sent back, {staying} of {wanted} serve")

    def _check_heir(self, changes: Changes, row: Replica, before: Mapping[int, Replica]) -> None:
        """A row gets the instance of another: does that end in the same commit, and may it?"""
        ended = [r for r in changes.update if r.instance_id == row.instance_id and r.state.is_ended]
        was = [before[r.id] for r in ended if r.id in before]
        # One that EC2 refused to start stands by again at once: there is nothing to drain.
        is_refused = not row.was_started_again and all(r.retry_at and r.state in STARTING_STATES for r in was)
        # One that has served and is on its way back to stand by runs still, so it may serve again.
        is_on_its_way = row.is_fallback and all(
            r.state is ReplicaState.DRAINING and r.is_fallback and ReplicaState.READY in r.entered
            for r in was
        )
        wanted = ReplicaState.STANDBY if row.was_started_again else ReplicaState.DRAINING
        states = {r.state for r in was}
        if len(was) != 1 or not (is_refused or is_on_its_way or states == {wanted}):
            what = f"{row} gets {row.instance_id} from {ended}, {states}"
            self.history.report(Rule.ONE_ROW_PER_INSTANCE, what)

    # Calls. They are judged as they are made: the effect may come later.

    def before_start(self, invocation: Invocation, instance_ids: Collection[str]) -> None:
        """StartInstances is about to be called."""
        rows = {r.instance_id: r for r in invocation.loaded.values()}
        for instance_id in instance_ids:
            row = rows.get(instance_id)
            is_known = row is not None and row.is_standby and row.state is ReplicaState.PROVISIONING
            if instance_id not in invocation.row_writes and not is_known:
                what = f"{instance_id} is started, and its row wasn't written: {row}"
                self.history.report(Rule.ROW_BEFORE_EFFECT, what)

    def before_stop(self, invocation: Invocation, instance_ids: Collection[str]) -> None:
        """StopInstances is about to be called."""
        rows = {r.instance_id: r for r in invocation.loaded.values()}
        for instance_id in instance_ids:
            instance, row = self.cloud.instances[instance_id], rows.get(instance_id)
            service = instance.launched_for or ""
            is_known = row is not None and row.state is ReplicaState.STANDBY
            if instance.is_foreign:
                self.history.report(Rule.FOREIGN_UNTOUCHED, f"{instance_id} is stopped")
            if instance_id not in invocation.row_writes and not is_known:
                what = f"{instance_id} is stopped, and its row wasn't written: {row}"
                self.history.report(Rule.ROW_BEFORE_EFFECT, what)
            if not self.cloud.serves(instance) or service in self.history.damaged:
                continue
            others = sum(i is not instance and self.cloud.serves(i) for i in self.cloud.of(service))
            wanted = min((s.replicas for s in self.history.in_force(invocation, service)), default=0)
            if others < wanted:
                what = f"{instance_id} is stopped, {others} others serve of {wanted}"
                self.history.report(Rule.NOTHING_SERVING_STOPPED, what)

    def before_register(self, instance_ids: Collection[str]) -> None:
        """RegisterTargets is about to be called."""
        for instance_id in instance_ids:
            row = self._row_of(instance_id)
            if row is not None and row.stands_by and row.service not in self.history.damaged:
                self.history.report(Rule.STANDBY_OUT_OF_ROTATION, f"{row}, {row.state}, is registered")

    def before_terminate(self, instance_ids: Collection[str]) -> None:
        """TerminateInstances is about to be called."""
        for instance_id in instance_ids:
            row = self._row_of(instance_id)
            if row is None or not row.is_standby or row.service in self.history.damaged:
                continue
            is_spent = row.attempts >= limits.STANDBY_TRIES or row.unhealthy_since is not None
            is_dead = row.reason.startswith("instance ")
            has_failed = row.state is ReplicaState.FAILED
            if not (is_spent or is_dead or has_failed or row.reason in GIVEN_UP_REASONS):
                what = f"{instance_id} of {row}, {row.state}, is terminated: {row.reason}"
                self.history.report(Rule.STANDBY_KEPT, what)

    def _row_of(self, instance_id: str) -> Replica | None:
        memory = self.memory()
        service, id_ = memory.locate([instance_id]).get(instance_id, ("", 0))
        ended = (r for r in memory.history(service, 1000) if r.id == id_)
        return memory.load(service).replicas.get(id_) or next(ended, None) if service else None


# Ends of invocations.


def is_asleep(view: InvocationView, row: Replica) -> bool:
    """Whether it stands by, or was resumed and its instance is stopped all the same."""
    instance = view.instance_of(row)
    is_stopped = instance is not None and instance.state in STOPPED_STATES
    is_resumed = row.is_standby and row.state is ReplicaState.PROVISIONING
    return row.state is ReplicaState.STANDBY or (is_resumed and is_stopped)


def overdue_change(view: InvocationView, row: Replica) -> str:
    """Why a tick should have done something about a standby's instance; empty if it needn't."""
    instance = view.instance_of(row)
    if instance is None:
        return ""
    is_old = view.is_over(row.since, limits.AGAIN_S)
    if row.state is ReplicaState.STANDBY:
        if instance.state in ENDING_STATES:
            return f"it stands by, and its instance is {instance.state}"
        is_due = instance.state.is_alive and is_old
        return "it stands by, and its instance runs" if is_due and not _is_called(view, row) else ""
    is_due = instance.state in STOPPED_STATES and is_old
    return "it was resumed, and its instance is stopped" if is_due and not _is_called(view, row) else ""


def _is_called(view: InvocationView, row: Replica) -> bool:
    about = (c.about for c in view.invocation.calls if c.call.value in ("fleet.start", "fleet.stop"))
    return any(row.instance_id in ids for ids in about if isinstance(ids, Collection))


def check_resumed(view: InvocationView, spec: ServiceSpec) -> Findings:
    """Replicas are missing: is a standby resumed for each, if there is one?"""
    if not view.is_alone:
        return
    now, read = view.now.replicas, view.rows.replicas
    busy = sum(
        r.stays and r.id in now and now[r.id].state is ReplicaState.READY and not now[r.id].serves
        for r in read.values()
    )
    staying = sum(r.stays for r in now.values()) + busy
    at = view.invocation.began_at - SKEW_S  # one that is about to be late may be so by another clock
    were = {id_ for id_, r in read.items() if is_coming(r, at)}
    resumed = {r.id for r in view.created if r.is_standby and r.is_fallback}
    # Those count even if EC2 refuses them meanwhile: the next tick resumes another.
    still = [
        r for r in now.values() if is_coming(r, at) or (r.state in STARTING_STATES and r.id in were | resumed)
    ]
    missing = spec.replicas - staying - max(len(were), len(still))
    idle = [
        r
        for r in view.unchanged_rows()
        if r.state is ReplicaState.STANDBY and (r.retry_at is None or view.is_over(r.retry_at))
    ]
    if missing > 0 and idle:
        yield Rule.STANDBY_RESUMED, f"{missing} are missing, and {idle[0]} stands by"
