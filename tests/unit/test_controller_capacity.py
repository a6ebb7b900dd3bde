"""The controller where capacity is short: fallbacks, returns to Spot, launches that fail, crash loops."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import Offering, PurchaseOption
from spotrelay.plane.core.ports import Conflict, Throttled, Unavailable
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import World
from spotrelay.plane.placement.launching import FALLBACK_DELAY_S
from tests.examples import demo_spec
from tests.unit.worlds import (
    active,
    alive,
    dry,
    reclaim,
    rows,
    serving,
    settle,
    warn,
    world_of,
)

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND


def test_refused_spot_has_on_demand_fallback_a_second_later() -> None:
    """Every Spot pool dry: the replacement waits and is tried again, and the next tick buys on-demand."""
    world, controller = serving()
    dry(world, SPOT)
    world.ticker.scheduled.clear()
    controller.handle(warn(world, active(world)[0]))
    new = active(world)[-1]
    assert (new.id, new.state, new.purchase_option, new.attempts) == (4, ReplicaState.REQUESTED, SPOT, 1)
    assert min(delay_s for _, _, delay_s in world.ticker.scheduled) == FALLBACK_DELAY_S
    controller.tick("demo")
    fallback = active(world)[-1]
    assert (fallback.id, fallback.state, fallback.is_fallback) == (5, ReplicaState.PROVISIONING, True)
    assert fallback.offering is not None
    assert fallback.offering.purchase_option is ON_DEMAND
    memory = world.store.recall("demo", "us-east-1", world.clock.now())
    assert all(memory.cooling(Offering(pool, SPOT), world.clock.now()) for pool in demo_spec().pools)
    settle(world, controller)
    assert [(r.id, r.state) for r in active(world)] == [
        (2, ReplicaState.READY),
        (3, ReplicaState.READY),
        (4, ReplicaState.REQUESTED),
        (5, ReplicaState.READY),
    ]


def test_fallbacks_are_called_once_for_a_refusal() -> None:
    """Refused again and again, a replica has its fallback: no tick is called out of turn any more."""
    world, controller = serving()
    dry(world, SPOT)
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller)
    world.ticker.scheduled.clear()
    settle(world, controller, rounds=100)
    assert next(r for r in active(world) if r.id == 4).attempts > 2
    assert FALLBACK_DELAY_S not in [delay_s for _, _, delay_s in world.ticker.scheduled]


def test_spot_takes_over_again_make_before_break() -> None:
    """Capacity is back: as many serve as wanted all the time, and in the end all of them on Spot."""
    world, controller = serving()
    dry(world, SPOT)
    victim = active(world)[0]
    controller.handle(warn(world, victim))
    settle(world, controller)
    controller.handle(reclaim(world, victim))
    world.fleet.capacity.clear()
    for _ in range(int(1.2 * timing.LOSS_COOLDOWN_S / timing.TICK_IN_TRANSITION_S)):
        settle(world, controller, rounds=1)
        assert sum(r.state is ReplicaState.READY for r in active(world)) >= 3
    assert [(r.id, r.purchase_option) for r in active(world)] == [(2, SPOT), (3, SPOT), (4, SPOT)]
    ended = next(r for r in world.store.history("demo", 9) if r.id == 5)
    assert (ended.reason, ended.replaced_by) == ("Spot is back", None)


def test_partial_fulfilment_is_completed_by_a_fallback() -> None:
    """Two of three from Spot, the third waits for it with a fallback in its place; all intents are closed."""
    world = world_of(demo_spec())
    world.fleet.capacity.update({Offering(p, SPOT): 0 for p in demo_spec().pools[1:]})
    world.fleet.capacity[Offering(demo_spec().pools[0], SPOT)] = 2
    controller = Controller(world.ports())
    controller.tick("demo")
    controller.tick("demo")
    bought = [(r.purchase_option, r.is_fallback, r.state) for r in active(world)]
    assert bought == [
        (SPOT, False, ReplicaState.PROVISIONING),
        (SPOT, False, ReplicaState.PROVISIONING),
        (SPOT, False, ReplicaState.REQUESTED),
        (ON_DEMAND, True, ReplicaState.PROVISIONING),
    ]
    assert world.store.load("demo").intents == {}


@pytest.mark.parametrize("fallback", [True, False])
def test_no_capacity_anywhere_waits_and_then_recovers(fallback: bool) -> None:
    """Refused everywhere: the replicas stay REQUESTED, tries back off, and capacity that returns is used."""
    world = world_of(replace(demo_spec(), on_demand_fallback=fallback))
    dry(world, SPOT, ON_DEMAND)
    controller = Controller(world.ports())
    settle(world, controller, rounds=100)
    assert {r.state for r in active(world)} == {ReplicaState.REQUESTED}
    assert len(active(world)) == (6 if fallback else 3)
    tries = len(world.fleet.launches)
    assert tries < 3 * 15, "300 s of refusals are a handful of tries, not one a tick"
    world.fleet.capacity.clear()
    settle(world, controller, rounds=30)
    assert sum(r.state is ReplicaState.READY for r in active(world)) >= 3
    settle(world, controller, rounds=int(2 * timing.REFUSAL_COOLDOWN_MAX_S / timing.TICK_IN_TRANSITION_S))
    assert [r.id for r in active(world)] == [1, 2, 3]
    assert [r.purchase_option for r in active(world)] == [SPOT] * 3
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 3


def test_without_fallback_nothing_is_bought_on_demand() -> None:
    """A service that would rather wait for Spot waits, and asks again also where it was refused."""
    world, controller = serving(replace(demo_spec(), on_demand_fallback=False))
    dry(world, SPOT)
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller, rounds=100)
    assert {launch.purchase_option for launch in world.fleet.launches} == {SPOT}
    assert [r.state for r in active(world)][-1] is ReplicaState.REQUESTED
    world.fleet.capacity.clear()
    settle(world, controller, rounds=int(timing.RETRY_MAX_S / timing.TICK_IN_TRANSITION_S) + 6)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 3


def ticks_within(world: World, controller: Controller, duration_s: float) -> int:
    """How many ticks there are in this time, each run when it is announced, and one a minute."""
    start = world.clock.now()
    minutes = [start + seconds(60 * n) for n in range(int(duration_s / 60))]
    queue: list[tuple[datetime, datetime | None]] = [(at, None) for at in minutes]
    ticks = 0
    while queue := sorted(queue, key=lambda entry: entry[0]):
        at, due = queue.pop(0)
        if at >= start + seconds(duration_s):
            break
        world.clock.advance(max((at - world.clock.now()).total_seconds(), 0))
        world.ticker.scheduled.clear()
        controller.tick("demo", due)
        ticks += 1
        queue += [(world.clock.now() + seconds(delay_s), due) for _, due, delay_s in world.ticker.scheduled]
    return ticks


def test_a_fleet_that_waits_for_capacity_rests_between_its_tries() -> None:
    """With a fallback for what Spot refuses, ticks come when a retry falls due, not every few seconds."""
    world, controller = serving()
    dry(world, SPOT)
    victim = active(world)[0]
    controller.handle(warn(world, victim))
    settle(world, controller, rounds=60)
    controller.handle(reclaim(world, victim))
    settle(world, controller, rounds=3)
    tries = len(world.fleet.launches)
    ticks = ticks_within(world, controller, 600)
    assert 1 <= len(world.fleet.launches) - tries <= 10, "one a minute at most"
    assert ticks <= 4 * 10, "the minute's, the one of the retry, and the one that looks what came of it"


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_failed_launch_heals_without_a_second_instance(*, is_lost: bool) -> None:
    """A lost answer is adopted by its tag, a throttled call repeated: one instance in the end, either way."""
    world, controller = serving()
    if is_lost:
        world.lose("fleet.launch", Unavailable("read time-out"))
    else:
        world.refuse("fleet.launch", Throttled("RequestLimitExceeded"))
    assert controller.handle(warn(world, active(world)[0])) == []
    settle(world, controller, rounds=12)
    assert [(r.id, r.state) for r in active(world)] == [(i, ReplicaState.READY) for i in (2, 3, 4)]
    assert len(world.fleet.instances) == 4


def test_a_launch_that_teaches_nothing_writes_nothing_about_pools() -> None:
    """The first start of a service, where every pool gives, leaves what is known about pools alone."""
    world = world_of(demo_spec())
    Controller(world.ports()).tick("demo")
    assert len(alive(world)) == 3
    assert {"store.cool", "store.forgive"}.isdisjoint(world.calls)


def test_a_launch_that_was_overtaken_leaves_no_orphan() -> None:
    """If the record is refused, the instance is adopted or terminated by the ticks that follow."""
    world, controller = serving()
    refused = iter([Conflict("overtaken")])

    def conflict_on_record(changes: Changes) -> None:
        if any(r.state is ReplicaState.PROVISIONING for r in changes.update):
            for conflict in refused:
                raise conflict

    world.meddle("store.commit", conflict_on_record, times=None)
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller, rounds=80)
    assert {r.instance_id for r in rows(world).replicas.values()} == alive(world)
    assert len(active(world)) == 3
    assert rows(world).intents == {}


@pytest.mark.parametrize("fallback", [False, True])
def test_a_crash_loop_stops_costing_and_a_new_version_ends_it(*, fallback: bool) -> None:
    """Replicas that never become ready are tried a few times, ever more rarely, and then not at all.

    But on-demand goes on being tried, five minutes after it failed: what fails on Spot may well serve there.
    """
    world = world_of(replace(demo_spec(replicas=1), initial_delay_s=60, on_demand_fallback=fallback))
    controller = Controller(world.ports())
    world.meddle("router.health", lambda *_: world.router.fail_checks(), times=None)
    settle(world, controller, rounds=2000)
    bought = Counter(i.offering.purchase_option for i in world.fleet.instances.values())
    assert bought[SPOT] + bought[ON_DEMAND] >= timing.CRASH_LOOP_FAILURES
    assert bought[SPOT] <= timing.CRASH_LOOP_FAILURES
    an_hour = 3600 / (60 + timing.FALLBACK_HELD_MAX_S)
    assert bought[ON_DEMAND] <= (timing.CRASH_LOOP_FAILURES + 1.7 * an_hour if fallback else 0), "1.7 hours"
    assert world.telemetry.counts[Metric.CRASH_LOOPING] > 0
    before = len(world.fleet.launches)
    settle(world, controller, rounds=1200)
    assert len(world.fleet.launches) - before <= (an_hour + 1 if fallback else 0), "in an hour"
    world.services.specs["demo"] = replace(world.services.specs["demo"], version=2)
    world.before.clear()
    settle(world, controller, rounds=6)
    regular = [r for r in active(world) if not r.is_fallback]
    assert [(r.version, r.state) for r in regular] == [(2, ReplicaState.READY)]


def test_what_never_became_ready_ends_though_the_load_balancer_does_not_answer() -> None:
    """It gets no requests that it should finish, and costs as much as one that serves."""
    world = world_of(replace(demo_spec(replicas=1), initial_delay_s=60, on_demand_fallback=False))
    controller = Controller(world.ports())
    world.meddle("router.health", lambda *_: world.router.fail_checks(), times=None)
    settle(world, controller, rounds=4)
    (rising,) = active(world)
    world.refuse("router.deregister", Unavailable("no answer"), times=None)
    with pytest.raises(Unavailable):
        settle(world, controller, rounds=100)
    assert rising.instance_id not in alive(world)


def test_what_may_have_become_ready_meanwhile_is_taken_out_first() -> None:
    """The call to take it out hangs: its checks may have passed since, and it may have requests."""
    world = world_of(replace(demo_spec(replicas=1), initial_delay_s=60, on_demand_fallback=False))
    controller = Controller(world.ports())
    world.meddle("router.health", lambda *_: world.router.fail_checks(), times=None)
    settle(world, controller, rounds=4)
    (rising,) = active(world)

    def hang(*_: object) -> None:
        world.clock.advance(14)
        raise Unavailable("no answer")

    world.clock.advance(61 + timing.BOOT_S)
    world.meddle("router.deregister", hang)
    with pytest.raises(Unavailable):
        controller.tick("demo")
    assert rising.instance_id in alive(world)
    settle(world, controller, rounds=100)
    assert rising.instance_id not in alive(world), "it is taken in, and has a start's time once more"


def test_on_demand_serves_what_fails_on_spot_for_good() -> None:
    """Spot instances never become ready, on-demand ones do: the fallback serves, and is never given up.

    Of the pools that fail each rests, and the crash loop's brake stops what would only cost.
    """
    world = world_of(replace(demo_spec(replicas=1), initial_delay_s=60))
    controller = Controller(world.ports())

    def spot_is_ill() -> None:
        health = world.router.groups.get(demo_spec().target_group_arn, {})
        for instance_id in health:
            if world.fleet.instances[instance_id].offering.purchase_option is SPOT:
                health[instance_id] = TargetState.UNHEALTHY

    has_served = False
    world.meddle("router.health", lambda *_: spot_is_ill(), times=None)
    for _ in range(2000):
        settle(world, controller, rounds=1)
        is_served = any(r.serves for r in active(world))
        assert is_served or not has_served, "once there is one there always is one"
        has_served = is_served
    assert has_served
    assert [r.is_fallback for r in active(world) if r.serves] == [True]
    launched = Counter(i.offering.purchase_option for i in world.fleet.instances.values())
    assert launched[SPOT] <= 2 * timing.CRASH_LOOP_FAILURES
    assert launched[ON_DEMAND] == 1


def test_many_failures_at_once_are_no_crash_loop() -> None:
    """What keeps all replicas from becoming ready, once, may not be the service: it gets another try."""
    world = world_of(replace(demo_spec(replicas=10), initial_delay_s=60))
    controller = Controller(world.ports())
    world.meddle("router.health", lambda *_: world.router.fail_checks(), times=None)
    settle(world, controller, rounds=int((60 + timing.BOOT_S) / timing.TICK_IN_TRANSITION_S) + 5)
    assert len(world.store.history("demo", 99)) == 10
    world.before.clear()
    settle(world, controller, rounds=120)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 10
