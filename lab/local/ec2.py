"""EC2's actions on instances and their Spot requests."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from lab.local.catalog import instance_types
from lab.local.context import (
    AWS_TAG_PREFIX,
    Context,
    Handler,
    Params,
    Result,
    check_metadata_tags,
    check_tag_keys,
    request_tag_conditions,
    resource_tag_conditions,
)
from lab.local.environment import ACCOUNT
from lab.local.instances import (
    LocalInstance,
    LocalInstanceState,
    SpotRequest,
    describe,
    describe_spot_request,
)
from lab.local.launch import take_place
from lab.local.query import Attributes, matches, page
from lab.local.wire import AwsError

CONSOLE_BYTES = 65_536
"""EC2 keeps no more (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html)."""

_PROTECTION = "disableApiTermination"
_INSTANCE_ID = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")


def describe_instances(context: Context) -> Result:
    """Instances by ID or filter, in reservations."""
    context.require("ec2:DescribeInstances")
    wanted = _select(context)
    disrupted = context.cloud.disrupted
    if disrupted and (not context.params.get("InstanceIds") or disrupted & {i.zone for i in wanted}):
        # AWS says that it fails, and not how.
        raise AwsError("Unavailable", f"Service disruption in {', '.join(sorted(disrupted))}", status=503)
    shown, more = page(wanted, context.params)
    reservations: dict[str, Result] = {}
    for instance in shown:
        reservation = reservations.setdefault(
            instance.reservation_id,
            {"ReservationId": instance.reservation_id, "OwnerId": ACCOUNT, "Groups": [], "Instances": []},
        )
        shown_now = describe(instance)
        if not context.cloud.shows_address(instance):
            shown_now.pop("PrivateIpAddress", None)
            shown_now["PrivateDnsName"] = ""
        reservation["Instances"].append(shown_now)
    return {"Reservations": list(reservations.values()), **more}


def describe_instance_status(context: Context) -> Result:
    """Running instances, all of them if asked for; every check of a running one passes."""
    context.require("ec2:DescribeInstanceStatus")
    instances = _select(context)
    if not context.params.get("IncludeAllInstances"):
        instances = [i for i in instances if i.state is LocalInstanceState.RUNNING]
    shown, more = page(instances, context.params)
    return {"InstanceStatuses": [_status(instance) for instance in shown], **more}


def terminate_instances(context: Context) -> Result:
    """All or nothing: an ID that is unknown, or forbidden, and none is terminated.

    One that is protected keeps those of its own zone alive; the rest is terminated in spite of the error.
    """
    instances = by_ids(context, context.params["InstanceIds"])
    for instance in instances:
        context.require("ec2:TerminateInstances", instance.arn, instance_conditions(instance))
    protected = [i for i in instances if i.is_protected and not i.state.is_over]
    spared = {i.zone for i in protected}
    before = {i.id: i.state for i in instances}
    doomed = [i for i in instances if i.zone not in spared]
    for instance in doomed:
        context.cloud.terminate(instance)
    if protected:
        raise AwsError(
            "OperationNotPermitted",
            f"The instance '{protected[0].id}' may not be terminated. "
            "Modify its 'disableApiTermination' instance attribute and try again.",
        )
    return {"TerminatingInstances": _changes(doomed, before)}


def start_instances(context: Context) -> Result:
    """All or nothing: one that can't start, or has no room, and none does."""
    instances = by_ids(context, context.params["InstanceIds"])
    for instance in instances:
        context.require("ec2:StartInstances", instance.arn, instance_conditions(instance))
    _check_states(instances, lambda state: state.can_start, "started")
    before = {i.id: i.state for i in instances}
    stopped = [i for i in instances if i.state is LocalInstanceState.STOPPED]
    placed: list[LocalInstance] = []
    try:
        for instance in stopped:
            _take_place(context, instance)
            placed.append(instance)
    except AwsError:
        for instance in placed:
            context.cloud.release(instance)
        raise
    for instance in stopped:
        context.cloud.start(instance)
    return {"StartingInstances": _changes(instances, before)}


