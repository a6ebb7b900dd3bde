"""An emulated EC2 instance: what is known of it, and how the API shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from lab.local.environment import ACCOUNT, REGION
from lab.local.network import Shape
from spotrelay.plane.core.pools import Offering, PurchaseOption


class LocalInstanceState(Enum):
    """EC2's states with their codes."""

    PENDING = ("pending", 0)
    RUNNING = ("running", 16)
    SHUTTING_DOWN = ("shutting-down", 32)
    TERMINATED = ("terminated", 48)
    STOPPING = ("stopping", 64)
    STOPPED = ("stopped", 80)

    @property
    def api(self) -> dict[str, Any]:
        """As the API shows it."""
        name, code = self.value
        return {"Name": name, "Code": code}

    @property
    def is_over(self) -> bool:
        """The instance is on its way out, or gone."""
        return self in (LocalInstanceState.SHUTTING_DOWN, LocalInstanceState.TERMINATED)

    @property
    def can_start(self) -> bool:
        """StartInstances takes it; one that runs already isn't touched."""
        return self in (LocalInstanceState.PENDING, LocalInstanceState.RUNNING, LocalInstanceState.STOPPED)

    @property
    def can_stop(self) -> bool:
        """StopInstances takes it; one that has stopped, or is about to, isn't touched."""
        return self in (LocalInstanceState.RUNNING, LocalInstanceState.STOPPING, LocalInstanceState.STOPPED)


class SpotStatus(Enum):
    """A Spot request's status: code, request state and EC2's message."""

    FULFILLED = ("fulfilled", "active", "Your Spot request is fulfilled.")
    TERMINATED_NO_CAPACITY = (
        "instance-terminated-no-capacity",
        "closed",
        "Your Spot instance was terminated because there is no Spot capacity available.",
    )
    """From the warning on, while the instance runs for two more minutes: see the footnote on
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instances-request-status-lifecycle.html."""
    BY_EXPERIMENT = (
        "instance-terminated-by-experiment",
        "closed",
        "Your Spot Instance was terminated because of an AWS FIS experiment.",
    )
    """From the warning on, too."""
    TERMINATED_BY_USER = (
        "instance-terminated-by-user",
        "closed",
        "Spot Instance terminated due to user-initiated termination.",
    )


BY_USER = "Client.UserInitiatedShutdown"
BY_EC2 = "Server.SpotInstanceTermination"
BY_ITSELF = "Client.InstanceInitiatedShutdown"

ENDINGS = {
    BY_USER: "User initiated shutdown",
    BY_EC2: "Spot instance termination",
    BY_ITSELF: "Instance initiated shutdown",
    "Client.InternalError": "Client error on launch",
    "Client.InvalidSnapshot.NotFound": "The specified snapshot was not found",
    "Client.VolumeLimitExceeded": "Volume limit exceeded",
    "Server.InsufficientInstanceCapacity": "There was insufficient capacity available to satisfy the launch"
    " request",
    "Server.InternalError": "Internal error on launch",
}
"""EC2's codes of why an instance ended, with its words
(https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html)."""


