"""`ports.Router`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from botocore.stub import Stubber

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import TARGET_GROUP_NOT_FOUND
from spotrelay.plane.aws.fleet import Ec2Fleet
from spotrelay.plane.aws.router import TargetGroupRouter
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.ports import Denied, Fleet, LaunchRequest, Router, Throttled
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.memory import MemoryClock, MemoryFleet, MemoryRouter
from tests.contract.network import deployed_spec
from tests.examples import demo_spec

SPEC = demo_spec()


@dataclass
class World:
    """A router, two services with a target group each, and what launches instances for the first."""

    router: Router
    fleet: Fleet
    spec: ServiceSpec
    other: ServiceSpec
    run: Callable[[], object]

    def launch(self, count: int) -> list[str]:
        """Running instances."""
        request = LaunchRequest(f"l-{count}", self.spec, PurchaseOption.SPOT, self.spec.pools, count)
        ids = [i.id for i in self.fleet.launch(request).instances]
        self.run()
        return ids

    def in_rotation(self) -> set[str]:
        """Targets that get requests, or would if they were healthy."""
        return {i for i, state in self.router.health(self.spec).items() if state.is_in_rotation}


@pytest.fixture(params=["memory", "aws"])
def world(request: pytest.FixtureRequest) -> World:
    """The router, either way."""
    if request.param == "memory":
        fleet = MemoryFleet(MemoryClock())
        return World(MemoryRouter(fleet), fleet, SPEC, demo_spec("other"), fleet.run)
    clients: Clients = request.getfixturevalue("aws")
    specs = deployed_spec(clients), deployed_spec(clients, "other")
    return World(TargetGroupRouter(clients), Ec2Fleet(clients), *specs, lambda: None)


def test_in_and_out_of_rotation(world: World) -> None:
    """Registered instances are in rotation until deregistered, each by itself; repeating either is fine."""
    first, second = world.launch(2)
    for _ in range(2):
        assert world.router.register(world.spec, [first, second]) == frozenset()
        assert world.in_rotation() == {first, second}
    for _ in range(2):
        world.router.deregister(world.spec, [first])
        assert world.in_rotation() == {second}
    assert world.router.register(world.spec, [first]) == frozenset()
    assert world.in_rotation() == {first, second}


def test_what_does_not_run_comes_back(world: World) -> None:
    """Instances that can't be registered come back, and keep none of the others out of rotation."""
    first, second, gone = world.launch(3)
    world.fleet.terminate([gone])
    assert world.router.register(world.spec, [first, gone, second]) == {gone}
    assert world.in_rotation() == {first, second}


def test_deregistering_an_absent_target_is_fine(world: World) -> None:
    """Targets that were never in rotation, or are out of it, keep none of the others in it."""
    first, second, never = world.launch(3)
    world.router.register(world.spec, [first, second])
    world.router.deregister(world.spec, [never])
    world.router.deregister(world.spec, [never, first, second])
    assert world.in_rotation() == set()


def test_each_service_has_its_own_targets(world: World) -> None:
    """What is done about one service's targets is neither seen nor felt by another's."""
    first, second = world.launch(2)
    world.router.register(world.spec, [first])
    world.router.register(world.other, [second])
    world.router.deregister(world.spec, [second])
    assert world.router.health(world.spec).keys() == {first}
    assert world.router.health(world.other).keys() == {second}
    assert world.router.health(world.other)[second].is_in_rotation


def test_each_target_has_its_own_port(world: World) -> None:
    """Two versions listen on two ports, and each is taken out at the port that it is registered with."""
    first, second = world.launch(2)
    world.router.register(world.spec, [first, second], {second: 9000})
    assert world.router.ports(world.spec) == {first: world.spec.port, second: 9000}
    world.router.deregister(world.spec, [first])
    assert world.in_rotation() == {second}
    world.router.deregister(world.spec, [second], {second: 9000})
    assert world.in_rotation() == set()


def test_nothing_to_do(world: World) -> None:
    """No instances, no call, no error."""
    assert world.router.register(world.spec, []) == frozenset()
    world.router.deregister(world.spec, [])
    assert world.router.health(world.spec) == {}


def test_a_target_group_that_is_gone(aws: Clients) -> None:
    """Without a target group there is nothing in rotation, nothing to take out, and nothing to put in."""
    spec = replace(SPEC, target_group_arn=f"{SPEC.target_group_arn}0")
    router = TargetGroupRouter(aws)
    router.deregister(spec, ["i-1"])
    assert router.register(spec, ["i-1"]) == {"i-1"}
    assert router.health(spec) == {}


