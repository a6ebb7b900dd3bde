"""Instances that host several replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import Instance, InstanceState, TargetState
from spotrelay.plane.core.pools import OPTIONS, Offering, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rollback, Rows
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import OnUpdate, OnWarning, ReadinessProbe, ServiceSpec
from spotrelay.plane.events import InterruptionWarning, Signal, StateChange
from spotrelay.plane.serving import reconcile, slots
from tests.examples import demo_spec
from tests.unit.cases import LONG_AGO, NOW, POOL, a_replica, rows_of, seen_of
from tests.unit.worlds import Troubled, active, alive, dry, in_rotation, rows, settle, table, world_of

LARGE = "g5.12xlarge"
FIRST = "i-00000000000000001"
SLOTS = [FIRST, f"{FIRST}:8082", f"{FIRST}:8083", f"{FIRST}:8084"]


def shared(replicas: int = 4) -> ServiceSpec:
    """The demo on instances with four GPUs, or with one."""
    types = (LARGE, *demo_spec().instance_types)
    return replace(
        demo_spec(replicas=replicas), instance_types=types, slots={LARGE: 4}, on_warning=OnWarning.LEAVE
    )


def of_slots(spec: ServiceSpec) -> tuple[Troubled, Controller]:
    """A service that serves, on instances with four GPUs as far as they are of use."""
    world = world_of(spec)
    controller = Controller(world.ports())
    settle(world, controller)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * spec.replicas
    world.clock.advance(timing.LEASE_S)
    world.router.calls.clear()
    world.fleet.launches.clear()
    return world, controller


def warning(world: Troubled, *instance_ids: str) -> list[Signal]:
    """EC2 warns instances; the events."""
    now = world.clock.now()
    world.fleet.interrupted |= dict.fromkeys(instance_ids, now)
    return [InterruptionWarning(i, now, "terminate") for i in instance_ids]


def no_large_ones(world: Troubled) -> None:
    """EC2 has no instances with four GPUs any more."""
    pools = [p for p in shared().pools if p.instance_type == LARGE]
    world.fleet.capacity.update({Offering(p, o): 0 for p in pools for o in OPTIONS.values()})


def ids(replicas: Sequence[Replica]) -> list[str | None]:
    """Their slots."""
    return [r.instance_id for r in replicas]


def test_four_replicas_share_an_instance() -> None:
    """One instance is launched; each replica has a row, a port and a target of its own."""
    world, _ = of_slots(shared())
    assert len(world.fleet.instances) == 1
    assert ids(active(world)) == SLOTS
    assert in_rotation(world) == set(SLOTS)
    assert [world.router.registered[slot] for slot in SLOTS] == [8081, 8082, 8083, 8084]
    assert {r.slots for r in active(world)} == {4}


@pytest.mark.parametrize(("replicas", "instances"), [(3, 3), (5, 2), (8, 2), (9, 3)])
def test_no_accelerator_is_paid_for_nothing(replicas: int, instances: int) -> None:
    """Types with more room than replicas are wanted are left out, and what is over when they are full.

    EC2 may give one more large instance for the last ones.
    """
    world, _ = of_slots(shared(replicas))
    assert len(alive(world)) == instances


def test_a_warning_takes_all_of_them_out_at_once() -> None:
    """One deregistration for the four, one launch for their four replacements, and four rows say so."""
    world, controller = of_slots(shared())
    no_large_ones(world)
    assert controller.handle(warning(world, FIRST)) == []
    assert [call for call, _ in world.router.calls] == ["deregister"]
    assert set(world.router.calls[0][1]) == set(SLOTS)
    assert [launch.count for launch in world.fleet.launches] == [4]
    assert ids(active(world)) == [f"i-{number:017x}" for number in (2, 3, 4, 5)]
    settle(world, controller)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 4
    assert not any(slot in in_rotation(world) for slot in SLOTS)


@pytest.mark.parametrize("slots", [{LARGE: 1}, {}])
def test_a_version_that_is_not_the_deployed_one_is_launched_with_its_own_slots(slots: dict[str, int]) -> None:
    """Version 2 hosts one replica on an instance; what is lost of version 1 hosted four, and will again."""
    rolling = replace(shared(), on_update=OnUpdate.ROLLING, surge=0)
    world, controller = of_slots(rolling)
    world.services.specs["demo"] = replace(rolling, version=2, slots=slots)
    controller.tick("demo")
    controller.handle(warning(world, FIRST))
    (launch,) = world.fleet.launches
    assert (launch.spec.version, launch.spec.slots) == (1, {LARGE: 4})


def test_what_shares_nothing_is_launched_with_the_slots_of_its_version_all_the_same() -> None:
    """What comes in place of a version 1 that has an instance to itself may share a larger one."""
    rolling = replace(shared(), on_update=OnUpdate.ROLLING, surge=0)
    world = world_of(rolling)
    no_large_ones(world)
    controller = Controller(world.ports())
    settle(world, controller)
    assert {r.slots for r in active(world)} == {1}
    world.services.specs["demo"] = replace(rolling, version=2)
    controller.tick("demo")
    world.fleet.launches.clear()
    controller.handle(warning(world, str(ids(active(world))[0])))
    assert {(launch.spec.version, launch.spec.slots[LARGE]) for launch in world.fleet.launches} == {(1, 4)}


def test_a_version_that_is_gone_back_to_is_launched_with_its_own_slots() -> None:
    """The version that was given up hosts one replica on an instance; the one before hosts four."""
    rolling = replace(shared(), on_update=OnUpdate.ROLLING, surge=0)
    world = world_of(replace(rolling, version=2, slots={}))
    controller = Controller(world.ports())
    settle(world, controller)
    kept = table(world)
    kept.earlier[1] = rolling
    kept.rollback = Rollback(2, 1, rolling.port)
    (lost, *_) = ids(active(world))
    world.fleet.launches.clear()
    controller.handle(warning(world, str(lost)))
    (launch,) = world.fleet.launches
    assert (launch.spec.version, launch.spec.slots) == (1, {LARGE: 4})


def test_a_lost_warning_is_found_for_all_of_them() -> None:
    """No event at all: the next tick drains and replaces the four."""
    world, controller = of_slots(shared())
    warning(world, FIRST)
    controller.tick("demo")
    assert [r.state for r in rows(world).replicas.values()][:4] == [ReplicaState.DRAINING] * 4
    assert len([r for r in active(world) if host(r.instance_id or "") != FIRST]) == 4


def test_what_could_not_be_reacted_to_comes_again_as_it_came() -> None:
    """A failed service's signal names the instance, and comes back once."""
    world, controller = of_slots(shared())
    signals = warning(world, FIRST)
    world.refuse("store.commit", RuntimeError("no"), None)
    assert list(controller.handle(signals)) == signals


