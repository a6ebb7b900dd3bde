"""Carries decisions out: the only place that knows what must come before what.

Signals and ticks go through the same `_perform`. Its order is the point of it:

1. *Deregister*, before anything is written: it is idempotent, and it is what the clients feel. What EC2 has
   just warned doesn't even wait for its row: that is read meanwhile, see `_react`.
2. *Commit* the rows: whoever loses the race for a row does nothing more about it.
3. *Register* what runs, after its row says so: a warning that comes in between finds it and takes it out.
4. *Launch*, with an intent committed before, so that a crash leaves a trace for the tick to heal.
5. *Tell* others what the losses taught, log what was done, and announce the next tick: none of it must hold
   up a launch, or fail it.
6. *Terminate*, last: nothing waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, repeat, takewhile
from types import MappingProxyType

from spotrelay import launching
from spotrelay.model import (
    Changes,
    OnRebalance,
    PoolMemory,
    Replica,
    ReplicaState,
    Rows,
    ServiceSpec,
    seconds,
)
from spotrelay.names import Metric
from spotrelay.policy import changes, cooldowns, failures, interruption, reconcile, strength, timing
from spotrelay.policy.actions import (
    Action,
    Adopt,
    Drain,
    End,
    Fail,
    NoteWarning,
    Register,
    Start,
    TakeOut,
    Terminate,
)
from spotrelay.policy.observation import Observation, known, ready_count
from spotrelay.ports import Conflict, PortError, Ports
from spotrelay.signals import InterruptionWarning, Signal

MAX_DECISIONS = 50
"""How often one batch of signals is decided anew after losing a race. Each loss means that another batch got
its replacements on record: of five at a time one always wins, so to lose fifty in a row is one in 70,000.
With ten it would be one in nine, and in a storm batches would come back only after their visibility time."""


_NOTHING: Mapping[str, datetime] = MappingProxyType({})


class Controller:
    """Makes the replicas that exist match those that should."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def handle(self, signals: Sequence[Signal]) -> Sequence[Signal]:
        """React to a batch of signals; returns those to be delivered again, because their service failed.

        Raises:
            PortError: nothing could be told about any of them.
        """
        ports = self._ports
        ports.telemetry.count(Metric.SIGNALS_RECEIVED, len(signals))
        located = ports.store.locate({s.instance_id for s in signals})
        by_service: dict[str, list[tuple[Signal, int]]] = defaultdict(list)
        for signal in signals:
            if signal.instance_id in located:
                service, replica_id = located[signal.instance_id]
                by_service[service].append((signal, replica_id))
        foreign = len({s.instance_id for s in signals} - located.keys())
        if foreign:
            ports.telemetry.count(Metric.FOREIGN_INSTANCES, foreign)
        failed: list[Signal] = []
        for service, about in by_service.items():
            try:
                self._react(service, about)
            except Exception as error:  # noqa: BLE001 - one service's trouble must not hold up the others'
                ports.telemetry.record("signals_failed", service=service, error=repr(error))
                failed += [signal for signal, _ in about]
        try:
            ports.store.look_ahead()
        except Exception as error:  # noqa: BLE001 - all is done already, and isn't to be done again for this
            ports.telemetry.record("look_ahead_failed", error=repr(error))
        return failed

    def tick(self, service: str, serving: datetime | None = None) -> None:
        """Compare what is with what should be, and close the gap; `serving` is the announced time, if any."""
        ports = self._ports
        holder = ports.new_id()
        if not ports.store.acquire(service, holder, ports.clock.now(), timing.LEASE_S):
            return
        try:
            due = self._reconcile(service, serving)
        finally:
            ports.store.release(service, holder)
        if due:
            self._announce_tick(service, due, serving)

    def tick_all(self) -> None:
        """Have every service's tick run, each by itself, so that one that is stuck blocks no other."""
        for service in sorted({*self._ports.services.names(), *self._ports.store.services()}):
            self._ports.ticker.schedule(service)

    def _react(self, service: str, about: Sequence[tuple[Signal, int]]) -> None:
        ports = self._ports
        spec = ports.services.get(service)
        read: Callable[[], Rows] = partial(self._read, service, {replica_id for _, replica_id in about})
        # The rows are read while the load balancer is asked; nothing is written before both are through.
        with ports.beside(read) as first_read:
            taken_out = self._take_out(spec, about) if spec else {}
        for reading in chain([first_read], repeat(read, MAX_DECISIONS - 1)):
            rows = reading()
            sightings = [(s, rows.replicas[i]) for s, i in about if i in rows.replicas]
            actions = interruption.decide(sightings, rows, spec.on_rebalance if spec else OnRebalance.IGNORE)
            if not actions or self._perform(service, spec, rows, actions, [s for s, _ in about], taken_out):
                return
        raise Conflict(f"{service}: lost {MAX_DECISIONS} races for the same replicas")

    def _take_out(self, spec: ServiceSpec, about: Sequence[tuple[Signal, int]]) -> dict[str, datetime]:
        """Take what EC2 has just warned out of rotation, whatever its row says; which instances, and when."""
        return self._deregister(
            spec, sorted({s.instance_id for s, _ in about if isinstance(s, InterruptionWarning)})
        )

    def _read(self, service: str, replica_ids: set[int]) -> Rows:
        """The replicas, and those that are to take over from them while they still serve."""
        rows = self._ports.store.read(service, replica_ids)
        successors = {r.replaced_by for r in rows.replicas.values() if r.state.is_active and r.replaced_by}
        if successors <= replica_ids:
            return rows
        return self._ports.store.read(service, replica_ids | successors)

    def _reconcile(self, service: str, serving: datetime | None) -> datetime | None:
        """One round; when another should follow, None if the minute's tick will do."""
        ports = self._ports
        spec = ports.services.get(service, fresh=True)
        rows = known(ports.store.load(service))
        now = ports.clock.now()
        # The warned ones before the instances: what is warned no more by then is seen gone.
        warned = ports.fleet.warned()
        instances = {i.id: i for i in ports.fleet.observe(service)}
        seen = Observation(rows, instances, ports.router.health(spec) if spec else {}, warned)
        actions = reconcile.decide(spec, seen, now) if spec else reconcile.retire(seen, now)
        if spec:
            ready = ready_count(rows)
            ports.telemetry.count(Metric.REPLICAS_READY, ready, service=service)
            ports.telemetry.count(Metric.REPLICAS_DESIRED, spec.replicas, service=service)
            if failures.is_crash_looping(spec, rows.backoff):
                ports.telemetry.count(Metric.CRASH_LOOPING)
                ports.telemetry.record(
                    "crash_looping", service=service, version=spec.version, failures=rows.backoff.failures
                )
        elif reconcile.is_gone(seen):
            ports.store.forget(service)
            return None
        self._perform(service, spec, rows, actions, serving=serving)
        if spec:
            self._admit(spec, seen)
        return self._soon() if actions else strength.next_look(spec, seen, ports.clock.now())

    def _admit(self, spec: ServiceSpec, seen: Observation) -> None:
        """Put into rotation what answers the readiness probe, and give up what doesn't and is overdue.

        Last, because a probe may take its time-out.
        """
        waiting = reconcile.awaiting_probe(spec, seen)
        addresses = {i.id: i.address for i in waiting.values() if i.address}
        if not addresses:
            return
        answering = self._ports.prober.answering(spec, addresses)
        self._ports.telemetry.record(
            "probed",
            service=spec.service,
            answering=sorted(answering),
            silent=sorted(addresses.keys() - answering),
        )
        now = self._ports.clock.now()
        if not answering and not reconcile.late(spec, seen.rows, addresses, now):
            return
        # Much may have happened since: this very tick may have drained one, and a probe takes seconds.
        rows = self._ports.store.read(spec.service, waiting.keys())
        starting = [r for r in rows.replicas.values() if r.state is ReplicaState.STARTING]
        ready = [r.instance_id for r in starting if r.instance_id in answering]
        if ready:
            self._ports.router.register(spec, ready)
        late = reconcile.late(spec, rows, addresses.keys() - answering, now)
        if late:
            self._perform(spec.service, spec, rows, late)

    def _perform(
        self,
        service: str,
        spec: ServiceSpec | None,
        rows: Rows,
        actions: Sequence[Action],
        signals: Sequence[Signal] = (),
        taken_out: Mapping[str, datetime] = _NOTHING,
        serving: datetime | None = None,
    ) -> bool:
        """Carry the actions out; False if some were decided on rows that have changed since.

        `taken_out` says what is out of rotation already, and since when.
        """
        now = self._ports.clock.now()
        if spec:
            still_in = [i for i in _leaving(actions) if i not in taken_out]
            taken_out = {**taken_out, **self._deregister(spec, still_in)}
        wanted = changes.changes(service, spec, rows, actions, now, self._ports.new_id)
        # Not past one that is lost: the rest was decided together with it, and would fit by chance at most.
        committed = list(takewhile(self._commit, wanted))
        if held := sum(change.held for change in committed):
            self._ports.telemetry.count(Metric.LAUNCHES_HELD, held, service=service)
            self._ports.telemetry.record("launches_held", service=service, replicas=held)
        won = {r.id for change in committed for r in (*change.create, *change.update)}
        done = [a for a in actions if _is_won(a, won)]
        try:
            if spec:
                self._enter(spec, done)
                self._launch_and_tell(spec, done, committed, signals)
                # Once more what a tick may have been about to register when the warning came.
                again = set(_leaving(done)) - set(still_in) - interruption.settled(rows, now)
                self._deregister(spec, sorted(again))
        finally:
            for action in done:
                self._record(service, action)
            if spec and (gone := _leaving(done)):
                self._ports.telemetry.count(Metric.DEREGISTERED, len(gone), service=service)
                self._count_since_warning(Metric.WARNING_TO_DEREGISTERED_MS, service, signals, taken_out)
            if done:
                self._announce_tick(service, self._soon(), serving)
        terminate = [i for a in done if (i := _terminated(a)) is not None]
        if terminate:
            self._ports.fleet.terminate(terminate)
        return len(committed) == len(wanted)

    def _deregister(self, spec: ServiceSpec, instance_ids: Sequence[str]) -> dict[str, datetime]:
        """Take them out of rotation; since when each is."""
        if instance_ids:
            self._ports.router.deregister(spec, instance_ids)
        return dict.fromkeys(instance_ids, self._ports.clock.now())

    def _commit(self, change: Changes) -> bool:
        try:
            self._ports.store.commit(change)
        except Conflict as conflict:
            self._ports.telemetry.count(Metric.CONFLICTS, service=change.service)
            self._ports.telemetry.record("conflict", service=change.service, detail=str(conflict))
            return False
        return True

    def _enter(self, spec: ServiceSpec, done: Sequence[Action]) -> None:
        """Register what runs; what has a readiness probe once it answers that, see `_admit`."""
        entering = Register if spec.readiness_probe else (Start, Register)
        entrants = [i for a in done if isinstance(a, entering) and (i := a.replica.instance_id)]
        if entrants:
            self._ports.router.register(spec, entrants)

    def _launch_and_tell(
        self,
        spec: ServiceSpec,
        done: Sequence[Action],
        committed: Sequence[Changes],
        signals: Sequence[Signal],
    ) -> None:
        """Launch what was ordered in other pools than were lost, and then tell others about those."""
        store, now = self._ports.store, self._ports.clock.now()
        orders = [change for change in committed if change.open_intent]
        if not orders and not changes.lessons(done, PoolMemory(), now):
            return
        memory = store.recall(spec.service, spec.region, now)
        lessons = cooldowns.news(changes.lessons(done, memory, now), memory)
        memory = cooldowns.with_lessons(memory, lessons)
        if sum(launching.launch(self._ports, spec, order, memory) for order in orders):
            launched = dict.fromkeys((s.instance_id for s in signals), self._ports.clock.now())
            self._count_since_warning(Metric.WARNING_TO_LAUNCHED_MS, spec.service, signals, launched)
        if lessons:
            try:
                store.cool(lessons)
            except PortError as error:
                self._ports.telemetry.record("lessons_lost", service=spec.service, error=repr(error))

    def _soon(self) -> datetime:
        return self._ports.clock.now() + seconds(timing.TICK_IN_TRANSITION_S)

    def _announce_tick(self, service: str, due: datetime, serving: datetime | None) -> None:
        now = self._ports.clock.now()
        if self._ports.store.claim_tick(service, due, now, serving):
            self._ports.ticker.schedule(service, due, (due - now).total_seconds())

    def _count_since_warning(
        self, metric: Metric, service: str, signals: Sequence[Signal], happened: Mapping[str, datetime]
    ) -> None:
        """How long after its warning each instance had it happen to it."""
        for signal in signals:
            if isinstance(signal, InterruptionWarning) and signal.instance_id in happened:
                elapsed_ms = (happened[signal.instance_id] - signal.at).total_seconds() * 1000
                self._ports.telemetry.count(metric, max(elapsed_ms, 0), service=service)

    def _record(self, service: str, action: Action) -> None:
        """One log line per thing done, and what is counted about it."""
        facts: dict[str, object] = {"service": service}
        replica: Replica | None = getattr(action, "replica", None)
        if replica:
            facts |= {
                "replica": replica.id,
                "instance_id": replica.instance_id,
                "offering": str(replica.offering),
            }
        for name in ("reason", "instance_id", "count"):
            if value := getattr(action, name, None):
                facts[name] = value
        self._ports.telemetry.record(type(action).__name__, **facts)
        metric = _COUNTED.get(type(action))
        if isinstance(action, Drain) and action.warned_at:
            metric = Metric.INTERRUPTION_WARNINGS
        if isinstance(action, Terminate) and action.replica:
            metric = None
        if metric:
            self._ports.telemetry.count(metric, service=service)


_COUNTED = {
    Fail: Metric.REPLICAS_FAILED,
    Adopt: Metric.ORPHANS_ADOPTED,
    Terminate: Metric.ORPHANS_TERMINATED,
}


def _leaving(actions: Sequence[Action]) -> list[str]:
    """The instances that the actions take out of rotation."""
    return [i for a in actions if (i := _taken_out(a)) is not None]


def _taken_out(action: Action) -> str | None:
    """The instance that the action takes out of rotation."""
    match action:
        # What drains or ends already may have come back through a race, and nobody may look again.
        case Drain() | NoteWarning() | Fail() | End():
            return action.replica.instance_id
        case TakeOut(instance_id=instance_id):
            return instance_id
        case _:
            return None


def _terminated(action: Action) -> str | None:
    """The instance that the action terminates."""
    match action:
        case Terminate(instance_id=instance_id):
            return instance_id
        case Fail(replica=replica):
            return replica.instance_id
        case _:
            return None


def _is_won(action: Action, won: set[int]) -> bool:
    """Whether what the action writes was written; one that writes nothing always is."""
    replica: Replica | None = getattr(action, "replica", None)
    return replica is None or isinstance(action, Register) or replica.id in won
