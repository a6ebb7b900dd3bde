"""RunInstances: one instance type in one subnet, at least so many or none."""

from __future__ import annotations

from lab.local.context import Context, Result, tags_for
from lab.local.environment import ACCOUNT
from lab.local.instances import describe
from lab.local.launch import (
    Template,
    find_place,
    find_template,
    make_spec,
    refusals,
    reservation_id,
    take_place,
)
from lab.local.tokens import Tokens
from lab.local.wire import AwsError
from spotrelay.plane.core.pools import Offering, PurchaseOption, option_named


class RunActions:
    """The handler of RunInstances."""

    def __init__(self) -> None:
        self._tokens = Tokens()

    def run_instances(self, context: Context) -> Result:
        """At least MinCount and at most MaxCount instances of one type in one subnet, or an error."""
        params = context.params
        known = self._tokens.recall("RunInstances", params)
        if known:
            return known
        template = (
            find_template(context, params["LaunchTemplate"]) if "LaunchTemplate" in params else Template()
        )
        data = {**(template.data or {}), **params}
        data["TagSpecifications"] = (template.data or {}).get("TagSpecifications", [])
        place = find_place(context, data)
        tags = tags_for(params.get("TagSpecifications", []), "instance")
        market_type = (data.get("InstanceMarketOptions") or {}).get("MarketType", "on-demand")
        option = option_named(market_type)
        spot = option is PurchaseOption.SPOT
        spec = make_spec(context, data, place, template, tags, spot=spot)
        if spec.reservation_group:
            message = "The local cloud launches into capacity reservations by fleets only"
            raise AwsError("UnsupportedOperation", message)
        for refusal in refusals(context, "RunInstances", spec, template, params, spot=spot):
            raise AwsError("UnauthorizedOperation", refusal, status=403)
        count = take_place(context, place.pool, option, params["MinCount"], params["MaxCount"])
        reservation = reservation_id()
        offering = Offering(place.pool, option)
        launched = [context.cloud.launch(offering, spec, reservation) for _ in range(count)]
        result = {
            "ReservationId": reservation,
            "OwnerId": ACCOUNT,
            "Groups": [],
            "Instances": [describe(instance) for instance in launched],
        }
        self._tokens.remember("RunInstances", params, result)
        return result
