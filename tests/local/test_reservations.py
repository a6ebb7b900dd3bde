"""Capacity reservations of the local cloud behave as EC2's, for instances that target their group."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from stacks.permissions import Function
from tests.local.conftest import Aws, Ground, eventually
from tests.local.test_grants import Ours, ours
from tests.local.test_stacks import Stack

__all__ = ["ours"]  # a fixture

pytestmark = pytest.mark.xdist_group("local")

POOL = ("us-east-1b", "g6.2xlarge")
FIRST: dict[str, Any] = {
    "AllocationStrategy": "prioritized",
    "CapacityReservationOptions": {"UsageStrategy": "use-capacity-reservations-first"},
}


@dataclass(frozen=True)
class Reserved:
    """Ground whose launch template targets a group, which has room for one instance of POOL."""

    ground: Ground
    group: str
    reservation: str

    def launch(self, count: int, *, by: Aws | None = None, option: str = "on-demand") -> Any:
        """A fleet that would rather have g5.2xlarge, but reservations first."""
        return self.ground.fleet(["g5.2xlarge", POOL[1]], count, option=option, by=by, OnDemandOptions=FIRST)

    def used(self, instance_id: str) -> str | None:
        """The reservation that an instance uses."""
        described = self.ground.aws.ec2.describe_instances(InstanceIds=[instance_id])
        return described["Reservations"][0]["Instances"][0].get("CapacityReservationId")


def templated(ground: Ground, **specification: Any) -> Ground:
    """The same ground with another launch template, by CloudFormation: MiniStack's own API forgets parts."""
    stack = Stack(ground.aws)
    data = {"ImageId": "ami-0abcdef1234567890", "CapacityReservationSpecification": specification}
    tags = [{"ResourceType": "launch-template", "Tags": [{"Key": "spotrelay:service", "Value": "demo"}]}]
    properties = {"LaunchTemplateData": data, "TagSpecifications": tags}
    status = stack.create({"Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": properties}})
    assert status == "CREATE_COMPLETE", stack.reason()
    return replace(ground, template=stack.physical_id("Template"))


@pytest.fixture
def reserved(ground: Ground) -> Reserved:
    """A group of its own."""
    group = f"arn:aws:resource-groups:us-east-1:000000000000:group/{uuid.uuid4().hex}"
    reservation = ground.aws.local.reserve(group, *POOL, 1)
    target = {"CapacityReservationResourceGroupArn": group}
    return Reserved(templated(ground, CapacityReservationTarget=target), group, reservation)


def ids_of(answer: Any) -> list[str]:
    """The instances of a fleet."""
    return [id_ for row in answer["Instances"] for id_ in row["InstanceIds"]]


def test_reservations_come_first_and_the_rest_goes_on_without(reserved: Reserved) -> None:
    """One of two instances is in the reservation, though it has the lower priority; the other is not."""
    used = {id_: reserved.used(id_) for id_ in ids_of(reserved.launch(2))}
    assert sorted(used.values(), key=str) == sorted([reserved.reservation, None], key=str)
    (other,) = ids_of(reserved.launch(1))
    assert reserved.used(other) is None, "the reservation is full"


def test_what_is_reserved_is_there_when_the_pool_is_dry(reserved: Reserved) -> None:
    """It is no part of what the pool has for everybody; what is beyond it is refused."""
    local = reserved.ground.aws.local
    before = {(p["zone"], p["instance_type"]): p["on_demand_capacity"] for p in local.pools()}
    local.set_capacity(on_demand=0)
    try:
        answer = reserved.launch(2)
        (id_,) = ids_of(answer)
        assert reserved.used(id_) == reserved.reservation
        assert {e["ErrorCode"] for e in answer["Errors"]} == {"InsufficientInstanceCapacity"}
    finally:
        for (zone, type_), capacity in before.items():
            local.set_capacity(zone, type_, on_demand=capacity)


def test_a_stopped_instance_leaves_its_reservation_and_comes_back_to_it(reserved: Reserved) -> None:
    """What it targets is its own through a stop; another one may have taken the room meanwhile."""
    ec2, ground = reserved.ground.aws.ec2, reserved.ground
    (first,) = ids_of(reserved.launch(1))
    eventually(lambda: ground.states([first]) == ["running"], "it runs")
    ec2.stop_instances(InstanceIds=[first])
    eventually(lambda: ground.states([first]) == ["stopped"], "it is stopped")
    assert reserved.used(first) is None
    ec2.start_instances(InstanceIds=[first])
    assert reserved.used(first) == reserved.reservation
    eventually(lambda: ground.states([first]) == ["running"], "it runs again")
    ec2.stop_instances(InstanceIds=[first])
    eventually(lambda: ground.states([first]) == ["stopped"], "it is stopped again")
    (second,) = ids_of(reserved.launch(1))
    assert reserved.used(second) == reserved.reservation
    ec2.start_instances(InstanceIds=[first])
    assert reserved.used(first) is None, "full: it runs all the same"


def test_spot_from_such_a_template_is_refused(reserved: Reserved) -> None:
    """No Spot instance, and no on-demand one in its place."""
    answer = reserved.launch(1, option="spot")
    assert ids_of(answer) == []
    assert {e["ErrorCode"] for e in answer["Errors"]} == {"InvalidParameterCombination"}


@pytest.mark.parametrize(
    ("specification", "code"),
    [
        (
            {
                "CapacityReservationTarget": {
                    "CapacityReservationResourceGroupArn": "arn:aws:resource-groups:us-east-1:0:group/none"
                }
            },
            "InvalidParameterValue",
        ),
        ({"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}, "UnsupportedOperation"),
        (
            {
                "CapacityReservationPreference": "open",
                "CapacityReservationTarget": {"CapacityReservationId": "cr-1"},
            },
            "InvalidParameterCombination",
        ),
    ],
)
def test_a_target_that_cannot_be_is_an_error(ground: Ground, specification: Any, code: str) -> None:
    """No such group; one reservation, which the local cloud doesn't know; a preference beside the target."""
    answer = templated(ground, **specification).fleet(["g5.2xlarge"], option="on-demand")
    assert answer["Instances"] == []
    assert {error["ErrorCode"] for error in answer["Errors"]} == {code}


@pytest.mark.parametrize("function", [Function.ON_SIGNAL, Function.RECONCILE])
def test_our_roles_may_use_a_group(reserved: Reserved, ours: Ours, function: Function) -> None:
    """With what the functions are granted, a fleet from a template that targets a group is launched."""
    template = reserved.ground.template
    answer = ours.fleet(ours.assume(function), template, option="on-demand", OnDemandOptions=FIRST)
    assert answer["Instances"], answer["Errors"]


@pytest.mark.parametrize("action", ["ec2:CreateFleet", "ec2:RunInstances"])
def test_a_group_needs_the_right_to_it(reserved: Reserved, action: str) -> None:
    """Both actions are asked for on the group that the template targets."""
    rest = {"Effect": "Allow", "NotAction": action, "Resource": "*"}
    elsewhere = {"Effect": "Allow", "Action": action, "NotResource": "arn:aws:resource-groups:*:*:group/*"}
    somebody = reserved.ground.aws.assume(rest, elsewhere)
    try:
        codes = {e["ErrorCode"] for e in reserved.launch(1, by=somebody)["Errors"]}
    except ClientError as error:
        codes = {error.response["Error"]["Code"]}
    assert codes == {"UnauthorizedOperation"}
