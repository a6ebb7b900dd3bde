"""How many requests a service had and how many failed, as far as CloudWatch knows: it is a minute late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.aws.loads import BALANCER, PERIOD_S, is_settled, query
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.view.snapshot import Minute

MINUTES_KEPT, FIVE_MINUTES_KEPT = timedelta(days=15), timedelta(days=63)
"""For how long CloudWatch keeps values of a minute, and of five; after that, those of an hour."""

MARGIN = timedelta(hours=1)
"""So much sooner the coarser values are asked for: of a start that is a second too old for its period there
are no values at all, and the call takes time, the start is rounded down, and clocks differ."""

ROUTED, NOBODY, BY_TARGET, BY_BALANCER = "routed", "nobody", "target", "balancer"
PERCENTILES = ("p50", "p99")
"""The IDs of what is asked for."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Those of some minutes."""

    total: int
    failed: int
    """Answered with a 5xx, by a replica or by the load balancer itself."""


def kept_s(age: timedelta) -> int:
    """The shortest period, in seconds, of which CloudWatch still has values that are so old."""
    return PERIOD_S if age + MARGIN <= MINUTES_KEPT else 300 if age + MARGIN <= FIVE_MINUTES_KEPT else 3600


class ServedRequests:
    """Counts of a service's load balancer. One call costs 0.00004 USD.

    What the load balancer answers itself it counts for all of its services together.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def between(self, spec: ServiceSpec, since: datetime, until: datetime) -> Requests | None:
        """Those from the minute of `since` to `until`; None: the document names no load balancer.

        Raises:
            PortError: CloudWatch doesn't say.
        """
        if not spec.load_balancer:
            return None
        found = self._counted(spec, since, until)
        sums = {id_: sum(counts.values()) for id_, counts in found.items()}
        # RequestCount leaves out the requests for which there was no target.
        return Requests(sums[ROUTED] + sums[NOBODY], sums[BY_TARGET] + sums[BY_BALANCER])

    def failed_by_minute(
        self, spec: ServiceSpec, since: datetime, until: datetime
    ) -> Mapping[datetime, int] | None:
        """Those that failed, by the beginning of their minute; None as for `between`.

        What is older than 15 days comes by five minutes or an hour, as CloudWatch keeps it.

        Raises:
            PortError: CloudWatch doesn't say.
        """
        if not spec.load_balancer:
            return None
        found = self._counted(spec, since, until)
        total: Counter[datetime] = Counter()
        for id_ in (BY_TARGET, BY_BALANCER):
            total.update(found[id_])
        return dict(sorted(total.items()))

    def minutes(
        self,
        spec: ServiceSpec,
        since: datetime,
        until: datetime,
        ongoing: Mapping[datetime, float] = MappingProxyType({}),
        period_s: int = PERIOD_S,
    ) -> tuple[Minute, ...] | None:
        """The complete minutes in which there was something; None as for `between`.

        `ongoing` has, by minute, the requests that replicas had by their own account. With a `period_s` of
        300 or 3600 what is called a minute is longer.

        Raises:
            PortError: CloudWatch doesn't say.
        """
        if not spec.load_balancer:
            return None
        group = {"TargetGroup": _group(spec), "LoadBalancer": spec.load_balancer}
        queries = [
            *_counts(spec, period_s),
            *(query(name, BALANCER, "TargetResponseTime", group, name, period_s) for name in PERCENTILES),
        ]
        found = self._asked(queries, since, until)
        times = sorted(
            {at for values in (*found.values(), ongoing) for at in values if is_settled(at, until)}
        )

        def count(at: datetime, *ids: str) -> int:
            return round(sum(found[id_].get(at, 0.0) for id_ in ids))

        p50, p99 = (found[name] for name in PERCENTILES)
        return tuple(
            Minute(
                at,
                count(at, ROUTED, NOBODY),
                count(at, BY_TARGET, BY_BALANCER),
                p50.get(at),
                p99.get(at),
                ongoing.get(at),
                count(at, BY_BALANCER),
            )
            for at in times
        )

    def _counted(self, spec: ServiceSpec, since: datetime, until: datetime) -> dict[str, dict[datetime, int]]:
        """By ID and time."""
        found = self._asked(_counts(spec, kept_s(until - since)), since, until)
        return {id_: {at: round(value) for at, value in values.items()} for id_, values in found.items()}

    def _asked(
        self, queries: Sequence[dict[str, Any]], since: datetime, until: datetime
    ) -> dict[str, dict[datetime, float]]:
        found: dict[str, dict[datetime, float]] = {one["Id"]: {} for one in queries}
        request: dict[str, Any] = {
            "MetricDataQueries": queries,
            "StartTime": since.replace(second=0, microsecond=0),
            "EndTime": until + seconds(PERIOD_S),
        }
        with translated():
            for page in self._clients.cloudwatch.get_paginator("get_metric_data").paginate(**request):
                for result in page["MetricDataResults"]:
                    found[result["Id"]].update(zip(result["Timestamps"], result["Values"], strict=True))
        return found


def _group(spec: ServiceSpec) -> str:
    # arn:aws:elasticloadbalancing:region:account:targetgroup/name/id
    return spec.target_group_arn.rpartition(":")[2]


def _counts(spec: ServiceSpec, period_s: int) -> list[dict[str, Any]]:
    balancer = {"LoadBalancer": spec.load_balancer}
    group = {"TargetGroup": _group(spec), **balancer}
    return [
        query(ROUTED, BALANCER, "RequestCount", group, "Sum", period_s),
        query(BY_TARGET, BALANCER, "HTTPCode_Target_5XX_Count", group, "Sum", period_s),
        query(BY_BALANCER, BALANCER, "HTTPCode_ELB_5XX_Count", balancer, "Sum", period_s),
        query(NOBODY, BALANCER, "HTTPCode_ELB_503_Count", balancer, "Sum", period_s),
    ]
