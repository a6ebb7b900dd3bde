"""The controller's ticks: up, in and out of rotation, and how often."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.answers import BusyEvidence, Work
from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import OPTIONS, Offering, PurchaseOption
from spotrelay.plane.core.ports import LaunchRequest, PortError, Throttled, Unavailable
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import OnRebalance, OnWarning, ReadinessProbe
from spotrelay.plane.events import RebalanceRecommendation
from spotrelay.plane.memory import World
from tests.examples import demo_spec
from tests.unit.worlds import (
    active,
    in_rotation,
    instance_of,
    reclaim,
    recorded,
    serving,
    settle,
    warn,
    world_of,
)


def test_a_new_service_comes_up() -> None:
    """3 wanted and 0 there: 3 are launched by one request and become READY, with IDs 1, 2, 3."""
    world = world_of(demo_spec())
    settle(world, Controller(world.ports()))
    assert [(r.id, r.state) for r in active(world)] == [(i, ReplicaState.READY) for i in (1, 2, 3)]
    assert [launch.count for launch in world.fleet.launches] == [3]


def test_a_readiness_probe_comes_before_the_first_request() -> None:
    """With a probe in the service file, only a replica that answers it is put into rotation."""
    world = world_of(
        replace(demo_spec(), readiness_probe=ReadinessProbe("/v1/chat/completions", {"max_tokens": 1}))
    )
    controller = Controller(world.ports())
    world.prober.silent = {f"i-{n:017x}" for n in (1, 2)}
    settle(world, controller)
    assert [r.state for r in active(world)] == [ReplicaState.STARTING] * 2 + [ReplicaState.READY]
    assert world.router.health(demo_spec()).keys() == {active(world)[2].instance_id}
    world.calls.clear()
    controller.tick("demo")
    assert {"router.register", "store.read"}.isdisjoint(world.calls), "nobody is to come in, nor is late"
    world.prober.silent.clear()
    read: list[set[int]] = []
    world.meddle("store.read", lambda _, ids: read.append(set(ids)), times=None)
    settle(world, controller)
    assert read[0] == {1, 2}, "those that may come in, and no other"
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 3


def test_the_load_balancers_own_check_comes_before_the_first_request_too() -> None:
    """Registered at `running` it would get requests while all others are unhealthy, and refuse them."""
    world = world_of(replace(demo_spec(), readiness_probe=ReadinessProbe("/health", None)))
    controller = Controller(world.ports())
    world.prober.silent = {f"i-{n:017x}" for n in (1, 2, 3)}
    settle(world, controller)
    assert [r.state for r in active(world)] == [ReplicaState.STARTING] * 3
    assert not world.router.health(demo_spec())
    world.prober.silent.clear()
    settle(world, controller)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 3


@pytest.mark.parametrize("data", [None, {"max_tokens": 1}])
def test_a_prober_that_fails_keeps_no_service_down(data: dict[str, Any] | None) -> None:
    """While nobody is healthy, what has had time enters unasked, if the load balancer asks the same."""
    spec = replace(demo_spec(replicas=2), readiness_probe=ReadinessProbe("/health", data))
    world = world_of(spec)
    controller = Controller(world.ports())
    world.refuse("prober.ask", Unavailable("the function is asleep"), times=None)
    controller.tick("demo")
    world.fleet.run()
    controller.tick("demo")
    world.clock.advance(timing.UNASKED_S - 1)
    controller.tick("demo")
    assert not world.router.health(spec)
    world.clock.advance(1)
    first, second = (instance_of(r) for r in active(world))
    world.router.register(spec, [first])
    world.router.pass_checks()
    controller.tick("demo")
    assert second not in world.router.health(spec), "another serves: it can wait for the prober"
    world.router.fail_checks()
    controller.tick("demo")
    assert (second in world.router.health(spec)) is (data is None)


def test_a_lost_warning_is_found_by_the_tick() -> None:
    """No event at all: the next tick replaces the replica while its instance still runs."""
    world, controller = serving()
    victim = active(world)[0]
    warn(world, victim)
    controller.tick("demo")
    assert [r.id for r in active(world)] == [2, 3, 4]
    assert world.fleet.instances[instance_of(victim)].state is InstanceState.RUNNING


def test_what_ec2_announces_is_replaced_ahead() -> None:
    """The tick that hears of it requests another; the ones after it drain the first once that serves."""
    world, controller = serving()
    leaving = active(world)[0]
    controller.tick("demo", announced={instance_of(leaving): "instance-retirement"})
    assert [r.id for r in active(world)] == [1, 2, 3, 4]
    assert active(world)[3].reason == "EC2 announces instance-retirement"
    settle(world, controller, rounds=20)
    assert [r.id for r in active(world)] == [2, 3, 4]
    assert [r.state for r in world.store.history("demo", 9)] == [ReplicaState.TERMINATED]


def test_scaling_down_drains_and_terminates() -> None:
    """What we drain for reasons of our own, we terminate, after its requests had time."""
    world, controller = serving()
    world.services.specs["demo"] = demo_spec(replicas=1)
    settle(world, controller, rounds=20)
    assert [r.id for r in active(world)] == [1]
    alive = [i.id for i in world.fleet.instances.values() if i.state.is_alive]
    assert alive == [active(world)[0].instance_id]
    assert [r.state for r in world.store.history("demo", 9)] == [ReplicaState.TERMINATED] * 2


def test_what_cannot_be_taken_out_is_not_terminated() -> None:
    """The load balancer may send it requests still; the next tick tries again."""
    world, controller = serving(demo_spec(replicas=1))
    world.services.specs["demo"] = demo_spec(replicas=0)
    world.refuse("router.deregister", Unavailable("no answer"), times=None)
    for _ in range(12):
        with suppress(PortError):
            controller.tick("demo")
        world.clock.advance(20)
    assert "fleet.terminate" not in world.calls
    world.before.clear()
    settle(world, controller, rounds=60)
    assert not any(i.state.is_alive for i in world.fleet.instances.values())


def test_what_somebody_puts_back_again_and_again_ends_all_the_same() -> None:
    """Its time is over and it has just been taken out: to wait for the next tick may be to wait for ever."""
    world, controller = serving()
    last = active(world)[-1]
    world.services.specs["demo"] = demo_spec(replicas=2)
    controller.tick("demo")
    world.clock.advance(10 * timing.DRAIN_SETTLE_S)
    world.router.register(demo_spec(), [instance_of(last)])
    controller.tick("demo")
    assert not world.fleet.instances[instance_of(last)].state.is_alive
    assert instance_of(last) not in in_rotation(world)


def test_one_tick_at_a_time_and_one_on_its_way() -> None:
    """A tick that finds another running does nothing; while things move exactly one follows."""
    world = world_of(demo_spec())
    controller = Controller(world.ports())
    world.store.acquire("demo", "somebody", world.clock.now(), timing.LEASE_S)
    controller.tick("demo")
    assert active(world) == []
    world.store.release("demo", "somebody")
    controller.tick("demo")
    controller.tick("demo")
    assert len(world.ticker.scheduled) == 1
    (_, due, delay_s) = world.ticker.scheduled[0]
    world.clock.advance(delay_s)
    controller.tick("demo", due)
    assert len(world.ticker.scheduled) == 2


def test_a_fleet_at_rest_schedules_nothing() -> None:
    """At rest the minute's tick is enough."""
    world, controller = serving()
    settle(world, controller)
    scheduled = len(world.ticker.scheduled)
    world.clock.advance(60)
    controller.tick("demo")
    assert len(world.ticker.scheduled) == scheduled


