"""Elastic Load Balancing: its actions on targets; of the rest, MiniStack's, what the balancer must know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lab.local.balancer import (
    Balancer,
    BalancerConfig,
    Certificate,
    Gate,
    HealthCheck,
    SecureListener,
    TargetGroup,
    UnknownTargetGroupError,
)
from lab.local.context import Context, Handler, Result, resource_tag_conditions
from lab.local.instances import LocalInstanceState
from lab.local.ministack import MiniStack
from lab.local.wire import AwsError


class Routing:
    """Load balancers and target groups as MiniStack keeps them, handed on to the balancer."""

    def __init__(self, ministack: MiniStack, balancer: Balancer) -> None:
        self._ministack = ministack
        self._balancer = balancer
        self._names: dict[str, str] = {}

    def refresh(self) -> None:
        """Take over what has changed. Cheap, so it may be called at every request."""
        load_balancers = self._ministack.load_balancers()
        self._names = {str(lb["DNSName"]).lower(): str(lb["LoadBalancerName"]) for lb in load_balancers}
        groups = [_target_group(record) for record in self._ministack.target_groups()]
        self._balancer.configure([self._load_balancer(lb) for lb in load_balancers], groups)

    def load_balancer_at(self, host: str) -> str | None:
        """The name of the load balancer that a Host header means, if any."""
        name = host.partition(":")[0].lower()
        if not name.endswith(".elb.amazonaws.com"):
            return None
        if name not in self._names:
            self.refresh()
        return self._names.get(name)

    def metric_dimension(self, name: str) -> str | None:
        """The `BalancerConfig` dimension of its metrics: app/name/id."""
        for record in self._ministack.load_balancers():
            if record["LoadBalancerName"] == name:
                return str(record["LoadBalancerArn"]).partition(":loadbalancer/")[2]
        return None

    def names(self) -> list[str]:
        """All load balancers."""
        return list(self._names.values())

    def target_groups(self) -> list[str]:
        """The ARNs of all target groups."""
        return [str(record["TargetGroupArn"]) for record in self._ministack.target_groups()]

    def _load_balancer(self, record: Mapping[str, Any]) -> BalancerConfig:
        """One listener for HTTP and one for HTTPS are emulated, of several the one on the lowest port.

        Of each its default action and, where that is a fixed response, one rule with one condition on a
        header.
        """
        listeners = sorted(record["Listeners"], key=lambda listener: int(listener["Port"]))
        http, https = (
            next((li for li in listeners if (li["Protocol"] == "HTTPS") is is_https), None)
            for is_https in (False, True)
        )
        attributes = record["Attributes"]
        return BalancerConfig(
            record["LoadBalancerName"],
            _forward_target(http),
            float(attributes.get("idle_timeout.timeout_seconds", 60)),
            frozenset(record["Zones"]) or None,
            _gate(http),
            https and SecureListener(_forward_target(https), _gate(https), self._certificate(https)),
            attributes.get("routing.http.drop_invalid_header_fields.enabled") == "true",
        )

    def _certificate(self, listener: Mapping[str, Any]) -> Certificate | None:
        found = self._ministack.certificate(next(iter(listener.get("Certificates") or []), ""))
        return Certificate(*found) if found else None


class TargetActions:
    """The handlers of RegisterTargets, DeregisterTargets and DescribeTargetHealth."""

    def __init__(self, balancer: Balancer, routing: Routing) -> None:
        self._balancer = balancer
        self._routing = routing

    @property
    def handlers(self) -> dict[str, Handler]:
        """By action."""
        return {
            "RegisterTargets": self._register,
            "DeregisterTargets": self._deregister,
            "DescribeTargetHealth": self._describe_health,
        }

    def _register(self, context: Context) -> Result:
        arn = self._require(context, "RegisterTargets")
        targets = _to_change(context)
        instances = context.cloud.instances
        unknown = [id_ for id_, _ in targets if id_ not in instances]
        if unknown:
            raise AwsError("InvalidTarget", f"Instance ID '{unknown[0]}' is not valid")
        idle = [id_ for id_, _ in targets if instances[id_].state is not LocalInstanceState.RUNNING]
        if idle:
            names = ", ".join(f"'{id_}'" for id_ in idle)
            raise AwsError(
                "InvalidTarget",
                f"The following targets are not in a running state and cannot be registered: {names}",
            )
        self._call(lambda: self._balancer.register(arn, targets))
        return {}

    def _deregister(self, context: Context) -> Result:
        arn = self._require(context, "DeregisterTargets")
        targets = _to_change(context)
        self._call(lambda: self._balancer.deregister(arn, targets))
        for instance_id, _ in targets:
            context.cloud.deregistered(instance_id)
        return {}

    def _describe_health(self, context: Context) -> Result:
        context.require("elasticloadbalancing:DescribeTargetHealth")
        arn = str(context.params["TargetGroupArn"])
        targets = _targets(context) if "Targets" in context.params else None
        self._routing.refresh()
        rows = self._call(lambda: self._balancer.health(arn, targets))
        return {"TargetHealthDescriptions": [_health(row) for row in rows]}

    def _require(self, context: Context, action: str) -> str:
        arn = str(context.params["TargetGroupArn"])
        tags = context.ministack.tags_of(arn)
        conditions = {
            **resource_tag_conditions(tags),
            **{f"elasticloadbalancing:ResourceTag/{key}": value for key, value in tags.items()},
        }
        context.require(f"elasticloadbalancing:{action}", arn, conditions)
        self._routing.refresh()
        return arn

    def _call(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except UnknownTargetGroupError as error:
            raise AwsError("TargetGroupNotFound", "One or more target groups not found") from error


MANY_TARGETS = 100
"""ELBv2 refuses larger calls to change targets now and then: here, always (kubernetes/kubernetes#101592)."""


def _to_change(context: Context) -> list[tuple[str, int | None]]:
    targets = _targets(context)
    if len(targets) > MANY_TARGETS:
        raise AwsError("InternalFailure", "the request has too many targets", status=500)
    return targets


def _targets(context: Context) -> list[tuple[str, int | None]]:
    return [(target["Id"], target.get("Port")) for target in context.params["Targets"]]


def _health(row: Mapping[str, Any]) -> Result:
    health = {"State": row["state"], "Reason": row["reason"], "Description": row["description"]}
    return {
        "Target": {"Id": row["id"], "Port": row["port"]},
        "HealthCheckPort": str(row["port"]),
        "TargetHealth": {name: value for name, value in health.items() if value is not None},
    }


def _target_group(record: Mapping[str, Any]) -> TargetGroup:
    attributes: Mapping[str, str] = record["Attributes"]
    algorithm = attributes.get("load_balancing.algorithm.type", "round_robin")
    return TargetGroup(
        arn=record["TargetGroupArn"],
        port=int(record["Port"]),
        health_check=HealthCheck(
            path=record["HealthCheckPath"] or "/",
            port=str(record["HealthCheckPort"] or "traffic-port"),
            interval_s=float(record["HealthCheckIntervalSeconds"]),
            timeout_s=float(record["HealthCheckTimeoutSeconds"]),
            healthy_threshold=int(record["HealthyThresholdCount"]),
            unhealthy_threshold=int(record["UnhealthyThresholdCount"]),
            matcher=record["Matcher"]["HttpCode"],
        ),
        deregistration_delay_s=float(attributes.get("deregistration_delay.timeout_seconds", 300)),
        algorithm="least_outstanding_requests"
        if algorithm == "least_outstanding_requests"
        else "round_robin",
    )


def _gate(listener: Mapping[str, Any] | None) -> Gate | None:
    actions = listener["DefaultActions"] if listener else []
    if not (listener and actions and actions[0].get("Type") == "fixed-response"):
        return None
    header: Mapping[str, Any] = {"HttpHeaderName": "", "Values": ()}
    if listener["Rules"]:
        (condition,) = listener["Rules"][0]["Conditions"]
        header = condition["HttpHeaderConfig"]
    fixed = actions[0]["FixedResponseConfig"]
    return Gate(
        header=header["HttpHeaderName"],
        values=tuple(header["Values"]),
        status=int(fixed["StatusCode"]),
        content_type=str(fixed.get("ContentType") or "text/plain"),
        body=str(fixed.get("MessageBody") or ""),
    )


def _forward_target(listener: Mapping[str, Any] | None) -> str | None:
    if listener is None:
        return None
    rules = [action for rule in listener["Rules"] for action in rule["Actions"]]
    for action in (*listener["DefaultActions"], *rules):
        if action.get("Type") == "forward":
            groups = (action.get("ForwardConfig") or {}).get("TargetGroups") or []
            arn = action.get("TargetGroupArn") or (groups[0].get("TargetGroupArn") if groups else None)
            return None if arn is None else str(arn)
    return None
