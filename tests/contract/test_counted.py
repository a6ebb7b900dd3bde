"""What was counted, read from the functions' logs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.stub import Stubber

from spotrelay.operator.aws.counted import most_by_minute
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.names import COUNTED, Metric
from spotrelay.plane.core.ports import PortError
from tests.contract.rows import NOW

SINCE = NOW - timedelta(minutes=30)

REQUESTS = Metric.ONGOING_REQUESTS


def at(moment: datetime, *lines: str) -> dict[str, Any]:
    """A page of a log, all of whose lines are of one moment."""
    return {"events": [{"timestamp": int(moment.timestamp() * 1000), "message": line} for line in lines]}


def counted(metric: Metric, value: float, service: str = "demo") -> str:
    """A line of what was counted."""
    return json.dumps({"message": COUNTED, "service": service, metric: value})


def test_the_most_of_each_minute_of_one_service(clients: Clients) -> None:
    """Whoever counted it; other services' lines, other messages and what is no JSON don't matter."""
    late = NOW + timedelta(seconds=5)
    of_others = json.dumps({"message": "x", "service": "demo", REQUESTS: 8})
    with Stubber(clients.logs) as logs:
        for group, lines in {
            "on_signal": (counted(REQUESTS, 3), counted(REQUESTS, 9, "demo-2"), "START", "[1]"),
            "reconcile": (counted(REQUESTS, 5), counted(REQUESTS, 4), counted(Metric.GAP_S, 7), of_others),
        }.items():
            asked = {
                "logGroupName": group,
                "startTime": int(SINCE.timestamp() * 1000),
                "endTime": int(late.timestamp() * 1000),
                "filterPattern": '{ $.message = "counted" && $.service = "demo" && $.OngoingRequests = * }',
            }
            logs.add_response("filter_log_events", {**at(late, *lines), "nextToken": "more"}, asked)
            before = at(NOW - timedelta(seconds=1), counted(REQUESTS, 4.5))
            logs.add_response("filter_log_events", before, {**asked, "nextToken": "more"})
        groups = ("on_signal", "reconcile")
        found = most_by_minute(clients, groups, "demo", REQUESTS, SINCE, late)
    assert found == {NOW: 5, NOW - timedelta(minutes=1): 4.5}


def test_a_log_that_cannot_be_read_is_told(clients: Clients) -> None:
    """As every adapter does."""
    with Stubber(clients.logs) as logs:
        logs.add_client_error("filter_log_events", "ResourceNotFoundException")
        with pytest.raises(PortError):
            most_by_minute(clients, ["gone"], "demo", Metric.GAP_S, SINCE, NOW)
