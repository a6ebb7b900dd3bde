"""`ports.Fleet`: what both keep. What EC2 refuses and warns of is in `test_ec2_fleet`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest

from spotrelay.aws.clients import Clients
from spotrelay.aws.fleet import Ec2Fleet
from spotrelay.memory import MemoryClock, MemoryFleet
from spotrelay.model import Instance, PurchaseOption, ServiceSpec
from spotrelay.ports import Fleet, LaunchRequest
from tests.contract.network import deployed_spec
from tests.examples import demo_spec


@dataclass
class World:
    """A fleet, and a service that it can launch for."""

    fleet: Fleet
    spec: ServiceSpec

    def request(
        self, launch_id: str, count: int, option: PurchaseOption, service: str = "demo"
    ) -> LaunchRequest:
        """A launch from every pool of the service."""
        return LaunchRequest(launch_id, replace(self.spec, service=service), option, self.spec.pools, count)


@pytest.fixture(params=["memory", "aws"])
def world(request: pytest.FixtureRequest) -> World:
    """The fleet, either way."""
    if request.param == "memory":
        return World(MemoryFleet(MemoryClock()), demo_spec())
    clients: Clients = request.getfixturevalue("aws")
    return World(Ec2Fleet(clients), deployed_spec(clients))


@pytest.mark.parametrize("option", PurchaseOption)
def test_a_launch_gives_what_was_asked_for(world: World, option: PurchaseOption) -> None:
    """Where there is room, a launch gives as many instances as asked, from its pools, bought its way."""
    request = world.request("launch-1", 3, option)
    result = world.fleet.launch(request)
    assert len({i.id for i in result.instances}) == 3
    assert {i.offering.pool for i in result.instances} <= set(request.pools)
    assert {(i.offering.purchase_option, i.launch_id) for i in result.instances} == {(option, "launch-1")}
    assert all(i.state.is_alive for i in result.instances)


def test_a_launch_is_observed_by_its_service_and_id(world: World) -> None:
    """Every instance is observed with the service, launch, pool and purchase option that the launch said."""
    launched = {
        (i.id, i.launch_id, i.offering)
        for n, option in enumerate(PurchaseOption)
        for i in world.fleet.launch(world.request(f"launch-{n}", 2, option)).instances
    }
    world.fleet.launch(world.request("launch-other", 1, PurchaseOption.SPOT, service="other"))
    observed = world.fleet.observe("demo")
    assert {(i.id, i.launch_id, i.offering) for i in observed} == launched
    assert len(world.fleet.observe("other")) == 1
    assert list(world.fleet.observe("never-was")) == []


def test_what_is_terminated_is_not_alive(world: World) -> None:
    """A terminated instance is still observed, not alive; terminating it again is fine."""
    first, second = world.fleet.launch(world.request("launch-1", 2, PurchaseOption.SPOT)).instances
    world.fleet.terminate([first.id])
    world.fleet.terminate([first.id])
    world.fleet.terminate([])
    assert _alive(world) == {second.id}
    assert first.id in {i.id for i in world.fleet.observe("demo")}


def test_an_unknown_instance_keeps_no_other_alive(world: World) -> None:
    """An ID that nobody knows, among more than one request takes, keeps no other from being terminated."""
    launched = [
        i.id
        for n in range(3)
        for i in world.fleet.launch(world.request(f"launch-{n}", 35, PurchaseOption.SPOT)).instances
    ]
    world.fleet.terminate(["i-0123456789abcdef0", *launched[:-1]])
    assert _alive(world) == {launched[-1]}


def _alive(world: World) -> set[str]:
    observed: Iterable[Instance] = world.fleet.observe("demo")
    return {i.id for i in observed if i.state.is_alive}
