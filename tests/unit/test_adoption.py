"""Instances that something else launched: left alone in a target group, until they are adopted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotrelay.operator import adoption, rollback
from spotrelay.operator.adoption import NotAdoptableError
from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core.instances import Instance, InstanceState, Target, TargetState
from spotrelay.plane.core.pools import Offering, PurchaseOption
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Backoff
from spotrelay.plane.core.spec import OnUpdate, ReadinessProbe, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import InterruptionWarning
from spotrelay.plane.memory import EPOCH
from spotrelay.plane.serving import rollout, supersede
from tests.examples import demo_spec, on_demand_pool, spot_pool
from tests.unit.cases import NOW, a_replica, seen_of
from tests.unit.worlds import Troubled, rows, world_of

SPOT = spot_pool("us-east-1a", "p4d.24xlarge")
ON_DEMAND = on_demand_pool("us-east-1b", "g5.xlarge")
OLD = ("i-old1", "i-old2", "i-old3")


def spec_of(**changes: Any) -> ServiceSpec:
    """Three replicas, rolled out one at a time."""
    return replace(demo_spec(), **{"on_update": OnUpdate.ROLLING, "bake_s": 0, **changes})


def with_old(world: Troubled, spec: ServiceSpec, *offerings: Offering, port: int = 8081) -> list[Target]:
    """Instances that something else launched serve in the service's target group."""
    group = world.router.groups.setdefault(spec.target_group_arn, {})
    found = []
    for id_, offering in zip(OLD, offerings, strict=False):
        launched_at = world.clock.now() - seconds(86_400)
        instance = Instance(id_, InstanceState.RUNNING, offering, launched_at, address="10.0.9.9")
        world.fleet.instances[id_] = instance
        world.fleet.services[id_] = "nobody's"
        world.router.registered[id_] = port
        group[id_] = TargetState.HEALTHY
        found.append(Target(id_, TargetState.HEALTHY, port, instance, {}))
    return found


def adopt(
    world: Troubled, spec: ServiceSpec, found: list[Target], *, is_to_be_replaced: bool = False
) -> None:
    """What the command does: the tag, then the rows."""
    there = rows(world)
    adoption.check(spec, there, len(found), is_to_be_replaced=is_to_be_replaced)
    for target in found:
        world.fleet.services[target.id] = spec.service
    world.store.commit(
        adoption.decide(spec, there, found, world.clock.now(), is_to_be_replaced=is_to_be_replaced)
    )


def settle(world: Troubled, ticks: int = 40) -> None:
    """Ticks, with everything that starts getting ready."""
    controller = Controller(world.ports())
    for _ in range(ticks):
        controller.tick("demo")
        world.fleet.run()
        world.router.pass_checks()
        world.clock.advance(60)


def serving(world: Troubled) -> dict[str, int]:
    """By instance, the version of what is ready."""
    ready = [r for r in rows(world).replicas.values() if r.stays]
    return {str(r.instance_id): r.version for r in ready}


def called_for(world: Troubled, call: str) -> set[str]:
    """The instances that the load balancer was called for."""
    return {id_ for name, ids in world.router.calls if name == call for id_ in ids}


@pytest.mark.parametrize("replicas", [3, 0])
def test_a_foreign_target_is_left_alone(replicas: int) -> None:
    """It is neither taken out nor ended, nor counted: as many replicas come as are wanted beside it."""
    spec = spec_of(replicas=replicas)
    world = world_of(spec)
    with_old(world, spec, SPOT, ON_DEMAND)
    settle(world)
    assert len(serving(world)) == replicas
    assert not set(OLD) & (
        called_for(world, "deregister") | called_for(world, "register") | set(serving(world))
    )
    assert all(world.fleet.instances[id_].state is InstanceState.RUNNING for id_ in OLD[:2])


