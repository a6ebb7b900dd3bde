"""`ports.Fleet`: what both keep. What EC2 refuses and warns of is in `test_ec2_fleet`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.fleet import Ec2Fleet
from spotrelay.plane.core.instances import Instance, RefusalKind
from spotrelay.plane.core.pools import OPTIONS, PurchaseOption
from spotrelay.plane.core.ports import MAX_STARTS, Fleet, LaunchRequest
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.memory import MemoryClock, MemoryFleet
from tests.contract.network import deployed_spec
from tests.examples import demo_spec


@dataclass
class World:
    """A fleet, and a service that it can launch for."""

    fleet: Fleet
    spec: ServiceSpec
    protect: Callable[[str], object]
    """Keep an instance from being terminated."""
    keep_running: Callable[[str], object]
    """Keep an instance from being stopped."""

    def request(
        self, launch_id: str, count: int, option: PurchaseOption, service: str = "demo", highest_id: int = 0
    ) -> LaunchRequest:
        """A launch from every pool of the service."""
        spec = replace(self.spec, service=service)
        return LaunchRequest(launch_id, spec, option, spec.pools, count, highest_id=highest_id)


@pytest.fixture(params=["memory", "aws"])
def world(request: pytest.FixtureRequest) -> World:
    """The fleet, either way."""
    if request.param == "memory":
        memory = MemoryFleet(MemoryClock())
        return World(
            memory,
            demo_spec(),
            lambda id_: memory.protected.update({id_: f"{id_} is protected"}),
            lambda id_: memory.kept_running.update({id_: f"{id_} is protected"}),
        )
    clients: Clients = request.getfixturevalue("aws")

    def protect(instance_id: str) -> None:
        clients.ec2.modify_instance_attribute(InstanceId=instance_id, DisableApiTermination={"Value": True})

    def keep_running(instance_id: str) -> None:
        clients.ec2.modify_instance_attribute(InstanceId=instance_id, DisableApiStop={"Value": True})

    return World(Ec2Fleet(clients), deployed_spec(clients), protect, keep_running)


@pytest.mark.parametrize("option", OPTIONS.values())
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
        for n, option in enumerate(OPTIONS.values())
        for i in world.fleet.launch(world.request(f"launch-{n}", 2, option)).instances
    }
    world.fleet.launch(world.request("launch-other", 1, PurchaseOption.SPOT, service="other"))
    observed = world.fleet.observe("demo")
    assert {(i.id, i.launch_id, i.offering) for i in observed} == launched
    assert len(world.fleet.observe("other")) == 1
    assert list(world.fleet.observe("never-was")) == []


@pytest.mark.parametrize("option", OPTIONS.values())
def test_an_instance_bears_what_a_lost_table_cannot_say(world: World, option: PurchaseOption) -> None:
    """It is observed with the highest ID that had been given when it was launched."""
    world.fleet.launch(world.request("launch-1", 2, option, highest_id=42))
    world.fleet.launch(world.request("launch-2", 1, option, highest_id=43))
    assert sorted(i.highest_id for i in world.fleet.observe("demo")) == [42, 42, 43]


def test_who_is_named_is_looked_up(world: World) -> None:
    """By ID, of whatever service; what nobody knows is left out, and nobody is asked about nobody."""
    first, second = world.fleet.launch(world.request("launch-1", 2, PurchaseOption.SPOT)).instances
    unknown = [f"i-{n:017x}" for n in range(0xABC, 0xABF)]
    assert [i.id for i in world.fleet.look_up([second.id])] == [second.id]
    assert {i.id for i in world.fleet.look_up([*unknown, first.id, second.id])} == {first.id, second.id}
    assert list(world.fleet.look_up(unknown)) == []
    assert list(world.fleet.look_up([])) == []


def test_nobody_is_warned_at_first(world: World) -> None:
    """What was just launched isn't taken back, of what isn't Spot nothing is said, and of nobody nothing."""
    (kept,) = world.fleet.launch(world.request("launch-1", 1, PurchaseOption.ON_DEMAND)).instances
    (spot,) = world.fleet.launch(world.request("launch-2", 1, PurchaseOption.SPOT)).instances
    assert world.fleet.warned([]) == {}
    said = world.fleet.warned([kept.id, spot.id, "i-0123456789abcdef0"])
    assert said in ({spot.id: None}, {}), "moto knows no requests behind fleets"


def test_what_is_terminated_is_not_alive(world: World) -> None:
    """A terminated instance is still observed, not alive; terminating it again is fine."""
    first, second = world.fleet.launch(world.request("launch-1", 2, PurchaseOption.SPOT)).instances
    assert world.fleet.terminate([first.id]) == {}
    assert world.fleet.terminate([first.id]) == {}
    assert world.fleet.terminate([]) == {}
    assert _alive(world) == {second.id}
    assert first.id in {i.id for i in world.fleet.observe("demo")}


def test_an_unknown_instance_keeps_no_other_alive(world: World) -> None:
    """An ID that nobody knows, among more than one request takes, keeps no other from being terminated."""
    launched = [
        i.id
        for n in range(3)
        for i in world.fleet.launch(world.request(f"launch-{n}", 35, PurchaseOption.SPOT)).instances
    ]
    assert world.fleet.terminate(["i-0123456789abcdef0", *launched[:-1]]) == {}
    assert _alive(world) == {launched[-1]}


def test_a_protected_instance_costs_the_others_nothing(world: World) -> None:
    """What may not be terminated stays and comes back with AWS's words; all others go, each time."""
    launched = [i.id for i in world.fleet.launch(world.request("l", 5, PurchaseOption.ON_DEMAND)).instances]
    protected = {launched[0], launched[3]}
    for instance_id in protected:
        world.protect(instance_id)
    for ids in (launched[:4], ["i-0123456789abcdef0", *launched], launched):
        refused = world.fleet.terminate(ids)
        assert refused.keys() == protected
        assert all(instance_id in words for instance_id, words in refused.items())
    assert _alive(world) == protected


