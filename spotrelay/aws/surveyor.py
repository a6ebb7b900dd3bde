"""`ports.Surveyor` on EC2 and AWS's price list."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import TypeVar

from spotrelay.aws.clients import Clients
from spotrelay.aws.offers import Offers
from spotrelay.aws.prices import Prices
from spotrelay.aws.scores import LEAST_TYPES, Scores
from spotrelay.model import CapacityPool, ServiceSpec, Survey
from spotrelay.names import Metric
from spotrelay.ports import Denied, PortError, Telemetry
from spotrelay.requirements import Requirements, find

T = TypeVar("T")


class AwsSurveyor:
    """See `ports.Surveyor`."""

    def __init__(
        self, clients: Clients, telemetry: Telemetry, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._offers = Offers(clients, monotonic_s)
        self._prices = Prices(clients, monotonic_s)
        self._scores = Scores(clients)
        self._telemetry = telemetry

    def survey(self, spec: ServiceSpec, now: datetime) -> Survey:
        """See `ports.Surveyor.survey`."""
        wanted = spec.asked
        pools = self._pools(spec, wanted)
        types = tuple(dict.fromkeys(pool.instance_type for pool in pools))
        is_spot = spec.use_spot and bool(pools)
        return Survey(
            service=spec.service,
            asked=wanted,
            at=now,
            pools=pools,
            on_demand_prices=self._on_demand_prices(spec, types),
            spot_prices=self._spot_prices(spec, pools, types, now) if is_spot else {},
            scores=self._zone_scores(spec, wanted, types) if is_spot else {},
        )

    def _pools(self, spec: ServiceSpec, wanted: Requirements) -> tuple[CapacityPool, ...]:
        """Types in their order of preference, zones within a type; without them there is nothing to say."""
        types = [type_.name for type_ in find(wanted, self._offers.types(wanted)).types]
        if not types:
            return ()
        offered = self._offers.types_by_zone(types)
        zones = _zones(spec, wanted)
        return tuple(
            CapacityPool(spec.region, zone, type_)
            for type_ in types
            for zone in zones
            if type_ in offered.get(zone, ())
        )

    def _on_demand_prices(self, spec: ServiceSpec, types: Collection[str]) -> Mapping[str, float]:
        found: dict[str, float] = {}

        def ask() -> None:
            for type_ in types:
                price = self._prices.on_demand(spec.region, type_)
                if price is not None:
                    found[type_] = price

        # What was found before a refusal is found.
        self._asked(spec, "on-demand prices", ask)
        if missing := [type_ for type_ in types if type_ not in found]:
            self._telemetry.record("prices_missing", service=spec.service, types=missing)
        return found

    def _spot_prices(
        self, spec: ServiceSpec, pools: Collection[CapacityPool], types: Collection[str], now: datetime
    ) -> Mapping[CapacityPool, float]:
        prices = self._asked(spec, "Spot prices", lambda: self._prices.spot(spec.region, types, now)) or {}
        return {pool: prices[pool] for pool in pools if pool in prices}

    def _zone_scores(
        self, spec: ServiceSpec, wanted: Requirements, types: Collection[str]
    ) -> Mapping[str, int]:
        if len(types) < LEAST_TYPES:
            self._telemetry.record(
                "scores_not_asked",
                service=spec.service,
                why=f"{len(types)} instance types: with fewer than {LEAST_TYPES} every score is low",
            )
            return {}
        capacity = max(1, spec.replicas - spec.base_on_demand)
        if len(wanted.regions) > 1:
            self._region_scores(spec, wanted, types, capacity)

        def ask() -> Mapping[str, int]:
            ids = self._offers.zone_ids()
            scores = self._scores.by_zone(spec.region, types, capacity)
            zones = _zones(spec, wanted)
            return {zone: scores[ids[zone]] for zone in zones if ids.get(zone) in scores}

        scores = self._asked(spec, "zone scores", ask)
        if scores is not None and not scores:
            self._unanswered(spec, "zone scores", "EC2 gave no score for any zone of the service")
        return scores or {}

    def _region_scores(
        self, spec: ServiceSpec, wanted: Requirements, types: Collection[str], capacity: int
    ) -> None:
        """For people: a service runs in one region, and this tells where else it might."""
        scores = self._asked(
            spec, "region scores", lambda: self._scores.by_region(wanted.regions, types, capacity)
        )
        if scores:
            self._telemetry.record("region_scores", service=spec.service, scores=dict(scores))

    def _asked(self, spec: ServiceSpec, what: str, ask: Callable[[], T]) -> T | None:
        """The answer; None where AWS refuses one or gives none, which is counted and on record."""
        try:
            return ask()
        except Denied as error:
            self._telemetry.count(Metric.SURVEY_REFUSED)
            self._telemetry.record("survey_refused", service=spec.service, asked_for=what, error=str(error))
        except PortError as error:
            self._unanswered(spec, what, repr(error))
        return None

    def _unanswered(self, spec: ServiceSpec, what: str, error: str) -> None:
        self._telemetry.count(Metric.SURVEY_UNANSWERED)
        self._telemetry.record("survey_unanswered", service=spec.service, asked_for=what, error=error)


def _zones(spec: ServiceSpec, wanted: Requirements) -> list[str]:
    """The zones of the service's subnets that its file allows."""
    return [zone for zone in dict.fromkeys(spec.subnets.values()) if wanted.allows_zone(zone)]