@pytest.mark.parametrize("probe", [None, ReadinessProbe("/", {})])
def test_a_tick_at_rest_looks_once_and_writes_nothing(probe: ReadinessProbe | None) -> None:
    """It comes each minute for each service, for ever: every further call would be paid for as often."""
    world, controller = serving(replace(demo_spec(), readiness_probe=probe))
    settle(world, controller)
    world.clock.advance(60)
    world.calls.clear()
    controller.tick("demo")
    assert world.calls == [
        "store.acquire",
        "store.load",
        "services.get",
        "fleet.observe",
        "fleet.warned",
        "router.health",
        "store.release",
        "store.recall",
    ]


def test_a_loss_is_replaced_while_nobody_says_what_is_taken_back() -> None:
    """The poll is the second way to learn of warnings: without it ticks go on as they do with it."""
    world, controller = serving()
    world.refuse("fleet.warned", Throttled("RequestResourceCountExceeded"), times=None)
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(active(world)[0])])
    for _ in range(10):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        world.fleet.run()
        controller.tick("demo")
        world.router.pass_checks()
    assert [(r.id, r.state) for r in active(world)] == [(i, ReplicaState.READY) for i in (2, 3, 4)]
    assert len(recorded(world, "requests_unknown")) == 10


def test_every_service_gets_its_own_tick() -> None:
    """Deployed ones and ones whose stack is gone."""
    world, controller = serving()
    world.services.specs = {"other": demo_spec("other")}
    world.ticker.scheduled.clear()
    controller.tick_all()
    assert [name for name, _, _ in world.ticker.scheduled] == ["demo", "other"]


