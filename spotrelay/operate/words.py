"""How numbers and names are put into words for people: the same way in commands and on the page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spotrelay.core.rows import Desired, Source

if TYPE_CHECKING:
    from spotrelay.core.replica import Replica
    from spotrelay.core.spec import ServiceSpec
    from spotrelay.operate.losses import Loss
    from spotrelay.operate.status import ReplicaRow

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


def price_of(row: ReplicaRow) -> str:
    """What a replica costs an hour; nothing where it has no instance, or none any more."""
    return usd(row.usd_per_hour) if row.pool and row.state != "FAILED" else ""


def replica_cells(row: ReplicaRow) -> list[str]:
    """A replica in a table: from its ID to its price, whom it replaces, and a note."""
    return [
        str(row.id),
        str(row.version),
        row.state,
        row.pool,
        row.purchase_option,
        row.instance_id or "",
        duration(row.age_s),
        price_of(row),
        str(row.replaces or ""),
        row.note,
    ]


def successor_of(loss: Loss) -> str:
    """Who came in the place of what was lost."""
    return str(loss.replaced_by or "none") + (f" (meanwhile {loss.fallback})" if loss.fallback else "")


def loss_cells(loss: Loss) -> list[str]:
    """A loss in a table: whether it was warned, who replaced it, then out, launched, ready and whole."""
    return [
        "warned" if loss.is_warned else "no warning",
        successor_of(loss),
        *(duration(s) for s in (loss.out_s, loss.launched_s, loss.ready_s, loss.whole_s)),
    ]
