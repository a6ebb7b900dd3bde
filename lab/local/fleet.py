"""CreateFleet: what the market gives becomes instances, what it refuses becomes errors, in one answer."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.local.context import Context, Result, ec2_arn, request_tag_conditions, tags_for
from lab.local.instances import LaunchSpec
from lab.local.launch import (
    PoolSubnet,
    Template,
    find_place,
    find_template,
    make_spec,
    refusals,
    reservation_id,
    touched,
    why_refused,
)
from lab.local.tokens import Tokens
from lab.local.wire import AwsError
from lab.market import Allocation, Candidate, MarketGrant, MarketRequest, RefusalCode, Strategy
from lab.market.allocation import Standing, allocate
from spotrelay.plane.core.pools import Offering, PurchaseOption

MAX_CONFIGS = 50
UNSUPPORTED_OVERRIDES = ("InstanceRequirements",)
MAX_WEIGHT = 999
DEFAULT_STRATEGY = Strategy.LOWEST_PRICE
"""What EC2 takes for either purchase option when the request names no strategy."""


@dataclass(frozen=True, slots=True)
class _Option:
    """One override that can be launched from, with what it would launch."""

    template: Template
    overrides: Mapping[str, Any]
    place: PoolSubnet
    spec: LaunchSpec

    def shown(self) -> dict[str, Any]:
        return {
            "LaunchTemplateSpecification": self.template.specification(),
            "Overrides": {
                **self.overrides,
                "InstanceType": self.place.pool.instance_type,
                "AvailabilityZone": self.place.pool.zone,
            },
        }


class FleetActions:
    """The handler of CreateFleet."""

    def __init__(self) -> None:
        self._tokens = Tokens()

    def create_fleet(self, context: Context) -> Result:
        """One attempt of an instant fleet."""
        params = context.params
        if params.get("Type", "maintain") != "instant":
            raise AwsError("UnsupportedOperation", "The local cloud knows fleets of type instant only")
        known = self._tokens.recall("CreateFleet", params)
        if known:
            context.require("ec2:CreateFleet", ec2_arn("fleet", "*"), _fleet_conditions(context))
            return known
        fleet_id = f"fleet-{uuid.uuid4()}"
        tags = tags_for(params.get("TagSpecifications", []), "instance")
        options, errors = _options(context, fleet_id, tags)
        spot_count, on_demand_count = _counts(params["TargetCapacitySpecification"])
        _require_fleet(context, options, spot=spot_count > 0)
        instances: list[Result] = []
        for option, count, choices in (
            (PurchaseOption.SPOT, spot_count, params.get("SpotOptions", {})),
            (PurchaseOption.ON_DEMAND, on_demand_count, params.get("OnDemandOptions", {})),
        ):
            if count:
                got, refused = _fulfil(context, options, option, count, choices)
                instances += got
                errors = [*errors, *refused]
        result = {"FleetId": fleet_id, "Instances": instances, "Errors": errors}
        self._tokens.remember("CreateFleet", params, result)
        return result


def _options(context: Context, fleet_id: str, tags: dict[str, str]) -> tuple[list[_Option], list[Result]]:
    """Everything that the fleet may launch from, and errors for overrides that can't work."""
    configs = context.params["LaunchTemplateConfigs"]
    if not 1 <= len(configs) <= MAX_CONFIGS:
        raise AwsError(
            "InvalidParameterValue", f"LaunchTemplateConfigs: 1 to {MAX_CONFIGS}, not {len(configs)}"
        )
    spot = _counts(context.params["TargetCapacitySpecification"])[0] > 0
    options: list[_Option] = []
    errors: list[Result] = []
    for config in configs:
        template = find_template(context, config.get("LaunchTemplateSpecification", {}))
        for overrides in config.get("Overrides") or [{}]:
            for name in UNSUPPORTED_OVERRIDES:
                if name in overrides:
                    raise AwsError(
                        "UnsupportedOperation", f"The local cloud doesn't know the override {name}"
                    )
            data = {**(template.data or {}), **overrides}
            try:
                place = find_place(context, data)
                spec = make_spec(context, data, place, template, tags, fleet_id, spot=spot)
            except AwsError as error:
                shown = {"LaunchTemplateSpecification": template.specification(), "Overrides": overrides}
                errors.append(
                    {
                        "LaunchTemplateAndOverrides": shown,
                        "Lifecycle": context.params["TargetCapacitySpecification"].get(
                            "DefaultTargetCapacityType", "on-demand"
                        ),
                        "ErrorCode": error.code,
                        "ErrorMessage": error.message,
                    }
                )
            else:
                options.append(_Option(template, overrides, place, spec))
    return options, errors


