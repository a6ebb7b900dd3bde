"""Queries of CloudWatch Logs Insights as far as the board here has them; any other is refused.

What lines of a query mean, and which queries are drawn as lines, is told here:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/CWL_QuerySyntax-Stats.html
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

PERIODS_S = {"1m": 60, "1h": 3600}

Event = tuple[float, Mapping[str, Any]]
"""When a line was written, in epoch seconds, and the line."""

Series = dict[float, float]
"""Values by the beginning of their period in epoch seconds."""

_OVER: Mapping[str, Callable[[Iterable[float]], float]] = {"sum": sum, "min": min, "max": max}


class QueryError(ValueError):
    """A query isn't of those that are known here."""


@dataclass(frozen=True, slots=True)
class Stat:
    """One of what a query reckons: `max(GapS) / 1000 as name`."""

    over: str
    field: str
    divisor: float
    name: str

    @classmethod
    def of(cls, text: str) -> Stat:
        """Read it."""
        found = re.fullmatch(r"(\w+)\((\w+)\)(?: / (\d+))? as (\w+)", text.strip())
        if found is None or found[1] not in _OVER:
            raise QueryError(text)
        return cls(found[1], found[2], float(found[3] or 1), found[4])


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of which lines."""

    groups: tuple[str, ...] = ()
    message: str = ""
    """That the lines must have."""
    service: str | None = None
    """Whose they must be; None: anybody's."""
    names: tuple[str, str] | None = None
    """What is before a line's service, and what must be found in both: see `stacks.dashboard`."""
    fields: tuple[str, ...] = ()
    """Of each line, where nothing is reckoned."""
    stats: tuple[Stat, ...] = ()
    by_service: bool = False
    period_s: int = 0
    limit: int = 0

    @classmethod
    def of(cls, text: str) -> Query:
        """Read one.

        Raises:
            QueryError: it isn't of those that are known here.
        """
        query = cls()
        for command in text.split("|"):
            query = query._with(command.strip())
        return query

    def _with(self, command: str) -> Query:
        if found := re.fullmatch(r"SOURCE '([^']+)'", command):
            return replace(self, groups=(*self.groups, found[1]))
        if found := re.fullmatch(r'filter message = "([^"]+)"', command):
            return replace(self, message=found[1])
        if found := re.fullmatch(r'filter service = "([^"]+)"', command):
            return replace(self, service=found[1])
        if found := re.fullmatch(r'fields concat\("([^"]+)", "([^"]+)", service, "/"\) as names', command):
            return replace(self, names=(found[1] + found[2], ""))
        if (found := re.fullmatch(r'filter names like "([^"]+)"', command)) and self.names:
            return replace(self, names=(self.names[0], found[1]))
        if found := re.fullmatch(r"fields (@?\w+(?:, @?\w+)*)", command):
            return replace(self, fields=tuple(found[1].split(", ")))
        if found := re.fullmatch(r"stats (.+) by (service, )?bin\((\w+)\)", command):
            return replace(
                self,
                stats=tuple(map(Stat.of, found[1].split(","))),
                by_service=bool(found[2]),
                period_s=PERIODS_S[found[3]],
            )
        if command == "sort @timestamp desc":
            return self
        if found := re.fullmatch(r"limit (\d+)", command):
            return replace(self, limit=int(found[1]))
        raise QueryError(command)

    @property
    def counted(self) -> set[str]:
        """The fields that are reckoned with."""
        return {stat.field for stat in self.stats}

    def takes(self, line: Mapping[str, Any]) -> bool:
        """Whether a line is asked for."""
        service = line.get("service", "")
        if line.get("message") != self.message or self.service not in (None, service):
            return False
        return self.names is None or self.names[1] in f"{self.names[0]}{service}/"

    def rows(self, events: Iterable[Event]) -> list[dict[str, str]]:
        """What a table shows: the newest lines."""
        found = sorted((event for event in events if self.takes(event[1])), key=lambda e: e[0], reverse=True)
        return [self._row(at, line) for at, line in found[: self.limit]]

    def _row(self, at: float, line: Mapping[str, Any]) -> dict[str, str]:
        told = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
        return {name: told if name == "@timestamp" else str(line.get(name, "")) for name in self.fields}

    def lines(self, events: Iterable[Event]) -> dict[str, Series]:
        """What a graph shows, by the words of its legend."""
        values: dict[tuple[str, Stat], dict[float, list[float]]] = {}
        for at, line in events:
            if self.takes(line):
                for stat in self.stats:
                    if stat.field in line:
                        key = (str(line["service"]) if self.by_service else stat.name, stat)
                        bins = values.setdefault(key, defaultdict(list))
                        bins[at // self.period_s * self.period_s].append(line[stat.field])
        return {
            label: {at: _OVER[stat.over](found) / stat.divisor for at, found in sorted(bins.items())}
            for (label, stat), bins in values.items()
        }
