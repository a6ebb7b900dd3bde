"""`ports.Fleet` on EC2: instant fleets to launch, DescribeInstances to observe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from spotrelay.plane.aws.clients import LAUNCH_S, START_S, TELL_S, Clients
from spotrelay.plane.aws.errors import (
    INCORRECT_STATE,
    INSTANCE_NOT_FOUND,
    UNSUPPORTED_OPERATION,
    refusal_kind,
    translated,
    was_repeated,
)
from spotrelay.plane.aws.remedies import remedy
from spotrelay.plane.core.instances import Instance, InstanceState, Refusal, RefusalKind
from spotrelay.plane.core.names import (
    TAG_HIGHEST_ID,
    TAG_LAUNCH,
    TAG_LAUNCH_TEMPLATE,
    TAG_LAUNCH_TEMPLATE_VERSION,
    TAG_PEERS,
    TAG_SERVICE,
)
from spotrelay.plane.core.pools import OPTIONS, CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.ports import (
    MAX_STARTS,
    Denied,
    LaunchRequest,
    LaunchResult,
    Throttled,
    Unavailable,
)

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import (
        CreateFleetErrorTypeDef,
        CreateFleetInstanceTypeDef,
        CreateFleetRequestTypeDef,
        CreateFleetResultTypeDef,
        InstanceTypeDef,
    )

BEING_TAKEN_BACK = (
    "instance-terminated-no-capacity",
    "instance-terminated-capacity-oversubscribed",
    "instance-terminated-by-price",
    "instance-terminated-by-schedule",
    "instance-terminated-launch-group-constraint",
    "instance-stopped-no-capacity",
    "instance-stopped-capacity-oversubscribed",
    "instance-stopped-by-price",
    "marked-for-termination",
    "marked-for-stop",
    # By an experiment of Fault Injection Service.
    "instance-terminated-by-experiment",
    "marked-for-stop-by-experiment",
)
"""Status codes of Spot requests whose instance may still run, but not for long.

A request whose instance EC2 terminates for want of capacity says so at once, while the instance runs for two
more minutes; it is never `marked-for-termination`. Codes stay on record after the instance's end.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instances-request-status-lifecycle.html
"""

FULFILLED = "fulfilled"
"""The status code of a Spot request whose instance EC2 isn't taking back."""

MAX_FILTER_VALUES = 200
"""What a filter takes. https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html"""

MAX_ID_DIGITS = 9
"""As many as the table's keys have, see `items`."""

RECORD_S = 5.0
"""For putting on record what was launched: milliseconds, or seconds if DynamoDB must be asked twice."""

MAX_BATCH = 100
"""Instances per TerminateInstances and the like: EC2 takes 1000 and recommends smaller batches."""


