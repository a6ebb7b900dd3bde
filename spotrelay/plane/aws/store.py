"""`ports.Store` in one DynamoDB table; `items` describes what is in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from spotrelay.plane.aws import items
from spotrelay.plane.aws.errors import Cancelled
from spotrelay.plane.aws.pool_memory import DynamoPoolMemory
from spotrelay.plane.aws.table import PRESENT, Condition, Delete, Put, Table, Update, as_read
from spotrelay.plane.core.held import Held
from spotrelay.plane.core.incidents import Incidents
from spotrelay.plane.core.ports import Conflict
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Changes, Removal, Rollback, Rows, ScaleRequest, Source, Told
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds

if TYPE_CHECKING:  # of ticks alone: a warning waits for every import of a cold start
    from spotrelay.plane.core.scaling import OngoingTotal

LOCATED_KEPT = 10_000
"""Instances whose replica is remembered."""


class DynamoStore(DynamoPoolMemory):
    """`ports.Store`, in a DynamoDB table."""

    def __init__(self, table: Table, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__(table, monotonic_s)
        self._located: dict[str, tuple[str, int, tuple[str, ...]]] = {}
        """By instance: its service, replica and other slots, which never change; it brings many events."""
        self._announced: dict[str, datetime] = {}
        """By service: the tick that was last announced here."""

    def services(self) -> Sequence[str]:
        return [key.sort for key, _ in self._table.query(items.SERVICES)]

    def forget(self, service: str) -> None:
        """The META item, and with it the highest ID, stays."""
        nothing = items.requests_item(dict.fromkeys(Source)) | items.rollback_item(None)
        self._table.write(Update(items.meta_key(service), nothing, PRESENT))
        for key in (items.told_key, items.held_key, items.incidents_key, items.ongoing_key):
            self._table.write(Delete(key(service)))
        self._table.write(Delete(items.registry_key(service)))

    def locate(self, instance_ids: Collection[str]) -> Mapping[str, tuple[str, int]]:
        asked, known = set(instance_ids), dict[str, tuple[str, int]]()
        # A second time for the other slots of instances that host several replicas.
        while asked:
            located = {i: self._located[i] for i in asked if i in self._located}
            unknown = {items.instance_key(i): i for i in asked - located.keys()}
            if unknown:
                for key, item in self._table.get_many(unknown).items():
                    where = item["service"], int(item["replica"])
                    located[unknown[key]] = (*where, tuple(item.get("slots", ())))
            self._located |= located
            known |= {i: (service, id_) for i, (service, id_, _) in located.items()}
            asked = {other for *_, others in located.values() for other in others} - known.keys()
        while len(self._located) > LOCATED_KEPT:
            del self._located[next(iter(self._located))]
        return known

    def read(self, service: str, replica_ids: Collection[int]) -> Rows:
        """It brings along what a launch that may follow will `recall`."""
        along = self.pool_keys()
        found = self._table.get_many({*items.keys(service, replica_ids), *along})
        rows = items.rows_of(service, found)
        self.take_pools(found, along)
        return rows

    def document(self, service: str) -> ServiceSpec | None:
        item = self._table.get(items.document_key(service))
        return Rows(
            removal=items.removal_of(item),
            document=items.document_of(item),
            is_claimed=items.is_claimed(item),
        ).last_document

    def keep_document(self, spec: ServiceSpec, earlier: Mapping[int, ServiceSpec] | None = None) -> None:
        self._table.write(Update(items.document_key(spec.service), items.document_item(spec, earlier)))

    def note_claim(self, service: str, *, is_ours: bool) -> None:
        self._table.write(Update(items.document_key(service), items.claim_item(is_ours=is_ours)))

    def held(self, service: str) -> Held:
        """`Rows.held`, for who wants nothing else."""
        return items.held_of(self._table.get(items.held_key(service)))

    def note_held(self, service: str, held: Held) -> None:
        self._table.write(Put(items.held_key(service), items.held_item(held)))

    def note_ongoing(self, service: str, total: OngoingTotal) -> None:
        self._table.write(Put(items.ongoing_key(service), items.ongoing_item(total)))

    def note_removal(self, service: str, removal: Removal) -> None:
        self._table.write(Update(items.document_key(service), items.removal_item(removal)))

    def note_request(self, service: str, source: Source, request: ScaleRequest | None) -> None:
        self._table.write(Update(items.meta_key(service), items.requests_item({source: request})))

    def note_rollback(self, service: str, rollback: Rollback | None) -> None:
        self._table.write(Update(items.meta_key(service), items.rollback_item(rollback)))

    def load(self, service: str) -> Rows:
        key = items.meta_key(service)
        # META first: rows that are created meanwhile have IDs that it doesn't know, see `observation.known`.
        meta = self._table.get(key)
        found = dict(self._table.query(items.service_partition(service)))
        return replace(items.rows_of(service, {**found, key: meta}), is_whole=True)

    def history(self, service: str, limit: int) -> Sequence[Replica]:
        ended = self._table.query(items.history_partition(service), newest_first=True, limit=limit)
        return [items.replica_of(item) for _, item in ended]

    def ended(self, service: str, replica_ids: Collection[int]) -> Sequence[Replica]:
        found = self._table.get_many({items.history_key(service, id_) for id_ in replica_ids})
        return sorted((items.replica_of(item) for item in found.values()), key=lambda replica: replica.id)

    def note_told(self, service: str, told: Told) -> None:
        if not self._table.write(Put(items.told_key(service), items.told_item(told), as_read(told.revision))):
            raise Conflict(f"{service}: what was told of it has changed since it was read")

    def note_incidents(self, service: str, incidents: Incidents) -> None:
        item = items.incidents_item(incidents)
        if not self._table.write(Put(items.incidents_key(service), item, as_read(incidents.revision))):
            raise Conflict(f"{service}: what its alarms were told has changed since it was read")

    def commit(self, changes: Changes) -> None:
        writes = list(items.writes(changes))
        if not writes:
            return
        try:
            self._table.transact(writes)
        except Cancelled as cancelled:
            changed = ", ".join(writes[position].key.sort for position in cancelled.at)
            raise Conflict(f"{changes.service}: changed since it was read: {changed}") from cancelled

    def acquire(self, service: str, holder: str, now: datetime, ttl_s: float) -> bool:
        # The holder may take it again: so a repeat of a call whose answer got lost succeeds, too.
        lease_free = Condition(
            "attribute_not_exists(#lease_until) OR #lease_until <= ? OR #lease_holder = ?",
            (items.to_text(now), holder),
        )
        lease = {"lease_holder": holder, "lease_until": items.to_text(now + seconds(ttl_s))}
        return self._table.write(Update(items.tick_key(service), lease, lease_free))

    def release(self, service: str, holder: str) -> None:
        lease = {"lease_holder": None, "lease_until": None}
        self._table.write(Update(items.tick_key(service), lease, Condition("#lease_holder = ?", (holder,))))

    def claim_tick(self, service: str, due: datetime, now: datetime, serving: datetime | None) -> bool:
        announced = self._announced.get(service)
        if announced and now < announced <= due and announced != serving:
            return False  # by this very function, a moment ago: a storm brings many batches in that time
        # What is unset, past, later or served by this very tick may be announced anew.
        claimable = "attribute_not_exists(#next_tick) OR #next_tick <= ? OR #next_tick > ?"
        times = [items.to_text(now), items.to_text(due)]
        if serving is not None:
            claimable += " OR #next_tick = ?"
            times.append(items.to_text(serving))
        condition = Condition(claimable, tuple(times))
        is_ours = self._table.write(
            Update(items.tick_key(service), {"next_tick": items.to_text(due)}, condition)
        )
        if is_ours:
            self._announced[service] = due
        return is_ours
