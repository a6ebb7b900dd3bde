"""GetMetricData: as strict as CloudWatch."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from lab.local.metric_data import DAY_S, RefusedError, answer
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.requests import ServedRequests
from tests.examples import demo_spec
from tests.local.conftest import Aws

METRIC = {"Namespace": "N", "MetricName": "M", "Dimensions": [{"Name": "service", "Value": "demo"}]}
QUERY: dict[str, Any] = {"Id": "m", "MetricStat": {"Metric": METRIC, "Period": 60, "Stat": "Sum"}}

POINTS = [{"Timestamp": at, "Value": at} for at in (59.0, 60.0, 119.0, 125.0, 180.0)]


def ask(*queries: dict[str, Any], start: float | None = 90, end: float | None = 180, **facts: Any) -> Any:
    """What is answered; the one metric that there is has `POINTS`."""
    known = ("N", "M", {"service": "demo"})
    return answer(
        queries,
        start,
        end,
        now=facts.get("now", 200),
        is_ascending=facts.get("is_ascending", False),
        points=lambda *asked: POINTS if asked == known else [],
        statistic=lambda points, _: sum(point["Value"] for point in points),
    )


def stat(**facts: Any) -> dict[str, Any]:
    """A query of the metric with something else asked of it."""
    return {**QUERY, "MetricStat": {**QUERY["MetricStat"], **facts}}


@pytest.mark.parametrize(("is_ascending", "times"), [(False, [120, 60]), (True, [60, 120])])
def test_values_are_of_whole_periods_newest_first(is_ascending: bool, times: list[float]) -> None:
    """From the period that the start lies in, to before the end."""
    (result,) = ask(QUERY, is_ascending=is_ascending)
    assert result["Timestamps"] == times
    assert dict(zip(result["Timestamps"], result["Values"], strict=True)) == {60: 179.0, 120: 125.0}
    assert (result["Id"], result["StatusCode"]) == ("m", "Complete")


@pytest.mark.parametrize("dimensions", [[], [*METRIC["Dimensions"], {"Name": "zone", "Value": "a"}]])
def test_a_metric_is_all_of_its_dimensions(dimensions: Sequence[Any]) -> None:
    """With fewer, or with more, it is another metric, which has no data: no error, and nothing."""
    (result,) = ask(stat(Metric={**METRIC, "Dimensions": dimensions}))
    assert result["Timestamps"] == []


@pytest.mark.parametrize(
    ("queries", "times", "said"),
    [
        ([QUERY], {"start": None}, "StartTime and EndTime"),
        ([QUERY], {"start": 180}, "must be less"),
        ([], {}, "1 to 500"),
        ([QUERY] * 2, {}, "not unique"),
        ([{**QUERY, "Id": "M"}], {}, "lowercase"),
        ([stat(Period=90)], {}, "multiple of 60"),
        ([stat(Stat="Mean")], {}, "not supported"),
        ([stat(Metric={"Namespace": "N"})], {}, "MetricName"),
        ([{"Id": "m", "Expression": "1"}], {}, "emulated"),
    ],
)
def test_what_is_refused(queries: list[Any], times: dict[str, Any], said: str) -> None:
    """In a word of CloudWatch's own, where it has one."""
    with pytest.raises(RefusedError, match=said):
        ask(*queries, **times)


@pytest.mark.parametrize(
    ("age_s", "period", "is_told"),
    [
        (3 * 3600, 30, True), (3 * 3601, 30, False), (3 * 3601, 60, True), (15 * DAY_S, 60, True),
        (15 * DAY_S + 1, 60, False), (15 * DAY_S + 1, 300, True), (63 * DAY_S + 1, 300, False),
        (63 * DAY_S + 1, 3600, True),
    ],
)  # fmt: skip
def test_what_began_long_ago_is_told_in_long_periods_only(age_s: int, period: int, is_told: bool) -> None:
    """A start that is too long ago for the period leaves nothing, not even what is young."""
    (result,) = ask(stat(Period=period), now=90 + age_s)
    assert bool(result["Timestamps"]) is is_told


@pytest.mark.xdist_group("local")
@pytest.mark.parametrize("days", [1, 15, 63, 90])
def test_errors_are_found_however_far_one_looks_back(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """What a history asks is never of a period that CloudWatch has nothing of."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.endpoint)
    clients = Clients(boto3.Session("test", "test", region_name="us-east-1"))
    spec = replace(demo_spec(), load_balancer=f"app/demo/{uuid.uuid4().hex}")
    now = datetime.now(UTC)
    datum = {
        "MetricName": "HTTPCode_ELB_5XX_Count", "Value": 7, "Timestamp": now,
        "Dimensions": [{"Name": "LoadBalancer", "Value": spec.load_balancer}],
    }  # fmt: skip
    aws.client("cloudwatch").put_metric_data(Namespace="AWS/ApplicationELB", MetricData=[datum])
    found = ServedRequests(clients).failed_by_minute(spec, now - timedelta(days=days), now)
    assert found
    assert list(found.values()) == [7]


@pytest.mark.xdist_group("local")
def test_clients_get_it(aws: Aws) -> None:
    """As boto3 asks; a refusal is an error."""
    cloudwatch, namespace = aws.client("cloudwatch"), f"ns-{uuid.uuid4().hex[:8]}"
    now = datetime.now(UTC)
    datum = {"MetricName": "M", "Value": 7, "Dimensions": METRIC["Dimensions"], "Timestamp": now}
    cloudwatch.put_metric_data(Namespace=namespace, MetricData=[datum])
    times = {"StartTime": now - timedelta(minutes=5), "EndTime": now + timedelta(minutes=5)}
    query = stat(Metric={**METRIC, "Namespace": namespace})
    (result,) = cloudwatch.get_metric_data(MetricDataQueries=[query], **times)["MetricDataResults"]
    assert (result["Values"], result["StatusCode"]) == ([7.0], "Complete")
    assert result["Timestamps"] == [now.replace(second=0, microsecond=0)]
    with pytest.raises(ClientError, match="lowercase"):
        cloudwatch.get_metric_data(MetricDataQueries=[{**query, "Id": "M"}], **times)
