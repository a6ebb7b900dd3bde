"""Tells the outside what became of a service: events, metrics of its losses, its pools and its costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from spotrelay.plane.control.reporting import Reporting
from spotrelay.plane.core.notices import Notice
from spotrelay.plane.core.pools import PoolMemory
from spotrelay.plane.core.ports import Conflict, PortError, Ports
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.placement import launching
from spotrelay.plane.placement.surveying import better_elsewhere
from spotrelay.plane.serving import incidents, mending, news
from spotrelay.plane.serving.observation import Observation


class Notifier:
    """Tells what happened. No decision waits for it; what isn't told now the next tick tells."""

    def __init__(self, ports: Ports, reporting: Reporting) -> None:
        self._ports = ports
        self._reporting = reporting

    def notify(self, spec: ServiceSpec, rows: Rows) -> None:
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
            launching.note_failed(self._ports, "not_told", service, error)

    def appraise(self, spec: ServiceSpec, seen: Observation) -> PoolMemory | None:
        """Count what is known of the service's pools, what its instances cost, and what is to be mended.

        None: it can't be read.
        """
        clock = self._ports.clock
        try:
            memory = self._ports.store.recall(spec.service, spec.region, clock.now())
        except PortError as error:  # nobody decides by it
            launching.note_failed(self._ports, "not_appraised", spec.service, error)
            return None
        self._reporting.pools(spec, memory, clock.now())
        self._reporting.costs(spec.service, seen, memory)
        self._reporting.to_mend(spec.service, mending.of_surveys(seen.rows, memory.survey, clock.now()))
        return memory

    def alarm(self, spec: ServiceSpec, rows: Rows, memory: PoolMemory | None) -> None:
        """Tell the service's alarms which incidents it has.

        On record first: one that was told to ring and isn't on record as ringing would ring for ever. Where
        that fails, alarms still hear what they are on record with. Nothing of it fails a tick.
        """
        survey = memory.survey if memory else None
        better = bool(better_elsewhere(survey, spec.region)) if survey else None
        now = self._ports.clock.now()
        seen = incidents.situation(spec, rows, is_better_elsewhere=better)
        told = incidents.after(rows.incidents, spec, seen, now)
        heard = told.heard
        try:
            if told.record != rows.incidents:
                self._ports.store.note_incidents(spec.service, told.record)
        except Conflict:
            return  # another tick tells them
        except PortError as error:
            launching.note_failed(self._ports, "alarms_not_told", spec.service, error)
            heard = {a: lasts for a, lasts in heard.items() if lasts == (a in rows.incidents.ringing)}
        for alarm, lasts in heard.items():
            self._ports.telemetry.tell(alarm, service=spec.service, lasts=lasts, at=now)

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