def stop_instances(context: Context) -> Result:
    """All or nothing: one that can't stop, and none does."""
    instances = by_ids(context, context.params["InstanceIds"])
    for instance in instances:
        context.require("ec2:StopInstances", instance.arn, instance_conditions(instance))
    context.end_dry_run()
    spot = [i for i in instances if i.is_spot]
    if spot:
        raise AwsError(
            "UnsupportedOperation",
            f"You can't stop the Spot Instance '{spot[0].id}' because it is associated with a one-time Spot "
            "Instance request. You can only stop Spot Instances associated with persistent Spot Instance "
            "requests.",
        )
    _check_states(instances, lambda state: state.can_stop, "stopped")
    before = {i.id: i.state for i in instances}
    for instance in instances:
        context.cloud.stop(instance)
    return {"StoppingInstances": _changes(instances, before)}


def modify_instance_attribute(context: Context) -> Result:
    """Termination protection; the local cloud has no other attributes."""
    params = context.params
    (instance,) = by_ids(context, [params["InstanceId"]])
    context.require("ec2:ModifyInstanceAttribute", instance.arn, resource_tag_conditions(instance.tags))
    if params.get("Attribute") == _PROTECTION:
        wanted = params.get("Value") == "true"
    elif "DisableApiTermination" in params:
        wanted = bool(params["DisableApiTermination"].get("Value"))
    else:
        raise AwsError("UnsupportedOperation", f"Of attributes the local cloud knows {_PROTECTION} only")
    if instance.is_spot:
        raise AwsError(
            "UnsupportedOperation", f"Modifying '{_PROTECTION}' is not supported for spot instances."
        )
    instance.is_protected = wanted
    return {}


def describe_instance_attribute(context: Context) -> Result:
    """Whether the instance is protected from termination; no other attribute is known."""
    (instance,) = by_ids(context, [context.params["InstanceId"]])
    context.require("ec2:DescribeInstanceAttribute", instance.arn, resource_tag_conditions(instance.tags))
    if context.params["Attribute"] != _PROTECTION:
        raise AwsError("UnsupportedOperation", f"Of attributes the local cloud knows {_PROTECTION} only")
    return {"InstanceId": instance.id, "DisableApiTermination": {"Value": instance.is_protected}}


def create_tags(context: Context) -> Result:
    """Tags on instances."""
    tags = {tag["Key"]: tag.get("Value", "") for tag in context.params["Tags"]}
    check_tag_keys(tags)
    instances = by_ids(context, context.params["Resources"])
    for instance in instances:
        conditions = {**resource_tag_conditions(instance.tags), **request_tag_conditions(tags)}
        context.require("ec2:CreateTags", instance.arn, conditions)
        if instance.spec.shows_tags:
            check_metadata_tags(tags)
    for instance in instances:
        instance.tags.update(tags)
        context.ministack.mirror_tags(instance.id, instance.tags)
    return {}


def delete_tags(context: Context) -> Result:
    """Tags off instances: those named, those with the value named, or all but EC2's own."""
    doomed = context.params.get("Tags")
    check_tag_keys(tag["Key"] for tag in doomed or [])
    instances = by_ids(context, context.params["Resources"])
    for instance in instances:
        conditions = resource_tag_conditions(instance.tags)
        if doomed:
            conditions = {**conditions, **request_tag_conditions({t["Key"]: "" for t in doomed})}
        context.require("ec2:DeleteTags", instance.arn, conditions)
    for instance in instances:
        for key, value in list(instance.tags.items()):
            if key.startswith(AWS_TAG_PREFIX):
                continue
            if doomed is None or any(t["Key"] == key and t.get("Value", value) == value for t in doomed):
                del instance.tags[key]
        context.ministack.mirror_tags(instance.id, instance.tags)
    return {}


