"""What happens upon a signal: a warning, a rebalance recommendation, an instance that stopped.

Reads the replicas that it is about, decides by `serving.interruption`, and has `performing` carry that out.
What only ticks need isn't imported here: a warning waits for every import of a cold start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from spotrelay.plane.control.performing import Decision, Outcome, Performer
from spotrelay.plane.control.reporting import Reporting
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import (
    Conflict,
    OtherControlPlane,
    PortError,
    Ports,
    Unavailable,
    UnreadableDocument,
    highest_ended_id,
)
from spotrelay.plane.core.rows import Changes, Removal, Rows, has_lost_its_ids
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.events import Signal
from spotrelay.plane.placement import launching
from spotrelay.plane.serving import interruption, rollout

MAX_DECISIONS = 50
"""How often one batch of signals is decided anew after losing a race. Each loss means that another batch got
its replacements on record: of five at a time one always wins, so to lose fifty in a row is one in 70,000.
With ten it would be one in nine, and in a storm batches would come back only after their visibility time."""


class Signals:
    """Reacts to what EC2 and CloudFormation tell."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._reporting = Reporting(ports.telemetry)
        self._performer = Performer(ports, self._reporting)

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
                of_slot = signal if slot == signal.instance_id else replace(signal, instance_id=slot)
                by_service[service].append((of_slot, replica_id))
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
            due = interruption.due(wanted, rows, now, self._asked(rows, now, asked))
            outcome = self._performer.perform(Decision(service, wanted, rows, due))
            outcome.raise_first()
            asked.raise_first()
            if outcome.is_won:
                return

    def _asked(self, rows: Rows, now: datetime, outcome: Outcome) -> Mapping[str, datetime | None]:
        """What EC2 says of the last ones at their last moment: it may have taken its warning back."""
        last = {
            r.instance_id: host(r.instance_id)
            for r in interruption.last_in_rotation(rows.replicas.values())
            if r.instance_id and r.warned_at and now >= interruption.last_moment(r.warned_at)
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
            decided = interruption.decide(sightings, rows, wanted, now)
            outcome = self._performer.perform(Decision(service, wanted, rows, decided, [s for s, _ in about]))
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
        ports = self._ports
        try:
            spec = ports.services.get(service)
        except UnreadableDocument as error:
            spec = ports.store.document(service)
            what = "the last document counts" if spec else "its signals wait"
            self._reporting.held_back(service, what, str(error), "deploy the service again")
            if spec is None:
                raise Unavailable(f"{service}: no earlier document is on record ({error})") from error
        except PortError as error:
            spec = ports.store.document(service)
            if spec is None:
                raise
            launching.note_failed(ports, "document_unknown", service, error)
        return spec or ports.store.document(service)

    def _read(self, service: str, replica_ids: set[int], spec: ServiceSpec | None) -> Rows:
        """The replicas, those that are to take over from them while they still serve, and what was to move.

        All of the service's where it has standbys: one is resumed only for what nothing else comes for. Where
        what is launched may fetch its models from the others. And where instances are, or may be, shared and
        the version isn't the deployed one: how many replicas its instances host, its document says, which
        comes with all rows.
        """
        store, now = self._ports.store, self._ports.clock.now()
        rows = store.read(service, replica_ids)
        if has_lost_its_ids(rows, now):
            self._mend_ids(service)
            rows = store.read(service, replica_ids)
        others = [r for r in rows.replicas.values() if spec and r.version != spec.version]
        is_shared = bool(spec and others and spec.slots) or any(r.slots > 1 for r in others)
        needs_all = spec and (spec.may_have_standbys or spec.peers or is_shared or rows.rollback is not None)
        if needs_all:
            return store.load(service)
        related = {id_ for r in rows.replicas.values() for id_ in r.related}
        return rows if related <= replica_ids else store.read(service, replica_ids | related)

    def _mend_ids(self, service: str) -> None:
        """Raise the highest ID on record to the highest in the table: or IDs would be given twice.

        Raises:
            Conflict: somebody else did it at the same time, or gave IDs.
        """
        store = self._ports.store
        rows = store.load(service)
        highest_id = max((*rows.replicas, highest_ended_id(store, service)))
        store.commit(Changes(service, highest_id=(rows.highest_id, highest_id)))
        self._ports.telemetry.record(
            "ids_mended", service=service, was=rows.highest_id, highest_id=highest_id
        )
