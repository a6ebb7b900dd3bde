"""How numbers are put into words for people: the same way in commands and on the page."""

from __future__ import annotations

from datetime import datetime

UNKNOWN = "?"


def duration(seconds: float | None) -> str:
    """Two units at most, such as `2 d 4 h`, `6 min 12 s` or `0.9 s`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit_s, unit, part_s, part in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit_s:
            rest = whole % unit_s // part_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"


def usd(amount: float | None, digits: int = 3) -> str:
    """An amount as a table has it."""
    return UNKNOWN if amount is None else f"{amount:,.{digits}f}"


def percent(share: float | None) -> str:
    """A share as people say it."""
    return UNKNOWN if share is None else f"{share:.0%}".replace("%", " %")


def clock(at: datetime | None, now: datetime) -> str:
    """The time of day, with the date if it isn't today. In UTC, as all logs are."""
    if at is None:
        return UNKNOWN
    return at.strftime("%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S")