def test_a_recommendation_is_followed_make_before_break() -> None:
    """Each replacement is READY before its replica drains, all together; 3 serve throughout."""
    world, controller = serving(replace(demo_spec(), on_rebalance=OnRebalance.REPLACE))
    world.clock.advance(timing.REBALANCE_MIN_AGE_S)
    signals = [RebalanceRecommendation(instance_of(r), world.clock.now()) for r in active(world)]
    controller.handle(signals)
    seen = []
    for _ in range(40):
        settle(world, controller, rounds=1)
        seen.append([r.state for r in active(world)])
        assert seen[-1].count(ReplicaState.READY) >= 3
        assert len(seen[-1]) <= 6
    assert [r.id for r in active(world)] == [4, 5, 6]
    assert {r.replaced_by for r in world.store.history("demo", 9)} == {4, 5, 6}


def test_ticks_that_did_not_come_are_not_held_against_a_replica() -> None:
    """One that nobody put into rotation in time gets its chance when the ticks are back."""
    world = world_of(demo_spec(replicas=1))
    controller = Controller(world.ports())
    controller.tick("demo")
    world.fleet.run()
    world.clock.advance(demo_spec().initial_delay_s + 1)
    settle(world, controller)
    assert [(r.id, r.state) for r in active(world)] == [(1, ReplicaState.READY)]


def test_a_replica_is_given_up_only_if_it_was_asked() -> None:
    """Late as it is, one that answers its probe comes into rotation, and only a silent one fails."""
    probed = replace(demo_spec(replicas=2), readiness_probe=ReadinessProbe("/", {}), initial_delay_s=60)
    world = world_of(replace(probed, on_demand_fallback=False))
    controller = Controller(world.ports())
    controller.tick("demo")
    world.fleet.run()
    controller.tick("demo")
    world.clock.advance(60 + timing.BOOT_S + 1)
    world.prober.silent = {f"i-{2:017x}"}
    controller.tick("demo")
    world.router.pass_checks()
    controller.tick("demo")
    first, *rest = active(world)
    assert (first.id, first.state) == (1, ReplicaState.READY)
    assert [r.id for r in rest] == [3], "that one got ready ends the back-off"
    assert [(r.id, r.state) for r in world.store.history("demo", 9)] == [(2, ReplicaState.FAILED)]


