"""A service's replicas and last losses, or all services, as a piece of HTML for CloudWatch's dashboards.

CloudWatch takes HTML without scripts, and shows it in its own frame:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/add_custom_widget_dashboard_create.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from spotrelay.operate.losses import Loss, losses
from spotrelay.operate.snapshot import ServiceSnapshot
from spotrelay.operate.status import status
from spotrelay.operate.words import loss_cells, replica_cells, usd
from spotrelay.palette import TONES

LOSSES_SHOWN = 10
"""The last ones: `spotrelay history` has all."""

REPLICAS_SHOWN = 50
"""A table that is longer is nobody's overview, and CloudWatch takes no more than 6 MB from a function."""


def rendered(seen: ServiceSnapshot) -> str:
    """The HTML of a snapshot. Whatever comes from a row or from EC2 is text in it, never markup."""
    found = status(seen)
    lost = losses(seen.replicas.values())[-LOSSES_SHOWN:]
    desired = "?" if found.desired is None else found.desired
    parts = [
        f"<p>{_colored(found.tone, f'{found.judgement} {found.ready}/{desired}')} "
        f"{found.versions}, {found.on_demand} on-demand, "
        f"{usd(found.usd_per_hour, 2)} USD/h. {escape(found.why)}</p>",
        _table(
            ("ID", "Version", "State", "Pool", "As", "Instance", "Age", "USD/h", "Replaces", ""),
            (map(escape, replica_cells(row)) for row in (*found.replicas[:REPLICAS_SHOWN], *found.failed)),
        ),
        "<h4>Last losses</h4>",
        _table(
            ("At (UTC)", "Lost", "From", "", "By", "Out", "Launched", "Ready", "Whole"),
            (map(escape, _loss(loss)) for loss in reversed(lost)),
        )
        if lost
        else "<p>None in 30 days.</p>",
    ]
    if len(found.replicas) > REPLICAS_SHOWN:
        parts.insert(2, f"<p>… and {len(found.replicas) - REPLICAS_SHOWN} more.</p>")
    return "".join(parts)


def overview(found: Mapping[str, ServiceSnapshot | str], ringing: Mapping[str, Sequence[str]] | None) -> str:
    """The HTML of all services: by name the snapshot, or why there is none. `ringing`: None: nobody knows."""
    if not found:
        return "<p>No service is deployed.</p>"
    titles = ("Service", "", "Why", "Alarms", "Lost in 24 h", "On demand", "USD/h")
    return _table(titles, (_service(name, seen, ringing) for name, seen in sorted(found.items())))


def _service(
    name: str, seen: ServiceSnapshot | str, ringing: Mapping[str, Sequence[str]] | None
) -> Sequence[str]:
    alarms = "not known" if ringing is None else _colored("bad", ", ".join(sorted(ringing.get(name, ()))))
    if isinstance(seen, str):
        return escape(name), _colored("unknown", "UNKNOWN"), escape(seen), alarms, "", "", ""
    one = status(seen)
    desired = "?" if one.desired is None else one.desired
    return (
        escape(name),
        _colored(one.tone, f"{one.judgement} {one.ready}/{desired}"),
        escape(one.why),
        alarms,
        str(one.lost),
        str(one.on_demand),
        usd(one.usd_per_hour, 2),
    )


def _colored(tone: str, words: str) -> str:
    return f'<b style="color:{TONES[tone]}">{escape(words)}</b>' if words else "none"


def _table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """The cells of `rows` are HTML already."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _loss(loss: Loss) -> Sequence[str]:
    return (f"{loss.at:%Y-%m-%d %H:%M:%S}", str(loss.replica), str(loss.pool or ""), *loss_cells(loss))
