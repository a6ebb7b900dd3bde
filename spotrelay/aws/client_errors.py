"""What a service's clients felt: the answers of 5xx that its load balancer counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.aws.loads import BALANCER
from spotrelay.core.spec import ServiceSpec

MINUTE_KEPT, FIVE_MINUTES_KEPT = timedelta(days=15), timedelta(days=63)
"""For how long CloudWatch keeps values of a minute, and of five; after that, those of an hour."""

OWN, TARGETS, REQUESTS = "own", "targets", "requests"
"""The IDs of what is asked for."""


def client_errors(
    clients: Clients, spec: ServiceSpec, start: datetime, end: datetime
) -> Mapping[datetime, int] | None:
    """5xx by the beginning of their minute; None if nobody says which load balancer counts them.

    The balancer's own, for want of a healthy replica, and the replicas'. What is older than 15 days comes by
    five minutes or an hour, as CloudWatch keeps it.

    Raises:
        PortError: CloudWatch doesn't tell.
    """
    if not spec.load_balancer:
        return None
    counts = _counted(clients, spec, start, end)
    total: Counter[datetime] = Counter()
    for id_ in (OWN, TARGETS):
        total.update(counts.get(id_, {}))
    return dict(sorted(total.items()))


def requests(clients: Clients, spec: ServiceSpec, start: datetime, end: datetime) -> int | None:
    """How many requests there were; None as for `client_errors`.

    Raises:
        PortError: CloudWatch doesn't tell.
    """
    if not spec.load_balancer:
        return None
    return sum(_counted(clients, spec, start, end).get(REQUESTS, {}).values())


def _counted(
    clients: Clients, spec: ServiceSpec, start: datetime, end: datetime
) -> dict[str, dict[datetime, int]]:
    balancer = [{"Name": "LoadBalancer", "Value": spec.load_balancer}]
    group = {"Name": "TargetGroup", "Value": spec.target_group_arn.rpartition(":")[2]}
    asked = {
        OWN: ("HTTPCode_ELB_5XX_Count", balancer),
        TARGETS: ("HTTPCode_Target_5XX_Count", [group, *balancer]),
        REQUESTS: ("RequestCount", [group, *balancer]),
    }
    age = end - start
    period_s = 60 if age <= MINUTE_KEPT else 300 if age <= FIVE_MINUTES_KEPT else 3600
    queries = [
        {
            "Id": id_,
            "MetricStat": {
                "Metric": {"Namespace": BALANCER, "MetricName": name, "Dimensions": dimensions},
                "Period": period_s,
                "Stat": "Sum",
            },
        }
        for id_, (name, dimensions) in asked.items()
    ]
    found: dict[str, dict[datetime, int]] = {}
    with translated():
        pages = clients.cloudwatch.get_paginator("get_metric_data").paginate(
            MetricDataQueries=queries,
            StartTime=start.replace(second=0, microsecond=0),
            EndTime=end,
        )
        for page in pages:
            for result in page["MetricDataResults"]:
                values = zip(result["Timestamps"], result["Values"], strict=True)
                found.setdefault(result["Id"], {}).update({at: round(count) for at, count in values})
    return found
