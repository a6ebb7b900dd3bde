"""What a person can do about a stack that CloudFormation couldn't make, or that is stuck."""

from __future__ import annotations

import re

from spotrelay.core.names import NETWORK_STACK

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


def remedy(words: str, region: str) -> str:
    """What to do about a deployment that failed with these words; empty if that isn't known."""
    for pattern, meaning in _ZONE:
        if re.search(pattern, words, re.IGNORECASE):
            return (
                f"{meaning}: name the zones, -c zones=A,B,…, without it; aws ec2 describe-availability-zones"
                f" --region {region} lists them. If {NETWORK_STACK} is there already, remove it first, with"
                " the services in it: its subnets can't move to other zones"
            )
    return ""
