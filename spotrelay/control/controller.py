"""Carries decisions out: the only place that knows what must come before what.

Signals and ticks go through the same `_perform`. Its order is the point of it:

1. *Commit* the rows: whoever loses the race for a row does nothing more about it. A replica that serves is
   taken out only on the strength of the others that serve, and the commit fails if they have become fewer:
   two of the last ones never leave because each relies on the other.
2. *Deregister* what the rows say has left, before anything slow: it is what the clients feel.
3. *Register* what runs, after its row says so: a warning that comes in between finds it and takes it out.
4. *Launch*, with an intent committed before, so that a crash leaves a trace for the tick to heal.
5. *Tell* others what the losses taught, log what was done, and announce the next tick: none of it must hold
   up a launch, or fail it.
6. *Terminate*, last: nothing waits for it.

What became of the service is told to the outside by ticks alone, after all of that, and after the tick has
let others in: no decision waits for it, and what isn't told now the next tick tells.

A step that fails doesn't keep the next from being taken: a load balancer that doesn't answer is no reason not
to launch. What failed is raised in the end, so that the message comes again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from math import ceil
from zoneinfo import ZoneInfoNotFoundError

from spotrelay.control.reporting import Reporting
from spotrelay.core import desired, timing
from spotrelay.core.desired import Source
from spotrelay.core.instances import Instance
from spotrelay.core.names import Metric
from spotrelay.core.notices import Notice
from spotrelay.core.pools import PoolMemory
from spotrelay.core.ports import Conflict, Denied, OtherControlPlane, PortError, Ports, UnreadableDocument
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Changes, Removal, Rows
from spotrelay.core.scaling import Load, Ongoing, OngoingTarget, Scaling
from spotrelay.core.slots import host
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.events import Signal
from spotrelay.placement import cooldowns, launching
from spotrelay.serving import (
    changes,
    interruption,
    moves,
    news,
    reconcile,
    rollout,
    rotation,
    scaling,
    slots,
    standby_count,
    strength,
)
from spotrelay.serving.actions import (
    Action,
    Fail,
    HoldBack,
    LookAgain,
    Register,
    ServeOn,
    StandBy,
    Start,
    StartInstance,
    TakeIn,
)
from spotrelay.serving.observation import Observation, has_lost_its_ids, known

ENDED_LOOKED_AT = 100
"""Ended replicas, the newest first, among which the owners of leftover instances are looked for: a page."""

MAX_DECISIONS = 50
"""How often one batch of signals is decided anew after losing a race. Each loss means that another batch got
its replacements on record: of five at a time one always wins, so to lose fifty in a row is one in 70,000.
With ten it would be one in nine, and in a storm batches would come back only after their visibility time."""


@dataclass(frozen=True, slots=True)
class _Decision:
    """What is to be done about one service, and what it was decided on."""

    service: str
    spec: ServiceSpec | None
    """Without one nothing is created, launched or routed."""
    rows: Rows
    actions: Sequence[Action]
    signals: Sequence[Signal] = ()
    serving: datetime | None = None
    """The announced tick that it serves, if it is one's."""


@dataclass(slots=True)
class _Outcome:
    """What came of a decision's actions."""

    is_won: bool = True
    """Whether no action was decided on rows that have changed since."""
    troubles: list[PortError] = field(default_factory=list)
    """The steps that failed."""

    def raise_first(self) -> None:
        """Raise what failed first, if anything did."""
        if self.troubles:
            raise self.troubles[0]


@dataclass(slots=True)
class _Round:
    """What a tick saw of a service, as far as it came: for what is told of it afterwards."""

    spec: ServiceSpec | None = None
    seen: Observation | None = None


