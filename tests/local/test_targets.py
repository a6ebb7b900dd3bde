"""Targets of a load balancer as an operator sees them: ports, zones, and servers that hang."""

from __future__ import annotations

import http.client
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from lab.local.client import LocalCloudError
from tests.local.conftest import PATIENCE_S, Ground, eventually

if TYPE_CHECKING:
    from mypy_boto3_elbv2.type_defs import TargetDescriptionTypeDef

pytestmark = pytest.mark.xdist_group("local")


class Site:
    """A load balancer with a target group, on the ground's subnets or those named."""

    def __init__(self, ground: Ground, *subnets: str) -> None:
        self.elb = ground.aws.elb
        self.name = f"lb-{uuid.uuid4().hex[:8]}"
        self._local = ground.aws.local
        self.group = self.elb.create_target_group(
            Name=self.name, Protocol="HTTP", Port=8081, VpcId=ground.vpc, TargetType="instance",
            HealthCheckPath="/", HealthCheckIntervalSeconds=5, HealthCheckTimeoutSeconds=2,
            UnhealthyThresholdCount=2, HealthyThresholdCount=2,
        )["TargetGroups"][0]["TargetGroupArn"]  # fmt: skip
        balancer = self.elb.create_load_balancer(Name=self.name, Subnets=list(subnets or ground.subnets))
        self.arn = balancer["LoadBalancers"][0]["LoadBalancerArn"]
        self.elb.create_listener(
            LoadBalancerArn=self.arn, Protocol="HTTP", Port=80,
            DefaultActions=[{"Type": "forward", "TargetGroupArn": self.group}],
        )  # fmt: skip
        self._address = ground.aws.endpoint.removeprefix("http://")

    def register(self, *ids: str) -> None:
        """Register instances."""
        self.elb.register_targets(TargetGroupArn=self.group, Targets=[{"Id": id_} for id_ in ids])

    def deregister(self, id_: str) -> None:
        """Deregister an instance."""
        self.elb.deregister_targets(TargetGroupArn=self.group, Targets=[{"Id": id_}])

    def health(self) -> dict[tuple[str, int], tuple[str, str | None]]:
        """By ID and port: state and reason."""
        rows = self.elb.describe_target_health(TargetGroupArn=self.group)["TargetHealthDescriptions"]
        return {
            (row["Target"]["Id"], row["Target"]["Port"]): (
                row["TargetHealth"]["State"],
                row["TargetHealth"].get("Reason"),
            )
            for row in rows
        }

    def until(self, state: str, *ids: str) -> None:
        """Wait until the instances are in the state."""
        eventually(lambda: {self.health()[id_, 8081][0] for id_ in ids} == {state}, f"{ids} are {state}")

    def get(self) -> tuple[int, str]:
        """The status of a GET, and which instance it went to."""
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
        connection.request("GET", f"/_alb/{self.name}/")
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status, self._local.requests(self.name)[-1]["target"]


def test_a_target_with_a_port_of_its_own_goes_by_that_port_only(ground: Ground) -> None:
    """Deregistering it without the port leaves it where it is, and so does a target beside it."""
    site, (instance_id,) = Site(ground), ground.running(1)
    site.register(instance_id)
    with_port: TargetDescriptionTypeDef = {"Id": instance_id, "Port": 9000}
    site.elb.register_targets(TargetGroupArn=site.group, Targets=[with_port])
    assert set(site.health()) == {(instance_id, 8081), (instance_id, 9000)}
    site.deregister(instance_id)
    assert {key for key, (state, _) in site.health().items() if state != "draining"} == {(instance_id, 9000)}
    site.deregister(instance_id)
    assert (instance_id, 9000) in site.health()
    site.elb.deregister_targets(TargetGroupArn=site.group, Targets=[with_port])
    assert {state for state, _ in site.health().values()} == {"draining"}


def test_a_zone_that_the_load_balancer_lacks_gets_no_traffic(ground: Ground) -> None:
    """A target there is unused until its zone is enabled, and again once that is disabled."""
    site = Site(ground, ground.subnets[0])
    ids = {i["zone"]: i["instance_id"] for i in _one_in_each(ground)}
    here, there = ids["us-east-1a"], ids["us-east-1b"]
    site.register(here, there)
    site.until("healthy", here)
    assert site.health()[there, 8081] == ("unused", "Target.NotInUse")
    assert {site.get() for _ in range(4)} == {(200, here)}
    site.elb.set_subnets(LoadBalancerArn=site.arn, Subnets=list(ground.subnets))
    site.until("healthy", here, there)
    assert {site.get() for _ in range(4)} == {(200, here), (200, there)}
    site.elb.set_subnets(LoadBalancerArn=site.arn, Subnets=[ground.subnets[1]])
    site.until("unused", here)
    assert site.health()[there, 8081][0] == "healthy"


def test_a_hung_server_gets_no_new_requests_while_another_is_healthy(ground: Ground) -> None:
    """What is in flight ends with 504 after the idle time-out; when all hang, they get requests again."""
    site, ids = Site(ground), ground.running(2)
    hung, other = ids
    site.elb.modify_load_balancer_attributes(
        LoadBalancerArn=site.arn, Attributes=[{"Key": "idle_timeout.timeout_seconds", "Value": "1"}]
    )
    site.register(*ids)
    site.until("healthy", *ids)
    ground.aws.local.hang(hung)
    answers = {site.get() for _ in range(2)}
    assert answers == {(504, hung), (200, other)}
    site.until("unhealthy", hung)
    assert site.health()[hung, 8081] == ("unhealthy", "Target.Timeout")
    assert {site.get() for _ in range(4)} == {(200, other)}
    ground.aws.local.hang(other)
    site.until("unhealthy", *ids)
    assert {site.get() for _ in range(2)} == {(504, hung), (504, other)}, (
        "all unhealthy: all of them get some"
    )
    for instance_id in ids:
        ground.aws.local.resume(instance_id)
    site.until("healthy", *ids)
    assert {site.get() for _ in range(2)} == {(200, hung), (200, other)}


def test_only_what_runs_can_hang(ground: Ground) -> None:
    """An unknown instance, and one that is over, are refused by name."""
    (instance_id,) = ground.running(1)
    ground.aws.ec2.terminate_instances(InstanceIds=[instance_id])
    with pytest.raises(LocalCloudError, match=rf"{instance_id} is (shutting-down|terminated) already"):
        ground.aws.local.hang(instance_id)
    with pytest.raises(LocalCloudError, match="there is no instance i-nobody"):
        ground.aws.local.resume("i-nobody")


def _one_in_each(ground: Ground) -> list[dict[str, Any]]:
    """A running on-demand instance in each of the ground's zones."""
    ids = [
        ground.aws.ec2.run_instances(
            MinCount=1, MaxCount=1, InstanceType="g5.xlarge", SubnetId=subnet,
            LaunchTemplate={"LaunchTemplateId": ground.template},
        )["Instances"][0]["InstanceId"]
        for subnet in ground.subnets
    ]  # fmt: skip
    eventually(lambda: set(ground.states(ids)) == {"running"}, f"{ids} run")
    return [i for i in ground.aws.local.instances() if i["instance_id"] in ids]
