"""`ports.Store` in one DynamoDB table; `items` describes what is in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial, reduce
from operator import and_
from typing import TypeVar

from boto3.dynamodb.conditions import Attr, ConditionBase

from spotrelay.aws import items
from spotrelay.aws.errors import Cancelled
from spotrelay.aws.kept import Kept
from spotrelay.aws.table import ABSENT, Delete, Key, Put, Table, Update, Values, Write
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

T = TypeVar("T")

SURVEY_KEPT_S = 60.0
"""How long a survey is gone by before it is read again. It changes by the hour; a launch is in a hurry."""

COOLDOWNS_KEPT_S = 5.0
"""How long a region's cooldowns are, unless they come along with rows. What another function learns meanwhile
is acted on that much later: a pool that has nothing to give is asked once more, among others."""

MAX_REWRITES = 10
"""How often a region's cooldowns are written anew because somebody else just did. Of five functions at a time
one always wins, so to lose ten in a row is one in nine, and what is lost is a lesson, not a launch."""

LOCATED_KEPT = 10_000
"""Instances whose replica is remembered. Each brings several events, from its start to its end."""

NEIGHBOURS = 1000
"""Of a service, so many of the newest instances are read ahead: about a page. Interruptions come together,
and what a function knows by the second batch costs that no look-up, before anything is taken out."""

LOOK_AHEAD_S = 60.0
"""No service's instances are read ahead more often than its tick reads them anyway."""


_Cooldowns = Mapping[Scope, Cooldown]


@dataclass(frozen=True, slots=True)
class _Remembered:
    """A region's cooldowns, and how often they have been written."""

    revision: int
    cooldowns: _Cooldowns

    @classmethod
    def of(cls, region: str, item: Values) -> _Remembered:
        return cls(int(item.get("revision", 0)), items.cooldowns_of(region, item))


class DynamoStore:
    """See `ports.Store`."""

    def __init__(self, table: Table, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._kept_surveys: Kept[str, Survey | None] = Kept(SURVEY_KEPT_S, monotonic_s)
        self._kept_cooldowns: Kept[str, _Remembered] = Kept(COOLDOWNS_KEPT_S, monotonic_s)
        self._regions: set[str] = set()
        """Those whose cooldowns were asked for."""
        self._located: dict[str, tuple[str, int]] = {}
        """Whose instances were found, the last ones: an instance never becomes another replica's."""
        self._met: set[str] = set()
        """Services that an instance was found of that wasn't known."""
        self._kept_neighbours: Kept[str, None] = Kept(LOOK_AHEAD_S, monotonic_s)
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

    def look_ahead(self) -> None:
        """See `ports.Store.look_ahead`: the instances beside those that were asked for and not known."""
        while self._met:
            service = self._met.pop()
            self._kept_neighbours.get(service, partial(self._meet_neighbours, service))

    def _meet_neighbours(self, service: str) -> None:
        found = self._table.query(items.service_partition(service), newest_first=True, limit=NEIGHBOURS)
        replicas = _rows({}, found).replicas.values()
        self._remember({r.instance_id: (service, r.id) for r in replicas if r.instance_id})

    def _remember(self, located: Mapping[str, tuple[str, int]]) -> None:
        self._located |= located
        while len(self._located) > LOCATED_KEPT:
            del self._located[next(iter(self._located))]

    def read(self, service: str, replica_ids: Collection[int]) -> Rows:
        """See `ports.Store.read`. It brings along what a launch that may follow will `recall`."""
        meta_key = items.meta_key(service)
        along = {items.cooldowns_key(region): region for region in self._regions}
        rows = (items.replica_key(service, i) for i in replica_ids)
        found = self._table.get_many({meta_key, *rows, *along})
        for key, region in along.items():
            self._kept_cooldowns.put(region, _Remembered.of(region, found.pop(key, {})))
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
        for region, learned in _by_region(cooldowns, lambda cooldown: cooldown.scope.region).items():
            self._rewrite(region, partial(_with, learned))

    def forgive(self, scopes: Collection[Scope]) -> None:
        """See `ports.Store.forgive`."""
        for region, forgiven in _by_region(scopes, lambda scope: scope.region).items():
            known = self._remembered(region).cooldowns
            meant = {scope: known[scope] for scope in forgiven if scope in known}
            self._rewrite(region, partial(_without, meant))

    def _rewrite(self, region: str, change: Callable[[_Cooldowns], _Cooldowns]) -> None:
        """Change a region's cooldowns, anew each time that somebody else has changed them meanwhile."""
        remembered = self._remembered(region)
        for _ in range(MAX_REWRITES):
            changed = change(remembered.cooldowns)
            if changed == remembered.cooldowns:
                return
            revision = remembered.revision + 1
            is_as_read = Attr("revision").eq(remembered.revision) if remembered.revision else ABSENT
            item = items.cooldowns_item(changed.values(), revision)
            if self._table.write(Put(items.cooldowns_key(region), item, is_as_read)):
                self._kept_cooldowns.put(region, _Remembered(revision, changed))
                return
            remembered = self._read_cooldowns(region)
            self._kept_cooldowns.put(region, remembered)
        raise Conflict(f"{region}: others wrote its cooldowns {MAX_REWRITES} times in a row")

    def note_survey(self, survey: Survey) -> None:
        """See `ports.Store.note_survey`."""
        self._table.write(Put(items.survey_key(survey.service), items.survey_item(survey)))

    def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
        """See `ports.Store.recall`."""
        known = self._remembered(region).cooldowns.values()
        remembered = (cooldown for cooldown in known if cooldown.remembered_until > now)
        cooldowns = sorted(remembered, key=lambda cooldown: str(cooldown.scope))
        survey = self._kept_surveys.get(service, lambda: self._read_survey(service))
        return PoolMemory(tuple(cooldowns), survey)

    def _remembered(self, region: str) -> _Remembered:
        self._regions.add(region)
        return self._kept_cooldowns.get(region, lambda: self._read_cooldowns(region))

    def _read_cooldowns(self, region: str) -> _Remembered:
        return _Remembered.of(region, self._table.get(items.cooldowns_key(region)))

    def _read_survey(self, service: str) -> Survey | None:
        item = self._table.get(items.survey_key(service))
        return items.survey_of(item) if item else None

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


def _by_region(things: Iterable[T], region_of: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for thing in things:
        found.setdefault(region_of(thing), []).append(thing)
    return found


def _with(learned: Collection[Cooldown], known: _Cooldowns) -> _Cooldowns:
    """Those and these, of one scope the one that ends later, without what was forgotten before the newest."""
    changed = dict(known)
    for cooldown in learned:
        if cooldown.scope not in changed or changed[cooldown.scope].until < cooldown.until:
            changed[cooldown.scope] = cooldown
    newest = max(cooldown.since for cooldown in learned)
    return {scope: cooldown for scope, cooldown in changed.items() if cooldown.remembered_until > newest}


def _without(meant: _Cooldowns, known: _Cooldowns) -> _Cooldowns:
    """All but those; what was learned of the same scope since is newer than what it is forgiven for."""
    return {scope: cooldown for scope, cooldown in known.items() if meant.get(scope) != cooldown}


def _is_as_read(name: str, value: object) -> ConditionBase:
    return Attr(name).eq(value) if value else Attr(name).not_exists() | Attr(name).eq(0)


def _is_unset_or_past(name: str, now: datetime) -> ConditionBase:
    return Attr(name).not_exists() | Attr(name).lte(items.to_text(now))
