"""`ports.Store` in one DynamoDB table; `items` describes what is in it.

What is known about pools is kept for a moment. Cooldowns are one item per region, which can be read along
with rows and is rewritten under its revision.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from spotrelay.plane.aws import items
from spotrelay.plane.aws.clients import Kept
from spotrelay.plane.aws.errors import Cancelled
from spotrelay.plane.aws.table import PRESENT, Condition, Delete, Put, Table, Update, Values, as_read
from spotrelay.plane.core.held import Held
from spotrelay.plane.core.incidents import Incidents
from spotrelay.plane.core.pools import Cooldown, PoolMemory, Scope, Survey
from spotrelay.plane.core.ports import Conflict
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import (
    Changes,
    Removal,
    Rollback,
    Rows,
    ScaleRequest,
    Source,
    Starts,
    Told,
)
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds

if TYPE_CHECKING:  # of ticks alone: a warning waits for every import of a cold start
    from spotrelay.plane.core.scaling import OngoingTotal

T = TypeVar("T")

LOCATED_KEPT = 10_000
"""Instances whose replica is remembered."""

COOLDOWNS_KEPT_S = 5.0
"""How long a region's cooldowns are gone by before they are read again, unless they come along with rows.
What another function learns meanwhile is acted on that much later: a pool that has nothing to give is asked
once more, among others."""

SURVEY_KEPT_S = 60.0
"""How long a survey is gone by before it is read again. It changes by the hour; a launch is in a hurry."""

MAX_REWRITES = 10
"""How often a region's cooldowns are written anew because somebody else just did. Of five functions at a time
one always wins, so to lose ten in a row is one in nine, and what is lost is a lesson, not a launch."""

_Known = Mapping[Scope, Cooldown]


@dataclass(frozen=True, slots=True)
class _Remembered:
    """A region's cooldowns, and how often they have been written."""

    revision: int
    cooldowns: _Known

    @classmethod
    def of(cls, region: str, item: Values) -> _Remembered:
        return cls(int(item.get("revision", 0)), items.cooldowns_of(region, item))


class DynamoStore:
    """`ports.Store`, in a DynamoDB table."""

    def __init__(self, table: Table, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._cooldowns: Kept[str, _Remembered] = Kept(COOLDOWNS_KEPT_S, monotonic_s)
        self._regions: set[str] = set()
        """Whose cooldowns were asked for."""
        self._surveys: Kept[str, Survey | None] = Kept(SURVEY_KEPT_S, monotonic_s)
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
        for key in (items.told_key, items.held_key, items.incidents_key, items.ongoing_key, items.starts_key):
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
        along = {items.cooldowns_key(region): region for region in self._regions}
        found = self._table.get_many({*items.keys(service, replica_ids), *along})
        for key, region in along.items():
            self._cooldowns.put(region, _Remembered.of(region, found.pop(key, {})))
        return items.rows_of(service, found)

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

    def note_starts(self, service: str, starts: Starts) -> None:
        self._table.write(Put(items.starts_key(service), items.starts_item(starts)))

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

    # What is known about pools, shared by all functions.

    def cool(self, cooldowns: Collection[Cooldown]) -> None:
        for region, learned in _by_region(cooldowns, lambda cooldown: cooldown.scope.region).items():
            self._rewrite(region, partial(_with, learned))

    def forgive(self, scopes: Collection[Scope]) -> None:
        for region, forgiven in _by_region(scopes, lambda scope: scope.region).items():
            known = self._remembered(region).cooldowns
            meant = {scope: known[scope] for scope in forgiven if scope in known}
            self._rewrite(region, partial(_without, meant))

    def note_survey(self, survey: Survey) -> None:
        self._table.write(Put(items.survey_key(survey.service), items.survey_item(survey)))
        self._surveys.put(survey.service, survey)

    def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
        """Cooldowns come in order of their scopes."""
        known = self._remembered(region).cooldowns.values()
        remembered = (cooldown for cooldown in known if cooldown.remembered_until > now)
        cooldowns = sorted(remembered, key=lambda cooldown: str(cooldown.scope))
        return PoolMemory(tuple(cooldowns), self._surveys.get(service, partial(self._read_survey, service)))

    def _remembered(self, region: str) -> _Remembered:
        self._regions.add(region)
        return self._cooldowns.get(region, partial(self._read_cooldowns, region))

    def _read_cooldowns(self, region: str) -> _Remembered:
        return _Remembered.of(region, self._table.get(items.cooldowns_key(region)))

    def _read_survey(self, service: str) -> Survey | None:
        item = self._table.get(items.survey_key(service))
        return items.survey_of(item) if item and items.is_readable(item) else None

    def _rewrite(self, region: str, change: Callable[[_Known], _Known]) -> None:
        """Change a region's cooldowns, anew each time that somebody else has changed them meanwhile."""
        for _ in range(MAX_REWRITES):
            remembered = self._remembered(region)
            changed = change(remembered.cooldowns)
            if changed == remembered.cooldowns:
                return
            revision = remembered.revision + 1
            item = items.cooldowns_item(changed.values(), revision)
            if self._table.write(Put(items.cooldowns_key(region), item, as_read(remembered.revision))):
                self._cooldowns.put(region, _Remembered(revision, changed))
                return
            self._cooldowns.forget(region)
        raise Conflict(f"{region}: others wrote its cooldowns {MAX_REWRITES} times in a row")


def _by_region(things: Iterable[T], region_of: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for thing in things:
        found.setdefault(region_of(thing), []).append(thing)
    return found


def _with(learned: Collection[Cooldown], known: _Known) -> _Known:
    """Those and these, of one scope the one that ends later, without what was forgotten before the newest."""
    changed = dict(known)
    for cooldown in learned:
        if cooldown.scope not in changed or changed[cooldown.scope].until < cooldown.until:
            changed[cooldown.scope] = cooldown
    newest = max(cooldown.since for cooldown in learned)
    return {scope: cooldown for scope, cooldown in changed.items() if cooldown.remembered_until > newest}


def _without(meant: _Known, known: _Known) -> _Known:
    """All but those; what was learned of the same scope since is newer than what it is forgiven for."""
    return {scope: cooldown for scope, cooldown in known.items() if meant.get(scope) != cooldown}
