"""EC2's images: every one that is named is there until it is lost, and those that are made here."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from lab.local.context import (
    Context,
    Handler,
    Result,
    ec2_arn,
    request_tag_conditions,
    resource_tag_conditions,
    tags_for,
)
from lab.local.disks import LocalImage, LocalSnapshot
from lab.local.ec2 import by_ids, instance_conditions
from lab.local.environment import ACCOUNT
from lab.local.instances import LocalInstance, LocalInstanceState, tag_list
from lab.local.query import Attributes, matches, page
from lab.local.wire import AwsError

AGE = timedelta(days=40)
"""Of every image that wasn't made here: an instance here is a process and has none."""

MADE_S = 3.0
"""From CreateImage until an image is available. EC2 takes minutes, and sometimes hours."""

ROOT_DEVICE = "/dev/sda1"

_IMAGE_ID = re.compile(r"ami-(?:[0-9a-f]{8}|[0-9a-f]{17})")
_NAME = re.compile(r"[A-Za-z0-9()\[\] ./\-'@_]{3,128}")


def describe_images(context: Context) -> Result:
    """Images by ID, of which EC2 refuses all if one is missing, by the filter `image-id`, or one's own.

    Raises:
        AwsError: none of these is given, and all images of the world are asked for.
    """
    context.require("ec2:DescribeImages")
    params, cloud = context.params, context.cloud
    by_id, filters, owners = params.get("ImageIds"), params.get("Filters", []), params.get("Owners")
    filtered = [value for f in filters if f["Name"] == "image-id" for value in f.get("Values", [])]
    if not (by_id or filtered or owners == ["self"]):
        raise AwsError(
            "UnsupportedOperation",
            "The local cloud shows images by ID, by the filter image-id, or those of Owners=self",
        )
    for image_id in by_id or []:
        if not _is_there(context, image_id):
            raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
    own = [] if owners is None else list(cloud.images)
    found = [
        _shown(context, image_id)
        for image_id in dict.fromkeys(by_id or filtered or own)
        if _is_there(context, image_id) and (owners is None or image_id in cloud.images)
    ]
    found = [
        one
        for one in found
        if matches(filters, _attributes(one), {tag["Key"]: tag["Value"] for tag in one["Tags"]})
    ]
    shown, more = page(found, params)
    return {"Images": shown, **more}


def create_image(context: Context) -> Result:
    """An image of a stopped instance's disk, which is pending for a while.

    Raises:
        AwsError: there is no such instance, it runs or is being terminated, or the name is taken or none.
    """
    params, cloud = context.params, context.cloud
    (instance,) = by_ids(context, [params["InstanceId"]])
    specifications = params.get("TagSpecifications", [])
    tags = {kind: tags_for(specifications, kind) for kind in ("image", "snapshot")}
    context.require("ec2:CreateImage", instance.arn, instance_conditions(instance))
    for kind, its in tags.items():
        conditions = request_tag_conditions(its)
        context.require("ec2:CreateImage", ec2_arn(kind, "*"), conditions)
        if its:
            created = {**conditions, "ec2:CreateAction": "CreateImage"}
            context.require("ec2:CreateTags", ec2_arn(kind, "*"), created)
    if other := {one.get("ResourceType") for one in specifications} - {"image", "snapshot"}:
        raise AwsError("InvalidParameterValue", f"CreateImage tags images and snapshots, not {other}")
    _check_name(context, params["Name"])
    context.end_dry_run()
    _check_state(instance)
    now = cloud.now()
    image = LocalImage(
        _new_id("ami"), params["Name"], params.get("Description", ""), instance.id, now, tags["image"]
    )
    snapshot = LocalSnapshot(_new_id("snap"), now, cloud.keep_disk(instance, image.id), tags["snapshot"])
    image.snapshots.append(snapshot.id)
    cloud.images[image.id], cloud.snapshots[snapshot.id] = image, snapshot
    cloud.later(MADE_S, lambda: _finish(image, snapshot))
    return {"ImageId": image.id}


def deregister_image(context: Context) -> Result:
    """The image is gone; its snapshots go if that is asked for, and cost on otherwise.

    Raises:
        AwsError: there is no such image of one's own.
    """
    params, cloud = context.params, context.cloud
    image = cloud.images.get(params["ImageId"])
    if image is None:
        raise AwsError("InvalidAMIID.NotFound", f"The image id '[{params['ImageId']}]' does not exist")
    context.require("ec2:DeregisterImage", ec2_arn("image", image.id), resource_tag_conditions(image.tags))
    context.end_dry_run()
    results = []
    for snapshot in [cloud.snapshots[id_] for id_ in image.snapshots]:
        if not params.get("DeleteAssociatedSnapshots"):
            continue
        arn, conditions = ec2_arn("snapshot", snapshot.id), resource_tag_conditions(snapshot.tags)
        refusal = context.refusal("ec2:DeleteSnapshot", arn, conditions)
        if refusal is None:
            del cloud.snapshots[snapshot.id]
        code = "missing-permissions" if refusal else "success"
        results.append({"SnapshotId": snapshot.id, "ReturnCode": code})
    del cloud.images[image.id]
    cloud.lost_images.add(image.id)
    return {"Return": True, "DeleteSnapshotResults": results}