def test_an_instance_stays_while_one_of_its_replicas_serves() -> None:
    """Three go one after the other; the instance serves on, and ends with the last of them."""
    world, controller = of_slots(shared())
    for left in (3, 2, 1):
        world.services.specs["demo"] = shared(left)
        settle(world, controller, 20)
        assert ids(active(world)) == SLOTS[:left]
        assert in_rotation(world) == set(SLOTS[:left])
        assert alive(world) == {FIRST}
    world.services.specs["demo"] = shared(0)
    settle(world, controller, 20)
    assert not alive(world)
    assert not rows(world).replicas


def test_all_that_go_together_end_their_instance_by_themselves() -> None:
    """No orphan has to be found: the last of them terminates it."""
    world, controller = of_slots(shared())
    world.services.specs["demo"] = shared(0)
    settle(world, controller, 20)
    assert not alive(world)
    assert {r.id for r in world.store.history("demo", 10)} == {1, 2, 3, 4}


def test_one_that_never_gets_ready_costs_the_others_nothing() -> None:
    """It fails and is replaced elsewhere, and its instance serves on."""
    world = world_of(shared())
    controller = Controller(world.ports())

    def third_is_ill() -> None:
        world.router.pass_checks()
        targets = world.router.groups[shared().target_group_arn]
        if SLOTS[2] in targets:
            targets[SLOTS[2]] = TargetState.UNHEALTHY

    for _ in range(12):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        world.fleet.run()
        controller.tick("demo")
        third_is_ill()
    world.clock.advance(shared().initial_delay_s + timing.BOOT_S + 1)
    for _ in range(6):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        controller.tick("demo")
        third_is_ill()
    failed = [r for r in world.store.history("demo", 10) if r.state is ReplicaState.FAILED]
    assert ids(failed) == [SLOTS[2]]
    assert FIRST in alive(world)
    assert {SLOTS[0], SLOTS[1], SLOTS[3]} <= in_rotation(world)


