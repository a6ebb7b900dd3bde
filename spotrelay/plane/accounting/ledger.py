"""Keeps each service's days: what was spent outlives the rows that it was worked out from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from spotrelay.plane.accounting import days
from spotrelay.plane.accounting.ports import Days, InstancePrices, RowReader
from spotrelay.plane.core.pools import PriceKind
from spotrelay.plane.core.ports import Clock, OtherControlPlane, Services, Telemetry
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.events.ticks import parse_tick

ROWS = 5000
"""Ended replicas that are looked at: two days of a loss every half minute."""


class NotAccountedError(Exception):
    """Services whose days couldn't be written, and why; the others' were."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Writes the days that aren't closed, anew each time: nothing is lost if that fails for a week."""

    services: Services
    store: RowReader
    days: Days
    prices: InstancePrices
    telemetry: Telemetry
    clock: Clock

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Write every service's days with the schedule's event; a deployment is no reason to.

        Raises:
            MalformedTickError: it is neither.
            NotAccountedError: see `write`.
        """
        if parse_tick(json.dumps(event)).service is None:
            self.write(self.services.names())

    def write(self, services: Iterable[str]) -> None:
        """Write the open days of each service; one that isn't deployed any more is passed over.

        Raises:
            NotAccountedError: some failed. The rest are done with all the same.
        """
        failed: dict[str, str] = {}
        for service in services:
            try:
                spec = self.services.get(service)
                if spec is not None:
                    self._write(spec)
            except OtherControlPlane as error:
                self.telemetry.record("not_accounted", service=service, why=str(error))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this service's, and raised at the end
                self.telemetry.record("accounting_failed", service=service, error=repr(error))
                failed[service] = repr(error)
        if failed:
            raise NotAccountedError("; ".join(f"{service}: {why}" for service, why in failed.items()))

    def written_until(self, service: str) -> datetime | None:
        """The time up to which the service's days are told; None if there is none of today or yesterday.

        Raises:
            PortError: nobody can say.
        """
        kept = (self.days.get(service, day) for day in reversed(days.open_days(self.clock.now())))
        return next((day.until for day in kept if day), None)

    def _write(self, spec: ServiceSpec) -> None:
        service, now = spec.service, self.clock.now()
        # In this order: a replica that ends in between is read twice, never missed.
        present = self.store.load(service).replicas
        ended = {r.id: r for r in self.store.history(service, ROWS)}
        rows = {**present, **ended}.values()
        memory = self.store.recall(service, spec.region, now)
        begun = min((min(r.entered.values()) for r in rows), default=now).astimezone(UTC).date()
        unfinished = days.unfinished(lambda day: self.days.get(service, day), begun, now)
        open_days = [*unfinished, *days.open_days(now)]
        begin, _ = days.bounds(open_days[0])
        surveyed = memory.survey.pools if memory.survey else spec.pools
        used = [r.offering for r in rows if r.offering and (not r.state.is_ended or r.since >= begin)]
        types = {pool.instance_type for pool in (*surveyed, *(offering.pool for offering in used))}
        # It may have been bought otherwise when the day began.
        options = (spec.purchase_option, *(offering.purchase_option for offering in used))
        is_market = any(option.price_kind is PriceKind.MARKET for option in options)
        changes = self.prices.spot_since(spec.region, types, begin) if is_market and types else {}
        spot = {pool: sorted(of_pool) for pool, of_pool in changes.items()}
        its = {offering.pool.instance_type for offering in used}
        on_demand = days.list_prices(memory.survey, its, partial(self.prices.on_demand, spec.region))
        for day in open_days:
            found = days.of(service, day, rows, memory, spot, on_demand, now, spec.disk_usd_per_hour)
            self.days.note(found.with_scores_of(self.days.get(service, day)))
