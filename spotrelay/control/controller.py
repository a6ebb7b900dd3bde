"""What happens to a service upon a signal, and at each tick: gather, decide, perform.

`gathering` reads, the pure functions of `serving` decide, `performing` carries out, in its own order. A tick
then asks the replicas themselves (`probing`), and in the end, after it has let others in, tells the outside
what became of the service (`notifying`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from spotrelay.control.gathering import Gatherer
from spotrelay.control.notifying import Notifier
from spotrelay.control.performing import Decision, Outcome, Performer
from spotrelay.control.probing import Probing
from spotrelay.control.reporting import Reporting
from spotrelay.core import timing
from spotrelay.core.held import Override
from spotrelay.core.names import Metric
from spotrelay.core.ports import Conflict, OtherControlPlane, PortError, Ports, UnreadableDocument
from spotrelay.core.rows import Changes, Removal, Rows
from spotrelay.core.slots import host
from spotrelay.core.spec import ServiceSpec
from spotrelay.events import Signal
from spotrelay.placement import launching
from spotrelay.serving import interruption, reconcile, rollout, rotation, strength
from spotrelay.serving.actions import Action, HoldBack
from spotrelay.serving.holding import Holding, overridable
from spotrelay.serving.observation import Observation, has_lost_its_ids, known

MAX_DECISIONS = 50
"""How often one batch of signals is decided anew after losing a race. Each loss means that another batch got
its replacements on record: of five at a time one always wins, so to lose fifty in a row is one in 70,000.
With ten it would be one in nine, and in a storm batches would come back only after their visibility time."""


NOTHING: Mapping[str, str] = MappingProxyType({})
"""EC2 announces nothing, as far as is known."""


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
        self._gatherer = Gatherer(ports, self._reporting)
        self._performer = Performer(ports, self._reporting)
        self._probing = Probing(ports, self._reporting, self._performer)
        self._notifier = Notifier(ports, self._reporting)

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

    def tick(
        self,
        service: str,
        serving: datetime | None = None,
        override: Override | None = None,
        announced: Mapping[str, str] = NOTHING,
    ) -> None:
        """Compare what is with what should be, and close the gap; `serving` is the announced time, if any.

        `override`: a person's word for what is held back, see `holding`. `announced`: what EC2 announces for
        instances, see `ports.Announcer`; the next survey says it again.

        Raises:
            PortError: it failed.
        """
        ports = self._ports
        holder = ports.new_id()
        if not ports.store.acquire(service, holder, ports.clock.now(), timing.LEASE_S):
            if override:  # nobody says it again
                self._give_again(service, override)
            return
        done = _Round()
        try:
            try:
                due = self._reconcile(service, serving, done, override, announced)
            finally:
                ports.store.release(service, holder)
            if due:
                self._performer.announce(service, due, serving)
        finally:
            if done.spec and done.seen:
                self._notifier.notify(done.spec, done.seen.read)
                # By the minute, as CloudWatch shows it.
                if serving is None:
                    self._notifier.appraise(done.spec, done.seen)

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
            if has_lost_its_ids(rows, now):
                with suppress(Conflict):  # somebody else has just done it
                    self._mend_ids(service)
                rows = self._ports.store.load(service)
            wanted = rollout.in_effect(spec, rows, now)
            asked = Outcome(self._ports, service)
            actions = interruption.due(wanted, rows, now, self._asked(rows, now, asked))
            outcome = self._performer.perform(Decision(service, wanted, rows, actions))
            outcome.raise_first()
            asked.raise_first()
            if outcome.is_won:
                return

    def _asked(self, rows: Rows, now: datetime, outcome: Outcome) -> Mapping[str, datetime | None]:
        """What EC2 says of the last ones at their last moment: it may have taken its warning back."""
        last = {
            r.instance_id: host(r.instance_id)
            for r in rotation.last_in_rotation(rows.replicas.values())
            if r.instance_id and r.warned_at and now >= rotation.last_moment(r.warned_at)
        }
        said: dict[str, datetime | None] = {}
        if last:
            outcome.attempt("ask", lambda: said.update(self._ports.fleet.warned({*last.values()})))
        return {slot: said[instance_id] for slot, instance_id in last.items() if instance_id in said}

    def _react(self, service: str, about: Sequence[tuple[Signal, int]]) -> None:
        spec = self._document(service)
        ids = {replica_id for _, replica_id in about}
        for _ in range(MAX_DECISIONS):
            rows, now = self._read(service, ids, spec), self._ports.clock.now()
            known = ((s, rows.replicas[i]) for s, i in about if i in rows.replicas)
            # If the table was restored in between, a row may have another instance, or none: the tick sees.
            sightings = [(s, replica) for s, replica in known if replica.instance_id == s.instance_id]
            wanted = spec and rollout.in_effect(spec, rows, now)
            actions = interruption.decide(sightings, rows, wanted, now)
            outcome = self._performer.perform(Decision(service, wanted, rows, actions, [s for s, _ in about]))
            outcome.raise_first()
            if outcome.is_won:
                return
        raise Conflict(f"{service}: lost {MAX_DECISIONS} races for the same replicas")

    def _document(self, service: str) -> ServiceSpec | None:
        """The service's document, or the last one that could be read: losses are replaced in any case.

        None if it was removed.

        Raises:
            PortError: nobody can say, and another control plane had the service, or its removal was told.
        """
        ports, spec = self._ports, None
        try:
            spec = ports.services.get(service)
        except UnreadableDocument as error:
            self._reporting.held_back(
                service, "the last document counts", str(error), "deploy the service again"
            )
        except PortError as error:
            spec = ports.store.document(service)
            if spec is None:
                raise
            launching.note_failed(ports, "document_unknown", service, error)
        return spec or ports.store.document(service)

    def _read(self, service: str, replica_ids: set[int], spec: ServiceSpec | None) -> Rows:
        """The replicas, those that are to take over from them while they still serve, and what was to move.

        All of the service's where it has standbys: one is resumed only for what nothing else comes for. And
        where instances are, or may be, shared and the version isn't the deployed one: how many replicas its
        instances host, its document says, which comes with all rows.
        """
        store, now = self._ports.store, self._ports.clock.now()
        rows = store.read(service, replica_ids)
        if has_lost_its_ids(rows, now):
            self._mend_ids(service)
            rows = store.read(service, replica_ids)
        others = [r for r in rows.replicas.values() if spec and r.version != spec.version]
        is_shared = bool(spec and others and spec.slots) or any(r.slots > 1 for r in others)
        if spec and (spec.may_have_standbys or is_shared or rows.rollback is not None):
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
        highest_id = max((*rows.replicas, self._gatherer.highest_ended_id(service)))
        store.commit(Changes(service, highest_id=(rows.highest_id, highest_id)))
        self._ports.telemetry.record(
            "ids_mended", service=service, was=rows.highest_id, highest_id=highest_id
        )

    def _conclude(self, service: str, holding: Holding, outcome: Outcome) -> None:
        """Put on record what is held back, unless an override failed: it comes again, and is to find that."""
        override = holding.override if holding.let_go else None
        if override and not outcome.is_won and not outcome.troubles:
            # As after a tick that is at work: nobody says it again.
            outcome.attempt("override", lambda: self._give_again(service, override))
        elif not (override and outcome.troubles):
            self._note_held(service, holding)

    def _give_again(self, service: str, override: Override) -> None:
        """Have an override come again, unless it has often enough."""
        if override.tries >= len(timing.OVERRIDE_AGAIN_S):
            self._reporting.never_heard(service, override)
            return
        again = replace(override, tries=override.tries + 1)
        delay_s = timing.OVERRIDE_AGAIN_S[override.tries]
        self._ports.ticker.schedule_override(service, again, delay_s)

    def _note_held(self, service: str, holding: Holding) -> None:
        """Put on record what is held back, if that has changed, and say what became of an override."""
        self._reporting.overridden(service, holding)
        held = holding.record(self._ports.clock.now())
        if held == holding.before:
            return
        try:
            self._ports.store.note_held(service, held)
        except PortError as error:  # the next tick does it
            launching.note_failed(self._ports, "not_noted", service, error)

    def _reconcile(
        self,
        service: str,
        serving: datetime | None,
        done: _Round,
        override: Override | None,
        announced: Mapping[str, str],
    ) -> datetime | None:
        """One round; when another should follow, None if the minute's tick will do."""
        ports = self._ports
        rows: Rows | None = None
        try:
            rows = known(ports.store.load(service), ports.clock.now())
            holding = Holding(rows.held, override)
            deployed, is_removed = self._gatherer.deployed(service, rows, holding)
        except OtherControlPlane as error:
            self._reporting.kept_off(service, error)
            if rows is not None and rows.is_claimed:
                ports.store.note_claim(service, is_ours=False)
            return None
        counted = Outcome(ports, service)
        if deployed and deployed.scaling:
            rows = self._gatherer.with_load(counted, deployed, deployed.scaling, rows)
        spec = deployed and rollout.in_effect(deployed, rows, ports.clock.now())
        if spec is None and not is_removed:
            self._note_held(service, holding)
            return self._performer.soon() if rows.removal.told_at or holding.let_go else None
        if deployed and spec and spec.standby_auto:
            spec = replace(spec, standby=self._gatherer.standbys(counted, deployed, spec, rows))
        pools = self._gatherer.pools(counted, spec, rows)
        # The load balancer of a removed service stays until its replicas have left it, whatever it shows.
        routed = spec or rows.document
        seen = self._gatherer.look(service, routed, rows)
        seen = replace(seen, pools=pools, prices=pools.prices, announced=announced)
        now = ports.clock.now()
        actions = _decided(spec, seen, now, holding)
        done.spec, done.seen = spec, seen
        if spec:
            self._reporting.replicas(spec, rows, now)
        elif reconcile.is_gone(seen):
            ports.store.forget(service)
            return None
        outcome = self._performer.perform(Decision(service, routed, rows, actions, serving=serving))
        if spec:
            # Those that serve are asked once a minute: each probe is a request that a model answers.
            self._probing.probe(spec, seen, reconcile.watched(spec, seen) if serving is None else {})
            if serving is None and deployed and deployed.scaling and deployed.scaling.ongoing:
                self._probing.measure(spec, seen, deployed.scaling.ongoing)
        self._conclude(service, holding, outcome)
        outcome.raise_first()
        counted.raise_first()
        is_moving = any(not isinstance(action, HoldBack) for action in actions)
        return self._performer.soon() if is_moving else strength.next_look(spec, seen, ports.clock.now())


def _decided(
    spec: ServiceSpec | None, seen: Observation, now: datetime, holding: Holding
) -> Sequence[Action]:
    """Everything to do; decided once more if an override lets go on what would be held back."""

    def decide(seen: Observation) -> Sequence[Action]:
        return reconcile.decide(spec, seen, now) if spec else reconcile.retire(seen, now)

    actions = decide(seen)
    held = overridable(actions)
    return decide(replace(seen, vouched=held)) if holding.lets_go(held) else actions
