"""`ports.Store` in one DynamoDB table; `items` describes what is in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import reduce
from operator import and_

from boto3.dynamodb.conditions import Attr, ConditionBase

from spotrelay.aws import items
from spotrelay.aws.errors import Cancelled
from spotrelay.aws.table import ABSENT, Delete, Key, Put, Table, Update, Write
from spotrelay.model import (
    Changes,
    Cooldown,
    PoolMemory,
    Replica,
    ReplicaState,
    Rows,
    Scope,
    Survey,
    seconds,
)
from spotrelay.ports import Conflict

MAX_TRANSACTION = 100
"""DynamoDB's limit of writes in one transaction; `Changes.MAX_ROWS` keeps commits below it."""


SURVEY_KEPT_S = 60.0
"""How long a survey is gone by before it is read again. It changes by the hour; a launch is in a hurry."""

COOLDOWNS_KEPT_S = 5.0
"""How long a region's cooldowns are. What another function learns meanwhile is acted on that much later: a
pool that has nothing to give is asked once more, among others. A storm brings many batches in that time."""

LOCATED_KEPT = 10_000
"""Instances whose replica is remembered. Each brings several events, from its start to its end."""

NEIGHBOURS = 1000
"""Of a service, so many of the newest instances are read ahead: about a page. Interruptions come together,
and what a function knows by the second batch costs that no look-up, before anything is taken out."""

LOOK_AHEAD_S = 60.0
"""No service's instances are read ahead more often than its tick reads them anyway."""


class DynamoStore:
    """See `ports.Store`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._surveys: dict[str, tuple[datetime, Survey | None]] = {}
        """By service: when it was read, and what it was."""
        self._cooldowns: dict[str, tuple[datetime, dict[Key, Cooldown]]] = {}
        """By region: when they were read, and what they are since, as far as it was written here."""
        self._located: dict[str, tuple[str, int]] = {}
        """Whose instances were found, the last ones: an instance never becomes another replica's."""
        self._met: set[str] = set()
        """Services that an instance was found of that wasn't known."""
        self._looked_ahead: dict[str, datetime] = {}
        """By service: when its instances were last read."""
        self._announced: dict[str, datetime] = {}
        """By service: the tick that was last announced here."""

    def services(self) -> Sequence[str]:
        """See `ports.Store.services`."""
        return [key.sort for key, _ in self._table.query(items.SERVICES)]

    def forget(self, service: str) -> None:
        """See `ports.Store.forget`. The META item, and with it the highest ID, stays."""
        self._table.write(Delete(items.registry_key(service)))

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

    def look_ahead(self, now: datetime) -> None:
        """See `ports.Store.look_ahead`: the instances beside those that were asked for and not known."""
        for service in sorted(self._met):
            self._met.remove(service)
            if _is_fresh(self._looked_ahead.get(service), now, LOOK_AHEAD_S):
                continue
            self._looked_ahead[service] = now
            found = self._table.query(items.service_partition(service), newest_first=True, limit=NEIGHBOURS)
            replicas = _rows({}, found).replicas.values()
            self._remember({r.instance_id: (service, r.id) for r in replicas if r.instance_id})

    def _remember(self, located: Mapping[str, tuple[str, int]]) -> None:
        self._located |= located
        while len(self._located) > LOCATED_KEPT:
            del self._located[next(iter(self._located))]

    def read(self, service: str, replica_ids: Collection[int]) -> Rows:
        """See `ports.Store.read`."""
        meta_key = items.meta_key(service)
        found = self._table.get_many({meta_key, *(items.replica_key(service, i) for i in replica_ids)})
        meta = found.pop(meta_key, {})
        return _rows(meta, found.items())

    def load(self, service: str) -> Rows:
        """See `ports.Store.load`."""
        meta = self._table.get(items.meta_key(service))
        return _rows(meta, self._table.query(items.service_partition(service)))

    def history(self, service: str, limit: int) -> Sequence[Replica]:
        """See `ports.Store.history`."""
        ended = self._table.query(items.history_partition(service), newest_first=True, limit=limit)
        return [items.replica_of(item) for _, item in ended]

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
        # A launch that every pool refuses brings a cooldown for each: one call for all, where there are no
        # earlier ones that end later, which are dropped.
        left = list(_latest(cooldowns).values())
        while left:
            batch, left = left[:MAX_TRANSACTION], left[MAX_TRANSACTION:]
            try:
                self._table.transact([_cooldown_write(cooldown) for cooldown in batch])
                self._learn(batch)
            except Cancelled as cancelled:
                # Nor is one that somebody else is writing worth insisting on: both learned of the same loss.
                left += [c for position, c in enumerate(batch) if position not in cancelled.at]

    def forgive(self, scopes: Collection[Scope]) -> None:
        """See `ports.Store.forgive`."""
        keys = list(dict.fromkeys(items.cooldown_key(scope) for scope in scopes))
        for start in range(0, len(keys), MAX_TRANSACTION):
            with suppress(Conflict):  # somebody writes one of them anew: then it isn't forgiven
                self._table.transact([Delete(key) for key in keys[start : start + MAX_TRANSACTION]])
        for scope in scopes:
            _, known = self._cooldowns.get(scope.region, (None, {}))
            known.pop(items.cooldown_key(scope), None)

    def note_survey(self, survey: Survey) -> None:
        """See `ports.Store.note_survey`."""
        self._table.write(Put(items.survey_key(survey.service), items.survey_item(survey)))

    def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
        """See `ports.Store.recall`."""
        known = self._known_cooldowns(region, now)
        remembered = (cooldown for cooldown in known.values() if cooldown.remembered_until > now)
        cooldowns = sorted(remembered, key=lambda cooldown: str(cooldown.scope))
        return PoolMemory(tuple(cooldowns), self._survey(service, now))

    def _known_cooldowns(self, region: str, now: datetime) -> Mapping[Key, Cooldown]:
        read_at, known = self._cooldowns.get(region, (None, {}))
        if not _is_fresh(read_at, now, COOLDOWNS_KEPT_S):
            # The time to live alone won't do: DynamoDB takes its time to remove what has expired.
            remembered = Attr("remembered_until").gt(items.to_text(now))
            found = self._table.query(items.cooldown_partition(region), only=remembered)
            known = {key: items.cooldown_of(item) for key, item in found}
            self._cooldowns[region] = now, known
        return known

    def _learn(self, cooldowns: Collection[Cooldown]) -> None:
        for cooldown in cooldowns:
            _, known = self._cooldowns.get(cooldown.scope.region, (None, {}))
            known[items.cooldown_key(cooldown.scope)] = cooldown

    def _survey(self, service: str, now: datetime) -> Survey | None:
        read_at, survey = self._surveys.get(service, (None, None))
        if not _is_fresh(read_at, now, SURVEY_KEPT_S):
            item = self._table.get(items.survey_key(service))
            survey = items.survey_of(item) if item else None
            self._surveys[service] = now, survey
        return survey

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
        if announced and announced > now and announced != serving:
            return False  # by this very function, a moment ago: a storm brings many batches in that time
        claimable = _is_unset_or_past("next_tick", now)
        if serving is not None:
            claimable |= Attr("next_tick").eq(items.to_text(serving))
        is_ours = self._table.write(
            Update(items.tick_key(service), {"next_tick": items.to_text(due)}, claimable)
        )
        if is_ours:
            self._announced[service] = due
        return is_ours