def test_one_that_never_answers_its_probe_costs_the_others_nothing() -> None:
    """It is given up by what read its row alone, and the others on its instance serve on."""
    spec = replace(shared(), readiness_probe=ReadinessProbe("/", {}), initial_delay_s=60)
    world = world_of(spec)
    controller = Controller(world.ports())
    world.prober.silent = {FIRST}
    settle(world, controller)
    assert in_rotation(world) == set(SLOTS[1:])
    world.clock.advance(spec.initial_delay_s + timing.BOOT_S + 1)
    controller.tick("demo")
    assert ids([r for r in world.store.history("demo", 10) if r.state is ReplicaState.FAILED]) == [FIRST]
    assert FIRST in alive(world)
    settle(world, controller)
    assert set(SLOTS[1:]) <= in_rotation(world)


def test_rows_that_got_lost_come_back_for_all_that_serve() -> None:
    """The table is empty: each target gets a row again, none leaves the rotation, nothing is terminated."""
    world, controller = of_slots(shared())
    kept = table(world)
    kept.replicas.clear()
    kept.highest_id = kept.serving = 0
    world.clock.advance(timing.ORPHAN_GRACE_S)
    settle(world, controller)
    assert sorted(str(i) for i in ids(active(world))) == SLOTS
    assert in_rotation(world) == set(SLOTS)
    assert alive(world) == {FIRST}
    assert {r.slots for r in active(world)} == {4}


def test_a_lost_table_is_no_reason_to_forget_ports() -> None:
    """With another port deployed and the old document lost, a warning still takes all four out at once."""
    rolling = replace(shared(), on_update=OnUpdate.ROLLING, surge=0)
    world, controller = of_slots(rolling)
    world.services.specs["demo"] = replace(rolling, version=2, port=rolling.port + 1000)
    world.store._services.clear()
    world.store._located.clear()
    world.store._slots.clear()
    world.clock.advance(timing.ORPHAN_GRACE_S)
    controller.tick("demo")
    assert {r.version for r in active(world)} == {1}
    controller.handle(warning(world, FIRST))
    assert not set(SLOTS) & in_rotation(world)


def test_one_row_that_got_lost_comes_back() -> None:
    """The others are there: its target gets a row, and stays in rotation."""
    world, controller = of_slots(shared())
    kept = table(world)
    del kept.replicas[3]
    kept.serving = 3
    world.clock.advance(timing.ORPHAN_GRACE_S)
    settle(world, controller)
    assert set(SLOTS) <= in_rotation(world)
    assert set(SLOTS) <= {str(i) for i in ids(active(world))}
    assert FIRST in alive(world)


@pytest.mark.parametrize(
    ("shown", "ends"),
    [
        ({SLOTS[0]: TargetState.HEALTHY}, ["End"]),
        ({SLOTS[0]: TargetState.DRAINING}, ["Terminate"]),
        ({"i-other": TargetState.HEALTHY}, ["Terminate"]),
        pytest.param(
            {SLOTS[1]: TargetState.HEALTHY}, ["Terminate"], id="its own, long after it should be out"
        ),
    ],
)
def test_an_instance_is_not_ended_under_a_slot_whose_row_got_lost(
    shown: dict[str, TargetState], ends: list[str]
) -> None:
    """The last slot that has a row goes. The other one serves, and gets a row again in a while."""
    gone = a_replica(2, ReplicaState.DRAINING, instance_id=SLOTS[1], slots=2)
    instance = Instance(FIRST, InstanceState.RUNNING, POOL, NOW)
    seen = replace(
        seen_of(gone, instances=[replace(instance, id=slot, slots=2) for slot in SLOTS[:2]]), health=shown
    )
    decided = reconcile.decide(demo_spec(replicas=0), seen, NOW)
    assert [step.name for step in decided if step.name in ("End", "Terminate")] == ends


