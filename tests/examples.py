"""Values that many tests start from."""

from __future__ import annotations

from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.spec import ServiceSpec


def demo_spec(service: str = "demo", replicas: int = 3, use_spot: bool = True) -> ServiceSpec:
    """A small service for tests: two types in two zones."""
    return ServiceSpec(
        service=service,
        version=1,
        replicas=replicas,
        use_spot=use_spot,
        instance_types=("g5.xlarge", "g6.xlarge"),
        ordered=False,
        subnets={"subnet-a": "us-east-1a", "subnet-b": "us-east-1b"},
        launch_template_id="lt-1",
        target_group_arn=f"arn:aws:elasticloadbalancing:us-east-1:000000000000:targetgroup/{service}/1",
        port=8081,
    )


def spot_pool(zone: str, instance_type: str) -> Offering:
    """Spot of one pool in us-east-1."""
    return Offering(CapacityPool("us-east-1", zone, instance_type), PurchaseOption.SPOT)


def on_demand_pool(zone: str, instance_type: str) -> Offering:
    """On-demand of one pool in us-east-1."""
    return Offering(CapacityPool("us-east-1", zone, instance_type), PurchaseOption.ON_DEMAND)
