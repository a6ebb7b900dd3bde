"""Replicas and losses as the cells of a table: the same in commands, on the page and in a dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotrelay.plane.view.words import duration, usd

if TYPE_CHECKING:
    from spotrelay.plane.view.losses import Loss
    from spotrelay.plane.view.status import ReplicaRow


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
