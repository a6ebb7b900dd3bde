"""What is learned about pools, shared by all functions: one item per region, rewritten under its revision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from boto3.dynamodb.conditions import Attr

from spotrelay.aws import items
from spotrelay.aws.kept import Kept
from spotrelay.aws.table import ABSENT, Key, Put, Table, Values
from spotrelay.core.pools import Cooldown, Scope
from spotrelay.core.ports import Conflict

T = TypeVar("T")

COOLDOWNS_KEPT_S = 5.0
"""How long a region's cooldowns are gone by before they are read again, unless they come along with rows.
What another function learns meanwhile is acted on that much later: a pool that has nothing to give is asked
once more, among others."""

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


class Cooldowns:
    """Of the regions that were asked for they are kept for a moment."""

    def __init__(self, table: Table, monotonic_s: Callable[[], float]) -> None:
        self._table = table
        self._kept: Kept[str, _Remembered] = Kept(COOLDOWNS_KEPT_S, monotonic_s)
        self._regions: set[str] = set()

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

    def known(self, region: str, now: datetime) -> Sequence[Cooldown]:
        """Those of a region that aren't forgotten yet, in order of their scopes."""
        known = self._remembered(region).cooldowns.values()
        remembered = (cooldown for cooldown in known if cooldown.remembered_until > now)
        return sorted(remembered, key=lambda cooldown: str(cooldown.scope))

    def keys(self) -> Mapping[Key, str]:
        """What somebody who reads the table anyway should read along for `take_from`, and of which region."""
        return {items.cooldowns_key(region): region for region in self._regions}

    def take_from(self, found: dict[Key, Values], along: Mapping[Key, str]) -> None:
        """Take out of what was found what was read `along`."""
        for key, region in along.items():
            self._kept.put(region, _Remembered.of(region, found.pop(key, {})))

    def _remembered(self, region: str) -> _Remembered:
        self._regions.add(region)
        return self._kept.get(region, partial(self._read, region))

    def _read(self, region: str) -> _Remembered:
        return _Remembered.of(region, self._table.get(items.cooldowns_key(region)))

    def _rewrite(self, region: str, change: Callable[[_Known], _Known]) -> None:
        """Change a region's cooldowns, anew each time that somebody else has changed them meanwhile."""
        for _ in range(MAX_REWRITES):
            remembered = self._remembered(region)
            changed = change(remembered.cooldowns)
            if changed == remembered.cooldowns:
                return
            revision = remembered.revision + 1
            is_as_read = Attr("revision").eq(remembered.revision) if remembered.revision else ABSENT
            item = items.cooldowns_item(changed.values(), revision)
            if self._table.write(Put(items.cooldowns_key(region), item, is_as_read)):
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
