"""The rules that hold at every step, checked where it happens.

Each rule has a name, by which the tests of the checker and `docs/reliability.md` know it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from spotrelay.memory import EPOCH, MemoryStore
from spotrelay.model import (
    TRANSITIONS,
    Changes,
    InstanceState,
    PurchaseOption,
    Replica,
    ReplicaState,
    ServiceSpec,
)
from spotrelay.policy import timing
from spotrelay.ports import LaunchRequest, LaunchResult
from spotrelay.sim.cloud import SimCloud
from spotrelay.sim.gate import Invocation
from spotrelay.sim.scheduler import Scheduler

LONGEST_S = 60.0 + 60.0
"""A decision may go by a document that was read so long ago: a tick's time-out, and what `get` may keep."""


LEAD_S = 25.0
"""How much older than its record an intent's own time may be: the commit can hang and still succeed."""


class Rule(StrEnum):
    """Everything that must hold."""

    IDS = "IDs are unique, rise without gaps and with time, and are never given twice"
    STRENGTH = "never more regular replicas than desired + surge, nor more stand-ins"
    LEGAL = "a row goes only where its state leads, and never comes back from its end"
    ONE_REPLACEMENT = "no replica is replaced twice"
    STAND_INS = (
        "a stand-in is never replaced, and there is one at most for each Spot replica that isn't ready, "
        "if the service wants any"
    )
    FOREIGN = "foreign instances are never touched"
    WARNED_SPARED = "an instance that EC2 takes back is never terminated by us"
    INTENT_FIRST = "no launch without its intent on record, and none for more than its replicas"
    PATIENCE = "a launch is not given up while it may still be recorded"
    ADOPTION = "an instance that a launch intent brought is not given up while its replica waits"
    OUT_FIRST = "out of rotation before the row says that it drains"
    TICK_TAKES_OUT = "after an undisturbed tick nothing dead or warned is in rotation"
    SIGNAL_HANDLED = "a warning is done with only when its replica is out of rotation and drains"
    LAUNCH_RATE = "launches per minute have a ceiling"
    NO_SURPRISE = "no exception but a port's leaves a function"
    # After settling:
    SETTLES = "everything comes to rest"
    WHOLE = (
        "as many replicas ready as desired, each bought as it was wanted, and nobody stands in for another"
    )
    NO_ORPHAN = "no instance of ours without a row"
    NO_GHOST = "no row without a living instance"
    IN_ROTATION = "what is ready is in rotation, and nothing else"
    REPLACED_ONCE = "every loss has exactly one replacement"
    NO_OPEN_INTENT = "no launch intent is open"
    DEAD_LETTERS = "dead letters are the malformed messages, all of them, and what met a fault each time"
    LEASES = "no lease is held"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken."""

    rule: Rule
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.at:.3f} s: {self.rule}: {self.what}"


@dataclass(slots=True)
class Rules:
    """Watches what the production code does."""

    scheduler: Scheduler
    cloud: SimCloud
    most_replicas: Callable[[str, float], int] = lambda _service, _since: 0
    """Service and time → desired + surge, the most that a document valid since then said."""
    wants_stand_ins: Callable[[str, float], bool] = lambda _service, _since: True
    """Service and time → whether a document valid since then wants on-demand to stand in for Spot."""
    ceiling: Callable[[str], int] = lambda _service: 0
    """Launches per minute."""
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
    started: dict[str, list[float]] = field(default_factory=dict)
    changed_at: float = 0.0
    """When a row or an intent last changed."""

    def broken(self, rule: Rule, what: str) -> None:
        """Note a violation; the first one ends the run."""
        self.violations.append(Violation(rule, self.scheduler.now, what))
        self.scheduler.stop()

    # What was written.

    def committed(
        self,
        invocation: Invocation,
        changes: Changes,
        before: Mapping[int, Replica],
        after: Mapping[int, Replica],
    ) -> None:
        """A commit took effect: the service's living rows before and after it."""
        service = changes.service
        self.changed_at = self.scheduler.now
        if changes.create:
            self._created(changes, before, after)
            self._stood_in(invocation, changes, before, after)
        if changes.open_intent:
            self.intents[changes.open_intent.id] = changes.open_intent.replica_ids
            self.opened[changes.open_intent.id] = self.scheduler.now
        now = self.scheduler.now
        for row in changes.update:
            old = before.get(row.id)
            if old is None or (row.state is not old.state and row.state not in TRANSITIONS[old.state]):
                self.broken(Rule.LEGAL, f"{row}: from {old and old.state} to {row.state}")
        for row in (*changes.create, *changes.update):
            if row.instance_id is None:
                continue
            invocation.wrote[row.instance_id] = now
            self.recorded.setdefault(row.instance_id, now)
            old = before.get(row.id)
            if row.state is ReplicaState.DRAINING and old and old.state is not ReplicaState.DRAINING:
                self._drained(invocation, service, row)
            if row.warned_at:
                self.warned_rows.setdefault(row.instance_id, now)
        for intent_id in changes.close_intents:
            self._closed(invocation, intent_id, after)

    def _created(self, changes: Changes, before: Mapping[int, Replica], after: Mapping[int, Replica]) -> None:
        service = changes.service
        highest = self.ids.get(service, 0)
        given = [row.id for row in changes.create]
        if given != list(range(highest + 1, highest + 1 + len(given))):
            self.broken(Rule.IDS, f"{service}: {given} given after {highest}")
        self.ids[service] = max(highest, *given)
        requested = max(row.entered[ReplicaState.REQUESTED] for row in changes.create)
        if requested < self.requested.get(service, requested):
            self.broken(Rule.IDS, f"{service}: {given} were requested before {highest}")
        self.requested[service] = requested
        most = self.most_replicas(service, self.scheduler.now - LONGEST_S)
        for is_stand_in in (False, True):
            was, active = (
                sum(r.state.is_active and r.is_stand_in is is_stand_in for r in rows.values())
                for rows in (before, after)
            )
            if active > max(most, was):
                kind = "stand-ins" if is_stand_in else "regular replicas"
                self.broken(Rule.STRENGTH, f"{service}: {active} active {kind}, {most} allowed")
        for row in changes.create:
            if row.replaces is None:
                continue
            earlier = self.replacements.get((service, row.replaces))
            if earlier is not None and earlier in after and after[earlier].state.is_active:
                self.broken(Rule.ONE_REPLACEMENT, f"{row} replaces {row.replaces}, which {earlier} replaces")
            self.replacements[service, row.replaces] = row.id

    def _stood_in(
        self,
        invocation: Invocation,
        changes: Changes,
        before: Mapping[int, Replica],
        after: Mapping[int, Replica],
    ) -> None:
        """Rows are created: are there stand-ins among them, or are stand-ins replaced?"""
        service = changes.service
        for row in changes.create:
            replaced = before.get(row.replaces or 0)
            if replaced is not None and replaced.is_stand_in:
                self.broken(Rule.STAND_INS, f"{row} replaces {replaced}, a stand-in")
        if not any(row.is_stand_in for row in changes.create):
            return
        if not self.wants_stand_ins(service, self.scheduler.now - LONGEST_S):
            self.broken(Rule.STAND_INS, f"{service} wants none, and gets some")
        # Decided on what was loaded; what came since would have taken the IDs.
        missing = sum(map(_is_spot_on_its_way, invocation.loaded.values()))
        standing = sum(row.is_stand_in and row.state.is_active for row in after.values())
        if standing > missing:
            self.broken(Rule.STAND_INS, f"{service}: {standing} stand-ins for {missing} that aren't ready")

    def _drained(self, invocation: Invocation, service: str, row: Replica) -> None:
        instance_id = row.instance_id or ""
        # Somebody may have put it back since this invocation took it out; that one didn't know of this.
        if self.cloud.in_rotation(service, instance_id) and instance_id not in invocation.taken_out:
            self.broken(Rule.OUT_FIRST, f"{row} drains, and {instance_id} is in rotation")

    def _closed(self, invocation: Invocation, intent_id: str, after: Mapping[int, Replica]) -> None:
        """An intent is closed: is anything left of it?"""
        if intent_id in invocation.asked:
            return  # it has the answer
        waiting = [
            r
            for id_ in self.intents.get(intent_id, ())
            if (r := after.get(id_)) and r.state is ReplicaState.REQUESTED and r.launch_id == intent_id
        ]
        if not waiting:
            return
        if self.scheduler.now - self.opened[intent_id] < timing.INTENT_EXPIRES_S - LEAD_S:
            self.broken(Rule.PATIENCE, f"{intent_id} closed, {waiting[0]} waits for it")
        for seen in invocation.observed:  # by a tick; the others close only what they launched themselves
            instance = self.cloud.instances[seen.id]
            if (
                seen.launch_id == intent_id
                and seen.id not in self.recorded
                and instance.is_alive(self.scheduler.now)
                and not instance.is_being_taken(self.scheduler.now)
            ):
                self.broken(Rule.ADOPTION, f"{intent_id} closed, {instance.id} is there, {waiting[0]} waits")

    # Calls.

    def launches(self, request: LaunchRequest) -> None:
        """A launch is about to take effect."""
        replicas = self.intents.get(request.launch_id)
        if replicas is None:
            self.broken(Rule.INTENT_FIRST, f"{request.launch_id} was never on record")
        elif request.count > len(replicas):
            self.broken(Rule.INTENT_FIRST, f"{request.launch_id}: {request.count} for {replicas}")
        known = self.cloud.answers.get(request.launch_id)
        if known and known[0] != request:
            self.broken(Rule.INTENT_FIRST, f"{request.launch_id} launches twice, and differently")

    def launched(self, request: LaunchRequest, result: LaunchResult) -> None:
        """A launch took effect."""
        service, now = request.spec.service, self.scheduler.now
        times = self.started.setdefault(service, [])
        times[:] = [t for t in times if t > now - 60] + [now] * len(result.instances)
        # Minutes are counted from the first launch in them: the end of one and the start of the next may
        # lie close together.
        if len(times) > 2 * self.ceiling(service):
            self.broken(Rule.LAUNCH_RATE, f"{service}: {len(times)} instances started within a minute")

    def terminates(self, invocation: Invocation, instance_ids: Collection[str]) -> None:
        """TerminateInstances is about to take effect."""
        now = self.scheduler.now
        for instance_id in instance_ids:
            instance = self.cloud.instances.get(instance_id)
            if instance is None or instance.service is None:
                self.broken(Rule.FOREIGN, f"{instance_id} terminated")
            elif instance.state(now) in (InstanceState.PENDING, InstanceState.RUNNING):
                told = invocation.warned_at is not None and instance.warned_at <= invocation.warned_at
                decided_at = invocation.wrote.get(instance_id, invocation.loaded_at)
                noted = self.warned_rows.get(instance_id, float("inf")) < decided_at
                if told or noted:
                    self.broken(Rule.WARNED_SPARED, f"{instance_id} terminated, warned {instance.warned_at}")

    def routes(self, spec: ServiceSpec, instance_ids: Collection[str]) -> None:
        """Targets are about to be registered or deregistered."""
        for instance_id in instance_ids:
            instance = self.cloud.instances.get(instance_id)
            if instance is None or instance.service != spec.service:
                self.broken(Rule.FOREIGN, f"{instance_id} put into or taken out of {spec.service}")

    # Ends of invocations.

    def ticked(self, invocation: Invocation) -> None:
        """A tick came to its end, and looked."""
        service = invocation.ticks_for
        if invocation.disturbances or invocation.observed_at is None or invocation.warned_at is None:
            return
        for instance_id, target in self.cloud.groups.get(service, {}).items():
            if target.drained_at <= self.scheduler.now or target.registered_at >= invocation.began_at:
                continue
            instance = self.cloud.instances[instance_id]
            if instance.visible_at <= invocation.observed_at and instance.died_at() <= invocation.observed_at:
                self.broken(Rule.TICK_TAKES_OUT, f"{instance_id} is dead and in rotation")
            elif instance.warned_at <= invocation.warned_at:
                self.broken(Rule.TICK_TAKES_OUT, f"{instance_id} is warned and in rotation")

    def acknowledged(self, invocation: Invocation, instance_id: str, store: MemoryStore) -> None:
        """A message with a warning was done with."""
        if self.recorded.get(instance_id, float("inf")) >= invocation.began_at:
            return  # nobody's yet when it was looked up: the tick will see the warning
        service, replica_id = store.locate([instance_id])[instance_id]
        row = store.read(service, [replica_id]).replicas.get(replica_id)
        if row is None:
            return
        if row.state is not ReplicaState.DRAINING or not row.is_warned:
            self.broken(Rule.SIGNAL_HANDLED, f"{row} is {row.state} after its warning")
        target = self.cloud.in_rotation(service, instance_id)
        drained_at = (row.since - EPOCH).total_seconds()
        # What was put back since, by an invocation that didn't know, is for the tick to find.
        if target is not None and target.registered_at < drained_at:
            self.broken(Rule.SIGNAL_HANDLED, f"{instance_id} is in rotation after its warning")

    def crashed(self, error: Exception | str) -> None:
        """An exception that isn't a port's left the production code."""
        self.broken(Rule.NO_SURPRISE, error if isinstance(error, str) else repr(error))

    def failed(self, error: str) -> None:
        """The production code caught an exception and went on."""
        if not error.startswith(("Conflict(", "Throttled(", "Unavailable(")):
            self.crashed(error)


def _is_spot_on_its_way(row: Replica) -> bool:
    return (
        row.purchase_option is PurchaseOption.SPOT
        and not row.is_stand_in
        and row.state.is_active
        and row.state is not ReplicaState.READY
    )