def _counts(target: Mapping[str, Any]) -> tuple[int, int]:
    """Spot and on-demand instances that are wanted."""
    spot, on_demand = target.get("SpotTargetCapacity", 0), target.get("OnDemandTargetCapacity", 0)
    rest = target["TotalTargetCapacity"] - spot - on_demand
    if rest < 0:
        raise AwsError(
            "InvalidParameterValue", "TotalTargetCapacity is less than its Spot and on-demand parts"
        )
    if target.get("DefaultTargetCapacityType", "on-demand") == "spot":
        return spot + rest, on_demand
    return spot, on_demand + rest


def _require_fleet(context: Context, options: list[_Option], *, spot: bool) -> None:
    context.require("ec2:CreateFleet", ec2_arn("fleet", "*"), _fleet_conditions(context))
    checked = set()
    for option in options:
        parts = touched(
            context, option.spec, option.template, spot=spot, reserved=_uses_reservations(context)
        )
        for _, arn, conditions in parts:
            if arn not in checked:
                checked.add(arn)
                context.require("ec2:CreateFleet", arn, conditions)


def _uses_reservations(context: Context) -> bool:
    options = context.params.get("OnDemandOptions", {}).get("CapacityReservationOptions", {})
    return bool(options.get("UsageStrategy") == "use-capacity-reservations-first")


def _fleet_conditions(context: Context) -> dict[str, Any]:
    return request_tag_conditions(tags_for(context.params.get("TagSpecifications", []), "fleet"))


def _fulfil(
    context: Context,
    options: list[_Option],
    purchase_option: PurchaseOption,
    count: int,
    choices: Mapping[str, Any],
) -> tuple[list[Result], list[Result]]:
    """The `Instances` and `Errors` of one purchase option."""
    denied = _denials(context, options, spot=purchase_option is PurchaseOption.SPOT)
    allowed = [i for i in range(len(options)) if i not in denied]
    request = MarketRequest(
        [_candidate(options[i]) for i in allowed],
        count,
        purchase_option,
        _strategy(choices),
        choices.get("MinTargetCapacity", 0),
        bool(choices.get("SingleAvailabilityZone")),
        bool(choices.get("SingleInstanceType")),
    )
    reserved = _reserved(context, [options[i] for i in allowed], request)
    left = count - sum(grant.count * request.candidates[grant.index].weight for grant in reserved)
    rest = replace(request, count=max(left, 0), minimum=max(request.minimum - count + left, 0))
    allocation = context.cloud.market.launch(rest, context.cloud.now()) if left > 0 else Allocation((), ())
    instances = []
    beyond: list[Result] = []
    for position, grant in enumerate((*reserved, *allocation.grants)):
        is_reserved = position < len(reserved)
        option = options[allowed[grant.index]]
        offering = Offering(option.place.pool, purchase_option)
        room = context.cloud.quotas.room_for(offering, context.cloud.instances.values())
        if room < grant.count:
            for _ in range(0 if is_reserved else grant.count - room):
                context.cloud.market.release(offering)
            beyond.append(_error(option, purchase_option, *context.cloud.quotas.refusal(offering)))
        launched = [
            context.cloud.launch(
                offering,
                option.spec,
                reservation_id(),
                context.cloud.reservations.take(option.spec.reservation_group, option.place.pool)
                if is_reserved
                else None,
            )
            for _ in range(min(grant.count, room))
        ]
        if not launched:
            continue
        instances.append(
            {
                "LaunchTemplateAndOverrides": option.shown(),
                "Lifecycle": purchase_option.name,
                "InstanceIds": [instance.id for instance in launched],
                "InstanceType": option.place.pool.instance_type,
                "AvailabilityZone": option.place.pool.zone,
                "SubnetId": option.place.subnet_id,
            }
        )
    errors = [_error(options[i], purchase_option, "UnauthorizedOperation", why) for i, why in denied.items()]
    for refusal in allocation.refusals:
        option = options[allowed[refusal.index]]
        why = why_refused(refusal.code, option.place.pool, purchase_option)
        errors.append(_error(option, purchase_option, refusal.code.value, why))
    return instances, errors + beyond


