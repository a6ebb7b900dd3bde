"""Images that were baked for a service, with their snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import INSTANCE_NOT_FOUND, translated
from spotrelay.plane.aws.images import AVAILABLE
from spotrelay.plane.core.names import TAG_BAKE, TAG_BAKED_FROM, TAG_BAKED_VERSION
from spotrelay.plane.core.ports import Denied

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import ResourceTypeType
    from mypy_boto3_ec2.type_defs import TagSpecificationTypeDef

PENDING = "pending"

ALLOWED = "DryRunOperation"
"""How EC2 answers whether something may be done, if it may."""

NAME_TAKEN = "InvalidAMIName.Duplicate"
"""An image of that name is there: an answer was lost, and the request repeated."""

DELETED = "success"
"""What DeregisterImage says of a snapshot that went with its image."""

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Baked:
    """An image of a service's."""

    id: str
    name: str
    state: str
    """As EC2 calls it."""
    why: str
    """In EC2's words, where it has failed."""
    made_at: datetime
    version: str
    """Of the service's launch template, whose set-up it has."""
    base: str
    """The image that it was baked on."""
    snapshots: tuple[str, ...]

    @property
    def is_available(self) -> bool:
        """Whether instances can be launched from it."""
        return self.state == AVAILABLE


def images(clients: Clients, service: str) -> list[Baked]:
    """All that the account has of the service, the newest first.

    Raises:
        PortError: EC2 doesn't say.
    """
    with translated():
        pages = clients.ec2.get_paginator("describe_images").paginate(
            Owners=["self"], Filters=[{"Name": f"tag:{TAG_BAKE}", "Values": [service]}]
        )
        found = [image for page in pages for image in page["Images"]]
    baked = []
    for one in found:
        tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
        volumes = [mapping.get("Ebs", {}) for mapping in one.get("BlockDeviceMappings", ())]
        baked.append(
            Baked(
                one["ImageId"],
                one.get("Name", ""),
                one["State"],
                one.get("StateReason", {}).get("Message", ""),
                datetime.fromisoformat(one["CreationDate"]),
                tags.get(TAG_BAKED_VERSION, ""),
                tags.get(TAG_BAKED_FROM, ""),
                tuple(volume["SnapshotId"] for volume in volumes if volume.get("SnapshotId")),
            )
        )
    return sorted(baked, key=lambda one: one.made_at, reverse=True)


@dataclass(frozen=True, slots=True)
class Base:
    """An image to bake on."""

    id: str
    architecture: str
    root_device: str
    """Its name, such as /dev/sda1."""
    is_on_ebs: bool
    """Others can't be stopped, nor made an image of."""
    is_available: bool


def base(clients: Clients, image_id: str) -> Base:
    """What EC2 says of an image.

    Raises:
        PortError: it isn't in this region, or EC2 doesn't say.
    """
    with translated():
        (one,) = clients.ec2.describe_images(ImageIds=[image_id])["Images"]
    return Base(
        one["ImageId"],
        one["Architecture"],
        one.get("RootDeviceName", ""),
        one["RootDeviceType"] == "ebs",
        one["State"] == AVAILABLE,
    )


def is_allowed(clients: Clients, instance_id: str, service: str, tags: Mapping[str, str]) -> bool:
    """Whether EC2 has said that the instance may be stopped and imaged; False: it doesn't know it yet.

    Nothing is done: set-up takes long, and what is missing is better known before.

    Raises:
        PortError: it may not, or EC2 doesn't say.
    """
    ec2 = clients.ec2
    for ask in (
        lambda: ec2.stop_instances(InstanceIds=[instance_id], DryRun=True),
        lambda: _create(clients, instance_id, service, tags, is_asked=True),
    ):
        try:
            with translated():
                ask()
        except Denied as denied:
            if denied.code == INSTANCE_NOT_FOUND:
                return False
            if denied.code != ALLOWED:
                raise
    return True


def stop(clients: Clients, instance_id: str) -> None:
    """Stop an instance: an image of one that runs would be of a disk that is being written.

    Raises:
        PortError: EC2 refuses.
    """
    with translated():
        clients.ec2.stop_instances(InstanceIds=[instance_id])


def create(clients: Clients, instance_id: str, service: str, tags: Mapping[str, str]) -> str:
    """Begin an image of a stopped instance; its ID. Asked twice, there is one.

    Raises:
        PortError: EC2 refuses.
    """
    try:
        with translated():
            return _create(clients, instance_id, service, tags)
    except Denied as denied:
        if denied.code != NAME_TAKEN:
            raise
        there = [one.id for one in images(clients, service) if one.name == _name(service, instance_id)]
        if not there:
            raise
        return there[0]


def tags(service: str, version: str, base: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Of an image and its snapshots."""
    return {
        **labels,
        "Name": f"spotrelay {service} {datetime.now(UTC):%Y-%m-%d %H:%M}",
        TAG_BAKE: service,
        TAG_BAKED_VERSION: version,
        TAG_BAKED_FROM: base,
    }


def _create(
    clients: Clients, instance_id: str, service: str, tags: Mapping[str, str], *, is_asked: bool = False
) -> str:
    answer = clients.ec2.create_image(
        InstanceId=instance_id,
        Name=_name(service, instance_id),
        Description=f"Baked by SpotRelay for {service}",
        DryRun=is_asked,
        TagSpecifications=[_tagged("image", tags), _tagged("snapshot", tags)],
    )
    return answer["ImageId"]


def _tagged(kind: ResourceTypeType, tags: Mapping[str, str]) -> TagSpecificationTypeDef:
    return {"ResourceType": kind, "Tags": [{"Key": name, "Value": value} for name, value in tags.items()]}


def _name(service: str, instance_id: str) -> str:
    """One for each instance: so a second request makes no second image."""
    return f"spotrelay-{service}-{instance_id}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Of a disk."""

    size_gib: float
    """What is paid for, at most: blocks that another snapshot of the account has are paid once."""
    progress: str
    """Such as 45%."""


def snapshots(clients: Clients, ids: Sequence[str]) -> dict[str, Snapshot]:
    """Those of them that are there.

    Raises:
        PortError: EC2 doesn't say.
    """
    if not ids:
        return {}
    # By ID all is refused if one is missing.
    with translated():
        pages = clients.ec2.get_paginator("describe_snapshots").paginate(
            OwnerIds=["self"], Filters=[{"Name": "snapshot-id", "Values": [*ids]}]
        )
        found = [one for page in pages for one in page["Snapshots"]]
    return {
        one["SnapshotId"]: Snapshot(
            one.get("FullSnapshotSizeInBytes", one["VolumeSize"] * GIB) / GIB, one.get("Progress", "")
        )
        for one in found
    }


def delete(clients: Clients, image: Baked) -> str:
    """Delete an image and its snapshots; which are left, and why, if any are.

    Raises:
        PortError: EC2 refuses.
    """
    with translated():
        answer = clients.ec2.deregister_image(ImageId=image.id, DeleteAssociatedSnapshots=True)
    left = [one for one in answer.get("DeleteSnapshotResults", ()) if one["ReturnCode"] != DELETED]
    return ", ".join(f"{one['SnapshotId']} ({one['ReturnCode']})" for one in left)
