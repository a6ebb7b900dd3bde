"""Which replica an instance belongs to: remembered, since it never changes and each brings several events."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spotrelay.aws import items
from spotrelay.aws.table import Table

LOCATED_KEPT = 10_000
"""Instances whose replica is remembered."""


class Owners:
    """Service and replica of every instance that was asked for."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._located: dict[str, tuple[str, int]] = {}
        """The last ones."""

    def locate(self, instance_ids: Collection[str]) -> Mapping[str, tuple[str, int]]:
        """See `ports.Store.locate`."""
        known = {i: self._located[i] for i in instance_ids if i in self._located}
        unknown = {items.instance_key(i): i for i in instance_ids if i not in known}
        if unknown:
            for key, item in self._table.get_many(unknown).items():
                known[unknown[key]] = item["service"], int(item["replica"])
        self._located |= known
        while len(self._located) > LOCATED_KEPT:
            del self._located[next(iter(self._located))]
        return known
