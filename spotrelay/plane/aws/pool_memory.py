"""What is known about pools, shared by all functions: a region's cooldowns, and what EC2 offers to a service.

Cooldowns are one item per region, which can be read along with others and is rewritten under its revision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from spotrelay.plane.aws import items
from spotrelay.plane.aws.clients import Kept
from spotrelay.plane.aws.table import Key, Put, Table, Values, as_read
from spotrelay.plane.core.names import Partition
from spotrelay.plane.core.pools import (
    CapacityPool,
    Cause,
    Cooldown,
    Image,
    PoolMemory,
    PurchaseOption,
    Reading,
    Scope,
    Survey,
)
from spotrelay.plane.core.ports import Conflict

T = TypeVar("T")

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
        return cls(int(item.get("revision", 0)), cooldowns_of(region, item))


class DynamoPoolMemory:
    """What `ports.Store` knows of pools. What was asked for is kept for a moment."""

    def __init__(self, table: Table, monotonic_s: Callable[[], float]) -> None:
        self._table = table
        self._kept: Kept[str, _Remembered] = Kept(COOLDOWNS_KEPT_S, monotonic_s)
        self._regions: set[str] = set()
        self._surveys: Kept[str, Survey | None] = Kept(SURVEY_KEPT_S, monotonic_s)

    def cool(self, cooldowns: Collection[Cooldown]) -> None:
        for region, learned in _by_region(cooldowns, lambda cooldown: cooldown.scope.region).items():
            self._rewrite(region, partial(_with, learned))

    def forgive(self, scopes: Collection[Scope]) -> None:
        for region, forgiven in _by_region(scopes, lambda scope: scope.region).items():
            known = self._remembered(region).cooldowns
            meant = {scope: known[scope] for scope in forgiven if scope in known}
            self._rewrite(region, partial(_without, meant))

    def note_survey(self, survey: Survey) -> None:
        self._table.write(Put(survey_key(survey.service), survey_item(survey)))
        self._surveys.put(survey.service, survey)

    def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
        """Cooldowns come in order of their scopes."""
        known = self._remembered(region).cooldowns.values()
        remembered = (cooldown for cooldown in known if cooldown.remembered_until > now)
        cooldowns = sorted(remembered, key=lambda cooldown: str(cooldown.scope))
        return PoolMemory(tuple(cooldowns), self._surveys.get(service, partial(self._read_survey, service)))

    def pool_keys(self) -> Mapping[Key, str]:
        """What whoever reads the table anyway should read along for `take_pools`, and of which region."""
        return {cooldowns_key(region): region for region in self._regions}

    def take_pools(self, found: dict[Key, Values], along: Mapping[Key, str]) -> None:
        """Take out of what was found what was read `along`."""
        for key, region in along.items():
            self._kept.put(region, _Remembered.of(region, found.pop(key, {})))

    def _remembered(self, region: str) -> _Remembered:
        self._regions.add(region)
        return self._kept.get(region, partial(self._read, region))

    def _read(self, region: str) -> _Remembered:
        return _Remembered.of(region, self._table.get(cooldowns_key(region)))

    def _read_survey(self, service: str) -> Survey | None:
        item = self._table.get(survey_key(service))
        return survey_of(item) if item and items.is_readable(item) else None

    def _rewrite(self, region: str, change: Callable[[_Known], _Known]) -> None:
        """Change a region's cooldowns, anew each time that somebody else has changed them meanwhile."""
        for _ in range(MAX_REWRITES):
            remembered = self._remembered(region)
            changed = change(remembered.cooldowns)
            if changed == remembered.cooldowns:
                return
            revision = remembered.revision + 1
            item = cooldowns_item(changed.values(), revision)
            if self._table.write(Put(cooldowns_key(region), item, as_read(remembered.revision))):
                self._kept.put(region, _Remembered(revision, changed))
                return
            self._kept.forget(region)
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


