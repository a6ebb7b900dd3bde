"""A service's alarms, as CloudWatch has them."""

from __future__ import annotations

from spotrelay.aws.alarms import alarms
from spotrelay.aws.clients import Clients
from spotrelay.operate.snapshot import Alarm, AlarmState


def of_service(clients: Clients, service: str) -> tuple[Alarm, ...]:
    """Those that tell somebody.

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
