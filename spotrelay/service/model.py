"""A service, compiled: everything that a stack needs, with all defaults filled in and all choices made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spotrelay.core.instance_types import InstanceType
from spotrelay.core.requirements import Requirements
from spotrelay.core.spec import OnRebalance, OnWarning, ReadinessProbe
from spotrelay.service.disk import Disk
from spotrelay.service.errors import Problem

DEFAULT_ROOT_DEVICE = "/dev/sda1"
"""Of Ubuntu's images, the default among them."""

LEAST_DISK_GIB = 75
"""Size of the default image's snapshot, as of 2026: no root volume may be smaller. EC2 says so only at the
launch (InvalidBlockDeviceMapping, `expect size >= 75GB`)."""

DEFAULT_IMAGE = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
"""AWS's Deep Learning Base AMI: Ubuntu with NVIDIA's driver, Docker and the AWS CLI, and no framework."""


@dataclass(frozen=True, slots=True)
class Image:
    """What an instance boots."""

    reference: str
    root_device: str = DEFAULT_ROOT_DEVICE
    """What the image calls its root volume. Another name in the launch template would be a second disk."""

    @property
    def is_parameter(self) -> bool:
        """An SSM parameter holds the AMI's ID; otherwise the reference is that ID."""
        return self.reference.startswith("/")


@dataclass(frozen=True, slots=True)
class Service:
    """A validated service file."""

    path: Path
    name: str
    replicas: int
    use_spot: bool
    base_on_demand: int
    """So many of the replicas are always bought on-demand."""
    on_demand_fallback: bool
    on_rebalance: OnRebalance
    surge: int
    max_launches_per_minute: int
    idle_timeout_s: int
    """A request whose replica sends nothing for this long is given up by the load balancer."""
    requirements: Requirements
    """What the file asks of an instance, with the image's architecture."""
    max_price_share: float | None
    """The most to pay for Spot, as a share of the on-demand price."""
    instance_types: tuple[InstanceType, ...]
    """Every type that may be launched: in the file's order if `ordered`, else grouped by accelerator."""
    ordered: bool
    """The file lists instance types, and their order is a preference."""
    port: int
    health_check_path: str
    """What the load balancer GETs."""
    readiness_probe: ReadinessProbe | None
    """None where the load balancer's check is all there is."""
    initial_delay_s: int
    """A replica that isn't ready this long after its launch has failed."""
    drain_s: int
    """How long a replica out of rotation may finish its requests: also the target group's delay."""
    on_warning: OnWarning
    """When a replica that EC2 takes back leaves the rotation."""
    disk: Disk
    image: Image
    arch: str
    """`x86_64` or `arm64`: the image's."""
    envs: Mapping[str, str]
    secrets: Mapping[str, str]
    """Environment variable → SSM parameter. The instance's role must be allowed to read each."""
    setup: str | None
    run: str
    warnings: tuple[Problem, ...]
    """What is allowed and probably not meant."""

    @property
    def instance_type_names(self) -> tuple[str, ...]:
        """As EC2 takes them."""
        return tuple(type_.name for type_ in self.instance_types)
