"""The alarms of the account whose names begin alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.names import ALARMS_PREFIX
from spotrelay.plane.view.snapshot import Alarm, AlarmState

NAME = re.compile(rf"{ALARMS_PREFIX}([^/.]+)[/.]([^/.]+)")
"""Of an alarm that tells somebody: whose it is, and which. With a slash it is of before 2026-11-27, of a
service that hasn't been deployed since; their parts, which told nobody, had more slashes."""


def alarms(clients: Clients, of: str = "") -> list[tuple[str, str, Mapping[str, Any]]]:
    """Those that tell somebody, as CloudWatch has them: whose each is, and which. `of` a service, or all.

    Raises:
        PortError: CloudWatch doesn't say.
    """
    with translated():
        pages = clients.cloudwatch.get_paginator("describe_alarms").paginate(
            AlarmNamePrefix=ALARMS_PREFIX + of, AlarmTypes=["MetricAlarm", "CompositeAlarm"]
        )
        found = [
            a for page in pages for kind in ("MetricAlarms", "CompositeAlarms") for a in page.get(kind, [])
        ]
    named = ((NAME.fullmatch(str(alarm["AlarmName"])), alarm) for alarm in found)
    return [(name[1], name[2], alarm) for name, alarm in named if name and of in ("", name[1])]


def of_service(clients: Clients, service: str) -> tuple[Alarm, ...]:
    """A service's own, as they are shown.

    Raises:
        PortError: CloudWatch doesn't say.
    """
    return tuple(
        Alarm(
            name,
            AlarmState(alarm["StateValue"]),
            alarm["StateUpdatedTimestamp"],
            alarm.get("AlarmDescription", ""),
        )
        for _, name, alarm in alarms(clients, service)
    )


def ringing(clients: Clients) -> dict[str, list[str]]:
    """Which ring, by service.

    Raises:
        PortError: CloudWatch doesn't say.
    """
    found: dict[str, list[str]] = {}
    for service, name, alarm in alarms(clients):
        if alarm["StateValue"] == "ALARM":
            found.setdefault(service, []).append(name)
    return found
