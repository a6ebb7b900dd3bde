"""`ports.Loads` with what CloudWatch knows: of a load balancer, and of the metric that a file names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spotrelay.plane.aws.clients import Clients, Kept
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds

if TYPE_CHECKING:  # of ticks alone: a warning waits for every import of a cold start
    from spotrelay.plane.core.scaling import Load, Needed

PERIOD_S = 60
"""The load balancer's metrics are a minute's. What is shorter is charged as more, and shows no more."""

SETTLED_S = 60
"""So long after its end a minute is complete: each node of a load balancer sends its part by itself. Before,
its sum is only a lower bound."""

METRIC_KNOWN_S = 600
"""What is older is as good as unknown. Metrics with a value every five minutes are common: EC2's, without
detailed monitoring."""

KEPT_S = 45.0
"""Ticks come every three seconds while replicas start, and a minute's metric has nothing new to say. Each of
the schedule's ticks, a minute apart, asks anew, even if one comes some seconds early."""

REQUESTS, HOSTS, NOBODY, METRIC = "requests", "hosts", "nobody", "metric"
"""The IDs of what is asked for."""

BALANCER = "AWS/ApplicationELB"

Values = Mapping[datetime, float]
"""By the beginning of its minute."""


class CloudWatchLoads:
    """`ports.Loads`. CloudWatch charges 0.01 USD for each thousand metrics that it is asked for."""

    def __init__(self, clients: Clients, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._clients = clients
        self._kept: Kept[tuple[str, Needed], Load] = Kept(KEPT_S, monotonic_s)

    def observe(self, spec: ServiceSpec, needed: Needed, now: datetime) -> Load:
        return self._kept.get((spec.service, needed), lambda: self._observe(spec, needed, now))

    def _observe(self, spec: ServiceSpec, needed: Needed, now: datetime) -> Load:
        from spotrelay.plane.core.scaling import Load

        known = self._ask(_queries(spec, needed), now)
        load = Load(metric=_latest(known.get(METRIC) or {}, now))
        counts = [known[id_] for id_ in (REQUESTS, NOBODY) if id_ in known]
        requests = _together(counts, now)
        if not counts or requests is None:
            return load
        # The load balancer counts nothing in a minute without requests.
        is_silent = needed.routed and not _is_last_minute(_since(requests, now), now)
        if is_silent and needed.silence:
            # That it reports its targets' health meanwhile says that there were none.
            (hosts,) = self._ask([_of_group(HOSTS, spec, "HealthyHostCount", "Maximum")], now).values()
            if hosts is None:
                return load
            requests = {**dict.fromkeys(_lately(hosts, now), 0.0), **requests}
            is_silent = False
        since = _since(requests, now)
        rates = [number / PERIOD_S for at, number in requests.items() if since is None or at >= since]
        return replace(
            load,
            requests_per_s=max(rates, default=0.0 if is_silent else None),
            is_rate_partial=is_silent or (since is None and bool(requests)),
            is_silence_presumed=is_silent,
        )

    def _ask(self, queries: Iterable[dict[str, Any]], now: datetime) -> dict[str, Values | None]:
        """What CloudWatch says of each metric; nothing costs nothing."""
        asked = [*queries]
        if not asked:
            return {}
        # CloudWatch rounds the start down to the minute by itself.
        with translated():
            answer = self._clients.cloudwatch.get_metric_data(
                MetricDataQueries=asked,
                StartTime=now - seconds(METRIC_KNOWN_S),
                EndTime=now,
                ScanBy="TimestampDescending",
            )
        return {result["Id"]: _values(result) for result in answer["MetricDataResults"]}


def _queries(spec: ServiceSpec, needed: Needed) -> Iterator[dict[str, Any]]:
    scaling = spec.scaling
    if scaling is None:
        return
    if scaling.counts_requests and needed.routed:
        yield _of_group(REQUESTS, spec, "RequestCount", "Sum")
    if scaling.counts_requests and needed.unserved:
        # A request that found no target isn't among its target group's.
        yield query(NOBODY, BALANCER, "HTTPCode_ELB_503_Count", {"LoadBalancer": spec.load_balancer}, "Sum")
    if metric := scaling.metric:
        yield query(METRIC, metric.namespace, metric.name, metric.dimensions, metric.statistic)


def _of_group(id_: str, spec: ServiceSpec, name: str, statistic: str) -> dict[str, Any]:
    # arn:aws:elasticloadbalancing:region:account:targetgroup/name/id
    group = spec.target_group_arn.rpartition(":")[2]
    return query(id_, BALANCER, name, {"TargetGroup": group, "LoadBalancer": spec.load_balancer}, statistic)


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


def _lately(values: Values, now: datetime) -> Values:
    """Of the minutes that still say something of the load."""
    from spotrelay.plane.core.scaling import LOAD_KNOWN_S

    return {at: value for at, value in values.items() if now - at <= seconds(LOAD_KNOWN_S)}


def _together(counts: Iterable[Values | None], now: datetime) -> Values | None:
    """The sum of each minute; None if a part of it isn't known."""
    total: dict[datetime, float] = {}
    for values in counts:
        if values is None:
            return None
        for at, number in _lately(values, now).items():
            total[at] = total.get(at, 0.0) + number
    return total


def _since(minutes: Iterable[datetime], now: datetime) -> datetime | None:
    """The last complete minute. Later ones may show by now that there is more."""
    return max((at for at in minutes if is_settled(at, now)), default=None)


def _is_last_minute(at: datetime | None, now: datetime) -> bool:
    """Whether no later minute is complete."""
    return at is not None and not is_settled(at + seconds(PERIOD_S), now)


def _latest(values: Values, now: datetime) -> float | None:
    """The last complete minute's value; what is only just coming in if there is no other."""
    settled = [at for at in values if is_settled(at, now)]
    return values[max(settled or values)] if values else None


def is_settled(at: datetime, now: datetime) -> bool:
    """Whether the minute that begins at `at` is complete."""
    return now - at >= seconds(PERIOD_S + SETTLED_S)
