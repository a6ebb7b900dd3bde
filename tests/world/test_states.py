"""The states that simulation and replay share: which change leads from where to where, what a target is."""

import re
from pathlib import Path

import pytest

import lab.world
from lab.world.instances import NEVER, TRANSITIONS, Change, Ec2Instance, course
from lab.world.targets import CHECK_S, Target, TargetGroup, deregister, register
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption

CONTRACT = Path(__file__).parents[2] / "docs" / "aws-contract.md"

POOL = CapacityPool("us-east-1", "us-east-1a", "g5.xlarge")

PENDING, RUNNING = InstanceState.PENDING, InstanceState.RUNNING
STOPPING, STOPPED = InstanceState.STOPPING, InstanceState.STOPPED
SHUTTING_DOWN, TERMINATED = InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED


def instance(option: PurchaseOption = PurchaseOption.SPOT) -> Ec2Instance:
    """One that is launched at 0 s and runs at 20 s."""
    return Ec2Instance(
        id="i-00000000000000102",
        offering=Offering(POOL, option),
        launched_at=0.0,
        states=course(Change.LAUNCH, 0.0, 20.0),
    )


def test_a_life() -> None:
    """Launched, stopped, started again and terminated: it has each state from its beginning on."""
    one = instance()
    one.enter(Change.STOP, 100.0, 130.0)
    one.enter(Change.START, 200.0, 220.0)
    assert one.enter(Change.TERMINATE, 300.0, 330.0) == [(300.0, SHUTTING_DOWN), (330.0, TERMINATED)]
    times = (0, 19, 20, 100, 130, 200, 220, 300, 330)
    assert [one.state(time) for time in times] == [
        *(PENDING, PENDING, RUNNING),
        *(STOPPING, STOPPED),
        *(PENDING, RUNNING),
        *(SHUTTING_DOWN, TERMINATED),
    ]


def test_a_change_takes_the_place_of_what_was_to_come() -> None:
    """What ends while it is pending never runs."""
    one = instance()
    one.enter(Change.TERMINATE, 10.0, 40.0)
    assert [one.state(time) for time in (9, 20, 40)] == [PENDING, SHUTTING_DOWN, TERMINATED]
    assert one.states == [(0.0, PENDING), (10.0, SHUTTING_DOWN), (40.0, TERMINATED)]


@pytest.mark.parametrize("state", InstanceState)
def test_what_may_become_of_a_state(state: InstanceState) -> None:
    """Only what is stopped starts, only what lives stops, and all but what ends can be terminated."""
    one = instance()
    one.states = [(0.0, state)]
    possible = {change for change in Change if one.may(change, 1.0)}
    assert possible == {
        PENDING: {Change.STOP, Change.TERMINATE},
        RUNNING: {Change.STOP, Change.TERMINATE},
        STOPPING: {Change.TERMINATE},
        STOPPED: {Change.START, Change.TERMINATE},
        SHUTTING_DOWN: set(),
        TERMINATED: set(),
    }.get(state)
    for change in set(Change) - possible:
        with pytest.raises(ValueError, match=f"is {state}"):
            one.enter(change, 1.0, 2.0)
    assert one.states == [(0.0, state)]


def test_a_start_is_refused_by_the_state() -> None:
    """What stops or ends isn't started yet, or any more; what runs already is no error."""
    one = instance()
    assert one.refusal_to_start(50.0) is None
    one.enter(Change.STOP, 100.0, 130.0)
    refusal = one.refusal_to_start(129.0)
    assert refusal is not None
    assert refusal.words == "IncorrectInstanceState"
    assert one.refusal_to_start(130.0) is None


def test_what_the_spot_request_says() -> None:
    """A warned one is being taken while it lives; that EC2 took it is on record for longer."""
    one = instance()
    assert one.is_fulfilled(50.0)
    one.warned_at = 50.0
    assert not one.is_being_taken(49.0)
    assert one.is_being_taken(50.0)
    assert not one.is_fulfilled(50.0)
    one.end = "Server.SpotInstanceTermination: Spot instance termination"
    one.enter(Change.TERMINATE, 170.0, 200.0)
    assert not one.is_being_taken(170.0)
    assert one.is_on_record(170.0)
    one.end = "Client.UserInitiatedShutdown: User initiated shutdown"
    assert not one.is_on_record(170.0), "who ended it himself wasn't interrupted"
    assert not instance(PurchaseOption.ON_DEMAND).is_fulfilled(50.0), "it has no Spot request"


