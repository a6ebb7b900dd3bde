"""Launches: request, launch template and override become what an instance is made of; and IAM's say in it."""

from __future__ import annotations

import base64
import binascii
import gzip
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.local.context import (
    Context,
    check_metadata_tags,
    ec2_arn,
    request_tag_conditions,
    resource_tag_conditions,
    tags_for,
)
from lab.local.environment import REGION
from lab.local.instances import LaunchSpec
from lab.local.seeds import ROOT_VOLUMES
from lab.local.wire import AwsError
from lab.market import Candidate, MarketRequest, RefusalCode, Strategy
from spotrelay.plane.core.pools import CapacityPool, PurchaseOption

JsonObject = dict[str, Any]

MAX_USER_DATA = 16_384
"""Bytes, before base64: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html"""

NAMED_BY: Mapping[str, tuple[str, ...]] = {
    "capacity-reservation": ("CapacityReservationSpecification",),
    "image": ("ImageId",),
    "instance": ("IamInstanceProfile", "InstanceType", "MetadataOptions", "UserData"),
    "key-pair": ("KeyName",),
    "launch-template": (),
    "network-interface": ("NetworkInterfaces", "SubnetId"),
    "security-group": ("NetworkInterfaces", "SecurityGroupIds", "SecurityGroups"),
    "subnet": ("AvailabilityZone", "NetworkInterfaces", "Placement", "SubnetId"),
    "volume": ("BlockDeviceMappings",),
}
"""Resources for which RunInstances carries ec2:LaunchTemplate and ec2:IsLaunchTemplateResource, and the
parameters with which a request replaces the template's. Of what a launch touches, only a Spot request has
neither key. For what the launch makes, the documents leave room: we took the stricter reading.
Source: https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html"""


@dataclass(frozen=True, slots=True)
class Template:
    """One version of a launch template; of none at all for a launch without."""

    id: str | None = None
    version: int | None = None
    data: Mapping[str, Any] | None = None

    def specification(self) -> JsonObject:
        """As CreateFleet's answer names it: by ID, with the version that was meant."""
        return {"LaunchTemplateId": self.id, "Version": str(self.version)}


@dataclass(frozen=True, slots=True)
class PoolSubnet:
    """A pool and the subnet through which it is used."""

    pool: CapacityPool
    subnet_id: str
    vpc_id: str


def find_template(context: Context, specification: Mapping[str, Any]) -> Template:
    """The template and version that a request names.

    Raises:
        AwsError: there is no such template, or it has no such version.
    """
    template_id = specification.get("LaunchTemplateId")
    name = specification.get("LaunchTemplateName")
    if bool(template_id) == bool(name):
        raise AwsError(
            "InvalidParameterValue", "Name either LaunchTemplateId or LaunchTemplateName, not both"
        )
    record = context.ministack.launch_template(template_id, name)
    if record is None:
        if template_id:
            message = f"The specified launch template, with template ID {template_id}, does not exist."
            raise AwsError("InvalidLaunchTemplateId.NotFound", message)
        message = f"The specified launch template, with template name {name}, does not exist."
        raise AwsError("InvalidLaunchTemplateName.NotFoundException", message)
    wanted = str(specification.get("Version") or "$Default")
    number = {
        "$Default": record["DefaultVersionNumber"],
        "$Latest": record["LatestVersionNumber"],
    }.get(wanted, wanted)
    for version in record["Versions"]:
        if str(version["VersionNumber"]) == str(number):
            return Template(record["LaunchTemplateId"], int(number), version["LaunchTemplateData"])
    raise AwsError(
        "InvalidLaunchTemplateId.VersionNotFound",
        f"Could not find launch template version {wanted} of {record['LaunchTemplateId']}",
    )


