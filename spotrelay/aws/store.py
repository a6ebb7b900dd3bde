"""`ports.Store` in one DynamoDB table; `items` describes what is in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from operator import and_

from boto3.dynamodb.conditions import Attr, ConditionBase

from spotrelay.aws import items
from spotrelay.aws.cooldowns import Cooldowns
from spotrelay.aws.errors import Cancelled
from spotrelay.aws.kept import Kept
from spotrelay.aws.owners import Owners
from spotrelay.aws.table import ABSENT, Delete, Key, Put, Table, Update, Write
from spotrelay.core.desired import ScaleRequest, Source
from spotrelay.core.pools import Cooldown, PoolMemory, Scope, Survey
from spotrelay.core.ports import Conflict
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Changes, Removal, Rows
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds

SURVEY_KEPT_S = 60.0
"""How long a survey is gone by before it is read again. It changes by the hour; a launch is in a hurry."""


class DynamoStore:
    """See `ports.Store`."""

    def __init__(self, table: Table, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._kept_surveys: Kept[str, Survey | None] = Kept(SURVEY_KEPT_S, monotonic_s)
        self._cooldowns = Cooldowns(table, monotonic_s)
        self._owners = Owners(table)
        self._announced: dict[str, datetime] = {}
        """By service: the tick that was last announced here."""

    def services(self) -> Sequence[str]:
        """See `ports.Store.services`."""
        return [key.sort for key, _ in self._table.query(items.SERVICES)]

    def forget(self, service: str) -> None:
        """See `ports.Store.forget`. The META item, and with it the highest ID, stays."""
        nothing = items.requests_item(dict.fromkeys(Source))
        self._table.write(Update(items.meta_key(service), nothing, ~ABSENT))
        self._table.write(Delete(items.registry_key(service)))

    def locate(self, instance_ids: Collection[str]) -> Mapping[str, tuple[str, int]]:
        """See `ports.Store.locate`."""
        return self._owners.locate(instance_ids)

    def read(self, service: str, replica_ids: Collection[int]) -> Rows:
        """See `ports.Store.read`. It brings along what a launch that may follow will `recall`."""
        meta_key = items.meta_key(service)
        along = self._cooldowns.keys()
        rows = (items.replica_key(service, i) for i in replica_ids)
        found = self._table.get_many({meta_key, *rows, *along})
        self._cooldowns.take_from(found, along)
        meta = found.pop(meta_key, {})
        return _rows(meta, found.items())

    def document(self, service: str) -> ServiceSpec | None:
        """See `ports.Store.document`."""
        item = self._table.get(items.document_key(service))
        return None if items.removal_of(item).told_at else items.document_of(item)

    def keep_document(self, spec: ServiceSpec) -> None:
        """See `ports.Store.keep_document`."""
        self._table.write(Update(items.document_key(spec.service), items.document_item(spec)))

    def note_removal(self, service: str, removal: Removal) -> None:
        """See `ports.Store.note_removal`."""
        self._table.write(Update(items.document_key(service), items.removal_item(removal)))

    def note_request(self, service: str, source: Source, request: ScaleRequest | None) -> None:
        """See `ports.Store.note_request`."""
        self._table.write(Update(items.meta_key(service), items.requests_item({source: request})))

    def load(self, service: str) -> Rows:
        """See `ports.Store.load`."""
        meta = self._table.get(items.meta_key(service))
        found = self._table.query(items.service_partition(service))
        document = dict(found).get(items.document_key(service), {})
        return replace(
            _rows(meta, found),
            is_whole=True,
            removal=items.removal_of(document),
            document=items.document_of(document),
        )

    def history(self, service: str, limit: int) -> Sequence[Replica]:
        """See `ports.Store.history`."""
        ended = self._table.query(items.history_partition(service), newest_first=True, limit=limit)
        return items.replicas_among(ended)

    def commit(self, changes: Changes) -> None:
        """See `ports.Store.commit`."""
        writes = list(_writes(changes))
        if not writes:
            return
        try:
            self._table.transact(writes)
        except Cancelled as cancelled:
            changed = ", ".join(writes[position].key.sort for position in cancelled.at)
            raise Conflict(f"{changes.service}: changed since it was read: {changed}") from cancelled

    def cool(self, cooldowns: Collection[Cooldown]) -> None:
        """See `ports.Store.cool`."""
        self._cooldowns.cool(cooldowns)

    def forgive(self, scopes: Collection[Scope]) -> None:
        """See `ports.Store.forgive`."""
        self._cooldowns.forgive(scopes)

    def note_survey(self, survey: Survey) -> None:
        """See `ports.Store.note_survey`."""
        self._table.write(Put(items.survey_key(survey.service), items.survey_item(survey)))

    def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
        """See `ports.Store.recall`."""
        cooldowns = self._cooldowns.known(region, now)
        survey = self._kept_surveys.get(service, lambda: self._read_survey(service))
        return PoolMemory(tuple(cooldowns), survey)

    def _read_survey(self, service: str) -> Survey | None:
        item = self._table.get(items.survey_key(service))
        return items.survey_of(item) if item and items.is_readable(item) else None

    def acquire(self, service: str, holder: str, now: datetime, ttl_s: float) -> bool:
        """See `ports.Store.acquire`."""
        # The holder may take it again: so a repeat of a call whose answer got lost succeeds, too.
        lease_free = _is_unset_or_past("lease_until", now) | Attr("lease_holder").eq(holder)
        lease = {"lease_holder": holder, "lease_until": items.to_text(now + seconds(ttl_s))}
        return self._table.write(Update(items.tick_key(service), lease, lease_free))

    def release(self, service: str, holder: str) -> None:
        """See `ports.Store.release`."""
        lease = {"lease_holder": None, "lease_until": None}
        self._table.write(Update(items.tick_key(service), lease, Attr("lease_holder").eq(holder)))

    def claim_tick(self, service: str, due: datetime, now: datetime, serving: datetime | None) -> bool:
        """See `ports.Store.claim_tick`."""
        announced = self._announced.get(service)
        if announced and now < announced <= due and announced != serving:
            return False  # by this very function, a moment ago: a storm brings many batches in that time
        claimable = _is_unset_or_past("next_tick", now) | Attr("next_tick").gt(items.to_text(due))
        if serving is not None:
            claimable |= Attr("next_tick").eq(items.to_text(serving))
        is_ours = self._table.write(
            Update(items.tick_key(service), {"next_tick": items.to_text(due)}, claimable)
        )
        if is_ours:
            self._announced[service] = due
        return is_ours


def _rows(meta: Mapping[str, object], found: Collection[tuple[Key, Mapping[str, object]]]) -> Rows:
    items.check_schema(meta, "what is noted of the service")
    replicas = items.replicas_among(found)
    intents = [items.intent_of(item) for key, item in found if key.sort.startswith(items.LAUNCH)]
    return Rows(
        highest_id=items.highest_id_of(meta),
        serving=items.serving_of(meta),
        replicas={r.id: r for r in sorted(replicas, key=lambda r: r.id)},
        intents={i.id: i for i in intents},
        backoff=items.backoff_of(meta),
        window=items.window_of(meta),
        requests=items.requests_of(meta),
    )


def _writes(changes: Changes) -> Iterator[Write]:
    """What a commit writes, each item once, as a transaction demands."""
    service = changes.service
    meta: dict[str, object] = {}
    conditions: list[ConditionBase] = []
    if changes.highest_id:
        as_read, to_be = changes.highest_id
        meta["highest_id"] = to_be
        is_same = Attr("highest_id").eq(as_read)
        conditions.append(is_same | Attr("highest_id").not_exists() if as_read == 0 else is_same)
        yield Put(items.registry_key(service), {})
    if changes.serving:
        as_read, meta["serving"] = changes.serving
        conditions.append(_is_as_read("serving", as_read))
    if changes.backoff:
        meta |= items.backoff_item(changes.backoff)
    if changes.window:
        before, after = (items.window_item(window) for window in changes.window)
        meta |= after
        conditions += [_is_as_read(name, before[name]) for name in before]
    if meta:
        meta["schema"] = items.SCHEMA
        yield Update(items.meta_key(service), meta, reduce(and_, conditions) if conditions else None)
    for row in changes.create:
        yield from _row_writes(row, ABSENT)
    for row in changes.update:
        stored = replace(row, revision=row.revision + 1)
        yield from _row_writes(stored, Attr("revision").eq(row.revision))
    if changes.open_intent:
        intent = changes.open_intent
        yield Put(items.intent_key(service, intent.id), items.intent_item(intent))
    for intent_id in changes.close_intents:
        yield Delete(items.intent_key(service, intent_id))


def _row_writes(row: Replica, condition: ConditionBase) -> Iterator[Write]:
    key = items.replica_key(row.service, row.id)
    if row.state.is_ended:
        yield Delete(key, condition)
        yield Put(items.history_key(row.service, row.id), items.replica_item(row))
    else:
        yield Put(key, items.replica_item(row), condition)
    # PROVISIONING is the state in which a row gets its instance, unless it is made with one, and the end the
    # moment to let the entry expire; in between it is there already.
    is_new = condition is ABSENT or row.state is ReplicaState.PROVISIONING
    if row.instance_id and (row.state.is_ended or is_new):
        yield Put(items.instance_key(row.instance_id), items.instance_item(row))


def _is_as_read(name: str, value: object) -> ConditionBase:
    return Attr(name).eq(value) if value else Attr(name).not_exists() | Attr(name).eq(0)


def _is_unset_or_past(name: str, now: datetime) -> ConditionBase:
    return Attr(name).not_exists() | Attr(name).lte(items.to_text(now))