def describe_snapshots(context: Context) -> Result:
    """Snapshots of one's own, by ID, of which EC2 refuses all if one is missing, or by filter.

    Raises:
        AwsError: there is no such snapshot, or all of the world are asked for.
    """
    context.require("ec2:DescribeSnapshots")
    params, known = context.params, context.cloud.snapshots
    ids, filters = params.get("SnapshotIds"), params.get("Filters", [])
    if not (ids or params.get("OwnerIds") == ["self"]):
        raise AwsError("UnsupportedOperation", "The local cloud shows snapshots by ID, or of OwnerIds=self")
    for id_ in ids or []:
        if id_ not in known:
            raise AwsError("InvalidSnapshot.NotFound", f"The snapshot '{id_}' does not exist.")
    snapshots = [known[id_] for id_ in ids or known]
    found = [one for one in snapshots if matches(filters, {"snapshot-id": partial(list, [one.id])}, one.tags)]
    shown, more = page([_snapshot(one) for one in found], params)
    return {"Snapshots": shown, **more}


HANDLERS: dict[str, Handler] = {
    "DescribeImages": describe_images,
    "CreateImage": create_image,
    "DeregisterImage": deregister_image,
    "DescribeSnapshots": describe_snapshots,
}


def _check_name(context: Context, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise AwsError("InvalidAMIName.Malformed", "AMI names must be between 3 and 128 characters long, …")
    for image in context.cloud.images.values():
        if image.name == name:
            raise AwsError("InvalidAMIName.Duplicate", f"AMI name {name} is already in use by AMI {image.id}")


def _check_state(instance: LocalInstance) -> None:
    if instance.state is LocalInstanceState.RUNNING:
        raise AwsError("UnsupportedOperation", "The local cloud makes images of stopped instances only")
    if instance.state is not LocalInstanceState.STOPPED:
        raise AwsError("IncorrectState", "Instance is not in state 'running' or 'stopped'")


def _finish(image: LocalImage, snapshot: LocalSnapshot) -> None:
    if image.state == "pending":
        image.state, snapshot.is_complete = "available", True


def _new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(8)}{secrets.token_hex(1)[0]}"


def _is_there(context: Context, image_id: str) -> bool:
    return image_id not in context.cloud.lost_images and _IMAGE_ID.fullmatch(image_id) is not None


def _shown(context: Context, image_id: str) -> dict[str, Any]:
    """As DescribeImages shows it."""
    image = context.cloud.images.get(image_id)
    common = {
        "ImageId": image_id,
        "Architecture": "x86_64",
        "RootDeviceType": "ebs",
        "RootDeviceName": ROOT_DEVICE,
    }
    if image is None:
        made_at = context.cloud.now() - AGE
        its = {"State": "available", "Public": True, "Tags": []}
        return {**common, **its, "CreationDate": _date(made_at)}
    mappings = [{"DeviceName": ROOT_DEVICE, "Ebs": {"SnapshotId": id_}} for id_ in image.snapshots]
    return {
        **common,
        "Name": image.name,
        "Description": image.description,
        "OwnerId": ACCOUNT,
        "State": image.state,
        "Public": False,
        "CreationDate": _date(image.made_at),
        "SourceInstanceId": image.source,
        # EC2 knows the snapshots from the moment that they are begun.
        "BlockDeviceMappings": mappings,
        "Tags": tag_list(image.tags),
        **({"StateReason": {"Code": "Client.UserError", "Message": image.why}} if image.why else {}),
    }


def _snapshot(one: LocalSnapshot) -> dict[str, Any]:
    return {
        "SnapshotId": one.id,
        "OwnerId": ACCOUNT,
        "State": "completed" if one.is_complete else "pending",
        "Progress": "100%" if one.is_complete else "12%",
        "StartTime": one.started_at,
        "VolumeSize": max(1, -(-one.size // 2**30)),
        **({"FullSnapshotSizeInBytes": one.size} if one.is_complete else {}),
        "Tags": tag_list(one.tags),
    }


def _date(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S.000Z}"


def _attributes(image: Mapping[str, Any]) -> Attributes:
    def of(name: str) -> Sequence[str]:
        return [str(image[name])] if name in image else []

    return {"image-id": partial(of, "ImageId"), "state": partial(of, "State"), "name": partial(of, "Name")}
