"""What instances cost: Spot from EC2's price history, on-demand from AWS's price list. USD per hour."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from spotrelay.plane.aws.clients import Clients, Kept
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.pools import CapacityPool

LIST_KEPT_S = 24 * 3600.0
"""List prices change a few times a year."""

LINUX = "Linux/UNIX"

PLAIN_LINUX = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    # The list also has prices for reserved capacity that lies idle, and for capacity blocks.
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
"""What the price list is filtered by: one product for each type and region is left."""


class Prices:
    """Asks for both, and keeps list prices."""

    def __init__(self, clients: Clients, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._clients = clients
        self._listed: Kept[tuple[str, str], float | None] = Kept(LIST_KEPT_S, monotonic_s)

    def spot(self, region: str, types: Collection[str], now: datetime) -> Mapping[CapacityPool, float]:
        """The present price of every pool of the types; of each pool EC2 shows the last change."""
        return {pool: max(changes)[1] for pool, changes in self.spot_since(region, types, now).items()}

    def spot_since(
        self, region: str, types: Collection[str], start: datetime
    ) -> Mapping[CapacityPool, Sequence[tuple[datetime, float]]]:
        """Every change of the types' prices since then, and before it the last one of each pool."""
        found: dict[CapacityPool, list[tuple[datetime, float]]] = {}
        if not types:
            return found  # EC2 would tell of every type that it has
        with translated():
            pages = self._clients.ec2_surveying.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=sorted(types),  # type: ignore[arg-type]  # types are newer than any list of them
                ProductDescriptions=[LINUX],
                StartTime=start,
            )
            for page in pages:
                for row in page["SpotPriceHistory"]:
                    pool = CapacityPool(region, row["AvailabilityZone"], row["InstanceType"])
                    found.setdefault(pool, []).append((row["Timestamp"], float(row["SpotPrice"])))
        return found

    def on_demand(self, region: str, instance_type: str) -> float | None:
        """The list price; None if the list hasn't got it in dollars."""
        return self._listed.get((region, instance_type), lambda: self._listed_price(region, instance_type))

    def _listed_price(self, region: str, instance_type: str) -> float | None:
        # One type at a time: a plain match is the one filter that every version of the API has.
        wanted = {"regionCode": region, "instanceType": instance_type, **PLAIN_LINUX}
        with translated():
            pages = self._clients.pricing.get_paginator("get_products").paginate(
                ServiceCode="AmazonEC2",
                Filters=[
                    {"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()
                ],
            )
            prices = [
                price
                for page in pages
                for entry in page["PriceList"]
                for price in hourly_usd(json.loads(entry))
            ]
        # More than one would be the same product under another name, and none of them dearer by a mistake.
        return min(prices, default=None)


def hourly_usd(product: Mapping[str, Any]) -> list[float]:
    """A product's on-demand prices in dollars an hour, as the price list has them."""
    # {"product": {"attributes": {"instanceType": "g5.xlarge", …}}, "terms": {"OnDemand": {"<sku>.<offer>":
    #   {"priceDimensions": {"<sku>.<offer>.<rate>": {"unit": "Hrs", "pricePerUnit": {"USD": "1.006"}}}}}}}
    terms: Mapping[str, Any] = product.get("terms", {}).get("OnDemand", {})
    prices = [
        float(dimension["pricePerUnit"]["USD"])
        for term in terms.values()
        for dimension in term["priceDimensions"].values()
        if dimension.get("unit") == "Hrs" and "USD" in dimension["pricePerUnit"]
    ]
    return [price for price in prices if price > 0]
