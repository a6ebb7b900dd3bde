"""What a board shows, asked of an account: the local cloud, in whose place AWS could be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import boto3

from lab.pictures.insights import Event
from spotrelay.operator.aws.log_lines import lines
from spotrelay.plane.aws.clients import Clients

EVERY_LINE = ""
"""CloudWatch's pattern that matches all of them."""


class CloudAccount:
    """`lab.pictures.board.Account`, by the local cloud, which answers no queries of logs: lines are read."""

    def __init__(self, session: boto3.Session) -> None:
        self._session = session
        self._cloudwatch = session.client("cloudwatch")
        self._read = cache(self._lines)

    def alarm_state(self, arn: str) -> tuple[str, str]:
        """As CloudWatch has it."""
        name = arn.partition(":alarm:")[2]
        answer = self._cloudwatch.describe_alarms(
            AlarmNames=[name], AlarmTypes=["MetricAlarm", "CompositeAlarm"]
        )
        found: list[dict[str, Any]] = [*answer["MetricAlarms"], *answer["CompositeAlarms"]]
        return name, str(found[0]["StateValue"])

    def custom(self, endpoint: str, params: Mapping[str, Any], start: datetime, end: datetime) -> str:
        """What the widget's function answers."""
        shown = {"start": int(start.timestamp() * 1000), "end": int(end.timestamp() * 1000)}
        asked = {**params, "widgetContext": {"timeRange": shown}}
        answer = self._session.client("lambda").invoke(
            FunctionName=endpoint, Payload=json.dumps(asked).encode()
        )
        return str(json.loads(answer["Payload"].read()))

    def events(self, groups: Sequence[str], start: datetime, end: datetime) -> Sequence[Event]:
        """Read from the log groups."""
        return [event for group in groups for event in self._read(group, start, end)]

    def _lines(self, group: str, start: datetime, end: datetime) -> Sequence[Event]:
        found = lines(Clients(self._session), [group], EVERY_LINE, start, end)
        return [(event["timestamp"] / 1000, line) for event, line in found]