def test_a_foreign_target_that_died_is_left_alone() -> None:
    """Whoever registered it takes it out."""
    spec = spec_of()
    world = world_of(spec)
    with_old(world, spec, SPOT)
    world.fleet.enter(InstanceState.TERMINATED, [OLD[0]])
    settle(world)
    assert OLD[0] not in called_for(world, "deregister")


def test_a_warning_of_a_foreign_target_is_nobodys() -> None:
    """Nothing is drained, and nothing is launched for it."""
    spec = spec_of(replicas=0)
    world = world_of(spec)
    with_old(world, spec, SPOT)
    settle(world, 2)
    warning = InterruptionWarning(OLD[0], world.clock.now(), "e-1")
    Controller(world.ports()).handle([warning])
    settle(world, 2)
    assert not world.fleet.launches
    assert not world.router.calls


def test_a_foreign_target_doesnt_vouch_for_what_the_balancer_shows() -> None:
    """A balancer that shows none of ours says nothing about an instance that lost its row."""
    spec = spec_of(replicas=1)
    world = world_of(spec)
    settle(world, 5)
    (id_,) = serving(world)
    with_old(world, spec, SPOT)
    table = world.store.damage("demo")
    table.replicas.clear()
    table.serving = 0
    del world.router.groups[spec.target_group_arn][id_]
    Controller(world.ports()).tick("demo")
    assert id_ not in {r.instance_id for r in rows(world).replicas.values()}
    assert world.fleet.instances[id_].state is InstanceState.RUNNING


def test_what_is_adopted_serves_on() -> None:
    """Nothing is launched, registered or taken out because of it, on-demand where Spot is wanted included."""
    spec = spec_of()
    world = world_of(spec)
    adopt(world, spec, with_old(world, spec, SPOT, ON_DEMAND, ON_DEMAND))
    settle(world)
    assert serving(world) == dict.fromkeys(OLD, 1)
    assert not world.fleet.launches
    assert not world.router.calls


def test_what_was_launched_meanwhile_goes_for_what_is_adopted() -> None:
    """A deployment launches as many as are wanted: those that don't serve yet are too many then."""
    spec = spec_of()
    world = world_of(spec)
    found = with_old(world, spec, SPOT, SPOT, SPOT)
    Controller(world.ports()).tick("demo")
    assert len(world.fleet.instances) == 6
    adopt(world, spec, found)
    settle(world)
    assert set(serving(world)) == set(OLD)
    assert not set(OLD) & called_for(world, "deregister")


def test_a_warned_one_drains_and_is_replaced() -> None:
    """It leaves with the port that it was registered with; what the file says is launched; EC2 ends it."""
    spec = spec_of()
    world = world_of(spec)
    found = with_old(world, spec, SPOT, SPOT, SPOT, port=9999)
    adopt(world, spec, found, is_to_be_replaced=True)
    warning = InterruptionWarning(OLD[0], world.clock.now(), "e-1")
    world.fleet.interrupted[OLD[0]] = world.clock.now()
    Controller(world.ports()).handle([warning])
    assert world.router.groups[spec.target_group_arn][OLD[0]] is TargetState.DRAINING
    (launch,) = world.fleet.launches
    assert (launch.spec.version, launch.count) == (1, 1)
    assert {pool.instance_type for pool in launch.pools} <= set(spec.instance_types)
    (new,) = (r for r in rows(world).replicas.values() if r.replaces)
    assert (new.port, new.version, new.is_adopted) == (8081, 1, False)
    Controller(world.ports()).tick("demo")
    assert world.fleet.instances[OLD[0]].state is InstanceState.RUNNING


def test_those_to_be_replaced_are_one_after_the_other() -> None:
    """As many as wanted serve all the time, and at the end only what the service's file launches."""
    spec = spec_of()
    world = world_of(spec)
    adopt(world, spec, with_old(world, spec, SPOT, ON_DEMAND, SPOT), is_to_be_replaced=True)
    for _ in range(60):
        settle(world, 1)
        assert len(serving(world)) >= 3
        assert len([i for i in world.fleet.instances.values() if i.state.is_alive]) <= 5
    assert list(serving(world).values()) == [1, 1, 1]
    assert not set(OLD) & set(serving(world))
    assert all(world.fleet.instances[id_].state is InstanceState.TERMINATED for id_ in OLD)