def test_a_slot_that_ends_says_that_its_instance_was_warned() -> None:
    """It is found with the end: the row has both, and the last slot's is left to EC2."""
    rows = [a_replica(n, ReplicaState.DRAINING, instance_id=SLOTS[n], slots=2) for n in (0, 1)]
    instance = Instance(FIRST, InstanceState.RUNNING, POOL, NOW)
    slots_seen = [replace(instance, id=slot, slots=2) for slot in SLOTS[:2]]
    seen = replace(seen_of(*rows, instances=slots_seen), warned={SLOTS[0]: NOW})
    noted, ended, *_ = reconcile.decide(demo_spec(replicas=0), seen, NOW)
    assert (noted.name, ended.name, ended.before) == ("NoteWarning", "End", noted.after)
    assert ended.row.warned_at == NOW


def test_an_answer_that_got_lost_brings_all_of_its_slots() -> None:
    """The launch took effect and nobody recorded it: the tick gives the instance to the four that wait."""
    world = world_of(shared())
    controller = Controller(world.ports())
    world.lose("fleet.launch", RuntimeError("killed"))
    with pytest.raises(RuntimeError, match="killed"):
        controller.tick("demo")
    world.clock.advance(timing.ADOPT_AFTER_S)
    settle(world, controller)
    assert ids(active(world)) == SLOTS
    assert len(world.fleet.instances) == 1


def test_an_end_is_an_end_for_all() -> None:
    """The instance is terminated behind our back: the four are replaced."""
    world, controller = of_slots(shared())
    world.fleet.enter(InstanceState.TERMINATED, [FIRST])
    assert controller.handle([StateChange(FIRST, world.clock.now(), InstanceState.TERMINATED)]) == []
    settle(world, controller)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 4
    assert not any(host(i or "") == FIRST for i in ids(active(world)))


def test_a_dry_market_brings_fallbacks_on_shared_instances() -> None:
    """Spot has nothing: the four fallbacks share an on-demand instance."""
    world, controller = of_slots(shared())
    dry(world, PurchaseOption.SPOT)
    world.fleet.capacity.update(
        {Offering(p, PurchaseOption.SPOT): 0 for p in shared().pools if p.instance_type == LARGE}
    )
    controller.handle(warning(world, FIRST))
    world.clock.advance(2)
    settle(world, controller)
    fallbacks = [r for r in active(world) if r.is_fallback]
    assert len(fallbacks) == 4
    assert len({host(r.instance_id or "") for r in fallbacks}) == 1


def test_what_shares_an_instance_ends_nothing_where_others_were_not_read() -> None:
    """A few rows don't say who else is there; all rows do."""
    one, other = (replica_on(slot, number) for number, slot in enumerate(SLOTS[:2], 1))
    alone = replace(other, slots=1)
    some = Rows(replicas={2: other})
    assert slots.free(some, {SLOTS[1]}) == []
    assert slots.free(replace(some, replicas={2: alone}), {SLOTS[1]}) == [FIRST]
    assert slots.free(replace(some, is_whole=True), {SLOTS[1]}) == [FIRST]
    assert slots.free(Rows(is_whole=True, replicas={1: one, 2: other}), {SLOTS[1]}) == []
    ended = replace(other, state=ReplicaState.FAILED)
    assert slots.free(replace(some, replicas={2: ended}), {SLOTS[1]}) == []
    assert slots.free(Rows(is_whole=True, replicas={2: ended}), {SLOTS[1]}) == [FIRST]


def replica_on(slot: str, id_: int) -> Replica:
    """One that serves in a slot."""
    now = world_of().clock.now()
    requested = Replica.requested("demo", id_, 1, now, reason="test", port=8081)
    return replace(requested, state=ReplicaState.READY, instance_id=slot, slots=4)


def test_a_slot_that_still_drains_is_nobodys() -> None:
    """Its replica has ended, and the load balancer shows it for minutes, and it gets no new row."""
    owner = a_replica(1, ReplicaState.READY, instance_id=FIRST, slots=2)
    runs = Instance(FIRST, InstanceState.RUNNING, POOL, LONG_AGO)

    def slots_shown(other: TargetState) -> set[str]:
        health = {FIRST: TargetState.HEALTHY, SLOTS[1]: other}
        return set(slots.instances(demo_spec(), rows_of(owner), [runs], health))

    assert slots_shown(TargetState.DRAINING) == {FIRST}
    assert slots_shown(TargetState.UNHEALTHY) == {FIRST, SLOTS[1]}, "in rotation, and nobody knows it"
