"""The way in: the target group whose members the controller decides, and the load balancer before it."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import CfnParameter, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from constructs import Construct

from spotrelay.file.service import Service
from spotrelay.file.values import limits
from spotrelay.plane.core.names import target_group_name
from stacks.network import Network

HEALTH_CHECK_INTERVAL = Duration.seconds(5)
"""The shortest ELB offers: a replacement gets its first request this much after it can serve, at most."""

HEALTH_CHECK_TIMEOUT = Duration.seconds(limits.BALANCER_TIMEOUT_S)
"""Must be shorter than the interval; a busy model server answers its health check late."""

UNHEALTHY_THRESHOLD = 3
"""Late three times in a row is more than busy. A server that hangs gets no new request after 14 to 19 s: at
most five until the next check, ten for two more, four until the last has timed out. EC2 announces losses
itself: no need to be quicker (docs/decisions/2026-11-22-hung-servers.md)."""

RESPONSE_PERIOD, RESPONSE_STATISTIC = Duration.minutes(5), "p99"

ELB_NAMESPACE = "AWS/ApplicationELB"


class Entrance(Construct):
    """What the rest of a service's stack must know of its way in."""

    target_group_arn: str
    balancer: str = ""
    """The load balancer's name in metrics, `app/name/id`; empty where nobody says which one it is."""
    address: str = ""
    """Where clients reach the service, with its scheme; empty where the load balancer isn't its own."""
    security_group: ec2.ISecurityGroup | None = None
    """The load balancer's; None: the user's own groups let it in."""
    response_time: cloudwatch.Metric | None = None
    """How long answers take; None where nobody says what load balancer counts it."""
    requests: Mapping[str, cloudwatch.Metric] = {}
    """The load balancer's counts of requests and of 5xx, by short names for metric math; none where nobody
    says what load balancer it is."""
    errors: tuple[str, ...] = ()
    """Of `requests`, those that together are all answers of 5xx."""
    answers: tuple[str, ...] = ()
    """Of `requests`, those that together are all answers."""

    def _counted(self, *, balancer: Mapping[str, str], service: Mapping[str, str], is_own: bool) -> None:
        """Name the counts, by the dimensions of the load balancer and of the service's part of it.

        A balancer's own answers are counted without a target group: if the balancer isn't the service's own,
        nobody knows whose they are. Those that had no target to choose aren't among its requests. Source:
        https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-cloudwatch-metrics.html
        """
        self.requests = {
            "requests": _sum("RequestCount", service),
            "target_5xx": _sum("HTTPCode_Target_5XX_Count", service),
            **({"balancer_5xx": _sum("HTTPCode_ELB_5XX_Count", balancer)} if is_own else {}),
        }
        self.errors = tuple(name for name in self.requests if name != "requests")
        self.answers = tuple(name for name in self.requests if name != "target_5xx")
        self.response_time = cloudwatch.Metric(
            namespace=ELB_NAMESPACE,
            metric_name="TargetResponseTime",
            dimensions_map=dict(service),
            period=RESPONSE_PERIOD,
            statistic=RESPONSE_STATISTIC,
        )


class GivenListener(Entrance):
    """A listener that exists already, and a rule of it that forwards to a target group of the service's."""

    def __init__(self, scope: Construct, id_: str, *, service: Service, network: Network) -> None:
        super().__init__(scope, id_)
        listener = service.listener
        if listener is None:
            raise ValueError(f"{service.name} names no listener")
        group = target_group(self, service, network)
        conditions = {"path-pattern": listener.paths, "host-header": listener.hosts}
        rule = elbv2.CfnListenerRule(
            self,
            "Rule",
            listener_arn=listener.arn,
            priority=listener.priority,
            conditions=[
                elbv2.CfnListenerRule.RuleConditionProperty(field=field, values=values)
                for field, values in conditions.items()
                if values
            ],
            actions=[
                elbv2.CfnListenerRule.ActionProperty(type="forward", target_group_arn=group.target_group_arn)
            ],
        )
        rule.node.add_dependency(group)
        self.target_group_arn = group.target_group_arn
        self.balancer = listener.balancer
        # The balancer may have other services: only this one's answers count.
        of_balancer = {"LoadBalancer": listener.balancer}
        of_service = {**of_balancer, "TargetGroup": group.target_group_full_name}
        self._counted(balancer=of_balancer, service=of_service, is_own=False)


class GivenTargetGroup(Entrance):
    """A target group that exists already, behind whatever load balancer it is."""

    def __init__(self, scope: Construct, id_: str, *, target_group_arn: str) -> None:
        super().__init__(scope, id_)
        self.target_group_arn = target_group_arn


def _sum(name: str, dimensions: Mapping[str, str]) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=ELB_NAMESPACE,
        metric_name=name,
        dimensions_map=dict(dimensions),
        period=Duration.minutes(1),
        statistic="Sum",
    )


def target_group(scope: Construct, service: Service, network: Network) -> elbv2.ApplicationTargetGroup:
    """The target group of a service that brings none."""
    return elbv2.ApplicationTargetGroup(
        scope,
        "Targets",
        target_group_name=target_group_name(service.name),
        vpc=network.vpc,
        target_type=elbv2.TargetType.INSTANCE,
        protocol=elbv2.ApplicationProtocol.HTTP,
        port=_nominal_port(scope, service),
        # The longest of the ways out: of those that have less time, EC2 or the controller ends the instance.
        deregistration_delay=Duration.seconds(service.deregistration_delay_s),
        # Answers take a second or a minute: taking turns would pile the long ones up on one replica.
        load_balancing_algorithm_type=(
            elbv2.TargetGroupLoadBalancingAlgorithmType.ROUND_ROBIN
            if service.load_balancing == "round_robin"
            else elbv2.TargetGroupLoadBalancingAlgorithmType.LEAST_OUTSTANDING_REQUESTS
        ),
        health_check=elbv2.HealthCheck(
            path=service.health_check_path,
            interval=HEALTH_CHECK_INTERVAL,
            timeout=HEALTH_CHECK_TIMEOUT,
            healthy_threshold_count=2,
            unhealthy_threshold_count=UNHEALTHY_THRESHOLD,
            healthy_http_codes=service.health_check_codes,
        ),
    )


def _nominal_port(scope: Construct, service: Service) -> float:
    """The port that the target group was made with, whatever the service's is by now.

    Each target is registered with the port of its own version, so this one serves nobody. But it can't be
    changed. A parameter keeps the value of the stack's last deployment, unless one is given.
    """
    parameter = CfnParameter(
        Stack.of(scope),
        "TargetGroupPort",
        type="Number",
        default=service.port,
        description="What the target group was made with. Never change it: targets have their own ports",
    )
    return parameter.value_as_number