class Ec2Fleet:
    """`ports.Fleet`, with EC2 Fleet for launches and EC2's own calls for the rest."""

    def __init__(
        self,
        clients: Clients,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._clients = clients
        self._now = now

    def launch(self, request: LaunchRequest) -> LaunchResult:
        """One CreateFleet of type instant; the launch ID is its client token.

        Raises:
            Throttled: also if the invocation may end before the answer is on record. Nothing was asked, and
                the tick that follows has all of its time.
            Unavailable: also if EC2 answered with neither instances nor errors. That is no outcome of an
                attempt, but may be what a repeated ClientToken brings, which AWS doesn't document. And if it
                refused a repeat of botocore's: what came of the attempt before, nobody knows.
        """
        if not self._clients.has_time(LAUNCH_S + RECORD_S):
            raise Throttled("not enough time is left in this invocation: the next tick launches")
        try:
            with translated():
                answer = self._clients.ec2_launching.create_fleet(**_create_fleet(request))
        except Denied as denied:
            if was_repeated(denied):
                raise Unavailable(str(denied)) from denied
            # A quota met by the request as a whole comes as an exception; it is a refusal all the same.
            kind, words = refusal_kind(denied.code, str(denied)), str(denied)
            mend = remedy(kind, denied.code, words, request.spec.region, None)
            if kind in (RefusalKind.PERMISSION, RefusalKind.REQUEST, RefusalKind.OTHER):
                raise Denied(words, denied.code, mend) from denied
            return LaunchResult(refusals=(Refusal(kind, denied.code, words, None, mend),))
        result = _result(request, answer, self._now())
        if not result.instances and not result.refusals:
            raise Unavailable(f"CreateFleet {request.launch_id} answered with neither instances nor errors")
        return result

    def observe(self, service: str) -> Sequence[Instance]:
        return self._described(Filters=[{"Name": f"tag:{TAG_SERVICE}", "Values": [service]}])

    def look_up(self, instance_ids: Collection[str]) -> Sequence[Instance]:
        ids, found = sorted(set(instance_ids)), list[Instance]()
        for start in range(0, len(ids), MAX_BATCH):
            batch = ids[start : start + MAX_BATCH]
            try:
                found += self._described(InstanceIds=batch)
            except Denied as denied:
                if denied.code != INSTANCE_NOT_FOUND:
                    raise
                # One that EC2 doesn't know has it refuse all, and is named in its words.
                known = [id_ for id_ in batch if id_ not in str(denied)]
                found += self.look_up(known if len(known) < len(batch) else ())
        return found

    def _described(self, **asked: Any) -> list[Instance]:
        ec2 = self._clients.ec2
        with translated():
            pages = ec2.get_paginator("describe_instances").paginate(**asked)
            return [
                instance_of(described, ec2.meta.region_name)
                for page in pages
                for reservation in page["Reservations"]
                for described in reservation["Instances"]
            ]

    def warned(self, instance_ids: Collection[str]) -> Mapping[str, datetime | None]:
        ids = sorted(set(instance_ids))
        if not ids:
            return {}
        # More than a filter takes would be a call for each two hundred, every few seconds.
        name, values = (
            ("instance-id", ids) if len(ids) <= MAX_FILTER_VALUES else ("status-code", list(BEING_TAKEN_BACK))
        )
        with translated():
            pages = self._clients.ec2.get_paginator("describe_spot_instance_requests").paginate(
                Filters=[{"Name": name, "Values": values}]
            )
            shown = [request for page in pages for request in page["SpotInstanceRequests"]]
        said: dict[str, datetime | None] = {}
        for request in shown:
            status = request.get("Status", {})
            code, instance_id = status.get("Code"), request.get("InstanceId", "")
            if instance_id in instance_ids and code in BEING_TAKEN_BACK:
                said[instance_id] = status.get("UpdateTime") or self._now()
            elif instance_id in instance_ids and code == FULFILLED and request.get("State") == "active":
                said.setdefault(instance_id, None)
        return said

    def console(self, instance_id: str) -> str:
        """The latest output, which types before Nitro don't have: of those nothing is known.

        Raises:
            Throttled: also if the invocation may end before the answer. Nothing was asked.
        """
        if not self._clients.has_time(TELL_S):
            raise Throttled("not enough time is left in this invocation")
        try:
            with translated():
                answer = self._clients.ec2_telling.get_console_output(InstanceId=instance_id, Latest=True)
        except Denied as denied:
            if denied.code == UNSUPPORTED_OPERATION:
                return ""
            raise
        return answer.get("Output", "")

    def start(self, instance_ids: Collection[str]) -> Mapping[str, Refusal]:
        """One that can't be started makes EC2 refuse all. Then each is started by itself.

        Raises:
            Throttled: also if the invocation may end before the answer is on record. Nothing was asked.
        """
        ordered = list(dict.fromkeys(instance_ids))
        denied = self._start(ordered)
        if denied is None:
            return {}
        if len(ordered) == 1:
            return self._start_refusals({ordered[0]: denied})
        # One that can't be started makes EC2 refuse all.
        answers: dict[str, Denied | None] = {}
        try:
            for instance_id in ordered[:MAX_STARTS]:
                answers[instance_id] = self._start([instance_id])
        except (Throttled, Unavailable):
            if not answers:
                raise
        return self._start_refusals({id_: d for id_, d in answers.items() if d})

    def _start(self, instance_ids: Sequence[str]) -> Denied | None:
        """Start all of them; what EC2 says if it starts none."""
        if not instance_ids:
            return None
        if not self._clients.has_time(START_S + RECORD_S):
            raise Throttled("not enough time is left in this invocation: the next tick starts it")
        try:
            with translated():
                self._clients.ec2_starting.start_instances(InstanceIds=instance_ids)
        except Denied as denied:
            return denied
        return None

    def _start_refusals(self, denied: Mapping[str, Denied]) -> Mapping[str, Refusal]:
        region = self._clients.ec2_starting.meta.region_name
        return {id_: _start_refusal(d, region) for id_, d in denied.items() if d.code != INCORRECT_STATE}

    def stop(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        ec2 = self._clients.ec2
        denied = _denied(lambda ids: ec2.stop_instances(InstanceIds=ids), instance_ids)
        # Not in a state to be stopped: it is gone, or still pending, and then the tick asks again.
        fine = (INSTANCE_NOT_FOUND, INCORRECT_STATE)
        return {id_: str(d) for id_, d in denied.items() if d.code not in fine}

    def terminate(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        ec2 = self._clients.ec2
        denied = _denied(lambda ids: ec2.terminate_instances(InstanceIds=ids), instance_ids)
        return {id_: str(d) for id_, d in denied.items() if d.code != INSTANCE_NOT_FOUND}


def _denied(call: Callable[[Sequence[str]], object], instance_ids: Collection[str]) -> dict[str, Denied]:
    """The instances for which EC2 refuses the call, and how.

    One that EC2 doesn't know, or that is protected, makes it refuse all: then each is asked about alone.
    """
    ordered = list(dict.fromkeys(instance_ids))
    denied: dict[str, Denied] = {}
    for start in range(0, len(ordered), MAX_BATCH):
        batch = ordered[start : start + MAX_BATCH]
        try:
            with translated():
                call(batch)
        except Denied as error:
            if len(batch) == 1:
                denied[batch[0]] = error
            else:
                for instance_id in batch:
                    denied |= _denied(call, [instance_id])
    return denied


def _start_refusal(denied: Denied, region: str) -> Refusal:
    """Without an offering: whoever asked knows where the instance is."""
    # An ID that is unknown is no mistake in the service file: somebody terminated the instance.
    is_gone = denied.code == INSTANCE_NOT_FOUND
    words = str(denied)
    kind = RefusalKind.OTHER if is_gone else refusal_kind(denied.code, words)
    return Refusal(kind, denied.code, words, None, remedy(kind, denied.code, words, region, None))


def _create_fleet(request: LaunchRequest) -> CreateFleetRequestTypeDef:
    spec, option = request.spec, request.purchase_option
    template = spec.template(option)
    tags = [
        {"Key": TAG_SERVICE, "Value": spec.service},
        {"Key": TAG_LAUNCH, "Value": request.launch_id},
    ]
    known = {"Key": TAG_HIGHEST_ID, "Value": str(request.highest_id)}
    labels = [{"Key": name, "Value": value} for name, value in spec.labels.items()]
    named = [*tags, known, {"Key": "Name", "Value": f"spotrelay {spec.service}"}, *labels]
    if request.peers is not None:
        named.append({"Key": TAG_PEERS, "Value": request.peers})
    fleet: dict[str, Any] = {
        "Type": "instant",
        # botocore's own repeats carry the same token, so that an answer that got lost starts nothing twice.
        "ClientToken": request.launch_id,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": template.id,
                    "Version": template.version,
                },
                "Overrides": _overrides(request),
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": request.count,
            "DefaultTargetCapacityType": option.name,
        },
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": named},
            {"ResourceType": "fleet", "Tags": tags},
        ],
    }
    options: dict[str, Any] = {
        "AllocationStrategy": option.ordered_strategy if spec.ordered else option.strategy
    }
    if option.uses_reservations:
        # What is reserved is paid for, used or not: open reservations, and those that the launch template
        # targets. What they have no room for is launched all the same.
        options["CapacityReservationOptions"] = {"UsageStrategy": "use-capacity-reservations-first"}
    fleet[option.fleet_options] = options
    return fleet  # type: ignore[return-value]  # put together in steps, which a TypedDict can't follow