def _is_fresh(read_at: datetime | None, now: datetime, for_s: float) -> bool:
    return read_at is not None and seconds(0) <= now - read_at <= seconds(for_s)


def _rows(meta: Mapping[str, object], found: Collection[tuple[Key, Mapping[str, object]]]) -> Rows:
    replicas = [items.replica_of(item) for key, item in found if key.sort.startswith(items.REPLICA)]
    intents = [items.intent_of(item) for key, item in found if key.sort.startswith(items.LAUNCH)]
    return Rows(
        highest_id=items.highest_id_of(meta),
        replicas={r.id: r for r in sorted(replicas, key=lambda r: r.id)},
        intents={i.id: i for i in intents},
        backoff=items.backoff_of(meta),
        window=items.window_of(meta),
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
    if changes.backoff:
        meta |= items.backoff_item(changes.backoff)
    if changes.window:
        before, after = (items.window_item(window) for window in changes.window)
        meta |= after
        conditions += [_is_as_read(name, before[name]) for name in before]
    if meta:
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
    # PROVISIONING is the state in which a row gets its instance, and the end the moment to let the entry
    # expire; in between it is there already.
    if row.instance_id and (row.state.is_ended or row.state is ReplicaState.PROVISIONING):
        yield Put(items.instance_key(row.instance_id), items.instance_item(row))


def _cooldown_write(cooldown: Cooldown) -> Put:
    is_later = ABSENT | Attr("until").lt(items.to_text(cooldown.until))
    return Put(items.cooldown_key(cooldown.scope), items.cooldown_item(cooldown), is_later)


def _latest(cooldowns: Collection[Cooldown]) -> dict[Key, Cooldown]:
    """One cooldown per scope, because a transaction takes each item once."""
    return {items.cooldown_key(c.scope): c for c in sorted(cooldowns, key=lambda c: c.until)}


def _is_as_read(name: str, value: object) -> ConditionBase:
    return Attr(name).eq(value) if value else Attr(name).not_exists() | Attr(name).eq(0)


def _is_unset_or_past(name: str, now: datetime) -> ConditionBase:
    return Attr(name).not_exists() | Attr(name).lte(items.to_text(now))
