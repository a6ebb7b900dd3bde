"""Services whose number of replicas follows their load, and what their load is seen by: for `cost`.

Each has as many replicas as there may be at least, so that its number stays and nothing but the looking is
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from spotrelay.plane.core.scaling import Ongoing, OngoingTarget, Scaling
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.memory import MemoryProber

SHOWN_AFTER = timedelta(seconds=60)
"""Assumed: so long after its beginning CloudWatch shows something of a minute."""

PER_REPLICA = 1.0
"""Requests a second, or in progress, that a replica is to have: more than any is seen to have here."""


LOAD_BALANCER = "app/llama3/0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Situation:
    """What such a service is in for a month."""

    name: str
    replicas: int
    scaling: Scaling | None = None
    """None: its number stays."""
    requests: float = 0
    """In each minute."""

    def of(self, spec: ServiceSpec) -> ServiceSpec:
        """The service in it."""
        return replace(spec, replicas=self.replicas, scaling=self.scaling, load_balancer=LOAD_BALANCER)


def situations(replicas: int) -> Sequence[Situation]:
    """Those that last."""
    rate = Scaling(min_replicas=replicas, max_replicas=3 * replicas, target_qps_per_replica=PER_REPLICA)
    ongoing = OngoingTarget(target=PER_REPLICA, metrics=("vllm:num_requests_running",))
    return (
        Situation("requests each minute", replicas, rate, requests=60),
        Situation("no requests", replicas, rate),
        Situation("no replica", 0, replace(rate, min_replicas=0)),
        Situation("`ongoing`", replicas, replace(rate, target_qps_per_replica=None, ongoing=ongoing)),
    )


class Traffic:
    """CloudWatch's client, with what a load balancer reports; each metric that it is asked for is charged."""

    def __init__(self, situation: Situation, charge: Callable[[int], None]) -> None:
        self._charge = charge
        reported = {"RequestCount": situation.requests, "HealthyHostCount": situation.replicas}
        self._values = {name: value for name, value in reported.items() if value}

    def get_metric_data(
        self,
        MetricDataQueries: Sequence[Mapping[str, Any]],  # noqa: N803 - as AWS names it
        StartTime: datetime,  # noqa: N803
        EndTime: datetime,  # noqa: N803
        **_: object,
    ) -> dict[str, Any]:
        """Answer as CloudWatch does, and charge for each metric."""
        self._charge(len(MetricDataQueries))
        minutes = [*_minutes(StartTime, EndTime - SHOWN_AFTER)]
        results = []
        for query in MetricDataQueries:
            value = self._values.get(query["MetricStat"]["Metric"]["MetricName"])
            times = [] if value is None else minutes
            result = {"StatusCode": "Complete", "Timestamps": times, "Values": [value] * len(times)}
            results.append({"Id": query["Id"], **result})
        return {"MetricDataResults": results}


def _minutes(since: datetime, until: datetime) -> Iterator[datetime]:
    at = since.replace(second=0, microsecond=0)
    while at <= until:
        yield at
        at += timedelta(minutes=1)


class ChargedProber(MemoryProber):
    """`ports.Prober`, whose invocations for replicas' own account of their requests are charged."""

    def __init__(self, charge: Callable[[], None]) -> None:
        super().__init__()
        self._charge = charge

    def ongoing(
        self, service: str, target: OngoingTarget, addresses: Mapping[str, tuple[str, int]]
    ) -> Ongoing:
        """Charge for the invocation."""
        self._charge()
        return super().ongoing(service, target, addresses)
