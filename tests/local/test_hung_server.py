"""A server that hangs, behind the load balancer."""

from __future__ import annotations

import http.client
import uuid

import pytest

from tests.local.conftest import Ground, eventually

pytestmark = pytest.mark.xdist_group("local")


def test_a_request_that_hangs_ends_after_the_balancer_s_idle_timeout(ground: Ground) -> None:
    """The balancer gives up on a stopped server after its own attribute says, not after ELB's 60 s."""
    elb, name = ground.aws.elb, f"lb-{uuid.uuid4().hex[:8]}"
    group = elb.create_target_group(
        Name=name, Protocol="HTTP", Port=8081, VpcId=ground.vpc, TargetType="instance", HealthCheckPath="/",
    )["TargetGroups"][0]["TargetGroupArn"]  # fmt: skip
    balancer = elb.create_load_balancer(Name=name, Subnets=list(ground.subnets))["LoadBalancers"][0]
    elb.modify_load_balancer_attributes(
        LoadBalancerArn=balancer["LoadBalancerArn"],
        Attributes=[{"Key": "idle_timeout.timeout_seconds", "Value": "1"}],
    )
    elb.create_listener(
        LoadBalancerArn=balancer["LoadBalancerArn"], Protocol="HTTP", Port=80,
        DefaultActions=[{"Type": "forward", "TargetGroupArn": group}],
    )  # fmt: skip
    (instance_id,) = ground.running(1)
    elb.register_targets(TargetGroupArn=group, Targets=[{"Id": instance_id}])
    eventually(lambda: _status(ground, name) == 200, "the server answers")

    ground.aws.local.hang(instance_id)
    try:
        assert _status(ground, name) == 504
    finally:
        ground.aws.local.resume(instance_id)


def _status(ground: Ground, balancer: str) -> int:
    connection = http.client.HTTPConnection(ground.aws.endpoint.removeprefix("http://"), timeout=30)
    try:
        connection.request("GET", f"/_alb/{balancer}/")
        return connection.getresponse().status
    finally:
        connection.close()
