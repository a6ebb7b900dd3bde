"""What the control plane counted, read from its log: CloudWatch has only what alarms look at as metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from spotrelay.operator.aws.log_lines import lines
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.names import COUNTED, METRICS_DIMENSION, Metric


def most_by_minute(
    clients: Clients,
    log_groups: Sequence[str],
    service: str,
    metric: Metric,
    since: datetime,
    until: datetime,
) -> Mapping[datetime, float]:
    """The most that was counted of a service's metric, by the beginning of its minute.

    Raises:
        PortError: the log can't be read.
    """
    found: dict[datetime, float] = {}
    pattern = f'{{ $.message = "{COUNTED}" && $.{METRICS_DIMENSION} = "{service}" && $.{metric} = * }}'
    for event, line in lines(clients, log_groups, pattern, since, until):
        is_asked_for = (line.get("message"), line.get(METRICS_DIMENSION)) == (COUNTED, service)
        if is_asked_for and metric in line:
            at = datetime.fromtimestamp(event["timestamp"] // 60_000 * 60, UTC)
            found[at] = max(line[metric], found.get(at, 0))
    return found