def describe_spot_instance_requests(context: Context) -> Result:
    """The requests behind our Spot instances, as long as those are visible."""
    context.require("ec2:DescribeSpotInstanceRequests")
    ids = context.params.get("SpotInstanceRequestIds")
    requests = [(i, i.spot_request) for i in context.cloud.shown() if i.spot_request]
    if ids:
        known = {request.id for _, request in requests}
        for request_id in ids:
            if request_id not in known:
                raise AwsError(
                    "InvalidSpotInstanceRequestID.NotFound",
                    f"The spot instance request ID '{request_id}' does not exist",
                )
        requests = [(i, request) for i, request in requests if request.id in ids]
    filters = context.params.get("Filters", [])
    requests = [(i, r) for i, r in requests if matches(filters, _request_attributes(i, r), i.tags)]
    shown, more = page(requests, context.params)
    return {"SpotInstanceRequests": [describe_spot_request(i, r) for i, r in shown], **more}


def get_console_output(context: Context) -> Result:
    """The end of what one instance said; empty while it has said nothing, as on EC2 in its first minutes.

    Older types than Nitro's know only what was there when the instance came to run.
    """
    (instance,) = by_ids(context, [context.params["InstanceId"]])
    context.require("ec2:GetConsoleOutput", instance.arn, instance_conditions(instance))
    latest = bool(context.params.get("Latest"))
    if latest and instance_types().get(instance.instance_type, {}).get("Hypervisor") == "xen":
        raise AwsError(
            "UnsupportedOperation", "This instance type does not support retrieving the latest console logs."
        )
    said = context.cloud.console_output(instance.id, latest=latest)[-CONSOLE_BYTES:]
    output = {"Output": base64.b64encode(said).decode()} if said else {}
    return {"InstanceId": instance.id, "Timestamp": datetime.now(UTC), **output}


HANDLERS: dict[str, Handler] = {
    "DescribeInstances": describe_instances,
    "DescribeInstanceStatus": describe_instance_status,
    "DescribeInstanceAttribute": describe_instance_attribute,
    "ModifyInstanceAttribute": modify_instance_attribute,
    "StartInstances": start_instances,
    "StopInstances": stop_instances,
    "TerminateInstances": terminate_instances,
    "GetConsoleOutput": get_console_output,
    "CreateTags": create_tags,
    "DeleteTags": delete_tags,
    "DescribeSpotInstanceRequests": describe_spot_instance_requests,
}


def is_about_instances(action: str, params: Params) -> bool:
    """Whether a call is ours: tags of other resources are MiniStack's.

    Raises:
        AwsError: it is about both.
    """
    if action not in ("CreateTags", "DeleteTags"):
        return True
    ours = [resource.startswith("i-") for resource in params["Resources"]]
    if any(ours) and not all(ours):
        raise AwsError(
            "UnsupportedOperation",
            f"{action}: the local cloud takes instances and the rest in separate calls",
        )
    return all(ours)


def instance_conditions(instance: LocalInstance) -> dict[str, str]:
    """The condition keys of a call about an instance, as far as we know them."""
    profile = instance.spec.instance_profile_arn
    return {
        **resource_tag_conditions(instance.tags),
        **({"ec2:InstanceProfile": profile} if profile else {}),
    }


def _check_states(
    instances: Iterable[LocalInstance], may: Callable[[LocalInstanceState], bool], verb: str
) -> None:
    for instance in instances:
        if not may(instance.state):
            raise AwsError(
                "IncorrectInstanceState",
                f"The instance '{instance.id}' is not in a state from which it can be {verb}.",
            )


def _take_place(context: Context, instance: LocalInstance) -> None:
    cloud, offering = context.cloud, instance.offering
    if cloud.quotas.room_for(offering, cloud.instances.values()) < 1:
        raise AwsError(*cloud.quotas.refusal(offering))
    # An instance keeps what it targets through a stop.
    group = instance.spec.reservation_group
    instance.capacity_reservation = cloud.reservations.take(group, offering.pool)
    if instance.capacity_reservation is None:
        take_place(context, offering.pool, offering.purchase_option, 1, 1)
    instance.has_place = True