def test_what_is_stopped_starts_again(world: World) -> None:
    """Stopped it isn't alive, and started it is, with the ID it had; to ask twice for either is fine."""
    first, second = world.fleet.launch(world.request("launch-1", 2, PurchaseOption.ON_DEMAND)).instances
    for _ in range(2):
        assert world.fleet.stop([first.id]) == {}
        assert _alive(world) == {second.id}
    for _ in range(2):
        assert world.fleet.start([first.id]) == {}
        assert _alive(world) == {first.id, second.id}
    assert not world.fleet.start([])
    assert not world.fleet.stop([])
    assert _alive(world) == {first.id, second.id}


def test_an_unknown_instance_keeps_no_other_from_starting(world: World) -> None:
    """It comes back with EC2's code; a few others start at once, and all the rest when asked for again."""
    launched = [
        i.id for i in world.fleet.launch(world.request("launch-1", 9, PurchaseOption.ON_DEMAND)).instances
    ]
    unknown = "i-0123456789abcdef0"
    assert world.fleet.stop([unknown, *launched]) == {}
    assert _alive(world) == set()
    refused = world.fleet.start([unknown, *launched[:-1]])
    assert {id_: (r.kind, r.code) for id_, r in refused.items()} == {
        unknown: (RefusalKind.OTHER, "InvalidInstanceID.NotFound")
    }
    assert _alive(world) == set(launched[: MAX_STARTS - 1])
    assert world.fleet.start(launched[:-1]) == {}
    assert _alive(world) == set(launched[:-1])


def test_what_may_not_be_stopped_costs_the_others_nothing(world: World) -> None:
    """It comes back with AWS's words, and all others stop."""
    kept, *others = (
        i.id for i in world.fleet.launch(world.request("l", 3, PurchaseOption.ON_DEMAND)).instances
    )
    world.keep_running(kept)
    refused = world.fleet.stop([*others, kept])
    assert refused.keys() == {kept}
    assert kept in refused[kept]
    assert _alive(world) == {kept}


def _alive(world: World) -> set[str]:
    observed: Iterable[Instance] = world.fleet.observe("demo")
    return {i.id for i in observed if i.state.is_alive}
