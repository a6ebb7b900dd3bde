"""Tells the outside what became of a service: events, metrics of its losses, its pools and its costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from spotrelay.control.reporting import Reporting
from spotrelay.core.notices import Notice
from spotrelay.core.ports import PortError, Ports
from spotrelay.core.rows import Rows
from spotrelay.core.spec import ServiceSpec
from spotrelay.placement import launching
from spotrelay.serving import mending, news
from spotrelay.serving.observation import Observation


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

    def appraise(self, spec: ServiceSpec, seen: Observation) -> None:
        """Count what is known of the service's pools, what its instances cost, and what is to be mended."""
        clock = self._ports.clock
        try:
            memory = self._ports.store.recall(spec.service, spec.region, clock.now())
        except PortError as error:  # nobody decides by it
            launching.note_failed(self._ports, "not_appraised", spec.service, error)
            return
        self._reporting.pools(spec, memory, clock.now())
        self._reporting.costs(spec.service, seen, memory)
        self._reporting.to_mend(spec.service, mending.of_surveys(seen.rows, memory.survey, clock.now()))

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
