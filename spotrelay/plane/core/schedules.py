"""When a cron expression last fired, in a time zone with daylight saving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

MOST_DAYS = 8 * 366
"""How far back a firing is looked for. 29 February is the rarest day: it comes again after eight years where
a century's year has none."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class CronError(ValueError):
    """Not a cron expression: which part of it, and what would be one."""


@dataclass(frozen=True, slots=True)
class Cron:
    """The five fields of a cron expression: minute, hour, day of the month, month, day of the week."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    is_either_day: bool
    """Whether both kinds of day are given: then one of them is enough, as cron has it."""

    @classmethod
    def parse(cls, text: str) -> Cron:
        """`*`, numbers, names of months and days, ranges, steps and lists.

        Raises:
            CronError: it is something else, or never fires.
        """
        parts = text.split()
        if len(parts) != len(_FIELDS):
            raise CronError(
                f"expected five fields (minute, hour, day, month, day of the week), got {len(parts)}"
            )
        sets = [_numbers(part, *field) for part, field in zip(parts, _FIELDS, strict=True)]
        minutes, hours, days, months, weekdays = sets
        weekdays = frozenset(day % 7 for day in weekdays)
        # As in cron: a field that begins with a star restricts nothing, even with a step.
        is_either = not parts[2].startswith("*") and not parts[4].startswith("*")
        cron = cls(minutes, hours, days, months, weekdays, is_either_day=is_either)
        if not is_either and not any(day <= _LONGEST[month] for day in days for month in months):
            raise CronError(f"no month of {parts[3]} has a day {parts[2]}, so it never fires")
        return cron

    def fires_on(self, day: date) -> bool:
        """Whether it fires at some time of the day."""
        if day.month not in self.months:
            return False
        is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return is_day or is_weekday if self.is_either_day else is_day and is_weekday

    def last_fired(self, zone: ZoneInfo, now: datetime) -> datetime | None:
        """When it last fired, now included, in UTC; None if never in eight years.

        A local time that daylight saving skips counts as the time an hour later, one that comes twice counts
        the first time.
        """
        # The day after the local one is looked at too: clocks that are put back over midnight repeat a day.
        newest = now.astimezone(zone).date() + timedelta(days=1)
        for back in range(MOST_DAYS):
            day = newest - timedelta(days=back)
            if self.fires_on(day):
                fired = [at for at in self._times(day, zone) if at <= now]
                if fired:
                    return max(fired)
        return None

    def _times(self, day: date, zone: ZoneInfo) -> Iterator[datetime]:
        for hour in self.hours:
            for minute in self.minutes:
                # `fold` is 0: the first of two equal times, and before a gap the offset of before it.
                yield datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone).astimezone(UTC)


_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
"""Name, least, most, names of the numbers from `least` on."""

_LONGEST = {1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}


@cache
def parsed(text: str) -> Cron:
    """The expression, parsed once in a process. Raises `CronError`."""
    return Cron.parse(text)


def _numbers(text: str, name: str, least: int, most: int, names: tuple[str, ...]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        range_, slash, step_text = part.partition("/")
        step = int(step_text) if step_text.isdecimal() else 0 if slash else 1
        if range_ == "*":
            first, last = least, most
        else:
            first_text, dash, last_text = range_.partition("-")
            first = _number(first_text, least, names)
            last = _number(last_text, least, names) if dash else most if slash else first
        if not (step >= 1 and least <= first <= last <= most):
            of = f", or {names[0].upper()} to {names[-1].upper()}" if names else ""
            raise CronError(
                f"{name}: expected numbers from {least} to {most}{of}, a range, a step or *, got {part!r}"
            )
        found |= set(range(first, last + 1, step))
    return frozenset(found)


def _number(text: str, least: int, names: tuple[str, ...]) -> int:
    """The number, or -1 for what is none: below every field's least."""
    if text.lower() in names:
        return names.index(text.lower()) + least
    return int(text) if text.isdecimal() and text.isascii() else -1
