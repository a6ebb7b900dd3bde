"""The dashboard's widget: a service as of now and what its clients met, or all services with their alarms.

It reads and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from spotrelay.plane.aws import alarms
from spotrelay.plane.aws.requests import ServedRequests, kept_s
from spotrelay.plane.aws.runtime import clients, invocation, setting
from spotrelay.plane.aws.services import ParameterServices
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Table
from spotrelay.plane.core.names import EVERY_SERVICE, Env
from spotrelay.plane.core.ports import OtherControlPlane, PortError, UnreadableDocument
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.view import widget
from spotrelay.plane.view.rows import Account, rows
from spotrelay.plane.view.snapshot import Alarm, ServiceSnapshot

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

ENDED = 200
"""Ended replicas that are read: more than the losses that are shown, and one page of the table."""

SHOWN = timedelta(hours=12)
"""Of what clients met, where nobody says of what time."""

MOST_POINTS = 750
"""Twelve hours by the minute: as many as a graph has pixels."""

DESCRIPTION = """## A SpotRelay service now
Its numbers, alarms and replicas, what it lost last, and what its clients met.

Parameter | What it is
--- | ---
**service** | The service's name; without one, all services and their alarms
"""
"""CloudWatch shows it beside the widget's settings."""


@cache
def account() -> Account:
    """Made at the first call."""
    table = setting(os.environ, Env.TABLE)
    services = ParameterServices(clients, setting(os.environ, Env.SERVICES_PATH), table)
    return Account(DynamoStore(Table(clients, table)), services, os.environ["AWS_REGION"])


def handler(event: dict[str, Any], context: LambdaContext) -> str:
    """The widget's HTML; with `describe`, what the widget is, as CloudWatch asks for it."""
    if event.get("describe"):
        return DESCRIPTION
    service = str(event.get("service", ""))
    with invocation(context):
        if service in ("", EVERY_SERVICE):
            return _overview(context.invoked_function_arn)
        now = datetime.now(UTC)
        seen = rows(account(), service, now, ended=ENDED)
        if seen.spec is None and not seen.replicas:
            return f"<p>No service {escape(service)}: see the widget's parameters.</p>"
        span = _span(event.get("widgetContext", {}), now)
        return widget.rendered(seen, _alarms(service), _served(seen.spec, *span, now))


def _span(asked: Mapping[str, Any], now: datetime) -> tuple[datetime, datetime]:
    """The time that the dashboard shows, or the part of it that somebody has zoomed in on."""
    shown = asked.get("timeRange") or {}
    start, end = ((shown.get("zoom") or {}).get(name, shown.get(name)) for name in ("start", "end"))
    if not start or not end or end <= start:
        return now - SHOWN, now
    return datetime.fromtimestamp(start / 1000, UTC), datetime.fromtimestamp(end / 1000, UTC)


def _alarms(service: str) -> tuple[Alarm, ...] | None:
    try:
        return alarms.of_service(clients, service)
    except PortError:
        return None


def _served(spec: ServiceSpec | None, start: datetime, end: datetime, now: datetime) -> widget.Served | None:
    if spec is None:
        return None
    # As fine as CloudWatch has it and a graph shows it.
    periods = (60, 300, 3600)
    period_s = max(
        kept_s(now - start),
        next((one for one in periods if (end - start).total_seconds() <= one * MOST_POINTS), periods[-1]),
    )
    try:
        minutes = ServedRequests(clients).minutes(spec, start, end, period_s=period_s)
    except PortError:
        return None
    return widget.Served(start, end, timedelta(seconds=period_s), minutes)


def _overview(endpoint: str) -> str:
    """All services. What can't be read of one is said of it, and the rest is shown."""
    now, found = datetime.now(UTC), dict[str, ServiceSnapshot | str]()
    for name in account().services.names():
        try:
            found[name] = rows(account(), name, now, ended=ENDED)
        except (PortError, UnreadableDocument, OtherControlPlane) as error:
            found[name] = str(error)
    try:
        rings = alarms.ringing(clients)
    except PortError:
        rings = None
    return widget.overview(found, rings, endpoint)