def test_where_nobody_answers_nothing_is_registered() -> None:
    """AWS refuses a registration without targets: who is silent for too long is given up without one."""
    probed = replace(demo_spec(replicas=1), readiness_probe=ReadinessProbe("/", {}), initial_delay_s=60)
    world = world_of(probed)
    controller = Controller(world.ports())
    controller.tick("demo")
    world.fleet.run()
    world.prober.silent = {f"i-{1:017x}"}
    controller.tick("demo")
    world.clock.advance(60 + timing.BOOT_S + 1)
    controller.tick("demo")
    assert [(r.id, r.state) for r in world.store.history("demo", 9)] == [(1, ReplicaState.FAILED)]
    assert "router.register" not in world.calls


def test_who_serves_is_asked_by_the_minute_s_tick() -> None:
    """Not by those that follow a change within seconds: each probe is a request that a model answers."""
    probe = ReadinessProbe("/", {}, failure_threshold_s=180)
    world = world_of(replace(demo_spec(replicas=2), readiness_probe=probe))
    controller = Controller(world.ports())
    settle(world, controller)
    world.calls.clear()
    controller.tick("demo", serving=world.clock.now())
    assert "prober.ask" not in world.calls
    world.prober.silent = {instance_of(active(world)[0])}
    controller.tick("demo")
    assert [r.silent_since for r in active(world)] == [world.clock.now(), None]
    assert all(r.serves for r in active(world))
    for _ in range(4):
        world.clock.advance(60)
        controller.tick("demo")
    assert [r.replaces for r in active(world)] == [None, None, 1]
    assert len(in_rotation(world)) == 2
    settle(world, controller)
    assert [r.id for r in active(world)] == [2, 3]


def test_who_refuses_leaves_at_the_second_look_and_is_replaced() -> None:
    """Within two minutes instead of a cold start later; and nobody leaves while all refuse."""
    probe = ReadinessProbe("/", {}, failure_threshold_s=600)
    world = world_of(replace(demo_spec(replicas=3), readiness_probe=probe))
    controller = Controller(world.ports())
    settle(world, controller)
    everybody = {instance_of(r) for r in active(world)}
    world.prober.refusing = set(everybody)
    for _ in range(3):
        controller.tick("demo")
        world.clock.advance(60)
    assert in_rotation(world) == everybody
    first = min(everybody)
    world.prober.refusing = {first}
    controller.tick("demo")
    controller.tick("demo")
    assert in_rotation(world) == everybody - {first}
    assert [r.replaces for r in active(world) if not r.is_fallback] == [None, None, 1]
    settle(world, controller)
    assert len(in_rotation(world)) == 3


def test_who_is_busy_stays_for_as_long_as_it_proves_it() -> None:
    """Its count rises: it is kept, and its log line says so. Once it doesn't, the old rule holds."""
    probe = ReadinessProbe("/", {}, failure_threshold_s=180)
    busy = BusyEvidence(limit=2, finished=("done",), ongoing=("running",), longest_s=1800)
    world = world_of(replace(demo_spec(replicas=1), readiness_probe=probe, busy=busy))
    controller = Controller(world.ports())
    settle(world, controller)
    (one,) = (instance_of(r) for r in active(world))
    world.prober.silent = {one}
    for done in range(10):
        world.prober.work[one] = Work(done, 3)
        controller.tick("demo")
        world.clock.advance(60)
    assert [r.id for r in active(world)] == [1]
    assert any(kind == "NoteSilence" and said.get("busy_since") for kind, said in world.telemetry.records)
    for _ in range(4):
        controller.tick("demo")
        world.clock.advance(60)
    assert [r.replaces for r in active(world)] == [None, 1]


def test_who_has_no_address_yet_is_not_asked() -> None:
    """EC2 may show an instance a moment before its address: the probe waits for that, and no tick fails."""
    world = world_of(replace(demo_spec(replicas=1), readiness_probe=ReadinessProbe("/", {})))
    controller = Controller(world.ports())
    controller.tick("demo")
    world.fleet.run()
    world.fleet.instances = {i: replace(one, address=None) for i, one in world.fleet.instances.items()}
    controller.tick("demo")
    controller.tick("demo")
    assert [r.state for r in active(world)] == [ReplicaState.STARTING]
    assert "prober.ask" not in world.calls


