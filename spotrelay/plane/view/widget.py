"""A service as of now, or all services, as a piece of HTML for CloudWatch's dashboards.

CloudWatch takes HTML with styles and drawings but without scripts, and shows it in its own frame. An element
`cwdb-action` says what becomes of a click on the element before it:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/add_custom_widget_dashboard_about.html
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/add_custom_widget_dashboard_interactivity.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from xml.etree import ElementTree as ET

from spotrelay.plane.view.cells import loss_cells, replica_cells
from spotrelay.plane.view.chart import Line, chart
from spotrelay.plane.view.losses import Loss, losses
from spotrelay.plane.view.palette import BAD, CONTEXT, FAILED, MONEY, ON_DEMAND, SERVING, TONES
from spotrelay.plane.view.snapshot import Alarm, AlarmState, Minute, ServiceSnapshot
from spotrelay.plane.view.status import RECENT, Status, status
from spotrelay.plane.view.words import UNKNOWN, duration, percent, usd

LOSSES_SHOWN = 10
"""The last ones: `spotrelay history` has all."""

REPLICAS_SHOWN = 50
"""A longer table gives no overview, and CloudWatch takes no more than 6 MB from a function."""

STATES = {AlarmState.ALARM: BAD, AlarmState.OK: SERVING, AlarmState.INSUFFICIENT_DATA: CONTEXT}
"""The colours of alarms."""

SECOND_P50 = "#56b4e9"
"""Beside `ON_DEMAND`'s blue for the slow answers, a lighter one for those in the middle."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a service's clients met in a span of time."""

    start: datetime
    end: datetime
    period: timedelta
    minutes: Sequence[Minute] | None
    """None: nobody says which load balancer is the service's."""


def rendered(seen: ServiceSnapshot, alarms: Sequence[Alarm] | None, served: Served | None) -> str:
    """The HTML of a snapshot. Whatever comes from a row or from EC2 is text in it, never markup.

    `alarms`, `served`: None: they couldn't be read.
    """
    found = status(seen)
    lost = losses(seen.replicas.values())
    desired = "?" if found.desired is None else found.desired
    parts = [
        f"<p>{_colored(found.tone, f'{found.judgement} {found.ready}/{desired}')} "
        f"{escape(found.service)} {found.versions}. {escape(found.why)}</p>",
        _numbers(_of_one(found, lost)),
        f"<p>{_states(alarms)}<br/>{_commands(found.service)}</p>",
        _graphs(served),
        _table(
            ("ID", "Version", "State", "Pool", "As", "Instance", "Age", "USD/h", "Replaces", ""),
            (map(escape, replica_cells(row)) for row in (*found.replicas[:REPLICAS_SHOWN], *found.failed)),
        ),
        "<h4>Last losses</h4>",
        _table(
            ("At (UTC)", "Lost", "From", "", "By", "Out", "Launched", "Ready", "Whole"),
            (map(escape, _loss(loss)) for loss in reversed(lost[-LOSSES_SHOWN:])),
        )
        if lost
        else "<p>None in 30 days.</p>",
    ]
    if len(found.replicas) > REPLICAS_SHOWN:
        parts.insert(5, f"<p>… and {len(found.replicas) - REPLICAS_SHOWN} more.</p>")
    return "".join(parts)


def overview(
    found: Mapping[str, ServiceSnapshot | str], ringing: Mapping[str, Sequence[str]] | None, endpoint: str
) -> str:
    """The HTML of all services: by name the snapshot, or why there is none. `ringing`: None: nobody knows.

    A click on a name shows that service: `endpoint` is the function that draws it.
    """
    if not found:
        return "<p>No service is deployed.</p>"
    titles = ("Service", "", "Why", "Alarms", "Lost in 24 h", "On demand", "USD/h", "Saved")
    read = [status(seen) for seen in found.values() if not isinstance(seen, str)]
    return _numbers(_of_all(read, len(found))) + _table(
        titles, (_service(name, seen, ringing, endpoint) for name, seen in sorted(found.items()))
    )


def _of_one(found: Status, lost: Sequence[Loss]) -> Iterator[tuple[str, str, str]]:
    """What somebody who is woken looks at first: each number's name, the number and its colour."""
    missing = None if found.desired is None else max(found.desired - found.ready, 0)
    yield "missing", UNKNOWN if missing is None else str(missing), BAD if missing else CONTEXT
    yield "ready", str(found.ready), SERVING
    yield "on demand", str(found.on_demand), ON_DEMAND
    yield "USD an hour", usd(found.usd_per_hour, 2), MONEY
    yield "saved", percent(found.share_saved), MONEY
    yield "lost in 24 h", str(found.lost), BAD if found.lost else CONTEXT
    recent = [loss for loss in lost if loss.at >= found.at - RECENT]
    gaps = [gap for loss in recent if (gap := _gap_s(loss, found.at))]
    yield "worst gap in 24 h", duration(max(gaps)) if gaps else "none", BAD if gaps else CONTEXT


