"""How numbers and names are put into words for people: the same way in commands and on the page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spotrelay.plane.core.rows import Desired, Source

if TYPE_CHECKING:
    from spotrelay.plane.core.replica import Replica
    from spotrelay.plane.core.spec import ServiceSpec

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


def console(replica: Replica) -> str:
    """The command that shows what a replica's instance says."""
    return f"spotrelay logs {replica.service} {replica.id} shows its console"


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


def asked_in_words(wanted: Desired, spec: ServiceSpec, now: datetime) -> str:
    """How many replicas there should be, who says so and until when.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: see `Scaling.schedule`.
    """
    number = f"{wanted.replicas} replica{'' if wanted.replicas == 1 else 's'}"
    if wanted.source is Source.LOAD:
        schedule = spec.scaling.schedule(now) if spec.scaling else None
        bounds = (
            f", {schedule.min_replicas} to {schedule.max_replicas} by the schedule {schedule.cron!r}"
            if schedule
            else ""
        )
        return f"{number}, as the load asks for{bounds}"
    if wanted.until is None:
        return f"{number}, as the service file says"
    is_today = wanted.until.date() == now.date()
    until = wanted.until.astimezone(UTC).strftime("%H:%M UTC" if is_today else "%Y-%m-%d %H:%M UTC")
    after = (
        "as many as the load asks for" if spec.scaling else f"{spec.replicas} again as the service file says"
    )
    return f"{number} until {until} ({wanted.source}), then {after}"
