"""`ports.Surveyor` on EC2 and AWS's price list."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from spotrelay.plane.aws import announcements, images
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.offers import Offers
from spotrelay.plane.aws.prices import Prices
from spotrelay.plane.aws.quotas import Quotas
from spotrelay.plane.aws.scores import Scores
from spotrelay.plane.core.asking import Asking
from spotrelay.plane.core.instance_types import InstanceType
from spotrelay.plane.core.mending import FindingKind
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import LEAST_TYPES, CapacityPool, Image, PriceKind, Survey
from spotrelay.plane.core.ports import Telemetry
from spotrelay.plane.core.quotas import Quota, shortages
from spotrelay.plane.core.requirements import Requirements, find
from spotrelay.plane.core.spec import ServiceSpec


class AwsSurveyor:
    """`ports.Surveyor`, by EC2's answers and AWS's price list."""

    def __init__(
        self,
        clients: Clients,
        telemetry: Telemetry,
        monotonic_s: Callable[[], float] = time.monotonic,
        vcpus_of: Callable[[Quota], float] | None = None,
    ) -> None:
        self._clients = clients
        self._offers = Offers(clients, monotonic_s)
        self._prices = Prices(clients, monotonic_s)
        self._scores = Scores(clients)
        self._vcpus_of = vcpus_of or Quotas(clients).value
        self._telemetry = telemetry

    def survey(self, spec: ServiceSpec, now: datetime) -> Survey:
        wanted, asking = spec.asked, Asking(spec.service, self._telemetry)
        eligible = [
            (type_, choice)
            for choice in wanted.within(spec.region).choices
            for type_ in find(choice, self._offers.types(choice)).types
        ]
        pools = self._pools(spec, eligible)
        types = tuple(dict.fromkeys(pool.instance_type for pool in pools))
        self._look_at_quotas(spec, asking, [type_ for type_, _ in eligible if type_.name in types])
        option = spec.purchase_option
        on_demand_prices = self._on_demand_prices(spec, asking, types)
        spot_prices = (
            self._spot_prices(spec, asking, pools, types, now)
            if pools and option.price_kind is PriceKind.MARKET
            else {}
        )
        scores, elsewhere = self._all_scores(spec, asking, types) if pools and option.is_scored else ({}, {})
        return Survey(
            service=spec.service,
            asked=wanted,
            at=now,
            pools=pools,
            on_demand_prices=on_demand_prices,
            spot_prices=spot_prices,
            scores=scores,
            elsewhere=elsewhere,
            findings=tuple(asking.findings),
        )

    def images(self, spec: ServiceSpec, versions: Collection[int]) -> Mapping[int, Image]:
        ids = images.of_versions(self._clients, spec.launch_template_id, versions)
        made = images.made_at(self._clients, set(ids.values()))
        return {version: Image(id_, made.get(id_)) for version, id_ in ids.items()}

    def announced(self) -> Mapping[str, str]:
        return announcements.announced(self._clients)

    def _pools(
        self, spec: ServiceSpec, eligible: Sequence[tuple[InstanceType, Requirements]]
    ) -> tuple[CapacityPool, ...]:
        """Types in their order of preference, zones within a type; without them there is nothing to say."""
        if not eligible:
            return ()
        offered = self._offers.types_by_zone({type_.name for type_, _ in eligible})
        pools = (
            CapacityPool(spec.region, zone, type_.name)
            for type_, choice in eligible
            for zone in _zones(spec, choice)
            if type_.name in offered.get(zone, ())
        )
        # Two alternatives may have the same pool.
        return tuple(dict.fromkeys(pools))

    def _look_at_quotas(self, spec: ServiceSpec, asking: Asking, types: Collection[InstanceType]) -> None:
        """For people: who deploys into a new account learns here that nothing can be launched, and why."""

        def ask() -> None:
            for short in shortages(spec, {type_.name: type_.vcpus for type_ in types}, self._vcpus_of):
                self._telemetry.count(Metric.QUOTAS_SHORT)
                asking.found(
                    FindingKind.QUOTA_SHORT,
                    f"{short.option}: {short}; {short.remedy(spec.region)}",
                    purchase_option=str(short.option),
                    quota=str(short.quota),
                    vcpus=short.vcpus,
                    needed=short.needed,
                    remedy=short.remedy(spec.region),
                )

        if types:
            asking.ask("quotas", ask)

    def _on_demand_prices(
        self, spec: ServiceSpec, asking: Asking, types: Collection[str]
    ) -> Mapping[str, float]:
        found: dict[str, float] = {}

        def ask() -> None:
            for type_ in types:
                price = self._prices.on_demand(spec.region, type_)
                if price is not None:
                    found[type_] = price

        # What was found before a refusal is found.
        asking.ask("on-demand prices", ask)
        if missing := [type_ for type_ in types if type_ not in found]:
            self._telemetry.record("prices_missing", service=spec.service, types=missing)
        return found

    def _spot_prices(
        self,
        spec: ServiceSpec,
        asking: Asking,
        pools: Collection[CapacityPool],
        types: Collection[str],
        now: datetime,
    ) -> Mapping[CapacityPool, float]:
        prices = asking.ask("Spot prices", lambda: self._prices.spot(spec.region, types, now)) or {}
        return {pool: prices[pool] for pool in pools if pool in prices}

    def _all_scores(
        self, spec: ServiceSpec, asking: Asking, types: Collection[str]
    ) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Of the service's zones, and of where it might be besides: other zones and regions."""
        wanted = spec.asked
        if len(types) < LEAST_TYPES:
            self._telemetry.record(
                "scores_not_asked",
                service=spec.service,
                why=f"{len(types)} instance types: with fewer than {LEAST_TYPES} every score is low",
            )
            return {}, {}
        regions = self._region_scores(asking, wanted, types) if len(wanted.regions) > 1 else {}

        def ask() -> Mapping[str, int]:
            names = {id_: name for name, id_ in self._offers.zone_ids().items()}
            scores = self._scores.by_zone(spec.region, types)
            return {names[id_]: score for id_, score in scores.items() if id_ in names}

        scores = asking.ask("zone scores", ask)
        zones = _zones(spec, wanted)
        found = {zone: scores[zone] for zone in zones if zone in scores} if scores else {}
        if scores is not None and not found:
            asking.unanswered("zone scores", "EC2 gave no score for any zone of the service")
        others = {zone: score for zone, score in (scores or {}).items() if zone not in spec.subnets.values()}
        return found, {**others, **regions}

    def _region_scores(
        self, asking: Asking, wanted: Requirements, types: Collection[str]
    ) -> Mapping[str, int]:
        """For people: a service runs in one region, and this tells where else it might."""
        scores = asking.ask("region scores", lambda: self._scores.by_region(wanted.regions, types))
        if scores:
            self._telemetry.record("region_scores", service=asking.service, scores=dict(scores))
        return scores or {}


def _zones(spec: ServiceSpec, wanted: Requirements) -> list[str]:
    """The zones of the service's subnets that its file allows."""
    return [zone for zone in dict.fromkeys(spec.subnets.values()) if wanted.allows_zone(zone)]
