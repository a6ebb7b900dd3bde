"""The control API under /_spotrelay/: what scripts, demos and tests ask of the local cloud itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from lab.local.balancer import Balancer
from lab.local.calls import CallLog
from lab.local.cloud import EmulatedCloud, NotPossibleError
from lab.local.faults import ApiFault, Faults
from lab.local.http import HttpRequest, Response
from lab.local.instances import LocalInstance
from lab.local.metrics import Metrics
from lab.local.network import Shape
from lab.local.secure import SecurePorts
from spotrelay.plane.core.names import TAG_LAUNCH, TAG_SERVICE
from spotrelay.plane.core.pools import OPTIONS, Offering, PurchaseOption

PREFIX = "/_spotrelay/"
Arguments = Mapping[str, Any]


class Control:
    """Each operation is a POST of JSON arguments to its name; `lab.local.client` calls them."""

    def __init__(
        self,
        cloud: EmulatedCloud,
        balancer: Balancer,
        metrics: Metrics,
        calls: CallLog,
        faults: Faults,
        network: str,
        secure: SecurePorts,
        chains: Callable[[], Mapping[str, int]],
    ) -> None:
        self._cloud = cloud
        self._balancer = balancer
        self._calls = calls
        self._faults = faults
        self._operations: dict[str, Callable[[Arguments], Any]] = {
            "instances": self._instances,
            "pools": self._pools,
            "dry_up": self._dry_up,
            "bring_back": self._bring_back,
            "set_capacity": self._set_capacity,
            "warn": self._warn,
            "warn_all": self._warn_all,
            "retract": lambda arguments: self._cloud.retract(arguments["instance_id"]),
            "rebalance": self._rebalance,
            "announce": lambda arguments: self._cloud.announce(
                arguments["instance_id"], arguments["code"], float(arguments["in_s"])
            ),
            "call_off": lambda arguments: self._cloud.call_off(arguments["instance_id"]),
            "power_off": lambda arguments: self._cloud.power_off(arguments["instance_id"]),
            "hang": lambda arguments: self._cloud.hang(arguments["instance_id"]),
            "let_die": lambda arguments: self._cloud.let_die(arguments["code"], int(arguments["count"])),
            "disrupt": lambda arguments: self._cloud.disrupt(arguments["zone"]),
            "mend": lambda arguments: self._cloud.mend(arguments["zone"]),
            "lose_image": lambda arguments: self._cloud.lost_images.add(arguments["image_id"]),
            "fail_image": lambda arguments: self._cloud.fail_image(arguments["image_id"], arguments["why"]),
            "find_image": lambda arguments: self._cloud.lost_images.discard(arguments["image_id"]),
            "publish_image": lambda arguments: self._cloud.publish_image(
                arguments["parameter"], arguments["image_id"]
            ),
            "resume": lambda arguments: self._cloud.resume(arguments["instance_id"]),
            "shape": self._shape,
            "network": lambda _: network,
            "longest_chains": lambda _: chains(),
            "calls": lambda arguments: self._calls.since(int(arguments.get("since", 0))),
            "decisions": lambda _: self._calls.decisions(),
            "requests": lambda arguments: self._balancer.requests(arguments["load_balancer"]),
            "counters": lambda arguments: self._balancer.counters(arguments["load_balancer"]),
            "https_port": lambda arguments: secure.port(arguments["load_balancer"]),
            "age_metrics": lambda arguments: metrics.age(float(arguments["by_s"])),
            "bill": lambda _: metrics.bill(),
            "look_back": lambda arguments: setattr(metrics, "more_periods", int(arguments["periods"])),
            "interruptions": lambda _: [i.to_json() for i in self._cloud.interruptions],
            "inject_fault": self._inject_fault,
            "reserve": self._reserve,
            "show_late": self._show_late,
            "deny": lambda arguments: self._faults.deny(arguments["action"], arguments["resource"]),
            "faults": lambda _: self._faults.pending(),
            "set_quota": lambda arguments: self._cloud.quotas.set(arguments["code"], arguments.get("value")),
            "clear_faults": lambda arguments: self._faults.clear(arguments.get("about")),
            "certificate_expires": lambda arguments: self._cloud.certificate_expires(**arguments),
            "settings": lambda _: asdict(self._cloud.settings),
        }

    def answer(self, request: HttpRequest) -> Response:
        """Carry out the operation that the path names; errors are JSON with an `error`."""
        name = request.path.removeprefix(PREFIX)
        operation = self._operations.get(name)
        if operation is None:
            known = ", ".join(self._operations)
            return _json(404, {"error": f"no operation {name!r}; there are {known}"})
        try:
            arguments = json.loads(request.body or b"{}")
            return _json(200, {"result": operation(arguments)})
        except json.JSONDecodeError as error:
            return _json(400, {"error": f"{name}: the body is no JSON: {error}"})
        except KeyError as error:
            return _json(400, {"error": f"{name}: {error} is missing or unknown"})
        except (NotPossibleError, TypeError, ValueError) as error:
            return _json(400, {"error": f"{name}: {error}"})

    def _instances(self, _: Arguments) -> list[dict[str, Any]]:
        return [_shown(instance) for instance in self._cloud.instances.values()]

    def _pools(self, arguments: Arguments) -> list[dict[str, Any]]:
        wanted = self._cloud.market.select(arguments.get("zone"), arguments.get("instance_type"))
        now = self._cloud.now()
        return [
            {
                "zone": pool.zone,
                "instance_type": pool.instance_type,
                "spot_capacity": state.spot_capacity,
                "spot_in_use": state.spot_in_use,
                "on_demand_capacity": state.on_demand_capacity,
                "on_demand_in_use": state.on_demand_in_use,
                "spot_price": self._cloud.market.price(Offering(pool, PurchaseOption.SPOT), now),
                "on_demand_price": state.on_demand_price,
            }
            for pool in wanted
            for state in [self._cloud.market.state(pool)]
        ]

    def _dry_up(self, arguments: Arguments) -> list[str]:
        zone, instance_type = arguments.get("zone"), arguments.get("instance_type")
        self._must_exist(zone, instance_type)
        return self._cloud.dry_up(zone, instance_type, warn=bool(arguments.get("warn", True)))

    def _bring_back(self, arguments: Arguments) -> None:
        zone, instance_type = arguments.get("zone"), arguments.get("instance_type")
        self._must_exist(zone, instance_type)
        self._cloud.market.bring_back(zone, instance_type)

    def _set_capacity(self, arguments: Arguments) -> None:
        zone, instance_type = arguments.get("zone"), arguments.get("instance_type")
        self._must_exist(zone, instance_type)
        for option in OPTIONS.values():
            capacity = arguments.get(option.name.replace("-", "_"))
            if capacity is not None:
                for pool in self._cloud.market.select(zone, instance_type):
                    self._cloud.market.set_capacity(Offering(pool, option), int(capacity))

    def _reserve(self, arguments: Arguments) -> str:
        zone, instance_type = arguments["zone"], arguments["instance_type"]
        self._must_exist(zone, instance_type)
        (pool,) = self._cloud.market.select(zone, instance_type)
        return self._cloud.reservations.add(arguments["group"], pool, int(arguments["count"]))

    def _must_exist(self, zone: str | None, instance_type: str | None) -> None:
        if not self._cloud.market.select(zone, instance_type):
            raise NotPossibleError(
                f"no capacity pool has zone {zone or 'any'} and type {instance_type or 'any'}"
            )

    def _warn(self, arguments: Arguments) -> None:
        deliver = arguments.get("deliver", "once")
        deliveries = {"once": 1, "lost": 0}.get(deliver, deliver)
        if not isinstance(deliveries, int) or deliveries < 0:
            raise NotPossibleError(f'deliver: expected "once", "lost" or a number, not {deliver!r}')
        self._cloud.warn(arguments["instance_id"], deliveries)

    def _warn_all(self, arguments: Arguments) -> None:
        for instance_id in arguments["instance_ids"]:
            self._cloud.warn(instance_id)

    def _rebalance(self, arguments: Arguments) -> None:
        self._cloud.rebalance(arguments["instance_id"])

    def _shape(self, arguments: Arguments) -> None:
        shape = Shape(arguments.get("rate_mbit"), float(arguments.get("latency_s", 0)))
        self._cloud.shape(arguments["instance_id"], shape)

    def _show_late(self, arguments: Arguments) -> None:
        self._cloud.unseen_s = float(arguments["unseen_s"])
        self._cloud.without_address_s = float(arguments["without_address_s"])

    def _inject_fault(self, arguments: Arguments) -> None:
        self._faults.inject(ApiFault(**arguments))


def _shown(instance: LocalInstance) -> dict[str, Any]:
    return {
        "instance_id": instance.id,
        "state": instance.state.value[0],
        "instance_type": instance.instance_type,
        "zone": instance.zone,
        "lifecycle": instance.offering.purchase_option.name,
        "capacity_reservation": instance.capacity_reservation,
        "service": instance.tags.get(TAG_SERVICE),
        "launch": instance.tags.get(TAG_LAUNCH),
        "address": instance.address,
        "launched_at": instance.launched_at.timestamp(),
        "warned_at": instance.warned_at.timestamp() if instance.warned_at else None,
    }


def _json(status: int, value: Any) -> Response:
    return Response(status, json.dumps(value).encode(), {"content-type": "application/json"})
