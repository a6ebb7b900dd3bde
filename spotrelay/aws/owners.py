"""Which replica an instance belongs to: remembered, since it never changes and each brings several events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from spotrelay.aws import items
from spotrelay.aws.kept import Kept
from spotrelay.aws.table import Table

LOCATED_KEPT = 10_000
"""Instances whose replica is remembered."""

NEIGHBOURS = 1000
"""Of a service, so many of the newest instances are read ahead: about a page. Interruptions come together,
and what a function knows by the second batch costs that no look-up, before anything is taken out."""

LOOK_AHEAD_S = 60.0
"""No service's instances are read ahead more often than its tick reads them anyway."""


class Owners:
    """Service and replica of every instance that was asked for, and of those beside it."""

    def __init__(self, table: Table, monotonic_s: Callable[[], float]) -> None:
        self._table = table
        self._located: dict[str, tuple[str, int]] = {}
        """The last ones."""
        self._met: set[str] = set()
        """Services that an instance was found of that wasn't known."""
        self._kept_neighbours: Kept[str, None] = Kept(LOOK_AHEAD_S, monotonic_s)

    def locate(self, instance_ids: Collection[str]) -> Mapping[str, tuple[str, int]]:
        """See `ports.Store.locate`."""
        known = {i: self._located[i] for i in instance_ids if i in self._located}
        unknown = {items.instance_key(i): i for i in instance_ids if i not in known}
        if unknown:
            for key, item in self._table.get_many(unknown).items():
                known[unknown[key]] = item["service"], int(item["replica"])
                self._met.add(item["service"])
        self._remember(known)
        return known

    def look_ahead(self) -> None:
        """See `ports.Store.look_ahead`: the instances beside those that were asked for and not known."""
        while self._met:
            service = self._met.pop()
            self._kept_neighbours.get(service, partial(self._meet_neighbours, service))

    def _meet_neighbours(self, service: str) -> None:
        found = self._table.query(items.service_partition(service), newest_first=True, limit=NEIGHBOURS)
        replicas = items.replicas_among(found)
        self._remember({r.instance_id: (service, r.id) for r in replicas if r.instance_id})

    def _remember(self, located: Mapping[str, tuple[str, int]]) -> None:
        self._located |= located
        while len(self._located) > LOCATED_KEPT:
            del self._located[next(iter(self._located))]
