"""What the control plane counted, read from its log: CloudWatch has only what alarms look at as metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.core.names import COUNTED, METRICS_DIMENSION, Metric


def most_by_minute(
    clients: Clients,
    log_groups: Sequence[str],
    service: str,
    metric: Metric,
    since: datetime,
    until: datetime,
) -> Mapping[datetime, float]:
    """The most that was counted of a service's metric, by the beginning of its minute. The calls are free.

    Raises:
        PortError: the log can't be read.
    """
    found: dict[datetime, float] = {}
    pattern = f'{{ $.message = "{COUNTED}" && $.{METRICS_DIMENSION} = "{service}" && $.{metric} = * }}'
    for group in log_groups:
        with translated():
            pages = clients.logs.get_paginator("filter_log_events").paginate(
                logGroupName=group,
                startTime=int(since.timestamp() * 1000),
                endTime=int(until.timestamp() * 1000),
                filterPattern=pattern,
            )
            for page in pages:
                for event in page["events"]:
                    line = _line(event["message"])
                    # The pattern spares the transfer of other lines, and is only as exact as their form.
                    is_asked_for = (line.get("message"), line.get(METRICS_DIMENSION)) == (COUNTED, service)
                    if is_asked_for and metric in line:
                        at = datetime.fromtimestamp(event["timestamp"] // 60_000 * 60, UTC)
                        found[at] = max(line[metric], found.get(at, 0))
    return found


def _line(text: str) -> Mapping[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}
