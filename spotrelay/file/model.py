"""A service, compiled: everything that a stack needs, with all defaults filled in and all choices made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spotrelay.file.source.errors import Problem
from spotrelay.file.values.brought import ListenerSection, ProfileSection
from spotrelay.file.values.disk import Disk
from spotrelay.file.values.files import FileMount, GitRepository, Model, Pack
from spotrelay.plane.core.instance_types import InstanceType
from spotrelay.plane.core.names import instances_namespace
from spotrelay.plane.core.requirements import Requirements
from spotrelay.plane.core.spec import ServiceSettings

DEFAULT_ROOT_DEVICE = "/dev/sda1"
"""Of Ubuntu's images, the default among them."""

LEAST_DISK_GIB = 75
"""Size of the default image's snapshot, as of 2026: no root volume may be smaller. EC2 says so only at the
launch (InvalidBlockDeviceMapping, `expect size >= 75GB`)."""

LEAST_PLAIN_DISK_GIB = 8
"""Size of the snapshot of Ubuntu's image."""

PLAIN_IMAGE = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{arch}/hvm/ebs-gp3/ami-id"
"""Canonical's Ubuntu, for services without an accelerator: no driver, no Docker, no AWS CLI. It calls the
architectures amd64 and arm64."""

DEFAULT_IMAGE = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
"""AWS's Deep Learning Base AMI: Ubuntu with NVIDIA's driver, Docker and the AWS CLI, and no framework."""

IMAGES_GIB = {
    image.format(arch=arch): gib
    for image, gib, archs in (
        (DEFAULT_IMAGE, LEAST_DISK_GIB, ("x86_64", "arm64")),
        (PLAIN_IMAGE, LEAST_PLAIN_DISK_GIB, ("amd64", "arm64")),
    )
    for arch in archs
}
"""What images take of a disk, by reference: of the default ones alone do we know it."""


@dataclass(frozen=True, slots=True)
class Image:
    """What an instance boots."""

    reference: str
    root_device: str = DEFAULT_ROOT_DEVICE
    """What the image calls its root volume. Another name in the launch template would be a second disk."""

    by_region: Mapping[str, str] = field(default_factory=dict)
    """Region → AMI, instead of a reference."""

    @property
    def is_parameter(self) -> bool:
        """An SSM parameter holds the AMI's ID; otherwise the reference is that ID."""
        return self.reference.startswith("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(ServiceSettings):
    """A validated service file."""

    path: Path
    name: str
    requirements: Requirements
    instance_types: tuple[InstanceType, ...]
    """Every type that may be launched: in the file's order if `ordered`, else grouped by accelerator."""
    health_check_path: str
    """What the load balancer GETs."""
    health_check_codes: str
    """The statuses that mean it is alive, as ELB takes them: `200`, `200-499`."""
    load_balancing: str
    """`least_load`, `round_robin` or `instance_aware_least_load`, in SkyServe's format."""
    certificate_arn: str | None
    """The certificate with which the load balancer speaks TLS; None: as the deployment says."""
    domain: str | None
    """By which name clients reach the load balancer; None: by its own."""
    idle_timeout_s: int
    """A request whose replica sends nothing for this long is given up by the load balancer."""
    capacity_reservations: str | None
    """ARN of the resource group whose capacity reservations on-demand launches use first."""
    disk: Disk
    image: Image
    arch: str
    """`x86_64` or `arm64`: the image's."""
    envs: Mapping[str, str]
    secrets: Mapping[str, str]
    """Environment variable → SSM parameter. The instance's role must be allowed to read each."""
    secret_values: Mapping[str, str] = field(repr=False)
    """Of the secrets that stand in the file in the clear, for `spotrelay secrets`."""
    secret_versions: Mapping[str, int] = field(default_factory=dict)
    """SSM parameter → the version that instances read; of others the latest, at each start."""
    setup: str | None
    run: str
    security_groups: tuple[str, ...] = ()
    """Groups of the user's that instances are in."""
    instance_profile: ProfileSection | None = None
    """The user's own; None: one is made, with a role that may do what the service needs."""
    listener: ListenerSection | None = None
    """The user's own, at which a rule sends requests to the service; None: a load balancer is made."""
    target_group: str | None = None
    """ARN of the user's own; None: one is made."""
    is_skyserve: bool = False
    """The file is in SkyServe's format: its scripts find what SkyServe gives them."""
    container: str | None = None
    """The image in which both scripts run, with its registry; None: they run on the instance itself."""
    workdir: Path | GitRepository | None = None
    """What is in `~/sky_workdir`: a directory of the machine that deploys, or a repository."""
    file_mounts: tuple[FileMount, ...] = ()
    models: tuple[Model, ...] = ()
    pack: Pack | None = None
    scripts_in_bundle: bool = False
    """Both scripts are too long for user data, and come with the files; what fetches models or packs, too."""
    warnings: tuple[Problem, ...]
    """What is allowed and probably not meant."""
    notices: tuple[Problem, ...]
    """What is meant otherwise here than in SkyServe, or is done in another way."""

    @property
    def is_behind_a_given_balancer(self) -> bool:
        """Whether the load balancer is the user's own."""
        return self.listener is not None or self.target_group is not None

    def pinned(self, parameter: str) -> str:
        """How an instance asks for a secret's parameter."""
        version = self.secret_versions.get(parameter)
        return parameter if version is None else f"{parameter}:{version}"

    @property
    def reports_gpus(self) -> bool:
        """Whether instances report how busy their GPUs are, because the number of replicas follows that."""
        metric = self.scaling.metric if self.scaling else None
        return metric is not None and metric.namespace == instances_namespace(self.name)

    @property
    def has_nvidia(self) -> bool:
        """Whether each of its instances has NVIDIA's GPUs, or a share of one."""
        return all(type_.is_nvidia for type_ in self.instance_types)

    @property
    def instance_type_names(self) -> tuple[str, ...]:
        """As EC2 takes them."""
        return tuple(type_.name for type_ in self.instance_types)
