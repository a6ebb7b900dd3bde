"""An Application Load Balancer for the local cloud: target health, draining, and a streaming data plane.

What it emulates is ours, not AWS's: it follows the ALB's documentation, and where that is silent it takes the
harsher reading, so that what is safe here is safe there.
"""

from lab.local.balancer.balancer import Balancer
from lab.local.balancer.config import (
    BalancerConfig,
    Certificate,
    Gate,
    HealthCheck,
    SecureListener,
    TargetGroup,
)
from lab.local.balancer.registry import UnknownTargetGroupError
from lab.local.balancer.target import LoggedRequest

__all__ = [
    "Balancer",
    "BalancerConfig",
    "Certificate",
    "Gate",
    "HealthCheck",
    "LoggedRequest",
    "SecureListener",
    "TargetGroup",
    "UnknownTargetGroupError",
]