def _overrides(request: LaunchRequest) -> list[dict[str, Any]]:
    """One per pool. The order is one of types: which zone is left to capacity, so zones share a priority."""
    subnet_in = {zone: subnet for subnet, zone in request.spec.subnets.items()}
    ranks = {t: rank for rank, t in enumerate(dict.fromkeys(p.instance_type for p in request.pools))}
    overrides = []
    for pool in request.pools:
        override: dict[str, Any] = {"InstanceType": pool.instance_type, "SubnetId": subnet_in[pool.zone]}
        slots = request.spec.hosted_by(pool.instance_type)
        if request.spec.slots:
            override["WeightedCapacity"] = slots
        if pool.instance_type in request.max_prices:
            # Of one unit of capacity, where there are weights.
            override["MaxPrice"] = f"{request.max_prices[pool.instance_type] / slots:.4f}"
        if request.spec.ordered:
            override["Priority"] = ranks[pool.instance_type]
        overrides.append(override)
    return overrides


def _result(request: LaunchRequest, answer: CreateFleetResultTypeDef, now: datetime) -> LaunchResult:
    instances = [
        Instance(id_, InstanceState.PENDING, _launched(request, started), now, request.launch_id)
        for started in answer.get("Instances", [])
        for id_ in started.get("InstanceIds", [])
    ]
    refusals: dict[tuple[str, Offering | None], Refusal] = {}
    for error in answer.get("Errors", []):
        refusal = _refusal(request, error)
        # EC2 may name a pool once per instance that it didn't launch there.
        refusals.setdefault((refusal.code, refusal.offering), refusal)
    return LaunchResult(tuple(instances), tuple(refusals.values()))


