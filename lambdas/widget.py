"""A dashboard's widget: a service's replicas and last losses, as of now. It reads and changes nothing."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from lambdas.wiring import clients, invocation
from spotrelay.aws.compose import setting
from spotrelay.aws.services import ParameterServices
from spotrelay.aws.store import DynamoStore
from spotrelay.aws.table import Table
from spotrelay.core.names import Env
from spotrelay.operate import widget
from spotrelay.operate.rows import Account, rows

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

ENDED = 200
"""Ended replicas that are read: more than the losses that are shown, and one page of the table."""

DESCRIPTION = """## Replicas and last losses
The replicas of a SpotRelay service, and what it lost last.

Parameter | What it is
--- | ---
**service** | The service's name
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
        seen = rows(account(), service, datetime.now(UTC), ended=ENDED)
        if seen.spec is None and not seen.replicas:
            return f"<p>No service {escape(service) or 'was named'}: see the widget's parameters.</p>"
        return widget.rendered(seen)
