"""The JSON lines of the functions' logs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated


def lines(
    clients: Clients, log_groups: Sequence[str], pattern: str, since: datetime, until: datetime | None = None
) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """CloudWatch's event with each line, and what the line says. The calls are free.

    The pattern spares the transfer of other lines, and is only as exact as their form: look at each again.

    Raises:
        PortError: a log can't be read.
    """
    span = {"startTime": since} | ({} if until is None else {"endTime": until})
    times = {name: int(at.timestamp() * 1000) for name, at in span.items()}
    for group in log_groups:
        with translated():
            pages = clients.logs.get_paginator("filter_log_events").paginate(
                logGroupName=group, filterPattern=pattern, **times
            )
            for page in pages:
                for event in page["events"]:
                    line = _parsed(event["message"])
                    if line is not None:
                        yield event, line


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
