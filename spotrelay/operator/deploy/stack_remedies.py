"""What a person can do about a stack that CloudFormation couldn't make, or that is stuck."""

from __future__ import annotations

import re

from spotrelay.operator.deploy.stacks import Stack
from spotrelay.plane.core.names import NETWORK_STACK, SERVICE_STACK
from spotrelay.plane.core.quotas import page

_ZONE = (
    # Nobody documents which zones: https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-troubleshooting.html
    (
        "not available in this availability zone|NotAvailableInZone",
        "a zone of this network has no NAT gateways",
    ),
    ("availability zone Lambda doesn't support", "a zone of this network has no Lambda functions"),
    ("Availability Zones .* cannot be associated with a load balancer", "that zone has no load balancers"),
    ("parameter availabilityZone is invalid", "the account can't have subnets in that zone"),
    (
        "Select +cannot select nonexistent value",
        "CloudFormation finds fewer zones than the network would have",
    ),
)
"""Words of a refusal that is about a zone, and what they mean."""

_QUOTA = (
    (
        "maximum number of addresses has been reached|AddressLimitExceeded",
        "each NAT gateway takes an Elastic IP address: release an unused one, have fewer gateways, -c"
        " nat_gateways=1, or ask for more",
        ("ec2", "L-0263D0A3"),
    ),
    (
        "maximum number of rules per security group|RulesPerSecurityGroupLimitExceeded",
        "each of allowed_cidrs takes a rule, and two with a certificate: name fewer and larger networks, or"
        " ask for more",
        ("vpc", "L-0EA8095F"),
    ),
)
"""The same of a refusal that is about a quota: what to do, and the quota by its code in Service Quotas."""


def remedy(words: str, region: str) -> str:
    """What to do about a deployment that failed with these words; empty if that isn't known."""
    for pattern, what_to_do, (service, code) in _QUOTA:
        if re.search(pattern, words, re.IGNORECASE):
            return f"{what_to_do}: {page(region, service)}/{code}"
    for pattern, meaning in _ZONE:
        if re.search(pattern, words, re.IGNORECASE):
            return (
                f"{meaning}: name the zones, -c zones=A,B,…, without it; aws ec2 describe-availability-zones"
                f" --region {region} lists them. If {NETWORK_STACK} is there already, remove it first, with"
                " the services in it: its subnets can't move to other zones"
            )
    return ""


_COMMANDS = {
    "CREATE_FAILED": ("the failure wasn't rolled back", "aws cloudformation delete-stack"),
    "REVIEW_IN_PROGRESS": ("it has a change set and nothing else", "aws cloudformation delete-stack"),
    "DELETE_FAILED": ("part of it has been deleted", "aws cloudformation delete-stack"),
    "UPDATE_FAILED": ("the failure wasn't rolled back", "aws cloudformation rollback-stack"),
    "UPDATE_ROLLBACK_FAILED": (
        "its rollback failed half way: fix what its events name",
        "aws cloudformation continue-update-rollback",
    ),
}
"""States in which CloudFormation takes no other template, what they mean, and what leads out of them:
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/view-stack-events.html. The CDK deletes one
whose creation was rolled back, and makes it anew itself."""


def way_out(stack: Stack, region: str) -> str:
    """What must be done before the stack can be deployed; empty if nothing."""
    if stack.status not in _COMMANDS:
        return ""
    meaning, command = _COMMANDS[stack.status]
    command = f"{command} --stack-name {stack.name} --region {region}"
    if stack.status == "DELETE_FAILED" and stack.name.startswith(SERVICE_STACK):
        command = f"spotrelay down {stack.name.removeprefix(SERVICE_STACK)} --region {region}"
    return f"{stack.name} is {stack.status}, {meaning}: run {command}, and then this command again"
