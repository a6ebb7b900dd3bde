"""`accounting.ports.Days` on DynamoDB: an item for each service and day."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, timedelta

from spotrelay.plane.accounting.days import Day, bounds
from spotrelay.plane.aws import items
from spotrelay.plane.aws.table import Key, Put, Table, Values
from spotrelay.plane.core.names import TABLE_TTL, Partition

KEPT = timedelta(days=400)
"""A year, to compare a month with that of the year before."""


class DynamoDays:
    """`accounting.ports.Days`, in the control plane's table."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def note(self, day: Day) -> None:
        _, end = bounds(day.date)
        ttl = int((end + KEPT).timestamp())
        values = {"schema": items.SCHEMA, "day": items.to_json(day.to_dict()), TABLE_TTL: ttl}
        self._table.write(Put(_key(day.service, day.date), values))

    def get(self, service: str, day: date) -> Day | None:
        return _day_of(self._table.get(_key(service, day)))

    def since(self, service: str, first: date) -> Sequence[Day]:
        kept = self._table.query(Partition.DAYS + service, start=first.isoformat())
        return [day for day in (_day_of(item) for _, item in kept) if day is not None]


def _key(service: str, day: date) -> Key:
    return Key(Partition.DAYS + service, day.isoformat())


def _day_of(item: Values) -> Day | None:
    """None of an empty item, or of one that a later version wrote."""
    return Day.from_dict(json.loads(item["day"])) if item and items.is_readable(item) else None