def test_a_group_that_is_gone_has_no_tag_to_allow_its_change(elbv2: Stubber, clients: Clients) -> None:
    """IAM refuses it before ELB can say that it is gone; a group that is there is an error, as any other."""
    for code in ("TargetGroupNotFound", "AccessDenied"):
        elbv2.add_client_error("deregister_targets", "AccessDenied", "no", 403)
        elbv2.add_client_error("describe_target_health", code, "no", 400)
    TargetGroupRouter(clients).deregister(SPEC, ["i-1"])
    with pytest.raises(Denied):
        TargetGroupRouter(clients).deregister(SPEC, ["i-1"])


@pytest.fixture
def elbv2(clients: Clients) -> Iterator[Stubber]:
    """Answers for ELBv2's calls."""
    with Stubber(clients.elbv2) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def test_deregistration_is_one_call(elbv2: Stubber, clients: Clients) -> None:
    """All targets leave in one call, named by ID and port, each once."""
    targets = [{"Id": "i-1", "Port": 8081}, {"Id": "i-2", "Port": 8081}]
    elbv2.add_response(
        "deregister_targets", {}, {"TargetGroupArn": SPEC.target_group_arn, "Targets": targets}
    )
    TargetGroupRouter(clients).deregister(SPEC, ["i-1", "i-2", "i-1"])


def test_many_go_a_hundred_at_a_time(elbv2: Stubber, clients: Clients) -> None:
    """In order; a call that is refused costs only its own."""
    slots = [f"i-{n}" for n in range(250)]
    targets = [{"Id": slot, "Port": 8081} for slot in slots]

    def asked(first: int) -> dict[str, object]:
        return {"TargetGroupArn": SPEC.target_group_arn, "Targets": targets[first : first + 100]}

    elbv2.add_response("register_targets", {}, asked(0))
    elbv2.add_client_error("register_targets", TARGET_GROUP_NOT_FOUND, expected_params=asked(100))
    elbv2.add_response("register_targets", {}, asked(200))
    assert TargetGroupRouter(clients).register(SPEC, slots, {}) == set(slots[100:200])


def test_states_in_our_words(elbv2: Stubber, clients: Clients) -> None:
    """Each state of ELBv2's is ours of the same name; what we don't know nobody knows."""
    states = {"initial", "healthy", "unhealthy", "unused", "draining", "unavailable"}
    elbv2.add_response(
        "describe_target_health",
        {
            "TargetHealthDescriptions": [
                {"Target": {"Id": state, "Port": 8081}, "TargetHealth": {"State": state}}
                for state in (*states, "unhealthy.draining", "new")
            ]
        },
    )
    expected = {state: TargetState(state) for state in states}
    expected |= {"unhealthy.draining": TargetState.UNHEALTHY, "new": TargetState.UNAVAILABLE}
    assert TargetGroupRouter(clients).health(SPEC) == expected


@pytest.mark.parametrize(
    ("code", "error"),
    [("Throttling", Throttled), ("TooManyTargets", Denied), ("AccessDenied", Denied)],
)
def test_errors_are_not_taken_for_absent_targets(
    elbv2: Stubber, clients: Clients, code: str, error: type[Exception]
) -> None:
    """Only an invalid target and a missing group are outcomes; everything else is raised, by every call."""
    router = TargetGroupRouter(clients)
    looks = ["describe_target_health"] * (2 if error is Denied else 1)  # is the group still there?
    for operation in ("register_targets", "deregister_targets", *looks):
        elbv2.add_client_error(operation, code, "no", 400)
    with pytest.raises(error):
        router.register(SPEC, ["i-1"])
    with pytest.raises(error):
        router.deregister(SPEC, ["i-1"])
    with pytest.raises(error):
        router.health(SPEC)


def test_a_slot_is_a_target_of_its_own(elbv2: Stubber, clients: Clients) -> None:
    """Each is named by its instance and its port, and comes back under the name that it was given."""
    group, slots = {"TargetGroupArn": SPEC.target_group_arn}, ["i-1", "i-1:8082", "i-1:8083"]
    targets = [{"Id": "i-1", "Port": port} for port in (8081, 8082, 8083)]
    elbv2.add_response("register_targets", {}, {**group, "Targets": targets})
    elbv2.add_response("deregister_targets", {}, {**group, "Targets": targets})
    shown = [{"Target": target, "TargetHealth": {"State": "healthy"}} for target in reversed(targets)]
    for answer in (shown, shown[:2], shown[:2], shown):
        elbv2.add_response("describe_target_health", {"TargetHealthDescriptions": answer}, group)
    router = TargetGroupRouter(clients)
    assert router.register(SPEC, slots) == frozenset()
    router.deregister(SPEC, slots)
    assert list(router.health(SPEC)) == slots  # of an instance that nobody knows the lowest port is the first
    assert list(router.health(SPEC, slots)) == slots[1:]  # its first slot has gone
    assert list(router.health(SPEC)) == ["i-1", "i-1:8083"]
    assert router.ports(SPEC, slots) == dict(zip(slots, (8081, 8082, 8083), strict=True))
