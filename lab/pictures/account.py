"""What a board shows, asked of an account: the local cloud, in whose place AWS could be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import boto3

from lab.local.metric_math import Series


class CloudAccount:
    """See `lab.pictures.board.Account`, of a span of time."""

    def __init__(self, session: boto3.Session, start: datetime, end: datetime) -> None:
        self._session = session
        self._cloudwatch = session.client("cloudwatch")
        self._start, self._end = start, end

    def points(
        self, namespace: str, name: str, dimensions: Mapping[str, str], period_s: int, statistic: str
    ) -> Series:
        """See `lab.pictures.lines.Metrics`."""
        answer = self._cloudwatch.get_metric_data(
            MetricDataQueries=[
                {
                    "Id": "one",
                    "MetricStat": {
                        "Metric": {
                            "Namespace": namespace,
                            "MetricName": name,
                            "Dimensions": [{"Name": n, "Value": v} for n, v in dimensions.items()],
                        },
                        "Period": period_s,
                        "Stat": statistic,
                    },
                }
            ],
            StartTime=self._start,
            EndTime=self._end,
            ScanBy="TimestampAscending",
        )
        (found,) = answer["MetricDataResults"]
        return {at.timestamp(): value for at, value in zip(found["Timestamps"], found["Values"], strict=True)}

    def like(self, namespace: str, dimensions: Sequence[str], name: str) -> Sequence[Mapping[str, str]]:
        """See `lab.pictures.lines.Metrics`."""
        pages = self._cloudwatch.get_paginator("list_metrics").paginate(Namespace=namespace, MetricName=name)
        found = [
            {d["Name"]: d["Value"] for d in metric["Dimensions"]}
            for page in pages
            for metric in page["Metrics"]
        ]
        return sorted(
            (one for one in found if set(one) == set(dimensions)), key=lambda one: sorted(one.items())
        )

    def alarm_state(self, arn: str) -> tuple[str, str]:
        """See `lab.pictures.board.Account`."""
        name = arn.partition(":alarm:")[2]
        answer = self._cloudwatch.describe_alarms(
            AlarmNames=[name], AlarmTypes=["MetricAlarm", "CompositeAlarm"]
        )
        found: list[dict[str, Any]] = [*answer["MetricAlarms"], *answer["CompositeAlarms"]]
        return name, str(found[0]["StateValue"])

    def custom(self, endpoint: str, params: Mapping[str, Any]) -> str:
        """See `lab.pictures.board.Account`."""
        answer = self._session.client("lambda").invoke(
            FunctionName=endpoint, Payload=json.dumps(dict(params)).encode()
        )
        return str(json.loads(answer["Payload"].read()))

    def query(self, query: str, start: datetime, end: datetime) -> Sequence[Mapping[str, str]]:
        """See `lab.pictures.board.Account`. The local cloud answers no such query: lines are read here."""
        asked = _Query.of(query)
        logs = self._session.client("logs")
        span = {"startTime": int(start.timestamp() * 1000), "endTime": int(end.timestamp() * 1000)}
        found: list[dict[str, str]] = []
        for group in asked.groups:
            for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group, **span):
                found += [row for event in page["events"] if (row := asked.row(event)) is not None]
        return sorted(found, key=lambda row: row["@timestamp"], reverse=True)[: asked.limit]


@dataclass(frozen=True, slots=True)
class _Query:
    """A query of CloudWatch Logs Insights, as far as the boards here have them: the newest of some lines."""

    groups: Sequence[str]
    fields: Sequence[str]
    where: tuple[str, str]
    limit: int

    @classmethod
    def of(cls, query: str) -> _Query:
        groups = re.findall(r"SOURCE '([^']+)'", query)
        fields = re.search(r"\bfields ([^|]+)", query)
        where = re.search(r'\bfilter (\w+) = "([^"]+)"', query)
        limit = re.search(r"\blimit (\d+)", query)
        if not (groups and fields and where and limit and "sort @timestamp desc" in query):
            raise ValueError(f"no query that is known here: {query}")
        names = [name.strip() for name in fields[1].split(",")]
        return cls(groups, names, (where[1], where[2]), int(limit[1]))

    def row(self, event: Mapping[str, Any]) -> dict[str, str] | None:
        """What a line has of the fields; None: it isn't asked for."""
        try:
            line = json.loads(event["message"])
        except ValueError:
            return None
        name, value = self.where
        if not isinstance(line, dict) or line.get(name) != value:
            return None
        at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return {name: at if name == "@timestamp" else str(line.get(name, "")) for name in self.fields}