@dataclass(slots=True)
class SpotRequest:
    """The request behind a Spot instance."""

    id: str
    status: SpotStatus
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Ending:
    """Why and when an instance began to shut down, or to stop."""

    code: str
    """EC2's code of the reason."""
    at: datetime

    @property
    def by_user(self) -> bool:
        """Whether somebody asked for it."""
        return self.code == BY_USER

    @property
    def message(self) -> str:
        """EC2's message for it."""
        return f"{self.code}: {ENDINGS[self.code]}"

    @property
    def transition(self) -> str:
        """The older of EC2's two ways to say the same."""
        return f"User initiated ({self.at:%Y-%m-%d %H:%M:%S} GMT)" if self.by_user else self.code


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What an instance is launched from, with the launch template and its overrides resolved."""

    image_id: str
    subnet_id: str
    vpc_id: str
    user_data: str = ""
    """Plain text."""
    security_group_ids: tuple[str, ...] = ()
    key_name: str | None = None
    instance_profile_arn: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    """Those that the request and the template ask for."""
    shows_tags: bool = False
    """Whether its metadata have its tags: `InstanceMetadataTags`."""
    fleet_id: str | None = None
    template_id: str | None = None
    template_version: int | None = None
    is_protected: bool = False
    ends_when_off: bool = False
    """It is terminated, and not stopped, when it powers itself off."""
    reservation_group: str | None = None
    """ARN of the resource group whose capacity reservations it uses first, at each start."""

    @property
    def system_tags(self) -> dict[str, str]:
        """The tags that EC2 itself gives to the instance."""
        return {
            key: str(value)
            for key, value in (
                ("aws:ec2launchtemplate:id", self.template_id),
                ("aws:ec2launchtemplate:version", self.template_version),
                ("aws:ec2:fleet-id", self.fleet_id),
            )
            if value is not None
        }


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class LocalInstance:
    """One instance, from its launch until it is forgotten."""

    id: str
    offering: Offering
    spec: LaunchSpec
    address: str
    launched_at: datetime
    reservation_id: str
    tags: dict[str, str]
    state: LocalInstanceState = LocalInstanceState.PENDING
    made_at: datetime = _LONG_AGO
    """When it was first launched: EC2 shows it some time later."""
    spot_request: SpotRequest | None = None
    warned_at: datetime | None = None
    ending: Ending | None = None
    dies_of: str = ""
    """EC2's code of why it ends before it runs, if it is to."""
    is_protected: bool = False
    """Nobody can terminate it by the API: `DisableApiTermination`."""
    has_place: bool = True
    """It takes part of its pool's capacity, and of the account's quota: one that is stopped doesn't."""
    capacity_reservation: str | None = None
    """The capacity reservation that it uses, rather than what the pool has for everybody."""
    shape: Shape = field(default_factory=Shape)
    """How slow its network is."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """What EC2 announces for it, as DescribeInstanceStatus shows it, for a week after it is over."""

    @property
    def zone(self) -> str:
        """Its Availability Zone."""
        return self.offering.pool.zone

    @property
    def instance_type(self) -> str:
        """Its type."""
        return self.offering.pool.instance_type

    @property
    def is_spot(self) -> bool:
        """Whether EC2 may take it back."""
        return self.offering.purchase_option is PurchaseOption.SPOT

    @property
    def arn(self) -> str:
        """As in IAM policies and in most events."""
        return instance_arn(self.id)


def instance_arn(instance_id: str) -> str:
    """The ARN of an instance of ours."""
    return f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{instance_id}"


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    """Tags as the API lists them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def describe(instance: LocalInstance) -> dict[str, Any]:
    """The instance as DescribeInstances and RunInstances show it."""
    spec = instance.spec
    shown: dict[str, Any] = {
        "InstanceId": instance.id,
        "ImageId": spec.image_id,
        "InstanceType": instance.instance_type,
        "State": instance.state.api,
        "LaunchTime": instance.launched_at,
        "Placement": {"AvailabilityZone": instance.zone, "GroupName": "", "Tenancy": "default"},
        "SubnetId": spec.subnet_id,
        "VpcId": spec.vpc_id,
        "PrivateIpAddress": instance.address,
        "PrivateDnsName": f"ip-{instance.address.replace('.', '-')}.ec2.internal",
        "SecurityGroups": [{"GroupId": group, "GroupName": group} for group in spec.security_group_ids],
        "Tags": tag_list(instance.tags),
        "ClientToken": "",
        "EbsOptimized": False,
        "AmiLaunchIndex": 0,
        "Architecture": "x86_64",
        "Hypervisor": "xen",
        "VirtualizationType": "hvm",
        "RootDeviceType": "ebs",
        "RootDeviceName": "/dev/sda1",
        "BlockDeviceMappings": [],
        "NetworkInterfaces": [],
        "Monitoring": {"State": "disabled"},
        "StateTransitionReason": "",
    }
    if instance.state is LocalInstanceState.TERMINATED:
        # EC2 takes the network interface away from a terminated instance, and with it these.
        for gone in ("SubnetId", "VpcId", "PrivateIpAddress"):
            del shown[gone]
        shown["PrivateDnsName"] = ""
    if spec.key_name:
        shown["KeyName"] = spec.key_name
    if spec.instance_profile_arn:
        shown["IamInstanceProfile"] = {"Arn": spec.instance_profile_arn}
    if instance.capacity_reservation:
        shown["CapacityReservationId"] = instance.capacity_reservation
    if instance.spot_request:
        shown["InstanceLifecycle"] = "spot"
        shown["SpotInstanceRequestId"] = instance.spot_request.id
    if instance.ending:
        shown["StateReason"] = {"Code": instance.ending.code, "Message": instance.ending.message}
        shown["StateTransitionReason"] = instance.ending.transition
    return shown


def describe_spot_request(instance: LocalInstance, request: SpotRequest) -> dict[str, Any]:
    """The instance's request as DescribeSpotInstanceRequests shows it."""
    code, state, message = request.status.value
    return {
        "SpotInstanceRequestId": request.id,
        "InstanceId": instance.id,
        "State": state,
        # EC2 keeps whole seconds.
        "Status": {"Code": code, "Message": message, "UpdateTime": request.updated_at.replace(microsecond=0)},
        "Type": "one-time",
        "CreateTime": instance.launched_at,
        "LaunchedAvailabilityZone": instance.zone,
        "ProductDescription": "Linux/UNIX",
        "InstanceInterruptionBehavior": "terminate",
        "LaunchSpecification": {
            "InstanceType": instance.instance_type,
            "ImageId": instance.spec.image_id,
            "SubnetId": instance.spec.subnet_id,
        },
        "Tags": [],
    }