def find_place(context: Context, data: Mapping[str, Any]) -> PoolSubnet:
    """Where a launch goes; without a subnet, the default VPC's in the zone that is asked for, or the first.

    Raises:
        AwsError: no instance type, or no such subnet or zone.
    """
    instance_type = data.get("InstanceType")
    if not instance_type:
        raise AwsError(
            "MissingParameter", "Neither the request nor its launch template names an instance type"
        )
    interfaces = data.get("NetworkInterfaces") or [{}]
    subnet_id = data.get("SubnetId") or interfaces[0].get("SubnetId")
    if subnet_id:
        subnet = context.ministack.subnet(subnet_id)
        if subnet is None:
            raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")
    else:
        zone = data.get("AvailabilityZone") or (data.get("Placement") or {}).get("AvailabilityZone")
        subnets = [s for s in context.ministack.default_subnets() if zone in (None, s["AvailabilityZone"])]
        if not subnets:
            raise AwsError("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
        subnet = subnets[0]
    pool = CapacityPool(REGION, str(subnet["AvailabilityZone"]), str(instance_type))
    return PoolSubnet(pool, str(subnet["SubnetId"]), str(subnet["VpcId"]))


def make_spec(
    context: Context,
    data: Mapping[str, Any],
    place: PoolSubnet,
    template: Template,
    tags: Mapping[str, str],
    fleet_id: str | None = None,
    *,
    spot: bool,
) -> LaunchSpec:
    """What an instance is made of. `data` is the template's data with overrides and request laid over it.

    Raises:
        AwsError: no image, or one that is gone, no such instance profile, user data that isn't base64, a root
            volume that the image doesn't fit into, capacity reservations that it can't have, or a tag that
            its metadata can't have and should.
    """
    if not data.get("ImageId"):
        raise AwsError("MissingParameter", "The request must contain the parameter ImageId")
    if data["ImageId"] in context.cloud.lost_images:
        raise AwsError("InvalidAMIID.NotFound", f"The image id '[{data['ImageId']}]' does not exist")
    image = context.cloud.images.get(data["ImageId"])
    if image is not None and image.state != "available":
        raise AwsError("InvalidAMIID.Unavailable", f"The image ID '{image.id}' is not available")
    _check_root_volume(str(data["ImageId"]), data.get("BlockDeviceMappings") or [])
    tags = {**tags_for(data.get("TagSpecifications") or [], "instance"), **tags}
    shows_tags = (data.get("MetadataOptions") or {}).get("InstanceMetadataTags") == "enabled"
    if shows_tags:
        check_metadata_tags(tags)
    interfaces = data.get("NetworkInterfaces") or [{}]
    groups = data.get("SecurityGroupIds") or interfaces[0].get("Groups") or []
    profile = data.get("IamInstanceProfile")
    return LaunchSpec(
        image_id=str(data["ImageId"]),
        subnet_id=place.subnet_id,
        vpc_id=place.vpc_id,
        user_data=_decode(str(data.get("UserData", ""))),
        security_group_ids=tuple(groups),
        key_name=data.get("KeyName"),
        instance_profile_arn=_profile(context, profile)[0] if profile else None,
        tags=dict(tags),
        shows_tags=shows_tags,
        fleet_id=fleet_id,
        template_id=template.id,
        template_version=template.version,
        is_protected=bool(data.get("DisableApiTermination")),
        ends_when_off=data.get("InstanceInitiatedShutdownBehavior") == "terminate",
        reservation_group=context.cloud.reservations.targeted(data, spot=spot),
    )


def refusals(
    context: Context,
    action: str,
    spec: LaunchSpec,
    template: Template,
    named: Collection[str],
    *,
    spot: bool,
    reserved: bool = False,
) -> Iterator[str]:
    """Why IAM forbids `action` to run such an instance: a sentence for each permission that is missing.

    EC2 asks for ec2:RunInstances on everything that the launch touches, also when a fleet launches, and for
    ec2:CreateTags and iam:PassRole where there are tags and a role. `named` are the parameters that the
    request, or the fleet's override, has beside the template.
    """
    for kind, arn, conditions in touched(context, spec, template, spot=spot, reserved=reserved):
        origin = _origin(kind, template, named)
        refusal = context.refusal("ec2:RunInstances", arn, {**conditions, **origin})
        if refusal:
            yield refusal
    if spec.tags:
        conditions = {**request_tag_conditions(spec.tags), "ec2:CreateAction": action}
        refusal = context.refusal("ec2:CreateTags", ec2_arn("instance", "*"), conditions)
        if refusal:
            yield refusal
    if spec.instance_profile_arn:
        _, role_arn = _profile(context, {"Arn": spec.instance_profile_arn})
        conditions = {"iam:PassedToService": "ec2.amazonaws.com"}
        refusal = context.refusal("iam:PassRole", role_arn, conditions)
        if refusal:
            yield refusal


def touched(
    context: Context, spec: LaunchSpec, template: Template, *, spot: bool, reserved: bool = False
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every resource on which a launch needs permission: its kind, its ARN and the condition keys with it.

    `reserved`: it would use capacity reservations, if there are any. By the stricter reading of AWS's
    documents the right is needed in any case; and on the group that the template targets, whichever that is.
    """
    made = request_tag_conditions(spec.tags)
    if spec.instance_profile_arn:
        made["ec2:InstanceProfile"] = spec.instance_profile_arn
    yield "instance", ec2_arn("instance", "*"), made
    for kind in (
        "volume",
        "network-interface",
        *(["spot-instances-request"] if spot else []),
        *(["capacity-reservation"] if reserved else []),
    ):
        yield kind, ec2_arn(kind, "*"), {}
    yield "image", ec2_arn("image", spec.image_id), {}
    used = [("subnet", spec.subnet_id), *(("security-group", group) for group in spec.security_group_ids)]
    if template.id:
        used.append(("launch-template", template.id))
    if spec.key_name:
        used.append(("key-pair", spec.key_name))
    if spec.reservation_group:
        yield "group", spec.reservation_group, {}
    for kind, name in used:
        yield kind, ec2_arn(kind, name), resource_tag_conditions(context.ministack.tags_of(name))


def _origin(kind: str, template: Template, named: Collection[str]) -> dict[str, str]:
    """Whether RunInstances takes a resource from a template, and from which; CreateFleet has no such keys."""
    if kind not in NAMED_BY:
        return {}
    if template.id is None:
        return {"ec2:IsLaunchTemplateResource": "false"}
    is_templates = not set(NAMED_BY[kind]) & set(named)
    return {
        "ec2:LaunchTemplate": ec2_arn("launch-template", template.id),
        "ec2:IsLaunchTemplateResource": str(is_templates).lower(),
    }


def why_refused(code: RefusalCode, pool: CapacityPool, option: PurchaseOption) -> str:
    """EC2's message for a refusal."""
    match code:
        case RefusalCode.INSUFFICIENT_INSTANCE_CAPACITY if option is PurchaseOption.ON_DEMAND:
            return (
                f"We currently do not have sufficient {pool.instance_type} capacity in the Availability "
                f"Zone you requested ({pool.zone}). Our system will be working on provisioning additional "
                "capacity."
            )
        case RefusalCode.INSUFFICIENT_INSTANCE_CAPACITY:
            return "There is no Spot capacity available that matches your request."
        case RefusalCode.UNFULFILLABLE_CAPACITY:
            return (
                "Unable to fulfill capacity due to your request configuration. "
                "Please adjust your request and try again."
            )
        case RefusalCode.SPOT_MAX_PRICE_TOO_LOW:
            return (
                "Your Spot request price is lower than the minimum required Spot request fulfillment price."
            )
        case RefusalCode.INVALID_FLEET_CONFIGURATION:
            return (
                f"Your requested instance type ({pool.instance_type}) is not supported in your requested "
                f"Availability Zone ({pool.zone})."
            )


def take_place(context: Context, place: CapacityPool, option: PurchaseOption, least: int, most: int) -> int:
    """Take room for so many instances in a pool; how many there is room for.

    Raises:
        AwsError: there is not room for the least.
    """
    request = MarketRequest([Candidate(place)], most, option, Strategy.LOWEST_PRICE, least)
    allocation = context.cloud.market.launch(request, context.cloud.now())
    if not allocation.grants:
        code = allocation.refusals[0].code
        if code is RefusalCode.INVALID_FLEET_CONFIGURATION:
            raise AwsError("Unsupported", why_refused(code, place, option))
        # EC2 calls a lack of capacity its own fault: status 500.
        raise AwsError("InsufficientInstanceCapacity", why_refused(code, place, option), status=500)
    return allocation.granted


def reservation_id() -> str:
    """A new reservation."""
    return f"r-{secrets.token_hex(8)}{secrets.token_hex(1)[0]}"


def _profile(context: Context, profile: Mapping[str, Any]) -> tuple[str, str]:
    found = context.ministack.role_of_instance_profile(profile.get("Arn"), profile.get("Name"))
    if found is None:
        named = profile.get("Arn") or profile.get("Name")
        raise AwsError(
            "InvalidParameterValue",
            f"Value ({named}) for parameter iamInstanceProfile is invalid. Invalid IAM Instance Profile",
        )
    return found


def _check_root_volume(image_id: str, mappings: Iterable[Mapping[str, Any]]) -> None:
    root = ROOT_VOLUMES.get(image_id)
    for mapping in mappings:
        size_gib = (mapping.get("Ebs") or {}).get("VolumeSize")
        if root and size_gib and mapping.get("DeviceName") == root.device and int(size_gib) < root.size_gib:
            raise AwsError(
                "InvalidBlockDeviceMapping",
                f"Volume of size {size_gib}GB is smaller than snapshot '{root.snapshot_id}',"
                f" expect size >= {root.size_gib}GB",
            )


def _decode(user_data: str) -> str:
    try:
        raw = base64.b64decode(user_data, validate=True)
    except binascii.Error as error:
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from error
    if len(raw) > MAX_USER_DATA:
        raise AwsError("InvalidParameterValue", f"User data is limited to {MAX_USER_DATA} bytes")
    # As cloud-init does.
    plain = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    return plain.decode(errors="replace")