def test_what_fails_leaves_the_rotation_before_it_ends() -> None:
    """Registered and never healthy: the load balancer isn't left with the target of a dead instance."""
    world = world_of(replace(demo_spec(replicas=1), initial_delay_s=60, on_demand_fallback=False))
    controller = Controller(world.ports())
    world.meddle("router.health", lambda *_: world.router.fail_checks(), times=None)
    settle(world, controller, rounds=int((60 + timing.BOOT_S) / timing.TICK_IN_TRANSITION_S) + 5)
    (failed,) = world.store.history("demo", 9)
    assert failed.state is ReplicaState.FAILED
    assert ("deregister", (failed.instance_id,)) in world.router.calls
    order = [c for c in world.calls if c in ("router.deregister", "fleet.terminate")]
    assert order == ["router.deregister", "fleet.terminate"]
    assert not in_rotation(world)


def test_what_a_tick_drains_it_does_not_register() -> None:
    """A replica that is one too many just when it answers its probe stays out of rotation."""
    probed = replace(demo_spec(), readiness_probe=ReadinessProbe("/", {}))
    world = world_of(probed)
    controller = Controller(world.ports())
    world.prober.silent = {f"i-{n:017x}" for n in (1, 2, 3)}
    settle(world, controller)
    world.prober.silent.clear()
    world.services.specs["demo"] = replace(probed, replicas=0)
    controller.tick("demo")
    assert not any(state.is_in_rotation for state in world.router.health(probed).values())


def test_launches_per_minute_have_a_ceiling() -> None:
    """What the brake holds back is launched in the minutes after, and seen to be held."""
    world = world_of(replace(demo_spec(replicas=10), max_launches_per_minute=4))
    controller = Controller(world.ports())
    controller.tick("demo")
    assert len(world.fleet.instances) == 4
    assert world.telemetry.counts[Metric.LAUNCHES_HELD] == 6
    settle(world, controller, rounds=70)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 10
    assert len(world.fleet.instances) == 10


def test_scaling_in_during_a_loss_keeps_the_two_that_serve() -> None:
    """Three wanted become two when one is lost: no replacement is launched, and nobody healthy goes."""
    for event_comes_first in (True, False):
        world, controller = serving()
        signals = warn(world, active(world)[2])
        if event_comes_first:
            controller.handle(signals)
        world.services.specs["demo"] = demo_spec(replicas=2)
        settle(world, controller, rounds=20)
        assert [(r.id, r.state) for r in active(world)] == [(i, ReplicaState.READY) for i in (1, 2)]
        assert len(world.fleet.launches) == event_comes_first
        assert {instance_of(r) for r in active(world)} == in_rotation(world)


def test_what_is_counted_of_a_service() -> None:
    """How many serve, as the rows said when the tick began, and how many of those wanted lack."""
    world, controller = serving()
    ill = replace(active(world)[0], unhealthy_since=world.clock.now())
    world.store.commit(Changes("demo", update=(ill,), serving=(3, 2)))
    world.services.specs["demo"] = demo_spec(replicas=5)
    controller.tick("demo")
    assert world.telemetry.counts[Metric.REPLICAS_READY] == 2
    assert world.telemetry.counts[Metric.REPLICAS_MISSING] == 3, "an ill one isn't ready"
    assert world.telemetry.counts[Metric.REPLICAS_UNLAUNCHED] == 2, "but has its instance"
    settle(world, controller)
    world.telemetry.counts.clear()
    world.services.specs["demo"] = demo_spec(replicas=1)
    controller.tick("demo")
    assert world.telemetry.counts[Metric.REPLICAS_MISSING] == 0, "more than wanted is no lack"
    assert world.telemetry.counts[Metric.REPLICAS_UNLAUNCHED] == 0