def _reserved(
    context: Context, options: Sequence[_Option], request: MarketRequest
) -> tuple[MarketGrant, ...]:
    """What comes from the capacity reservations that the options' templates target, before anything else.

    EC2 might use them without being asked to use them first, too; here nothing does.
    """
    if request.purchase_option is PurchaseOption.SPOT or not _uses_reservations(context):
        return ()
    cloud, now = context.cloud, context.cloud.now()
    standings = [
        Standing(
            cloud.reservations.free(option.spec.reservation_group, option.place.pool),
            # A zone that lacks the type has no price for it, and no reservation of it.
            cloud.market.price(Offering(option.place.pool, PurchaseOption.ON_DEMAND), now)
            if option.place.pool in cloud.market
            else 0.0,
            RefusalCode.INSUFFICIENT_INSTANCE_CAPACITY,
        )
        for option in options
    ]
    return allocate(replace(request, minimum=0), standings).grants


def _denials(context: Context, options: list[_Option], *, spot: bool) -> dict[int, str]:
    """By option, why IAM forbids the launch itself. CreateFleet reports that among its errors."""
    denied = {}
    reserved = not spot and _uses_reservations(context)
    known: dict[tuple[object, ...], str | None] = {}
    for index, option in enumerate(options):
        # Options differ in type and subnet; only what IAM can tell apart is worth asking for again.
        named = frozenset(option.overrides)
        key = (option.spec.subnet_id, option.spec.image_id, option.template.id, named)
        if key not in known:
            sentences = refusals(
                context, "CreateFleet", option.spec, option.template, named, spot=spot, reserved=reserved
            )
            known[key] = next(sentences, None)
        why = known[key]
        if why:
            denied[index] = why
    return denied


def _candidate(option: _Option) -> Candidate:
    # An override without a priority comes last, says the API reference.
    priority = option.overrides.get("Priority", float("inf"))
    price = option.overrides.get("MaxPrice")
    # Where there are weights, a price is that of one unit of capacity. EC2 takes whole numbers from 1 to 999.
    weight = option.overrides.get("WeightedCapacity", 1)
    if not 1 <= weight <= MAX_WEIGHT or weight != int(weight):
        raise AwsError("InvalidParameterValue", f"WeightedCapacity: 1 to {MAX_WEIGHT}, not {weight}")
    most = float(price) * weight if price else None
    return Candidate(option.place.pool, float(priority), most, int(weight))


def _strategy(choices: Mapping[str, Any]) -> Strategy:
    name = choices.get("AllocationStrategy", DEFAULT_STRATEGY.value)
    try:
        return Strategy(name)
    except ValueError as error:
        raise AwsError("InvalidParameterValue", f"Invalid allocation strategy: {name}") from error


def _error(option: _Option, purchase_option: PurchaseOption, code: str, message: str) -> Result:
    return {
        "LaunchTemplateAndOverrides": option.shown(),
        "Lifecycle": purchase_option.name,
        "ErrorCode": code,
        "ErrorMessage": message,
    }