def test_a_version_that_fails_isnt_launched_for_ever_in_its_own_place() -> None:
    """Where all change at once, it is taken back to the one before: what was to be replaced has none."""
    spec = spec_of(on_update=OnUpdate.BLUE_GREEN, readiness_probe=ReadinessProbe("/v1", {"a": 1}))
    fleet = [a_replica(id_, ReplicaState.READY, version=version) for id_, version in ((1, 0), (2, 0))]
    fleet.append(a_replica(3, ReplicaState.STARTING))
    seen = seen_of(*fleet, backoff=Backoff(failures=5, version=1))
    assert list(supersede.decide(spec, seen, NOW)) == []
    older = [replace(r, version=1) for r in fleet[:2]]
    seen = seen_of(*older, replace(fleet[2], version=2), backoff=Backoff(failures=5, version=2))
    assert list(supersede.decide(replace(spec, version=2), seen, NOW))


def test_a_new_version_replaces_them() -> None:
    """Like every other replica."""
    spec = spec_of()
    world = world_of(spec)
    adopt(world, spec, with_old(world, spec, SPOT, SPOT, SPOT))
    settle(world, 3)
    world.services.specs["demo"] = replace(spec, version=2)
    settle(world, 60)
    assert list(serving(world).values()) == [2, 2, 2]


def test_a_lost_one_is_bought_as_the_file_says() -> None:
    """Spot, though it was on-demand itself; but for as many as the file always wants on-demand."""
    spec = spec_of(base_on_demand=1)
    world = world_of(spec)
    found = with_old(world, spec, ON_DEMAND, ON_DEMAND, SPOT)
    adopt(world, spec, found)
    options = [r.purchase_option for r in rows(world).replicas.values()]
    assert options == [PurchaseOption.ON_DEMAND, PurchaseOption.SPOT, PurchaseOption.SPOT]


def test_the_probe_doesnt_judge_them() -> None:
    """The function that probes is let in by groups that they aren't in: silence says nothing."""
    probe = ReadinessProbe("/v1", {"a": 1}, failure_threshold_s=60)
    spec = spec_of(readiness_probe=probe)
    world = world_of(spec)
    world.prober.silent = set(OLD)
    adopt(world, spec, with_old(world, spec, SPOT, SPOT, SPOT))
    settle(world)
    assert serving(world) == dict.fromkeys(OLD, 1)
    assert not world.fleet.launches


def test_one_can_be_taken_back() -> None:
    """Without its tags and out of the target group it is replaced, and never terminated or registered."""
    spec = spec_of()
    world = world_of(spec)
    adopt(world, spec, with_old(world, spec, SPOT, SPOT, SPOT))
    settle(world, 2)
    world.fleet.services[OLD[0]] = "nobody's"
    del world.router.groups[spec.target_group_arn][OLD[0]]
    settle(world)
    assert len(serving(world)) == 3
    assert OLD[0] not in serving(world)
    assert OLD[0] not in called_for(world, "register")
    assert world.fleet.instances[OLD[0]].state is InstanceState.RUNNING


def test_the_version_that_they_count_as_is_one_to_fall_back_to() -> None:
    """Where a later one fails; and that one of them is ill doesn't stop the roll-out of that version."""
    spec = spec_of()
    world = world_of(spec)
    adopt(world, spec, with_old(world, spec, SPOT, SPOT, SPOT))
    there = replace(rows(world), backoff=Backoff(failures=5, version=2))
    assert rollout.proven(replace(spec, version=2), there) == 1
    ill = {id_: replace(r, unhealthy_since=world.clock.now()) for id_, r in there.replicas.items()}
    assert not rollout.is_stopped(spec, replace(rows(world), replicas=ill))


