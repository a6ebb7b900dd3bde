"""Asks the replicas themselves: whether they are ready, and how many requests they have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spotrelay.plane.control.performing import Decision, Performer
from spotrelay.plane.control.reporting import Reporting
from spotrelay.plane.core.answers import Answers
from spotrelay.plane.core.instances import Instance
from spotrelay.plane.core.ports import PortError, Ports
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.scaling import Ongoing, OngoingTarget, OngoingTotal
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.placement import launching
from spotrelay.plane.serving import changes, reconcile, rollout, silence, starts, steps, trouble
from spotrelay.plane.serving.observation import Observation


class Probing:
    """Asks replicas, last in a tick, because what doesn't answer takes its time-out."""

    def __init__(self, ports: Ports, reporting: Reporting, performer: Performer) -> None:
        self._ports = ports
        self._reporting = reporting
        self._performer = performer

    def probe(
        self, spec: ServiceSpec, seen: Observation, watched: Mapping[int, Instance]
    ) -> Sequence[Replica]:
        """Put into rotation what answers the readiness probe, and give up what doesn't and is overdue.

        What serves and doesn't answer is only noted. Last, because a probe may take its time-out. Those that
        answered for the first time come back.
        """
        waiting = {**reconcile.awaiting_probe(spec, seen), **watched}
        by_version: dict[int, dict[str, str]] = defaultdict(dict)
        for id_, instance in waiting.items():
            if instance.address:
                by_version[seen.rows.replicas[id_].version][instance.id] = instance.address
        addresses: dict[str, str] = {}
        answers = Answers()
        serving = {instance.id for instance in watched.values()}
        entitled: set[str] = set()
        for version, asked in by_version.items():
            try:
                its = rollout.of_version(spec, seen.rows, version)
                answers |= self._ports.prober.ask(its, asked, serving & asked.keys())
            except PortError as error:  # nobody was asked: nobody is late for it
                launching.note_failed(self._ports, "probe_failed", spec.service, error)
                entitled |= reconcile.trusted(spec, seen, asked, self._ports.clock.now())
            else:
                addresses |= asked
        if not (addresses or entitled):
            return ()
        answering = answers.answering
        self._ports.telemetry.record(
            "probed",
            service=spec.service,
            answering=sorted(answering),
            silent=sorted(addresses.keys() - answering),
            refusing=sorted(answers.refusing),
            crashing=sorted(id_ for id_, told in answers.trouble.items() if told.is_crash),
        )
        entitled |= answering
        asked_at = now = self._ports.clock.now()
        is_news = trouble.told(_starting(seen.rows), answers)
        if not (entitled or watched or is_news or reconcile.late(spec, seen.rows, addresses, now)):
            return ()
        # Much may have happened since: this very tick may have drained one, and a probe takes seconds.
        asked_of = seen.read.replicas if rollout.changes_at_once(spec) else waiting
        rows = self._ports.store.read(spec.service, asked_of.keys())
        rows = replace(rows, document=seen.rows.document, earlier=seen.rows.earlier)
        starting = _starting(rows)
        up = [r for r in starting if r.instance_id in entitled]
        entering = rollout.admitted(spec, rows, (r for r in up if not r.stands_by))
        ready = [r.instance_id for r in entering if r.instance_id]
        if ready:
            # Of a few rows not all may say their port, where their document is lost: all of them tell.
            self._ports.router.register(spec, ready, rollout.ports(spec, seen.rows))
        registered_at = self._ports.clock.now()
        told, now = trouble.told(starting, answers), registered_at
        left = changes.after(spec, rows, told, now)
        first = starts.first_answers(starting, answering)
        answered = {r.id for r in first}
        registered = {r.id for r in entering}
        told += starts.noted(_starting(left), answered, registered, asked_at, registered_at)
        # What ends or stands by does so with what it has told.
        left = changes.after(spec, rows, told, now)
        prepared = [
            steps.stand_by(left.replicas[r.id], now) for r in up if r.stands_by and r.instance_id in answering
        ]
        late = reconcile.late(spec, left, addresses.keys() - answering, now)
        asked_rows = {r.id: r for r in rows.replicas.values() if r.instance_id in addresses}
        heard = silence.heard(spec, replace(rows, replicas=asked_rows), answers, now) if watched else []
        self._performer.perform(
            Decision(spec.service, spec, rows, [*told, *prepared, *late, *heard])
        ).raise_first()
        return first

    def measure(self, spec: ServiceSpec, seen: Observation, target: OngoingTarget) -> None:
        """Ask the replicas that serve how many requests they have, and put it on record.

        The next tick goes by it: what waits for replicas that don't answer comes last in a tick.
        """
        serving = [r for r in seen.rows.replicas.values() if r.serves]
        if not serving:
            return
        listening = rollout.ports(spec, seen.rows)
        instances = (seen.instance_of(r) for r in serving)
        asked = {
            i.id: (i.address, listening[i.id]) for i in instances if i and i.address and i.id in listening
        }
        ports, service = self._ports, spec.service
        try:
            told = ports.prober.ongoing(service, target, asked)
        except PortError as error:
            launching.note_failed(ports, "ongoing_unknown", service, error)
            told = Ongoing()
        total = OngoingTotal(
            ports.clock.now(), sum(told.requests.values()), len(serving) - len(told.requests)
        )
        self._reporting.ongoing(service, told, total)
        try:
            ports.store.note_ongoing(service, total)
        except PortError as error:
            launching.note_failed(ports, "ongoing_not_kept", service, error)


def _starting(rows: Rows) -> list[Replica]:
    return [r for r in rows.replicas.values() if r.state is ReplicaState.STARTING]
