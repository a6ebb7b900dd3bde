"""A dashboard's widget: a service's replicas and last losses, or all services with their alarms, as of now.

It reads and changes nothing.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from lambdas.wiring import clients, invocation
from spotrelay.aws.alarms import ringing
from spotrelay.aws.compose import setting
from spotrelay.aws.services import ParameterServices
from spotrelay.aws.store import DynamoStore
from spotrelay.aws.table import Table
from spotrelay.core.names import Env
from spotrelay.core.ports import OtherControlPlane, PortError, UnreadableDocument
from spotrelay.operate import widget
from spotrelay.operate.rows import Account, rows
from spotrelay.operate.snapshot import ServiceSnapshot

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

ENDED = 200
"""Ended replicas that are read: more than the losses that are shown, and one page of the table."""

DESCRIPTION = """## Replicas and last losses
The replicas of a SpotRelay service, and what it lost last.

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
        if not service:
            return _overview()
        seen = rows(account(), service, datetime.now(UTC), ended=ENDED)
        if seen.spec is None and not seen.replicas:
            return f"<p>No service {escape(service)}: see the widget's parameters.</p>"
        return widget.rendered(seen)


def _overview() -> str:
    """All services. What can't be read of one is said of it, and the rest is shown."""
    now, found = datetime.now(UTC), dict[str, ServiceSnapshot | str]()
    for name in account().services.names():
        try:
            found[name] = rows(account(), name, now, ended=ENDED)
        except (PortError, UnreadableDocument, OtherControlPlane) as error:
            found[name] = str(error)
    try:
        rings = ringing(clients)
    except PortError:
        rings = None
    return widget.overview(found, rings)