def _launched(request: LaunchRequest, started: CreateFleetInstanceTypeDef) -> Offering:
    """Where the instances of one entry came from.

    An entry that doesn't say it clearly gets the likeliest of the requested pools: a wrong zone in a row
    misleads a cooldown, but an instance that isn't recorded is paid for and serves nobody.
    """
    # The entry itself says where they are in newer versions of the API, the overrides do in all.
    named = {**started.get("LaunchTemplateAndOverrides", {}).get("Overrides", {}), **started}
    of_type = (p for p in request.pools if p.instance_type == named.get("InstanceType"))
    pool = _pool(request, named) or next(of_type, request.pools[0])
    return Offering(pool, request.purchase_option)


def _refusal(request: LaunchRequest, error: CreateFleetErrorTypeDef) -> Refusal:
    code = error.get("ErrorCode", "")
    pool = _pool(request, error.get("LaunchTemplateAndOverrides", {}).get("Overrides", {}))
    offering = Offering(pool, request.purchase_option) if pool else None
    words = error.get("ErrorMessage", "")
    kind = refusal_kind(code, words)
    return Refusal(kind, code, words, offering, remedy(kind, code, words, request.spec.region, offering))


def _pool(request: LaunchRequest, named: Mapping[str, Any]) -> CapacityPool | None:
    """The requested pool that a part of the answer names, by type and by subnet or zone."""
    zone = request.spec.subnets.get(named.get("SubnetId", ""), named.get("AvailabilityZone"))
    matching = (p for p in request.pools if p.zone == zone and p.instance_type == named.get("InstanceType"))
    return next(matching, None)


def instance_of(described: InstanceTypeDef, region: str) -> Instance:
    """An instance as DescribeInstances has it."""
    lifecycle = described.get("InstanceLifecycle")
    # Of what we never buy is said what holds of most: that EC2 doesn't take it back.
    option = next((o for o in OPTIONS.values() if o.lifecycle == lifecycle), PurchaseOption.ON_DEMAND)
    pool = CapacityPool(region, described["Placement"]["AvailabilityZone"], described["InstanceType"])
    tags = tags_of(described.get("Tags", []))
    return Instance(
        id=described["InstanceId"],
        state=InstanceState(described["State"]["Name"]),
        offering=Offering(pool, option),
        launched_at=described["LaunchTime"],
        launch_id=tags.get(TAG_LAUNCH),
        address=described.get("PrivateIpAddress"),
        launch_template_id=tags.get(TAG_LAUNCH_TEMPLATE),
        highest_id=_number(tags.get(TAG_HIGHEST_ID, "")),
        state_reason=_reason(described),
        version=_number(tags.get(TAG_LAUNCH_TEMPLATE_VERSION, "")) or None,
    )


def _reason(described: InstanceTypeDef) -> str:
    """Code and words; EC2's words mostly begin with the code."""
    reason = described.get("StateReason", {})
    code, words = reason.get("Code", ""), reason.get("Message", "")
    return words if words.startswith(code) else f"{code}: {words}"


def _number(text: str) -> int:
    """A tag's number. One that somebody edited to be none, or more than any ID, says nothing."""
    return int(text) if text.isdecimal() and len(text) <= MAX_ID_DIGITS else 0


def tags_of(tags: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Tags as EC2 lists them, by their keys."""
    return {tag["Key"]: tag["Value"] for tag in tags}