class Controller:
    """Makes the replicas that exist match those that should."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._reporting = Reporting(ports.telemetry)

    def handle(self, signals: Sequence[Signal]) -> Sequence[Signal]:
        """React to a batch of signals; returns those to be delivered again, because their service failed.

        Raises:
            PortError: nothing could be told about any of them.
        """
        ports = self._ports
        ports.telemetry.count(Metric.SIGNALS_RECEIVED, len(signals))
        located = ports.store.locate({s.instance_id for s in signals})
        by_service: dict[str, list[tuple[Signal, int]]] = defaultdict(list)
        hosts = defaultdict[str, list[str]](list)
        for slot in located:
            hosts[host(slot)].append(slot)
        for signal in signals:
            for slot in hosts[signal.instance_id]:
                service, replica_id = located[slot]
                by_service[service].append((replace(signal, instance_id=slot), replica_id))
        foreign = len({s.instance_id for s in signals} - located.keys())
        if foreign:
            ports.telemetry.count(Metric.FOREIGN_INSTANCES, foreign)
        failed: list[Signal] = []
        for service, about in by_service.items():
            try:
                self._react(service, about)
            except OtherControlPlane as error:
                self._reporting.kept_off(service, error)
            except Exception as error:  # noqa: BLE001 - one service's trouble must not hold up the others'
                ports.telemetry.record("signals_failed", service=service, error=repr(error))
                failed += {replace(signal, instance_id=host(signal.instance_id)): None for signal, _ in about}
        return failed

    def tick(self, service: str, serving: datetime | None = None, *, is_vouched_for: bool = False) -> None:
        """Compare what is with what should be, and close the gap; `serving` is the announced time, if any.

        `is_vouched_for`: a person says that what will be seen is right, however strange it looks.

        Raises:
            PortError: it failed.
        """
        ports = self._ports
        holder = ports.new_id()
        if not ports.store.acquire(service, holder, ports.clock.now(), timing.LEASE_S):
            if is_vouched_for:  # nobody says it again
                ports.ticker.schedule_override(service, timing.OVERRIDE_AGAIN_S)
            return
        done = _Round()
        try:
            try:
                due = self._reconcile(service, serving, done, is_vouched_for=is_vouched_for)
            finally:
                ports.store.release(service, holder)
            if due:
                self._announce_tick(service, due, serving)
        finally:
            if done.spec and done.seen:
                self._tell(done.spec, done.seen.read)
                # By the minute, as CloudWatch shows it.
                if serving is None:
                    self._appraise(done.spec, done.seen)

    def tick_all(self) -> None:
        """Have every service's tick run, each by itself, so that one that is stuck blocks no other."""
        for service in sorted({*self._ports.services.names(), *self._ports.store.services()}):
            self._ports.ticker.schedule(service)

    def leave(self, service: str) -> None:
        """Take out of rotation the warned replicas whose time has come: no tick that hangs may hold it up."""
        try:
            self._leave(service)
        except OtherControlPlane as error:
            self._reporting.kept_off(service, error)

    def note_removal(self, service: str) -> None:
        """Put on record that the service's stack was removed; its replicas end once that is certain."""
        self._ports.store.note_removal(service, Removal(self._ports.clock.now()))
        self._ports.ticker.schedule(service)

    def _leave(self, service: str) -> None:
        spec = self._document(service)
        if spec is None:
            return
        for _ in range(MAX_DECISIONS):
            rows, now = self._ports.store.load(service), self._ports.clock.now()
            wanted = _in_effect(spec, rows, now)
            actions = interruption.due(wanted, rows, now)
            outcome = self._perform(_Decision(service, wanted, rows, actions))
            outcome.raise_first()
            if outcome.is_won:
                return

    def _react(self, service: str, about: Sequence[tuple[Signal, int]]) -> None:
        spec = self._document(service)
        ids = {replica_id for _, replica_id in about}
        for _ in range(MAX_DECISIONS):
            rows, now = self._read(service, ids, spec), self._ports.clock.now()
            sightings = [(s, rows.replicas[i]) for s, i in about if i in rows.replicas]
            wanted = spec and _in_effect(spec, rows, now)
            actions = interruption.decide(sightings, rows, wanted, now)
            outcome = self._perform(_Decision(service, wanted, rows, actions, [s for s, _ in about]))
            outcome.raise_first()
            if outcome.is_won:
                return
        raise Conflict(f"{service}: lost {MAX_DECISIONS} races for the same replicas")

    def _document(self, service: str) -> ServiceSpec | None:
        """The service's document, or the last one that could be read: losses are replaced in any case.

        None if it was removed, or if this isn't for us to act on.
        """
        ports = self._ports
        try:
            return ports.services.get(service) or ports.store.document(service)
        except UnreadableDocument as error:
            self._reporting.held_back(
                service, "the last document counts", str(error), "deploy the service again"
            )
            return ports.store.document(service)

    def _read(self, service: str, replica_ids: set[int], spec: ServiceSpec | None) -> Rows:
        """The replicas, those that are to take over from them while they still serve, and what was to move.

        All of the service's where it has standbys: one is resumed only for what nothing else comes for.
        """
        store, now = self._ports.store, self._ports.clock.now()
        rows = store.read(service, replica_ids)
        if has_lost_its_ids(rows, now):
            self._mend_ids(service)
            rows = store.read(service, replica_ids)
        if spec and spec.may_have_standbys:
            return store.load(service)
        related = {r.replaced_by for r in rows.replicas.values() if r.state.is_active and r.replaced_by}
        related |= {r.replaces for r in rows.replicas.values() if r.is_move and r.replaces}
        if related <= replica_ids:
            return rows
        return store.read(service, replica_ids | related)

    def _mend_ids(self, service: str) -> None:
        """Raise the highest ID on record to the highest in the table: or IDs would be given twice.

        Raises:
            Conflict: somebody else did it at the same time, or gave IDs.
        """
        store = self._ports.store
        rows = store.load(service)
        highest_id = max((*rows.replicas, self._highest_ended_id(service)))
        store.commit(Changes(service, highest_id=(rows.highest_id, highest_id)))
        self._ports.telemetry.record(
            "ids_mended", service=service, was=rows.highest_id, highest_id=highest_id
        )

    def _reconcile(
        self, service: str, serving: datetime | None, done: _Round, *, is_vouched_for: bool
    ) -> datetime | None:
        """One round; when another should follow, None if the minute's tick will do."""
        ports = self._ports
        try:
            rows = known(ports.store.load(service), ports.clock.now())
            deployed, is_removed = self._deployed(service, rows, is_vouched_for=is_vouched_for)
        except OtherControlPlane as error:
            self._reporting.kept_off(service, error)
            return None
        counted = _Outcome()
        if deployed and deployed.scaling:
            rows = self._with_load(counted, deployed, deployed.scaling, rows)
        spec = deployed and _in_effect(deployed, rows, ports.clock.now())
        if spec is None and not is_removed:
            return self._soon() if rows.removal.told_at or is_vouched_for else None
        if deployed and spec and spec.standby_auto:
            spec = replace(spec, standby=self._standbys(counted, deployed, spec, rows))
        pools = self._pools(counted, spec, rows)
        # The load balancer of a removed service stays until its replicas have left it.
        seen = self._look(service, spec or rows.document, rows, is_vouched_for=is_vouched_for)
        seen = replace(seen, pools=pools, prices=pools.prices)
        now = ports.clock.now()
        actions = reconcile.decide(spec, seen, now) if spec else reconcile.retire(seen, now)
        done.spec, done.seen = spec, seen
        if spec:
            self._reporting.replicas(spec, rows, now)
        elif reconcile.is_gone(seen):
            ports.store.forget(service)
            return None
        # Where it is gone already there is nothing to leave, and asking for it would be refused.
        routed = spec or (rows.document if seen.health else None)
        outcome = self._perform(_Decision(service, routed, rows, actions, serving=serving))
        if spec:
            # Those that serve are asked once a minute: each probe is a request that a model answers.
            self._probe(spec, seen, reconcile.watched(spec, seen) if serving is None else {})
            if serving is None and deployed and deployed.scaling and deployed.scaling.ongoing:
                self._measure(spec, seen, deployed.scaling.ongoing)
        outcome.raise_first()
        counted.raise_first()
        is_moving = any(not isinstance(action, HoldBack) for action in actions)
        return self._soon() if is_moving else strength.next_look(spec, seen, ports.clock.now())

    def _deployed(self, service: str, rows: Rows, *, is_vouched_for: bool) -> tuple[ServiceSpec | None, bool]:
        """The service file's document, and whether the service's stack is gone for certain.

        A document that is missing or can't be read ends nothing: then the last one counts.

        Raises:
            OtherControlPlane: see `ports.Services.get`.
        """
        store, kept = self._ports.store, rows.document
        try:
            spec = self._ports.services.get(service, fresh=True)
        except UnreadableDocument as error:
            self._reporting.held_back(
                service, "the last document counts", str(error), "deploy the service again"
            )
            self._note_presence(service, rows)
            return kept, False
        if spec is None:
            return self._missed(service, rows, is_vouched_for=is_vouched_for)
        spec = standby_count.with_number_so_far(spec, kept)
        self._note_presence(service, rows)
        if kept and kept.target_group_arn != spec.target_group_arn and rows.replicas and not is_vouched_for:
            self._reporting.held_back(
                service,
                "the last document counts",
                f"the target group is {spec.target_group_arn} instead of {kept.target_group_arn}, where the"
                " replicas are registered",
            )
            return kept, False
        if spec != kept:
            store.keep_document(spec, rollout.earlier_kept(kept, spec, rows))
        return spec, False

    def _with_load(self, outcome: _Outcome, deployed: ServiceSpec, wanted: Scaling, rows: Rows) -> Rows:
        """The rows with the number that the load asks for by now; as before if nobody can tell."""
        ports, service = self._ports, deployed.service
        known = rows.requests.get(Source.LOAD)
        before = known or scaling.begun(deployed, rows)
        try:
            load = ports.loads.observe(deployed, ports.clock.now())
        except PortError as error:  # no reason not to replace what is lost
            ports.telemetry.record("load_unknown", service=service, error=repr(error))
            launching.count_denied(ports, error)
            load = Load()
        try:
            decided = scaling.decide(wanted, before, load, scaling.serving_types(rows), ports.clock.now())
        except ZoneInfoNotFoundError as error:
            remedy = "name a time zone that IANA's database has"
            self._reporting.held_back(service, "the number of replicas is kept", str(error), remedy)
            decided = before
        if decided != known and self._attempt(
            outcome, "scale", lambda: ports.store.note_request(service, Source.LOAD, decided)
        ):
            self._reporting.scaled(service, before, decided, load)
            before = decided
        return replace(rows, requests={**rows.requests, Source.LOAD: before})

    def _standbys(self, outcome: _Outcome, deployed: ServiceSpec, spec: ServiceSpec, rows: Rows) -> int:
        """How many standbys pay, where the service file leaves that to us; as before if nobody can tell."""
        store, service = self._ports.store, spec.service
        try:
            wanted = standby_count.derive(spec, rows, store.history(service, standby_count.RECORD))
            if wanted.count != spec.standby:
                self._reporting.standbys(service, spec.standby, wanted)
                store.keep_document(replace(deployed, standby=wanted.count))
        except PortError as error:  # no reason not to replace what is lost
            self._note_trouble(outcome, "count_standbys", error)
            return spec.standby
        return wanted.count

    def _pools(self, outcome: _Outcome, spec: ServiceSpec | None, rows: Rows) -> PoolMemory:
        """What is known of the pools, where replicas move or some are to go.

        Nothing if nobody can tell.
        """
        if spec is None or not (moves.may_move(spec) or strength.surplus(spec, rows)):
            return PoolMemory()
        try:
            return self._ports.store.recall(spec.service, spec.region, self._ports.clock.now())
        except PortError as error:  # no reason not to replace what is lost
            self._note_trouble(outcome, "recall", error)
            return PoolMemory()

    def _note_presence(self, service: str, rows: Rows) -> None:
        """The service has a document: whatever was told of a removal is over."""
        if rows.removal != Removal():
            self._ports.store.note_removal(service, Removal())

    def _missed(self, service: str, rows: Rows, *, is_vouched_for: bool) -> tuple[ServiceSpec | None, bool]:
        """What a missing document means: an end only if we were told, and it stays missing."""
        removal = rows.removal
        if is_vouched_for and removal.told_at is None:
            removal = Removal(self._ports.clock.now())
        if removal.told_at is None:
            self._reporting.held_back(
                service,
                "its replicas are kept",
                "its document is missing, and nothing says that it was removed",
            )
            return rows.document, False
        told_for = self._ports.clock.now() - removal.told_at
        removal = replace(removal, absent=removal.absent + 1)
        if removal.absent > timing.REMOVED_TICKS and told_for >= seconds(timing.REMOVED_AFTER_S):
            return None, True
        self._ports.store.note_removal(service, removal)
        return None, False

    def _look(
        self, service: str, spec: ServiceSpec | None, rows: Rows, *, is_vouched_for: bool
    ) -> Observation:
        """What EC2 and the load balancer show."""
        ports = self._ports
        # The warned ones before the instances: what is warned no more by then is seen gone.
        warned = slots.warned(rows, ports.fleet.warned())
        observed = ports.fleet.observe(service)
        known = {r.instance_id for r in rows.replicas.values() if r.instance_id}
        health = ports.router.health(spec, known) if spec else {}
        instances = slots.instances(spec, rows, observed, health)
        seen = Observation(rows, instances, health, warned, is_vouched_for=is_vouched_for)
        if strangers := {i.id for i in reconcile.unowned(seen, ports.clock.now())}:
            located = ports.store.locate(strangers)
            recorded = {i: id_ for i, (owner, id_) in located.items() if owner == service}
            # A row may have ended, and whoever was to terminate its instance died over it.
            ended = {r.id for r in ports.store.history(service, ENDED_LOOKED_AT)} if recorded else set()
            of_ended = frozenset(i for i, id_ in recorded.items() if id_ in ended)
            registered = ports.router.ports(spec, known) if spec and strangers & health.keys() else {}
            seen = replace(seen, recorded=frozenset(recorded), of_ended=of_ended, ports=registered)
        # A new service, or one whose entry got lost with all that it had: then the history knows its IDs.
        if rows.highest_id == 0:
            seen = replace(seen, ended_id=self._highest_ended_id(service))
        return seen

    def _highest_ended_id(self, service: str) -> int:
        return next((replica.id for replica in self._ports.store.history(service, 1)), 0)

    def _probe(self, spec: ServiceSpec, seen: Observation, watched: Mapping[int, Instance]) -> None:
        """Put into rotation what answers the readiness probe, and give up what doesn't and is overdue.

        What serves and doesn't answer is only noted. Last, because a probe may take its time-out.
        """
        waiting = {**reconcile.awaiting_probe(spec, seen), **watched}
        by_version: dict[int, dict[str, str]] = defaultdict(dict)
        for id_, instance in waiting.items():
            if instance.address:
                by_version[seen.rows.replicas[id_].version][instance.id] = instance.address
        addresses: dict[str, str] = {}
        answering: set[str] = set()
        for version, asked in by_version.items():
            try:
                its = rollout.of_version(spec, seen.rows, version)
                answering |= self._ports.prober.answering(its, asked)
            except PortError as error:  # nobody was asked: nobody is late for it
                self._ports.telemetry.record("probe_failed", service=spec.service, error=repr(error))
                launching.count_denied(self._ports, error)
            else:
                addresses |= asked
        if not addresses:
            return
        self._ports.telemetry.record(
            "probed",
            service=spec.service,
            answering=sorted(answering),
            silent=sorted(addresses.keys() - answering),
        )
        now = self._ports.clock.now()
        if not (answering or watched or reconcile.late(spec, seen.rows, addresses, now)):
            return
        # Much may have happened since: this very tick may have drained one, and a probe takes seconds.
        asked_of = seen.read.replicas if rollout.changes_at_once(spec) else waiting
        rows = self._ports.store.read(spec.service, asked_of.keys())
        rows = replace(rows, document=seen.rows.document, earlier=seen.rows.earlier)
        starting = [r for r in rows.replicas.values() if r.state is ReplicaState.STARTING]
        up = [r for r in starting if r.instance_id in answering]
        entering = rollout.admitted(spec, rows, (r for r in up if not r.stands_by))
        ready = [r.instance_id for r in entering if r.instance_id]
        if ready:
            self._ports.router.register(spec, ready, rollout.ports(spec, rows))
        prepared = [StandBy(r) for r in up if r.stands_by]
        late = reconcile.late(spec, rows, addresses.keys() - answering, now)
        asked_rows = {r.id: r for r in rows.replicas.values() if r.instance_id in addresses}
        heard = reconcile.heard(replace(rows, replicas=asked_rows), answering, now) if watched else []
        self._perform(_Decision(spec.service, spec, rows, [*prepared, *late, *heard])).raise_first()

    def _measure(self, spec: ServiceSpec, seen: Observation, target: OngoingTarget) -> None:
        """Ask the replicas that serve how many requests they have, and report it.

        The next tick goes by it: what waits for replicas that don't answer comes last in a tick.
        """
        serving = [r for r in seen.rows.replicas.values() if r.serves]
        if not serving:
            return
        listening = rollout.ports(spec, seen.rows)
        instances = (seen.instances.get(r.instance_id or "") for r in serving)
        asked = {
            i.id: (i.address, listening[i.id]) for i in instances if i and i.address and i.id in listening
        }
        try:
            told = self._ports.prober.ongoing(spec.service, target, asked)
        except PortError as error:
            self._ports.telemetry.record("ongoing_unknown", service=spec.service, error=repr(error))
            launching.count_denied(self._ports, error)
            told = Ongoing()
        self._reporting.ongoing(spec.service, told, len(serving))

    def _tell(self, spec: ServiceSpec, rows: Rows) -> None:
        """Tell the outside what happened, and count what is measured from beginning to end.

        It is counted with the record of having told it, so only once; and told before, so at least once.
        Nothing of it fails a tick.
        """
        store, service = self._ports.store, spec.service
        try:
            unaccounted = news.unaccounted(rows)
            ended = store.ended(service, unaccounted) if unaccounted else ()
            new = news.since(rows, ended, service, spec.replicas, self._ports.clock.now())
            if new.begins_gap(rows.told):
                # On record first: by the next tick it may be over, and who heard of it must hear that, too.
                first = news.with_unsent(new, {notice.id for notice in new.notices})
                store.note_told(service, first)
                self._reporting.news(service, new)
                told = news.with_unsent(new, self._publish(service, new.notices))
                store.note_told(service, replace(told, revision=first.revision + 1))
                return
            told = news.with_unsent(new, self._publish(service, new.notices))
            if told != rows.told:
                store.note_told(service, told)
            self._reporting.news(service, new)
        except PortError as error:
            self._ports.telemetry.record("not_told", service=service, error=repr(error))
            launching.count_denied(self._ports, error)

    def _publish(self, service: str, notices: Sequence[Notice]) -> Collection[str]:
        """Send events; the IDs of those to be sent again."""
        if not notices:
            return ()
        try:
            refused = self._ports.notices.publish(notices)
        except PortError as error:  # perhaps some were sent: then they come twice
            launching.count_denied(self._ports, error)
            refused = {notice.id: repr(error) for notice in notices}
        self._reporting.unsent(service, refused)
        return refused.keys()

    def _appraise(self, spec: ServiceSpec, seen: Observation) -> None:
        """Count what is known of the service's pools, and what its instances cost."""
        clock = self._ports.clock
        try:
            memory = self._ports.store.recall(spec.service, spec.region, clock.now())
        except PortError as error:  # nobody decides by it
            self._ports.telemetry.record("not_appraised", service=spec.service, error=repr(error))
            launching.count_denied(self._ports, error)
            return
        self._reporting.pools(spec, memory, clock.now())
        self._reporting.costs(spec.service, seen, memory)

    def _perform(self, decision: _Decision) -> _Outcome:
        """Carry the actions out, as far as their rows haven't changed since they were read."""
        service, spec, signals = decision.service, decision.spec, decision.signals
        now = self._ports.clock.now()
        wanted = changes.changes(service, spec, decision.rows, decision.actions, now, self._ports.new_id)
        outcome = _Outcome()
        # Not past one that is lost: the rest was decided together with it, and would fit by chance at most.
        committed = list(takewhile(partial(self._commit, outcome), wanted))
        if held := sum(change.held for change in committed):
            self._ports.telemetry.count(Metric.LAUNCHES_HELD, held, service=service)
            self._ports.telemetry.record("launches_held", service=service, replicas=held)
        won = {r.id: r for change in committed for r in (*change.create, *change.update)}
        done = [a for a in decision.actions if _is_won(a, won)]
        leaving = [a.takes_out for a in done if a.takes_out]
        out: dict[str, datetime] = {}
        is_out = True
        try:
            if spec:
                self._attempt(outcome, "look_again", lambda: self._call_back(spec, done))
                ports = self._registered_ports(outcome, spec, decision.rows, leaving)
                is_out = self._take_out(outcome, spec, leaving, ports, out)
                self._attempt(outcome, "register", lambda: self._enter(decision, spec, done, ports))
                # Before the launches: it is what serves first.
                self._attempt(outcome, "start", lambda: self._start(spec, done, committed))
                self._attempt(
                    outcome,
                    "launch",
                    lambda: self._launch_and_tell(spec, decision.rows, done, committed, signals),
                )
                # Once more what a tick may have been about to register when the warning came.
                settled = interruption.settled(decision.rows, now)
                again = [i for i in leaving if i not in settled] if signals else []
                self._take_out(outcome, spec, again, ports, out)
        finally:
            for action in done:
                self._reporting.done(service, action)
            if out:
                self._ports.telemetry.count(Metric.DEREGISTERED, len(out), service=service)
                self._reporting.since_warning(Metric.WARNING_TO_DEREGISTERED_MS, service, signals, out)
            if any(not isinstance(action, HoldBack) for action in done):
                self._attempt(
                    outcome, "announce", lambda: self._announce_tick(service, self._soon(), decision.serving)
                )
        if stops := [a.stops for a in done if a.stops]:
            self._attempt(outcome, "stop", lambda: self._stop(service, stops))
        # What the load balancer may still send requests to waits; what never became ready gets none.
        stuck = set() if is_out else set(leaving)
        ended = [a for a in done if isinstance(a, Fail) or a.terminates not in stuck]
        slots_ended = {a.terminates for a in ended if a.terminates}
        left = {**decision.rows.replicas, **won}
        left = {id_: row for id_, row in left.items() if not row.state.is_ended}
        if terminate := slots.free(replace(decision.rows, replicas=left), slots_ended):
            self._attempt(outcome, "terminate", lambda: self._terminate(service, terminate))
        return outcome

    def _registered_ports(
        self, outcome: _Outcome, spec: ServiceSpec, rows: Rows, leaving: Collection[str]
    ) -> Mapping[str, int]:
        """By instance, what its server listens on; the load balancer knows it of whom the rows don't say it.

        Those are of before rows said it, or have none any more.
        """
        listens_on = {r.instance_id: r.listens_on for r in rows.replicas.values()}
        known = {slot: port for slot, port in listens_on.items() if slot and port}
        if any(r.instance_id and not r.port for r in rows.replicas.values()):
            known = rollout.ports(spec, rows)
        asked: dict[str, int] = {}
        if not known.keys() >= set(leaving):
            self._attempt(outcome, "ports", lambda: asked.update(self._ports.router.ports(spec)))
        return asked | known

    def _attempt(self, outcome: _Outcome, step: str, act: Callable[[], object]) -> bool:
        """Take a step; what fails (False) is for the next ones no reason not to be taken."""
        try:
            act()
        except PortError as error:
            self._note_trouble(outcome, step, error)
            return False
        return True

    def _note_trouble(self, outcome: _Outcome, step: str, error: PortError) -> None:
        outcome.troubles.append(error)
        is_denied = isinstance(error, Denied)
        self._ports.telemetry.record("denied" if is_denied else "step_failed", step=step, error=str(error))
        launching.count_denied(self._ports, error)

    def _call_back(self, spec: ServiceSpec, done: Sequence[Action]) -> None:
        """Have somebody look again at what serves on when its time has come, whatever else happens."""
        clock, ticker = self._ports.clock, self._ports.ticker
        began = clock.now()
        warned = (a.warned_at for a in done if isinstance(a, ServeOn | LookAgain))
        due = sorted({at for warned_at in warned for at in rotation.looks_due(spec, warned_at)})
        # Those that are due in the same second are one look, for the last of them.
        looks = {ceil(max((at - began).total_seconds(), 0)): at for at in due}
        for at in looks.values():
            # As of now: a call that takes long makes none after it late.
            ticker.schedule_leave(spec.service, max(ceil((at - clock.now()).total_seconds()), 0))

    def _take_out(
        self,
        outcome: _Outcome,
        spec: ServiceSpec,
        instance_ids: Sequence[str],
        ports: Mapping[str, int],
        out: dict[str, datetime],
    ) -> bool:
        """Take instances out of rotation; `out` comes to say since when they are, if they are for certain."""
        is_done = self._attempt(outcome, "deregister", lambda: self._deregister(spec, instance_ids, ports))
        if is_done:
            now = self._ports.clock.now()
            for instance_id in instance_ids:
                out.setdefault(instance_id, now)
        return is_done

    def _deregister(self, spec: ServiceSpec, instance_ids: Sequence[str], ports: Mapping[str, int]) -> None:
        if instance_ids:
            self._ports.router.deregister(spec, instance_ids, ports)

    def _terminate(self, service: str, instance_ids: Sequence[str]) -> None:
        for instance_id, why in self._ports.fleet.terminate(instance_ids).items():
            self._ports.telemetry.count(Metric.CALLS_DENIED)
            self._ports.telemetry.record(
                "denied", step="terminate", service=service, instance_id=instance_id, error=why
            )

    def _start(self, spec: ServiceSpec, done: Sequence[Action], committed: Sequence[Changes]) -> None:
        """Start the instances of the standbys that are resumed."""
        # One that has slept on may be given up by the same tick.
        if starts := {a.starts for a in done if a.starts} - {a.takes_out for a in done}:
            written = [r for change in committed for r in change.stored if r.instance_id in starts]
            rows = {r.id: r for r in written if not r.state.is_ended}
            # One that is asked again was resumed before: its row is the one that was read.
            again = {a.replica.id: a.replica for a in done if isinstance(a, StartInstance)}
            launching.resume(self._ports, spec, starts, list((again | rows).values()))

    def _stop(self, service: str, instance_ids: Sequence[str]) -> None:
        for instance_id, why in self._ports.fleet.stop(instance_ids).items():
            self._ports.telemetry.count(Metric.CALLS_DENIED)
            self._ports.telemetry.record(
                "denied", step="stop", service=service, instance_id=instance_id, error=why
            )

    def _commit(self, outcome: _Outcome, change: Changes) -> bool:
        """Write it; False if it wasn't, or nobody knows. What was written before is carried out anyway."""
        try:
            self._ports.store.commit(change)
        except Conflict as conflict:
            self._ports.telemetry.count(Metric.CONFLICTS, service=change.service)
            self._ports.telemetry.record("conflict", service=change.service, detail=str(conflict))
            outcome.is_won = False
            return False
        except PortError as error:
            self._note_trouble(outcome, "commit", error)
            return False
        return True

    def _enter(
        self, decision: _Decision, spec: ServiceSpec, done: Sequence[Action], ports: Mapping[str, int]
    ) -> None:
        """Register what runs; what has a readiness probe once it answers that, see `_probe`."""
        entering = Register if spec.readiness_probe else (Start, Register)
        leaving = {a.takes_out for a in done}
        coming = (a.replica.instance_id for a in done if isinstance(a, entering))
        # What a few rows don't tell the port of, the tick puts in.
        entrants = [i for i in coming if i and i not in leaving and (i in ports or decision.rows.is_whole)]
        if entrants:
            self._ports.router.register(spec, entrants, ports)

    def _launch_and_tell(
        self,
        spec: ServiceSpec,
        rows: Rows,
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
        known = rows.replicas.values()
        launched_count = 0
        for order in orders:
            its = rollout.of_version(spec, rows, order.to_launch[0].version)
            launched_count += launching.launch(self._ports, its, order, memory, known)
        if launched_count:
            launched = dict.fromkeys((s.instance_id for s in signals), self._ports.clock.now())
            self._reporting.since_warning(Metric.WARNING_TO_LAUNCHED_MS, spec.service, signals, launched)
        if lessons:
            try:
                store.cool(lessons)
            except PortError as error:
                launching.note_lost(self._ports, spec.service, error)

    def _soon(self) -> datetime:
        return self._ports.clock.now() + seconds(timing.TICK_IN_TRANSITION_S)

    def _announce_tick(self, service: str, due: datetime, serving: datetime | None) -> None:
        now = self._ports.clock.now()
        if self._ports.store.claim_tick(service, due, now, serving):
            self._ports.ticker.schedule(service, due, (due - now).total_seconds())


def _in_effect(spec: ServiceSpec, rows: Rows, now: datetime) -> ServiceSpec:
    """The document that decisions go by: the deployed one, but for what operators ask for."""
    wanted = rollout.in_effect(spec, rows) if rows.rollback else spec
    return desired.in_effect(wanted, rows.requests, now)


def _is_won(action: Action, won: Mapping[int, Replica]) -> bool:
    """Whether what the action writes was written; one that writes nothing always is."""
    if isinstance(action, TakeIn):
        return any(row.instance_id == action.instance.id for row in won.values())
    return action.writes is None or action.writes.id in won