def test_a_description_tells_the_state_and_why() -> None:
    """EC2 gives a reason for an end and for no other state, and shows what has ended for a while."""
    one = instance()
    assert one.shown_until(600.0) == NEVER
    one.end = "Client.UserInitiatedShutdown: User initiated shutdown"
    one.enter(Change.TERMINATE, 100.0, 130.0)
    seen = one.described(50.0)
    assert (seen.state, seen.state_reason, seen.address) == (RUNNING, "", "10.0.1.2")
    assert one.described(100.0).state_reason == one.end
    assert one.shown_until(600.0) == 730.0


@pytest.mark.parametrize(
    ("state", "healthy_at", "at", "expected"),
    [
        (RUNNING, 110.0, 109.0, TargetState.INITIAL),
        (RUNNING, 110.0, 110.0, TargetState.HEALTHY),
        (RUNNING, NEVER, 129.0, TargetState.INITIAL),
        (RUNNING, NEVER, 130.0, TargetState.UNHEALTHY),
        (STOPPING, 110.0, 120.0, TargetState.UNHEALTHY),
        (SHUTTING_DOWN, 110.0, 120.0, TargetState.UNHEALTHY),
        (STOPPED, 110.0, 120.0, TargetState.UNUSED),
        (TERMINATED, 110.0, 120.0, TargetState.UNUSED),
        (TERMINATED, 110.0, 140.0, TargetState.DRAINING),
        (RUNNING, 110.0, 140.0, TargetState.DRAINING),
    ],
)
def test_what_a_target_is(state: InstanceState, healthy_at: float, at: float, expected: TargetState) -> None:
    """Of one that is registered at 100 s, called new for 30 s, and deregistered at 140 s."""
    target = Target(100.0, drained_at=140.0)
    assert target.state(at, state, healthy_at, initial_s=30.0) is expected


def test_a_group_registers_once_and_again_what_drains() -> None:
    """A second registration changes nothing; one that drains is new again."""
    group: TargetGroup = {}
    assert register(group, "i-1", 0.0)
    assert not register(group, "i-1", CHECK_S)
    assert deregister(group, "i-1", 20.0, delay_s=30.0)
    assert [group["i-1"].is_in_rotation(time) for time in (19.0, 20.0)] == [True, False]
    assert [group["i-1"].is_shown(time) for time in (49.0, 50.0)] == [True, False]
    assert register(group, "i-1", 25.0)
    assert group["i-1"] == Target(25.0)


def test_a_group_deregisters_what_is_there_with_that_port() -> None:
    """What isn't registered, drains already or has another port is left as it is."""
    group: TargetGroup = {}
    register(group, "i-1", 0.0, port=8000)
    assert not deregister(group, "i-2", 10.0, 30.0, 8000)
    assert not deregister(group, "i-1", 10.0, 30.0, 8001)
    assert deregister(group, "i-1", 10.0, 30.0, 8000)
    assert not deregister(group, "i-1", 15.0, 30.0, 8000)
    assert group["i-1"].gone_at == 40.0


def test_every_change_has_a_row_and_every_row_a_source() -> None:
    """The package's docstring has the table as it is in code, and names rows of the contract with AWS."""
    docs = lab.world.__doc__ or ""
    for change, transition in TRANSITIONS.items():
        into = rf"{transition.by_way_of} \| {transition.into}"
        assert re.search(rf"^\| {change}\b[^|]*\|[^|]*\| {into} \|", docs, re.MULTILINE), change
    relied_on = [
        word
        for line in CONTRACT.read_text().splitlines()
        for word in re.findall(r"`([^`]+)`", line.partition(" | ")[0])
    ]
    sources = set(re.findall(r"^\|.*\| `(\w[\w.]+)` \|$", docs, re.MULTILINE))
    assert sources
    # A property of a resource may be named by its end.
    assert {one for one in sources if not any(f".{word}".endswith(f".{one}") for word in relied_on)} == set()