def _changes(
    instances: Iterable[LocalInstance], before: Mapping[str, LocalInstanceState]
) -> list[dict[str, object]]:
    return [
        {"InstanceId": i.id, "PreviousState": before[i.id].api, "CurrentState": i.state.api}
        for i in instances
    ]


def _select(context: Context) -> list[LocalInstance]:
    """The instances that the request's IDs and filters ask for."""
    ids = context.params.get("InstanceIds")
    if ids and "MaxResults" in context.params:
        raise AwsError(
            "InvalidParameterCombination",
            "The parameter instancesSet cannot be used with the parameter maxResults",
        )
    instances = by_ids(context, ids) if ids else context.cloud.shown()
    filters = context.params.get("Filters", [])
    return [i for i in instances if matches(filters, _attributes(i), i.tags)]


def _attributes(instance: LocalInstance) -> Attributes:
    spec, request = instance.spec, instance.spot_request
    name, code = instance.state.value
    return {
        "instance-id": lambda: [instance.id],
        "instance-state-name": lambda: [name],
        "instance-state-code": lambda: [str(code)],
        "instance-type": lambda: [instance.instance_type],
        # On-demand has no lifecycle, so no value of this filter finds it: as on EC2.
        "instance-lifecycle": lambda: ["spot"] if request else [],
        "spot-instance-request-id": lambda: [request.id] if request else [],
        "availability-zone": lambda: [instance.zone],
        "private-ip-address": lambda: [instance.address],
        "image-id": lambda: [spec.image_id],
        "subnet-id": lambda: [spec.subnet_id],
        "vpc-id": lambda: [spec.vpc_id],
        "reservation-id": lambda: [instance.reservation_id],
        "iam-instance-profile.arn": lambda: [spec.instance_profile_arn or ""],
        "event.code": lambda: [event["Code"] for event in instance.events],
    }


def _request_attributes(instance: LocalInstance, request: SpotRequest) -> Attributes:
    code, state, _ = request.status.value
    return {
        "spot-instance-request-id": lambda: [request.id],
        "status-code": lambda: [code],
        "state": lambda: [state],
        "instance-id": lambda: [instance.id],
        "launch.instance-type": lambda: [instance.instance_type],
        "launched-availability-zone": lambda: [instance.zone],
        "type": lambda: ["one-time"],
    }


def _status(instance: LocalInstance) -> Result:
    running = instance.state is LocalInstanceState.RUNNING
    check = {
        "Status": "ok" if running else "not-applicable",
        "Details": [{"Name": "reachability", "Status": "passed"}] if running else [],
    }
    return {
        "InstanceId": instance.id,
        "AvailabilityZone": instance.zone,
        "InstanceState": instance.state.api,
        "InstanceStatus": check,
        "SystemStatus": check,
        "Events": list(instance.events),
    }


def by_ids(context: Context, ids: Iterable[str]) -> list[LocalInstance]:
    """The instances of these IDs.

    Raises:
        AwsError: an ID is malformed or unknown, as one is that was launched a moment ago.
    """
    ids = list(ids)
    malformed = [i for i in ids if not _INSTANCE_ID.fullmatch(i)]
    if malformed:
        raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{malformed[0]}"')
    shown = {instance.id: instance for instance in context.cloud.shown()}
    missing = [i for i in ids if i not in shown]
    if missing:
        ending = "s" if len(missing) > 1 else ""
        verb = "do" if ending else "does"
        names = ", ".join(missing)
        raise AwsError("InvalidInstanceID.NotFound", f"The instance ID{ending} '{names}' {verb} not exist")
    return [shown[i] for i in dict.fromkeys(ids)]
