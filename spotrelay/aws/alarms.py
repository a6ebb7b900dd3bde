"""The alarms of the account whose names begin alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.core.names import ALARMS_PREFIX

KINDS = ("MetricAlarms", "CompositeAlarms")


def alarms(clients: Clients, prefix: str) -> list[Mapping[str, Any]]:
    """Those, as CloudWatch tells them.

    Raises:
        PortError: CloudWatch doesn't say.
    """
    with translated():
        pages = clients.cloudwatch.get_paginator("describe_alarms").paginate(
            AlarmNamePrefix=prefix, AlarmTypes=["MetricAlarm", "CompositeAlarm"]
        )
        return [alarm for page in pages for kind in KINDS for alarm in page.get(kind, [])]


def ringing(clients: Clients) -> dict[str, list[str]]:
    """Which ring, by service. Parts of another alarm tell nobody by themselves.

    Raises:
        PortError: CloudWatch doesn't say.
    """
    found: dict[str, list[str]] = {}
    for alarm in alarms(clients, ALARMS_PREFIX):
        service, _, name = str(alarm["AlarmName"]).removeprefix(ALARMS_PREFIX).partition("/")
        if alarm["StateValue"] == "ALARM" and "/" not in name:
            found.setdefault(service, []).append(name)
    return found
