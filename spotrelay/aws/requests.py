"""How many requests a service had and how many failed, as far as CloudWatch knows: it is a minute late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.aws.loads import BALANCER, PERIOD_S, query
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds

MINUTES_KEPT, FIVE_MINUTES_KEPT = timedelta(days=15), timedelta(days=63)
"""For how long CloudWatch keeps values of a minute, and of five; after that, those of an hour."""

MARGIN = timedelta(hours=1)
"""So much sooner the coarser values are asked for: of a start that is a second too old for its period there
are no values at all, and the call takes time, the start is rounded down, and clocks differ."""

ROUTED, NOBODY, BY_TARGET, BY_BALANCER = "routed", "nobody", "target", "balancer"
"""The IDs of what is asked for."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Those of some minutes."""

    total: int
    failed: int
    """Answered with a 5xx, by a replica or by the load balancer itself."""


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

    def _counted(self, spec: ServiceSpec, since: datetime, until: datetime) -> dict[str, dict[datetime, int]]:
        """By ID and time."""
        balancer = {"LoadBalancer": spec.load_balancer}
        # arn:aws:elasticloadbalancing:region:account:targetgroup/name/id
        group = {"TargetGroup": spec.target_group_arn.rpartition(":")[2], **balancer}
        age = until - since + MARGIN
        period_s = PERIOD_S if age <= MINUTES_KEPT else 300 if age <= FIVE_MINUTES_KEPT else 3600
        queries = [
            query(ROUTED, BALANCER, "RequestCount", group, "Sum", period_s),
            query(BY_TARGET, BALANCER, "HTTPCode_Target_5XX_Count", group, "Sum", period_s),
            query(BY_BALANCER, BALANCER, "HTTPCode_ELB_5XX_Count", balancer, "Sum", period_s),
            query(NOBODY, BALANCER, "HTTPCode_ELB_503_Count", balancer, "Sum", period_s),
        ]
        found: dict[str, dict[datetime, int]] = {one["Id"]: {} for one in queries}
        request: dict[str, Any] = {
            "MetricDataQueries": queries,
            "StartTime": since.replace(second=0, microsecond=0),
            "EndTime": until + seconds(PERIOD_S),
        }
        with translated():
            for page in self._clients.cloudwatch.get_paginator("get_metric_data").paginate(**request):
                for result in page["MetricDataResults"]:
                    values = zip(result["Timestamps"], result["Values"], strict=True)
                    found[result["Id"]].update((at, round(count)) for at, count in values)
        return found