def test_what_waits_for_an_instance_is_counted() -> None:
    """A replica that no pool gives an instance is missing in both ways, tick after tick."""
    dry = {Offering(p, o): 0 for p in demo_spec().pools for o in OPTIONS.values()}
    world = World.of(demo_spec(replicas=2), capacity=dry)
    controller = Controller(world.ports())
    controller.tick("demo")
    world.telemetry.counts.clear()
    world.clock.advance(timing.RETRY_FIRST_S)
    controller.tick("demo")
    assert world.store.load("demo").replicas
    assert world.telemetry.counts[Metric.REPLICAS_MISSING] == 2
    assert world.telemetry.counts[Metric.REPLICAS_UNLAUNCHED] == 2


def test_what_ends_between_two_looks_is_found_warned() -> None:
    """EC2 takes one while the tick looks: seen running, it is still said to be taken back."""
    world, controller = serving()
    victim = active(world)[0]
    warn(world, victim)
    world.meddle("fleet.observe", lambda _: reclaim(world, victim), after=True)
    controller.tick("demo")
    assert [r.id for r in active(world)] == [2, 3, 4]


def test_ec2_is_asked_about_living_spot_instances() -> None:
    """About those of rows and those with our tag; not about on-demand ones, and what has ended."""
    spec = replace(demo_spec(replicas=3), base_on_demand=1)
    world, controller = serving(spec)
    asked: list[Collection[str]] = []
    world.meddle("fleet.warned", asked.append, times=None)
    spot = {instance_of(r) for r in active(world) if r.purchase_option is PurchaseOption.SPOT}
    orphan = LaunchRequest("by-hand", spec, PurchaseOption.SPOT, spec.pools, 2)
    left, ended = (i.id for i in world.fleet.launch(orphan).instances)
    world.fleet.terminate([ended])
    controller.tick("demo")
    assert asked == [spot | {left}]
    assert len(spot) == 2


def test_the_request_of_what_has_ended_says_nothing_any_more() -> None:
    """EC2 keeps saying that it takes back what it stopped long ago: that one is ours to terminate."""
    world, controller = serving()
    victim = active(world)[0]
    warn(world, victim)
    world.fleet.enter(InstanceState.STOPPED, [instance_of(victim)])
    controller.tick("demo")
    world.clock.advance(demo_spec().drain_s + timing.DRAIN_SETTLE_S + timing.NOTICE_S)
    controller.tick("demo")
    assert world.fleet.instances[instance_of(victim)].state is InstanceState.TERMINATED


def test_a_tick_without_spot_asks_nothing_about_it() -> None:
    """On-demand instances have no Spot requests: the call is saved."""
    world, controller = serving(replace(demo_spec(replicas=2), base_on_demand=2))
    asked: list[Collection[str]] = []
    world.meddle("fleet.warned", asked.append, times=None)
    controller.tick("demo")
    assert asked == [set()]


def test_a_replica_that_waits_for_admission_is_looked_at_afresh() -> None:
    """A probe takes seconds: what is warned meanwhile is not put into rotation by the tick that probed it."""
    spec = replace(demo_spec(replicas=2), readiness_probe=ReadinessProbe("/", {}), on_warning=OnWarning.LEAVE)
    world = world_of(spec)
    controller = Controller(world.ports())
    controller.tick("demo")
    world.fleet.run()
    controller.tick("demo")
    rival = Controller(world.ports())
    signals = warn(world, active(world)[0])
    world.fleet.interrupted.clear()
    world.meddle("prober.ask", lambda *_: rival.handle(signals))
    controller.tick("demo")
    (other,) = [r for r in active(world) if r.id == 2]
    assert in_rotation(world) == {instance_of(other)}


def test_a_tick_goes_by_the_document_as_of_now() -> None:
    """Not by one that a function has kept for a minute: what was deployed a second ago counts."""
    world, controller = serving()
    asked: list[dict[str, Any]] = []
    world.meddle("services.get", lambda _, **how: asked.append(how), times=None)
    controller.tick("demo")
    assert asked == [{"fresh": True}]