def test_what_was_to_be_replaced_is_no_version_to_go_back_to() -> None:
    """An operator's rollback has nowhere to go."""
    spec = spec_of()
    world = world_of(spec)
    adopt(world, spec, with_old(world, spec, SPOT, SPOT, SPOT), is_to_be_replaced=True)
    assert rollback.before(spec, rows(world)) is None


INSTANCE = Instance("i-1", InstanceState.RUNNING, SPOT, EPOCH)
GOOD = Target("i-1", TargetState.HEALTHY, 8081, INSTANCE, {})


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (GOOD, None),
        (replace(GOOD, tags={"spotrelay:service": "demo"}), None),
        (replace(GOOD, instance=None), "no instance of this account and region"),
        (replace(GOOD, health=TargetState.UNHEALTHY), "it is unhealthy, and only what serves is adopted"),
        (replace(GOOD, health=TargetState.DRAINING), "it is draining"),
        (
            replace(GOOD, instance=replace(INSTANCE, state=InstanceState.STOPPING)),
            "its instance is stopping",
        ),
        (replace(GOOD, tags={"spotrelay:service": "chat"}), "it belongs to the service chat"),
        (replace(GOOD, tags={"aws:autoscaling:groupName": "web"}), "the Auto Scaling group web would"),
        (replace(GOOD, tags={"aws:ec2spot:fleet-request-id": "sfr-1"}), "the Spot Fleet sfr-1 would"),
        (replace(GOOD, is_twice=True), "it is registered with two ports"),
        (replace(GOOD, port=80), "it listens on 80, and the service file says 8081"),
    ],
)
def test_only_what_serves_and_is_nobody_elses_is_adopted(target: Target, expected: str | None) -> None:
    """The reason says why. What bears the service's tag already was left by a command that broke off."""
    why = adoption.why_not(target, demo_spec(), is_to_be_replaced=False)
    assert why is expected or (expected and why and expected in why)


def test_another_port_is_no_hindrance_where_they_are_replaced() -> None:
    """What comes in their place listens on the file's."""
    assert adoption.why_not(replace(GOOD, port=80), demo_spec(), is_to_be_replaced=True) is None


def test_no_more_are_adopted_than_are_wanted() -> None:
    """The others would be drained and terminated: the error says how many replicas it takes."""
    spec = spec_of(replicas=2)
    world = world_of(spec)
    found = with_old(world, spec, SPOT, SPOT, SPOT)
    with pytest.raises(NotAdoptableError, match="Let replicas be 3 first"):
        adopt(world, spec, found)
    adopt(world, spec, found[:1])
    with pytest.raises(NotAdoptableError, match="1 replicas serve already, and the service wants 2"):
        adopt(world, spec, found[1:])


@pytest.mark.parametrize("on_update", [OnUpdate.KEEP, OnUpdate.BLUE_GREEN])
def test_only_a_rolling_service_replaces_them(on_update: OnUpdate) -> None:
    """One replaces nothing; the other goes back to the version before if one fails, which these lack."""
    with pytest.raises(NotAdoptableError, match=f"on_update is {on_update}"):
        adoption.check(spec_of(on_update=on_update), rows(world_of()), 1, is_to_be_replaced=True)


def test_an_adopted_row_is_ready_and_says_so() -> None:
    """With an ID of its own, in order, counted as serving."""
    spec = spec_of()
    world = world_of(spec)
    adopt(world, spec, with_old(world, spec, SPOT, SPOT))
    kept = rows(world)
    assert [(r.id, r.instance_id, r.state) for r in kept.replicas.values()] == [
        (1, "i-old1", ReplicaState.READY),
        (2, "i-old2", ReplicaState.READY),
    ]
    assert (kept.highest_id, kept.serving) == (2, 2)
    assert all(r.is_adopted and r.port == 8081 for r in kept.replicas.values())
