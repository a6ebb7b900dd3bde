"""The alarms of the account whose names begin alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.core.names import ALARMS_PREFIX

KINDS = ("MetricAlarms", "CompositeAlarms")


def alarms(clients: Clients, prefix: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Those that tell somebody, as CloudWatch has them, each after its name behind `ALARMS_PREFIX`.

    The parts of another alarm are left out: they tell nobody by themselves.

    Raises:
        PortError: CloudWatch doesn't say.
    """
    with translated():
        pages = clients.cloudwatch.get_paginator("describe_alarms").paginate(
            AlarmNamePrefix=prefix, AlarmTypes=["MetricAlarm", "CompositeAlarm"]
        )
        found = [alarm for page in pages for kind in KINDS for alarm in page.get(kind, [])]
    named = ((str(alarm["AlarmName"]).removeprefix(ALARMS_PREFIX), alarm) for alarm in found)
    return [(name, alarm) for name, alarm in named if name.count("/") == 1]


def ringing(clients: Clients) -> dict[str, list[str]]:
    """Which ring, by service.

    Raises:
        PortError: CloudWatch doesn't say.
    """
    found: dict[str, list[str]] = {}
    for of_service, alarm in alarms(clients, ALARMS_PREFIX):
        service, name = of_service.split("/")
        if alarm["StateValue"] == "ALARM":
            found.setdefault(service, []).append(name)
    return found