def _of_all(read: Sequence[Status], services: int) -> Iterator[tuple[str, str, str]]:
    """The sums over all services; unknown where one of them is."""
    is_all = len(read) == services
    missing = sum(max(one.desired - one.ready, 0) for one in read if one.desired is not None)
    is_known = is_all and all(one.desired is not None for one in read)
    yield "missing", str(missing) if is_known else UNKNOWN, BAD if missing else CONTEXT
    yield "on demand", str(sum(one.on_demand for one in read)) if is_all else UNKNOWN, ON_DEMAND
    paid = [one.usd_per_hour for one in read]
    on_demand = [one.on_demand_usd_per_hour for one in read]
    total = _total(paid) if is_all else None
    instead = _total(on_demand) if is_all else None
    yield "USD an hour", usd(total, 2), MONEY
    yield "saved", percent(None if total is None or not instead else 1 - total / instead), MONEY
    lost = sum(one.lost for one in read)
    yield "lost in 24 h", str(lost) if is_all else UNKNOWN, BAD if lost else CONTEXT


def _total(amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _gap_s(loss: Loss, now: datetime) -> float | None:
    """For how long fewer than wanted were in rotation because of a loss; it may last. None: never."""
    if not loss.is_missed:
        return None
    begin = loss.out_at or loss.at
    end = loss.whole_at or loss.needless_at or now
    return (end - begin).total_seconds() if end > begin else None


def _service(
    name: str, seen: ServiceSnapshot | str, ringing: Mapping[str, Sequence[str]] | None, endpoint: str
) -> Sequence[str]:
    alarms = "not known" if ringing is None else _colored("bad", ", ".join(sorted(ringing.get(name, ()))))
    params = escape(json.dumps({"service": name}), quote=False)
    named = (
        f'<a>{escape(name)}</a><cwdb-action action="call" display="popup" endpoint="{escape(endpoint)}">'
        f"{params}</cwdb-action>"
    )
    if isinstance(seen, str):
        return named, _colored("unknown", "UNKNOWN"), escape(seen), alarms, "", "", "", ""
    one = status(seen)
    desired = "?" if one.desired is None else one.desired
    return (
        named,
        _colored(one.tone, f"{one.judgement} {one.ready}/{desired}"),
        escape(one.why),
        alarms,
        str(one.lost),
        str(one.on_demand),
        usd(one.usd_per_hour, 2),
        percent(one.share_saved),
    )


def _states(alarms: Sequence[Alarm] | None) -> str:
    """Each alarm in the colour of its state; whoever points at one is told what it means."""
    if alarms is None:
        return "Alarms: not known"
    shown = " ".join(
        f'<span title="{escape(_said(alarm))}" style="color:{STATES[alarm.state]};margin-right:10px">'
        f"■ {escape(alarm.name)}</span>"
        for alarm in alarms
    )
    return f"Alarms: {shown or 'none'}"


def _commands(service: str) -> str:
    name = escape(service)
    return (
        f"Each replica, and why: <code>spotrelay status {name}</code>. Each loss and what became of it:"
        f" <code>spotrelay history {name}</code>. What an alarm means: docs/operations.md"
    )


def _said(alarm: Alarm) -> str:
    return f"{alarm.state} since {alarm.since:%Y-%m-%d %H:%M} UTC. {alarm.description}"


def _graphs(served: Served | None) -> str:
    """What clients felt."""
    if served is None:
        return "<p>Requests: not known.</p>"
    if served.minutes is None:
        return "<p>The load balancer of this service isn't known, and so neither are its requests.</p>"
    minutes, minute = served.minutes, served.period / timedelta(minutes=1)

    def line(name: str, color: str, values: Iterable[tuple[datetime, float | None]]) -> Line:
        return Line(name, color, {at: value for at, value in values if value is not None})

    requests = [line("requests", CONTEXT, ((m.at, m.requests / minute) for m in minutes))]
    errors = [
        line("replicas", FAILED, ((m.at, (m.failed - m.failed_by_balancer) / minute) for m in minutes)),
        line("load balancer", BAD, ((m.at, m.failed_by_balancer / minute) for m in minutes)),
    ]
    seconds = [
        line("p50", SECOND_P50, ((m.at, m.p50_s) for m in minutes)),
        line("p99", ON_DEMAND, ((m.at, m.p99_s) for m in minutes)),
    ]
    drawn = (
        chart("Requests a minute", requests, served.start, served.end, served.period, _count),
        chart("Answers of 5xx a minute, by", errors, served.start, served.end, served.period, _count),
        chart("Time until an answer's headers", seconds, served.start, served.end, served.period, duration),
    )
    inside = "".join(ET.tostring(figure, encoding="unicode") for figure in drawn)
    return f'<div style="display:flex;flex-wrap:wrap;gap:24px">{inside}</div>'


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _numbers(numbers: Iterable[tuple[str, str, str]]) -> str:
    cells = "".join(
        f'<div><div style="font-size:26px;color:{color}">{escape(number)}</div>{escape(name)}</div>'
        for name, number, color in numbers
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:28px;margin-bottom:8px">{cells}</div>'


def _colored(tone: str, words: str) -> str:
    return f'<b style="color:{TONES[tone]}">{escape(words)}</b>' if words else "none"


def _table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """The cells of `rows` are HTML already."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _loss(loss: Loss) -> Sequence[str]:
    return (f"{loss.at:%Y-%m-%d %H:%M:%S}", str(loss.replica), str(loss.pool or ""), *loss_cells(loss))
