"""What CloudFormation refuses, or leaves undone, and MiniStack's doesn't.

Not every zone has everything: https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-troubleshooting.html
has what EC2 says then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

CONSTRAINED_ZONE = "us-east-1e"
"""The one zone here that has neither NAT gateways nor Lambda functions nor load balancers. Nobody gets it
unless he names it: `Fn::GetAZs` knows others."""

ADDRESSES, RULES = 5, 60
"""Quotas of a new account: Elastic IP addresses in a region, and rules of a security group in each direction.
https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html"""

Handler = dict[str, Any]
Properties = Mapping[str, Any]
SubnetsOf = Callable[[Properties], list[str]]


def refuse_in_zone(handlers: dict[str, Handler], subnets: Mapping[str, Mapping[str, Any]]) -> None:
    """Let CloudFormation make nothing in a zone that lacks it, and say so in AWS's words."""

    def is_there(subnets_of: SubnetsOf, properties: Properties) -> bool:
        found = (subnets[id_] for id_ in subnets_of(properties) if id_ in subnets)
        return any(subnet["AvailabilityZone"] == CONSTRAINED_ZONE for subnet in found)

    for type_, (subnets_of, words) in _LACKING.items():
        _refuse(handlers, type_, partial(is_there, subnets_of), words)


def refuse_beyond_quotas(handlers: dict[str, Handler], addresses: Mapping[str, object]) -> None:
    """Let CloudFormation make no more addresses and no more rules than an account may have."""
    _refuse(
        handlers,
        "AWS::EC2::EIP",
        lambda _: len(addresses) >= ADDRESSES,
        "The maximum number of addresses has been reached. (Service: Ec2, Status Code: 400)",
    )
    _refuse(
        handlers,
        "AWS::EC2::SecurityGroup",
        lambda properties: len(properties.get("SecurityGroupIngress") or ()) > RULES,
        "The maximum number of rules per security group has been reached. (Service: Ec2, Status Code: 400)",
    )


def keep_what_is_needed(stacks: Any, all_stacks: Mapping[str, Mapping[str, Any]]) -> None:
    """Let a deletion leave what something needs that couldn't be deleted; `stacks` is MiniStack's module.

    CloudFormation deletes what depends on something before that, and goes no further where it fails.
    """
    delete = stacks._delete_resource

    def checked(type_: str, physical_id: str, properties: Any, stack: str = "", logical_id: str = "") -> None:
        found = all_stacks.get(stack) or {}
        if found.get("StackStatus") == "DELETE_IN_PROGRESS":
            resources = found["_resources"]
            failed = {id_ for id_, r in resources.items() if r.get("ResourceStatus") == "DELETE_FAILED"}
            others = failed - {logical_id}
            if logical_id in stacks._with_dependencies(
                others, found["_template"]["Resources"], set(resources)
            ):
                raise ValueError("Resource deletion cancelled")
        delete(type_, physical_id, properties, stack, logical_id)

    stacks._delete_resource = checked


def _refuse(
    handlers: dict[str, Handler], type_: str, is_refused: Callable[[Properties], bool], words: str
) -> None:
    create = handlers[type_]["create"]

    def checked(logical_id: str, properties: dict[str, Any], stack: str) -> Any:
        if is_refused(properties):
            raise ValueError(words)
        return create(logical_id, properties, stack)

    handlers[type_] = {**handlers[type_], "create": checked}


_LACKING: dict[str, tuple[SubnetsOf, str]] = {
    "AWS::EC2::NatGateway": (
        lambda properties: [properties["SubnetId"]],
        "Nat Gateway is not available in this availability zone (Service: Ec2, Status Code: 400)",
    ),
    "AWS::Lambda::Function": (
        lambda properties: (properties.get("VpcConfig") or {}).get("SubnetIds") or [],
        "The provided subnets contain availability zone Lambda doesn't support. Please use a different set of"
        " subnets. (Service: Lambda, Status Code: 400)",
    ),
    "AWS::ElasticLoadBalancingV2::LoadBalancer": (
        lambda properties: properties.get("Subnets") or [],
        f"The following Availability Zones {CONSTRAINED_ZONE} cannot be associated with a load balancer."
        " Please try a different Availability Zone. (Service: ElasticLoadBalancingV2, Status Code: 400)",
    ),
}
