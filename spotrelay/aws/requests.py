"""How many requests a service had and how many failed, as far as CloudWatch knows: it is a minute late."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.aws.loads import BALANCER, PERIOD_S, query
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds


@dataclass(frozen=True, slots=True)
class Requests:
    """Those of some minutes."""

    total: int
    failed: int
    """Answered with a 5xx, by a replica or by the load balancer itself."""


class ServedRequests:
    """Counts of a service's load balancer. One call costs 0.00004 USD."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def between(self, spec: ServiceSpec, since: datetime, until: datetime) -> Requests | None:
        """Those from the minute of `since` to `until`; None: the document names no load balancer.

        What the load balancer answers itself it counts for all of its services together.

        Raises:
            PortError: CloudWatch doesn't say.
        """
        if not spec.load_balancer:
            return None
        balancer = {"LoadBalancer": spec.load_balancer}
        # arn:aws:elasticloadbalancing:region:account:targetgroup/name/id
        group = {"TargetGroup": spec.target_group_arn.rpartition(":")[2], **balancer}
        with translated():
            answer = self._clients.cloudwatch.get_metric_data(
                MetricDataQueries=[
                    query("routed", BALANCER, "RequestCount", group, "Sum"),
                    query("target", BALANCER, "HTTPCode_Target_5XX_Count", group, "Sum"),
                    query("balancer", BALANCER, "HTTPCode_ELB_5XX_Count", balancer, "Sum"),
                    query("nobody", BALANCER, "HTTPCode_ELB_503_Count", balancer, "Sum"),
                ],
                StartTime=since.replace(second=0, microsecond=0),
                EndTime=until + seconds(PERIOD_S),
            )
        sums = {result["Id"]: int(sum(result["Values"])) for result in answer["MetricDataResults"]}
        # RequestCount leaves out the requests for which there was no target.
        return Requests(sums["routed"] + sums["nobody"], sums["target"] + sums["balancer"])
