"""A service's alarms, as CloudWatch has them."""

from __future__ import annotations

from spotrelay.aws.alarms import alarms
from spotrelay.aws.clients import Clients
from spotrelay.core.names import alarms_prefix
from spotrelay.operate.snapshot import Alarm, AlarmState


def of_service(clients: Clients, service: str) -> tuple[Alarm, ...]:
    """Those that tell somebody.

    Raises:
        PortError: CloudWatch doesn't say.
    """
    return tuple(
        Alarm(
            name.partition("/")[2],
            AlarmState(alarm["StateValue"]),
            alarm["StateUpdatedTimestamp"],
            alarm.get("AlarmDescription", ""),
        )
        for name, alarm in alarms(clients, alarms_prefix(service))
    )
