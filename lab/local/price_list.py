"""AWS's price list: what instances of the local cloud's market cost on-demand, or what was recorded of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lab.local.catalog import instance_types, on_demand_usd
from lab.local.context import Context, Handler, Result
from lab.local.environment import REGION
from lab.local.query import page
from lab.local.wire import AwsError

SERVICE = "AmazonEC2"
MAX_PRODUCTS = 100
"""The largest page of GetProducts."""

OFFER_TERM, RATE = "JRTCKXETXF", "6YS6EN2CT7"
"""AWS's codes of the on-demand term and of its hourly rate, the same for every product."""

VARIANTS: tuple[Mapping[str, str], ...] = (
    {"tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"},
    {"tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "UnusedCapacityReservation"},
    {"tenancy": "Shared", "preInstalledSw": "SQL Web", "capacitystatus": "Used"},
    {"tenancy": "Dedicated", "preInstalledSw": "NA", "capacitystatus": "Used"},
)
"""The list has each type many times over; enough to show a filter that forgets something."""

SURCHARGES = {"SQL Web": 0.07, "Dedicated": 0.05}
"""USD per hour, made up; that they are there is the point."""


def get_products(context: Context) -> Result:
    """Products that match every filter, each as JSON text."""
    context.require("pricing:GetProducts")
    params = context.params
    if params.get("ServiceCode") != SERVICE:
        raise AwsError("NotFoundException", f"The local cloud lists the prices of {SERVICE} only")
    filters = params.get("Filters", [])
    for one in filters:
        if one["Type"] != "TERM_MATCH":
            raise AwsError("InvalidParameterException", "The local cloud knows filters of TERM_MATCH only")
    wanted = {one["Field"]: one["Value"] for one in filters}
    if recorded := context.cloud.recordings.listed:
        entries = [
            product
            for product in recorded
            if all(product["product"]["attributes"].get(field) == value for field, value in wanted.items())
        ]
        return _answer(entries, params)
    # A filter by type, which everybody has, spares most of the work.
    names = [wanted["instanceType"]] if "instanceType" in wanted else sorted(instance_types())
    found = [
        attributes
        for name in names
        if name in instance_types()
        for attributes in _products(name)
        if all(attributes.get(field) == value for field, value in wanted.items())
    ]
    return _answer([_entry(attributes) for attributes in found], params)


def _answer(entries: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Result:
    shown, more = page(entries, params, most=MAX_PRODUCTS, least=1)
    return {"FormatVersion": "aws_v1", "PriceList": [json.dumps(entry) for entry in shown], **more}


HANDLERS: dict[str, Handler] = {"GetProducts": get_products}


def _products(name: str) -> list[dict[str, str]]:
    record = instance_types()[name]
    common = {
        "instanceType": name,
        "regionCode": REGION,
        "servicecode": SERVICE,
        "operatingSystem": "Linux",
        "marketoption": "OnDemand",
        "vcpu": str(record["VCpuInfo"]["DefaultVCpus"]),
    }
    return [{**common, **variant} for variant in VARIANTS]


def _entry(attributes: Mapping[str, str]) -> dict[str, Any]:
    usd = on_demand_usd(attributes["instanceType"])
    usd += sum(SURCHARGES.get(value, 0.0) for value in attributes.values())
    sku = f"{attributes['instanceType']}-{VARIANTS.index(_variant(attributes))}".upper()
    term = f"{sku}.{OFFER_TERM}"
    rate = {"rateCode": f"{term}.{RATE}", "unit": "Hrs", "pricePerUnit": {"USD": f"{usd:.10f}"}}
    return {
        "product": {"productFamily": "Compute Instance", "attributes": dict(attributes), "sku": sku},
        "serviceCode": SERVICE,
        "terms": {"OnDemand": {term: {"sku": sku, "priceDimensions": {f"{term}.{RATE}": rate}}}},
    }


def _variant(attributes: Mapping[str, str]) -> Mapping[str, str]:
    return {name: attributes[name] for name in VARIANTS[0]}