def cooldowns_key(region: str) -> Key:
    """Key of what to leave alone in a region."""
    return Key(Partition.COOLDOWNS + region, items.META)


def cooldowns_item(cooldowns: Iterable[Cooldown], revision: int) -> dict[str, Any]:
    """A region's cooldowns as JSON. All there can be, every GPU type in every zone, are some 80 kB."""
    written = items.to_json([_cooldown_list(cooldown) for cooldown in cooldowns])
    return {"schema": items.SCHEMA, "revision": revision, "cooldowns": written}


def cooldowns_of(region: str, item: Values) -> dict[Scope, Cooldown]:
    """The cooldowns that `cooldowns_item` wrote, in an item which may be empty or of a later version."""
    if not items.is_readable(item):
        return {}
    cooldowns = (_cooldown_of(region, *written) for written in json.loads(item.get("cooldowns", "[]")))
    return {cooldown.scope: cooldown for cooldown in cooldowns}


def survey_key(service: str) -> Key:
    """Key of a service's last survey."""
    return Key(Partition.SURVEY + service, items.META)


def survey_item(survey: Survey) -> dict[str, Any]:
    """A survey's values, as JSON: nothing looks inside, and as attributes it would be twice as large."""
    return {
        "schema": items.SCHEMA,
        "service": survey.service,
        "at": items.to_text(survey.at),
        "found": items.to_json(
            {
                "asked": survey.asked.to_dict(),
                "pools": [items.pool_list(pool) for pool in survey.pools],
                "on_demand_prices": dict(survey.on_demand_prices),
                "spot_prices": [
                    [*items.pool_list(pool), price] for pool, price in survey.spot_prices.items()
                ],
                "scores": dict(survey.scores),
                "elsewhere": dict(survey.elsewhere),
                "images": [
                    [version, image.id, image.made_at and items.to_text(image.made_at)]
                    for version, image in survey.images.items()
                ],
                "earlier": [[items.to_text(one.at), dict(one.scores)] for one in survey.earlier],
                "findings": [[finding.kind.value, finding.words] for finding in survey.findings],
                "accounted_at": survey.accounted_at and items.to_text(survey.accounted_at),
            }
        ),
    }


def survey_of(item: Values) -> Survey:
    """The survey that `survey_item` wrote."""
    from spotrelay.plane.core.mending import Finding, FindingKind  # only what launches needs them
    from spotrelay.plane.core.requirements import Requirements

    found = json.loads(item["found"])
    return Survey(
        item["service"],
        Requirements.from_dict(found["asked"]),
        items.to_time(item["at"]),
        tuple(CapacityPool(*pool) for pool in found["pools"]),
        found["on_demand_prices"],
        {CapacityPool(*pool): price for *pool, price in found["spot_prices"]},
        found["scores"],
        found.get("elsewhere", {}),
        tuple(Reading(items.to_time(at), scores) for at, scores in found.get("earlier", ())),
        {
            version: Image(id_, made_at and items.to_time(made_at))
            for version, id_, made_at in found.get("images", ())
        },
        tuple(Finding(FindingKind(finding), words) for finding, words in found.get("findings", ())),
        items.to_time(accounted_at) if (accounted_at := found.get("accounted_at")) else None,
    )


def _cooldown_list(cooldown: Cooldown) -> list[object]:
    scope = cooldown.scope
    return [
        [scope.zone, scope.instance_type, scope.quota, scope.purchase_option and scope.purchase_option.value],
        cooldown.cause.value,
        items.to_text(cooldown.since),
        items.to_text(cooldown.until),
        cooldown.reason,
        cooldown.strikes,
    ]


def _cooldown_of(
    region: str, scope: Sequence[str], cause: str, since: str, until: str, reason: str, strikes: int
) -> Cooldown:
    zone, instance_type, quota, option = scope
    found = Scope(region, zone, instance_type, quota, PurchaseOption(option) if option else None)
    return Cooldown(found, Cause(cause), items.to_time(since), items.to_time(until), reason, strikes)
