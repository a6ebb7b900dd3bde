"""`ports.Loads` with what CloudWatch knows: of a load balancer, and of the metric that a file names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.aws.kept import Kept
from spotrelay.core.scaling import Load
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds

PERIOD_S = 60
"""The load balancer's metrics are a minute's. What is shorter is charged as more, and shows no more."""

SETTLED_S = 60
"""So long after its end a minute is complete: each node of a load balancer sends its part by itself. Before,
its sum is only a lower bound."""

LOAD_KNOWN_S, METRIC_KNOWN_S = 300, 600
"""What is older is as good as unknown. Metrics with a value every five minutes are common: EC2's, without
detailed monitoring."""

KEPT_S = 15.0
"""Ticks come every three seconds while replicas start, and a minute's metric has nothing new to say."""

REQUESTS, HOSTS, NOBODY, METRIC = "requests", "hosts", "nobody", "metric"
"""The IDs of what is asked for."""

BALANCER = "AWS/ApplicationELB"

Values = Mapping[datetime, float]
"""By the beginning of its minute."""


class CloudWatchLoads:
    """See `ports.Loads`. One call, which costs 0.01 USD for each thousand metrics."""

    def __init__(self, clients: Clients, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._clients = clients
        self._kept: Kept[str, Load] = Kept(KEPT_S, monotonic_s)

    def observe(self, spec: ServiceSpec, now: datetime) -> Load:
        """See `ports.Loads.observe`."""
        return self._kept.get(spec.service, lambda: self._observe(spec, now))

    def _observe(self, spec: ServiceSpec, now: datetime) -> Load:
        queries = [*_queries(spec)]
        if not queries:
            return Load()
        # CloudWatch rounds the start down to the minute by itself.
        with translated():
            answer = self._clients.cloudwatch.get_metric_data(
                MetricDataQueries=queries,
                StartTime=now - seconds(METRIC_KNOWN_S),
                EndTime=now,
                ScanBy="TimestampDescending",
            )
        known = {result["Id"]: _values(result) for result in answer["MetricDataResults"]}
        rate, is_partial = _rate(known, now) if {REQUESTS, HOSTS, NOBODY} <= known.keys() else (None, False)
        return Load(
            requests_per_s=rate,
            is_rate_partial=is_partial,
            metric=_latest(known.get(METRIC) or {}, now),
        )


def _queries(spec: ServiceSpec) -> Iterator[dict[str, Any]]:
    scaling = spec.scaling
    if scaling is None:
        return
    if scaling.counts_requests:
        balancer = {"LoadBalancer": spec.load_balancer}
        # arn:aws:elasticloadbalancing:region:account:targetgroup/name/id
        group = {"TargetGroup": spec.target_group_arn.rpartition(":")[2], **balancer}
        yield query(REQUESTS, BALANCER, "RequestCount", group, "Sum")
        yield query(HOSTS, BALANCER, "HealthyHostCount", group, "Maximum")
        yield query(NOBODY, BALANCER, "HTTPCode_ELB_503_Count", balancer, "Sum")
    if metric := scaling.metric:
        yield query(METRIC, metric.namespace, metric.name, metric.dimensions, metric.statistic)


def query(
    id_: str,
    namespace: str,
    name: str,
    dimensions: Mapping[str, str],
    statistic: str,
    period_s: int = PERIOD_S,
) -> dict[str, Any]:
    """One metric of GetMetricData, minute by minute or in longer steps."""
    return {
        "Id": id_,
        "MetricStat": {
            "Metric": {
                "Namespace": namespace,
                "MetricName": name,
                "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
            },
            "Period": period_s,
            "Stat": statistic,
        },
    }


def _values(result: Mapping[str, Any]) -> Values | None:
    """None if CloudWatch couldn't say all of it: a part would look like less load."""
    if result["StatusCode"] != "Complete":
        return None
    return dict(zip(result["Timestamps"], result["Values"], strict=True))


def _rate(known: Mapping[str, Values | None], now: datetime) -> tuple[float | None, bool]:
    """Requests a second in the last complete minute, or in what is seen of a later one if that is more.

    And whether there is no complete one.

    The load balancer counts nothing in a minute without requests, so it is known by its targets' health that
    there were none. A request that found no target isn't among its target group's, but a 503 of its own.
    """
    requests, hosts, nobody = (known[id_] for id_ in (REQUESTS, HOSTS, NOBODY))
    if requests is None or hosts is None or nobody is None:
        return None, False
    minutes = [at for at in {*requests, *hosts, *nobody} if now - at <= seconds(LOAD_KNOWN_S)]
    since = max((at for at in minutes if is_settled(at, now)), default=None)
    counted = (requests.get(at, 0.0) + nobody.get(at, 0.0) for at in minutes if since is None or at >= since)
    return max((number / PERIOD_S for number in counted), default=None), bool(minutes) and since is None


def _latest(values: Values, now: datetime) -> float | None:
    """The last complete minute's value; what is only just coming in if there is no other."""
    settled = [at for at in values if is_settled(at, now)]
    return values[max(settled or values)] if values else None


def is_settled(at: datetime, now: datetime) -> bool:
    """Whether the minute that begins at `at` is complete."""
    return now - at >= seconds(PERIOD_S + SETTLED_S)
