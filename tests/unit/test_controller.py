"""The controller over in-memory ports: order, exactly-once, fallback, healing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from spotrelay.controller import Controller
from spotrelay.launching import STAND_IN_DELAY_S
from spotrelay.memory import World
from spotrelay.model import (
    Changes,
    InstanceState,
    Offering,
    OnRebalance,
    PurchaseOption,
    ReadinessProbe,
    Replica,
    ReplicaState,
    Rows,
    ServiceSpec,
    seconds,
)
from spotrelay.names import Metric
from spotrelay.policy import timing
from spotrelay.ports import Conflict, LaunchRequest, LaunchResult, Throttled, Unavailable
from spotrelay.signals import InterruptionWarning, RebalanceRecommendation, Signal, StateChange
from tests.examples import demo_spec

SPOT = PurchaseOption.SPOT
ON_DEMAND = PurchaseOption.ON_DEMAND


def active(world: World, service: str = "demo") -> list[Replica]:
    """The replicas that count, by ID."""
    return [r for r in world.store.load(service).replicas.values() if r.state.is_active]


def settle(world: World, controller: Controller, rounds: int = 6) -> None:
    """Let time pass: instances boot, pass their checks, and the tick sees it."""
    for _ in range(rounds):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        world.fleet.run()
        for service in world.services.names():
            controller.tick(service)
        world.router.pass_checks()


def serving(spec: ServiceSpec | None = None) -> tuple[World, Controller]:
    """A service with every replica READY."""
    spec = spec or demo_spec()
    world = World.of(spec)
    controller = Controller(world.ports())
    settle(world, controller)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * spec.replicas
    return world, controller


def warn(world: World, *replicas: Replica) -> list[Signal]:
    """EC2 warns the replicas; the events, as delivered once."""
    ids = [r.instance_id or "" for r in replicas]
    world.fleet.interrupted |= set(ids)
    return [InterruptionWarning(i, world.clock.now(), "terminate") for i in ids]


def reclaim(world: World, *replicas: Replica) -> list[Signal]:
    """EC2 takes the instances; the events."""
    ids = [r.instance_id or "" for r in replicas]
    world.fleet.interrupted -= set(ids)
    world.fleet.enter(InstanceState.TERMINATED, ids)
    return [StateChange(i, world.clock.now(), InstanceState.TERMINATED) for i in ids]


def test_a_new_service_comes_up() -> None:
    """3 wanted and 0 there: 3 are launched by one request and become READY, with IDs 1, 2, 3."""
    world, _ = serving()
    assert [r.id for r in active(world)] == [1, 2, 3]
    assert [launch.count for launch in world.fleet.launches] == [3]


def test_a_warned_replica_is_replaced_and_ends() -> None:
    """Out of rotation, replaced by the next ID from another pool, gone when EC2 takes it."""
    world, controller = serving()
    victim = active(world)[0]
    assert controller.handle(warn(world, victim)) == []
    assert [r.id for r in active(world)] == [2, 3, 4]
    new = active(world)[-1]
    assert new.replaces == victim.id
    assert new.offering != victim.offering
    settle(world, controller)
    assert controller.handle(reclaim(world, victim)) == []
    (ended,) = world.store.history("demo", 10)
    assert (ended.id, ended.state, ended.replaced_by) == (1, ReplicaState.TERMINATED, 4)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 3


def test_a_readiness_probe_comes_before_the_first_request() -> None:
    """With a probe in the service file, only a replica that answers it is put into rotation."""
    world = World.of(
        replace(demo_spec(), readiness_probe=ReadinessProbe("/v1/chat/completions", {"max_tokens": 1}))
    )
    controller = Controller(world.ports())
    world.prober.silent = {f"i-{n:017x}" for n in (1, 2)}
    settle(world, controller)
    assert [r.state for r in active(world)] == [ReplicaState.STARTING] * 2 + [ReplicaState.READY]
    assert world.router.health(demo_spec()).keys() == {active(world)[2].instance_id}
    world.prober.silent.clear()
    settle(world, controller)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 3


def test_deregistration_comes_before_anything_is_written() -> None:
    """Even when the table is down and every launch fails, a warned replica is out of rotation."""
    world, controller = serving()
    victim = active(world)[0]

    def refuse(changes: Changes) -> None:
        raise Unavailable("table down")

    world.store.commit = refuse  # type: ignore[method-assign]  # the one fault under test
    failed = controller.handle(warn(world, victim))
    assert len(failed) == 1
    assert ("deregister", (victim.instance_id,)) in world.router.calls


def test_nothing_is_logged_before_the_launch() -> None:
    """A function that has just started loads what writes its log once it has deregistered and launched."""
    world, controller = serving()
    world.telemetry.records.clear()
    launch, before = world.fleet.launch, list[object]()

    def launched(request: LaunchRequest) -> LaunchResult:
        before.extend(world.telemetry.records)
        return launch(request)

    world.fleet.launch = launched  # type: ignore[method-assign]  # looked at, not changed
    assert controller.handle(warn(world, active(world)[0])) == []
    assert before == []
    assert world.telemetry.records[0][0] == "launch"


def test_a_warned_replica_is_out_of_rotation_before_its_row_is_read() -> None:
    """What EC2 warns and is ours must go, whatever its row says: its clients wait for no read."""
    world, controller = serving()
    victim = active(world)[0]

    def refuse(service: str, replica_ids: Collection[int]) -> Rows:
        raise Unavailable("table down")

    world.store.read = refuse  # type: ignore[method-assign]  # the one fault under test
    assert len(controller.handle(warn(world, victim))) == 1
    assert world.router.calls[-1] == ("deregister", (victim.instance_id,))


@pytest.mark.parametrize("ready_s", [0, timing.LEASE_S])
def test_a_replica_that_has_just_become_ready_is_taken_out_twice(ready_s: float) -> None:
    """The tick that put it into rotation may do so after the first time, but not after its own time-out."""
    world, controller = serving()
    world.clock.advance(ready_s)
    victim = active(world)[0]
    assert (world.clock.now() - victim.since >= seconds(timing.LEASE_S)) is bool(ready_s)
    before = len(world.router.calls)
    controller.handle(warn(world, victim))
    assert world.router.calls[before:] == [("deregister", (victim.instance_id,))] * (1 if ready_s else 2)


def test_what_follows_a_launch_does_not_prevent_it() -> None:
    """Neither the lessons nor the next tick can be written: the replacement is launched, and on record."""
    world, controller = serving()

    def refuse(*args: object) -> Any:
        raise Unavailable("table down")

    refused: Callable[..., Any] = refuse
    world.store.cool = refused  # type: ignore[method-assign]  # the two faults under test
    world.store.claim_tick = refused  # type: ignore[method-assign]
    signals = warn(world, active(world)[0])
    assert controller.handle(signals) == signals, "to be delivered again"
    assert [launch.count for launch in world.fleet.launches] == [3, 1]
    assert active(world)[-1].instance_id


def test_what_is_learned_ahead_can_fail_without_harm() -> None:
    """Everything is done by then: nothing is delivered again because of it, whatever the error."""
    world, controller = serving()

    def refuse() -> None:
        raise RuntimeError("a bug")

    world.store.look_ahead = refuse  # type: ignore[method-assign]  # the one fault under test
    assert controller.handle(warn(world, active(world)[0])) == []
    assert ("look_ahead_failed", {"error": "RuntimeError('a bug')"}) in world.telemetry.records


def test_a_batch_of_warnings_is_one_deregistration_and_one_launch() -> None:
    """Losses of one batch share their calls."""
    world, controller = serving(demo_spec(replicas=10))
    world.clock.advance(timing.LEASE_S)
    deregistrations = len(world.router.calls)
    controller.handle(warn(world, *active(world)))
    assert [c[0] for c in world.router.calls[deregistrations:]] == ["deregister"]
    assert [launch.count for launch in world.fleet.launches] == [10, 10]
    assert [r.id for r in active(world)] == list(range(11, 21))


def test_an_event_delivered_three_times_makes_one_replacement() -> None:
    """Within one batch or in several, a duplicate changes nothing."""
    world, controller = serving()
    signals = warn(world, active(world)[0])
    controller.handle(signals * 3)
    controller.handle(signals)
    controller.tick("demo")
    assert [r.id for r in active(world)] == [2, 3, 4]
    assert len(world.fleet.launches) == 2


def test_two_deciders_at_once_make_one_replacement() -> None:
    """Whoever loses the race for the row reads again and finds nothing left to do."""
    world, controller = serving()
    signals = warn(world, active(world)[0])
    commit = world.store.commit

    def late(changes: Changes) -> None:
        world.store.commit = commit  # type: ignore[method-assign]  # once only
        Controller(world.ports()).handle(signals)
        commit(changes)

    world.store.commit = late  # type: ignore[method-assign]  # a rival gets in between read and write
    controller.handle(signals)
    assert [r.id for r in active(world)] == [2, 3, 4]
    assert world.telemetry.counts[Metric.CONFLICTS] == 1


def test_what_was_decided_with_a_lost_commit_is_decided_anew() -> None:
    """IDs that others gave meanwhile could make the next commit fit by chance: it isn't tried."""
    world = World.of(replace(demo_spec(), replicas=Changes.MAX_ROWS + 1))
    controller = Controller(world.ports())
    commit, tried = world.store.commit, list[Changes]()

    def lose_the_first(changes: Changes) -> None:
        tried.append(changes)
        if len(tried) == 1:
            raise Conflict("somebody else was faster")
        commit(changes)

    world.store.commit = lose_the_first  # type: ignore[method-assign]  # the one fault under test
    controller.tick("demo")
    assert (len(tried), active(world)) == (1, [])
    settle(world, controller)
    assert [r.id for r in active(world)] == list(range(1, Changes.MAX_ROWS + 2))


def test_a_batch_that_loses_many_races_gets_through() -> None:
    """In a storm others take the IDs again and again; the batch decides anew until it wins."""
    world, controller = serving(demo_spec(replicas=5))
    commit = world.store.commit
    rivals = iter(range(20))

    def overtaken(changes: Changes) -> None:
        if changes.highest_id and next(rivals, None) is not None:
            raise Conflict("highest ID has moved")
        commit(changes)

    world.store.commit = overtaken  # type: ignore[method-assign]  # the fault under test
    assert controller.handle(warn(world, *active(world))) == []
    assert [r.id for r in active(world)] == [6, 7, 8, 9, 10]


def test_a_tick_and_a_signal_at_once_make_one_replacement() -> None:
    """A tick that saw the loss before the signal was handled creates nothing on the strength of old rows."""
    world, controller = serving()
    victim = active(world)[0]
    signals = warn(world, victim)
    warned = world.fleet.warned

    def slow() -> frozenset[str]:
        world.fleet.warned = warned  # type: ignore[method-assign]  # once only
        Controller(world.ports()).handle(signals)
        return warned()

    world.fleet.warned = slow  # type: ignore[method-assign]  # the signal is handled while the tick looks
    controller.tick("demo")
    assert [r.id for r in active(world)] == [2, 3, 4]


def test_a_lost_warning_is_found_by_the_tick() -> None:
    """No event at all: the next tick replaces the replica while its instance still runs."""
    world, controller = serving()
    victim = active(world)[0]
    warn(world, victim)
    controller.tick("demo")
    assert [r.id for r in active(world)] == [2, 3, 4]
    assert world.fleet.instances[victim.instance_id or ""].state is InstanceState.RUNNING


def test_foreign_instances_cost_one_read() -> None:
    """Somebody else's instance is dropped after one look-up, and counted."""
    world, controller = serving()
    calls = len(world.router.calls)
    signal = InterruptionWarning("i-foreign", world.clock.now(), "terminate")
    assert controller.handle([signal, signal]) == []
    assert world.telemetry.counts[Metric.FOREIGN_INSTANCES] == 1
    assert len(world.router.calls) == calls


def test_one_service_failing_does_not_hold_up_another() -> None:
    """Only the signals of the service that failed are delivered again."""
    world = World.of(demo_spec("good"), demo_spec("bad"))
    controller = Controller(world.ports())
    settle(world, controller)
    bad = warn(world, active(world, "bad")[0])
    good = warn(world, active(world, "good")[0])
    deregister = world.router.deregister

    def fail_for_bad(spec: ServiceSpec, instance_ids: list[str]) -> None:
        if spec.service == "bad":
            raise Throttled("elbv2")
        deregister(spec, instance_ids)

    world.router.deregister = fail_for_bad  # type: ignore[assignment,method-assign]  # the fault under test
    assert list(controller.handle([*bad, *good])) == bad
    assert [r.id for r in active(world, "good")] == [2, 3, 4]


def dry(world: World, *options: PurchaseOption) -> None:
    """Every pool of the demo's has nothing to give, bought these ways."""
    world.fleet.capacity.update({Offering(p, o): 0 for p in demo_spec().pools for o in options})


def test_refused_spot_has_on_demand_stand_in_a_second_later() -> None:
    """Every Spot pool dry: the replacement waits and is tried again, and the next tick buys on-demand."""
    world, controller = serving()
    dry(world, SPOT)
    world.ticker.scheduled.clear()
    controller.handle(warn(world, active(world)[0]))
    new = active(world)[-1]
    assert (new.id, new.state, new.purchase_option, new.attempts) == (4, ReplicaState.REQUESTED, SPOT, 1)
    assert min(delay_s for _, _, delay_s in world.ticker.scheduled) == STAND_IN_DELAY_S
    controller.tick("demo")
    stand_in = active(world)[-1]
    assert (stand_in.id, stand_in.state, stand_in.is_stand_in) == (5, ReplicaState.PROVISIONING, True)
    assert stand_in.offering is not None
    assert stand_in.offering.purchase_option is ON_DEMAND
    memory = world.store.recall("demo", "us-east-1", world.clock.now())
    assert all(memory.cooling(Offering(pool, SPOT), world.clock.now()) for pool in demo_spec().pools)
    settle(world, controller)
    assert [(r.id, r.state) for r in active(world)] == [
        (2, ReplicaState.READY),
        (3, ReplicaState.READY),
        (4, ReplicaState.REQUESTED),
        (5, ReplicaState.READY),
    ]


def test_stand_ins_are_called_once_for_a_refusal() -> None:
    """Refused again and again, a replica has its stand-in: no tick is called out of turn any more."""
    world, controller = serving()
    dry(world, SPOT)
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller)
    world.ticker.scheduled.clear()
    settle(world, controller, rounds=100)
    assert next(r for r in active(world) if r.id == 4).attempts > 2
    assert STAND_IN_DELAY_S not in [delay_s for _, _, delay_s in world.ticker.scheduled]


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


def test_partial_fulfilment_is_completed_by_a_stand_in() -> None:
    """Two of three from Spot, the third waits for it with a stand-in in its place; all intents are closed."""
    world = World.of(demo_spec(), capacity={Offering(p, SPOT): 0 for p in demo_spec().pools[1:]})
    world.fleet.capacity[Offering(demo_spec().pools[0], SPOT)] = 2
    controller = Controller(world.ports())
    controller.tick("demo")
    controller.tick("demo")
    bought = [(r.purchase_option, r.is_stand_in, r.state) for r in active(world)]
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
    world = World.of(replace(demo_spec(), on_demand_fallback=fallback))
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
    """With a stand-in for what Spot refuses, ticks come when a retry falls due, not every few seconds."""
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


def crash_after(world: World) -> None:
    """The next launch takes effect and its answer is lost."""
    launch = world.fleet.launch

    def lost(request: LaunchRequest) -> LaunchResult:
        world.fleet.launch = launch  # type: ignore[method-assign]  # once only
        launch(request)
        raise Unavailable("read time-out")

    world.fleet.launch = lost  # type: ignore[method-assign]  # the fault under test


def refuse_before(world: World) -> None:
    """The next launch is throttled."""
    launch = world.fleet.launch

    def throttled(request: LaunchRequest) -> LaunchResult:
        world.fleet.launch = launch  # type: ignore[method-assign]  # once only
        raise Throttled("RequestLimitExceeded")

    world.fleet.launch = throttled  # type: ignore[method-assign]  # the fault under test


@pytest.mark.parametrize("fault", [crash_after, refuse_before])
def test_a_failed_launch_heals_without_a_second_instance(fault: Callable[[World], None]) -> None:
    """A lost answer is adopted by its tag, a throttled call repeated: one instance in the end, either way."""
    world, controller = serving()
    fault(world)
    assert controller.handle(warn(world, active(world)[0])) == []
    settle(world, controller, rounds=12)
    assert [(r.id, r.state) for r in active(world)] == [(i, ReplicaState.READY) for i in (2, 3, 4)]
    assert len(world.fleet.instances) == 4


def test_a_launch_that_was_overtaken_leaves_no_orphan() -> None:
    """If the record is refused, the instance is adopted or terminated by the ticks that follow."""
    world, controller = serving()
    commit = world.store.commit

    def conflict_on_record(changes: Changes) -> None:
        if any(r.state is ReplicaState.PROVISIONING for r in changes.update):
            world.store.commit = commit  # type: ignore[method-assign]  # once only
            raise Conflict("overtaken")
        commit(changes)

    world.store.commit = conflict_on_record  # type: ignore[method-assign]  # the fault under test
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller, rounds=80)
    rows = world.store.load("demo")
    alive = {i.id for i in world.fleet.instances.values() if i.state.is_alive}
    assert {r.instance_id for r in rows.replicas.values()} == alive
    assert len(active(world)) == 3
    assert rows.intents == {}


def test_scaling_down_drains_and_terminates() -> None:
    """What we drain for reasons of our own, we terminate, after its requests had time."""
    world, controller = serving()
    world.services.specs["demo"] = demo_spec(replicas=1)
    settle(world, controller, rounds=20)
    assert [r.id for r in active(world)] == [1]
    alive = [i.id for i in world.fleet.instances.values() if i.state.is_alive]
    assert alive == [active(world)[0].instance_id]
    assert [r.state for r in world.store.history("demo", 9)] == [ReplicaState.TERMINATED] * 2


def test_a_removed_service_leaves_nothing_behind() -> None:
    """After `cdk destroy`, instances go and the service is forgotten; its IDs are not given again."""
    world, controller = serving()
    del world.services.specs["demo"]
    for _ in range(10):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        controller.tick("demo")
    assert not [i for i in world.fleet.instances.values() if i.state.is_alive]
    assert world.store.services() == []
    world.services.specs["demo"] = demo_spec()
    settle(world, controller)
    assert [r.id for r in active(world)] == [4, 5, 6]


def test_one_tick_at_a_time_and_one_on_its_way() -> None:
    """A tick that finds another running does nothing; while things move exactly one follows."""
    world = World.of(demo_spec())
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


def test_every_service_gets_its_own_tick() -> None:
    """Deployed ones and ones whose stack is gone."""
    world, controller = serving()
    world.services.specs = {"other": demo_spec("other")}
    world.ticker.scheduled.clear()
    controller.tick_all()
    assert [name for name, _, _ in world.ticker.scheduled] == ["demo", "other"]


def test_a_recommendation_is_followed_make_before_break() -> None:
    """Each replacement is READY before its replica drains, one after the other: 3 serve, 4 exist at most."""
    world, controller = serving(replace(demo_spec(), on_rebalance=OnRebalance.REPLACE))
    world.clock.advance(timing.REBALANCE_MIN_AGE_S)
    signals = [RebalanceRecommendation(r.instance_id or "", world.clock.now()) for r in active(world)]
    controller.handle(signals)
    seen = []
    for _ in range(40):
        settle(world, controller, rounds=1)
        seen.append([r.state for r in active(world)])
        assert seen[-1].count(ReplicaState.READY) >= 3
        assert len(seen[-1]) <= 4
    assert [r.id for r in active(world)] == [4, 5, 6], "one after the other"
    assert [r.replaced_by for r in world.store.history("demo", 9)] == [6, 5, 4]


def test_a_warning_takes_over_from_a_recommendation() -> None:
    """Warned while its replacement comes up, a replica drains at once, and gets no second replacement."""
    world, controller = serving(replace(demo_spec(), on_rebalance=OnRebalance.REPLACE))
    world.clock.advance(timing.REBALANCE_MIN_AGE_S)
    victim = active(world)[0]
    controller.handle([RebalanceRecommendation(victim.instance_id or "", world.clock.now())])
    controller.tick("demo")
    assert [r.id for r in active(world)] == [1, 2, 3, 4]
    controller.handle(warn(world, victim))
    settle(world, controller)
    assert [r.id for r in active(world)] == [2, 3, 4]


def test_a_crash_loop_stops_costing_and_a_new_version_ends_it() -> None:
    """Replicas that never become ready are tried a few times, ever more rarely, and then not at all."""
    world = World.of(replace(demo_spec(replicas=1), initial_delay_s=60))
    controller = Controller(world.ports())
    world.router.pass_checks = world.router.fail_checks  # type: ignore[method-assign]  # none ever gets healthy
    settle(world, controller, rounds=2000)
    assert len(world.fleet.instances) == timing.CRASH_LOOP_FAILURES
    assert not [i for i in world.fleet.instances.values() if i.state.is_alive]
    assert world.telemetry.counts[Metric.CRASH_LOOPING] > 0
    world.services.specs["demo"] = replace(world.services.specs["demo"], version=2)
    del world.router.pass_checks
    settle(world, controller)
    assert [(r.version, r.state) for r in active(world)] == [(2, ReplicaState.READY)]


def test_many_failures_at_once_are_no_crash_loop() -> None:
    """What keeps all replicas from becoming ready, once, may not be the service: it gets another try."""
    world = World.of(replace(demo_spec(replicas=10), initial_delay_s=60))
    controller = Controller(world.ports())
    passing = world.router.pass_checks
    world.router.pass_checks = world.router.fail_checks  # type: ignore[method-assign]  # the outage
    settle(world, controller, rounds=25)
    assert len(world.store.history("demo", 99)) == 10
    world.router.pass_checks = passing  # type: ignore[method-assign]  # its end
    settle(world, controller, rounds=120)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 10


def test_ticks_that_did_not_come_are_not_held_against_a_replica() -> None:
    """One that nobody put into rotation in time gets its chance when the ticks are back."""
    world = World.of(demo_spec(replicas=1))
    controller = Controller(world.ports())
    controller.tick("demo")
    world.fleet.run()
    world.clock.advance(demo_spec().initial_delay_s + 1)
    settle(world, controller)
    assert [(r.id, r.state) for r in active(world)] == [(1, ReplicaState.READY)]


def test_a_replica_is_given_up_only_if_it_was_asked() -> None:
    """Late as it is, one that answers its probe comes into rotation, and only a silent one fails."""
    probed = replace(demo_spec(replicas=2), readiness_probe=ReadinessProbe("/", {}), initial_delay_s=60)
    world = World.of(probed)
    controller = Controller(world.ports())
    controller.tick("demo")
    world.fleet.run()
    world.clock.advance(61)
    world.prober.silent = {f"i-{2:017x}"}
    controller.tick("demo")
    controller.tick("demo")
    world.router.pass_checks()
    controller.tick("demo")
    assert [(r.id, r.state) for r in active(world)] == [(1, ReplicaState.READY)]
    assert [(r.id, r.state) for r in world.store.history("demo", 9)] == [(2, ReplicaState.FAILED)]


def test_what_a_tick_drains_it_does_not_register() -> None:
    """A replica that is one too many just when it answers its probe stays out of rotation."""
    probed = replace(demo_spec(), readiness_probe=ReadinessProbe("/", {}))
    world = World.of(probed)
    controller = Controller(world.ports())
    world.prober.silent = {f"i-{n:017x}" for n in (1, 2, 3)}
    settle(world, controller)
    world.prober.silent.clear()
    world.services.specs["demo"] = replace(probed, replicas=0)
    controller.tick("demo")
    assert not any(state.is_in_rotation for state in world.router.health(probed).values())


def test_a_warning_takes_out_what_a_race_put_back() -> None:
    """A replica that drains and is in rotation all the same is taken out by its warning."""
    world, controller = serving()
    victim = active(world)[0]
    world.services.specs["demo"] = demo_spec(replicas=2)
    controller.tick("demo")
    drained = next(r for r in world.store.load("demo").replicas.values() if not r.state.is_active)
    world.router.register(demo_spec(), [drained.instance_id or ""])
    controller.handle(warn(world, drained))
    assert not world.router.health(demo_spec())[drained.instance_id or ""].is_in_rotation
    assert victim in active(world)


def test_a_replica_that_ends_leaves_nothing_in_rotation() -> None:
    """If a race put its instance back, its end is the last time that anybody looks."""
    world, controller = serving()
    victim = active(world)[0]
    controller.handle(warn(world, victim))
    world.router.register(demo_spec(), [victim.instance_id or ""])
    controller.handle(reclaim(world, victim))
    assert not world.router.health(demo_spec())[victim.instance_id or ""].is_in_rotation


def test_a_removed_service_is_watched_until_nothing_is_left() -> None:
    """A launch that was under way when the stack went is found and ended, though EC2 shows it late."""
    world, controller = serving()
    hidden = world.fleet.instances.pop(active(world)[2].instance_id or "")
    del world.services.specs["demo"]
    for _ in range(5):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        controller.tick("demo")
    world.fleet.instances[hidden.id] = hidden
    world.clock.advance(timing.ORPHAN_GRACE_S)
    controller.tick("demo")
    assert not [i for i in world.fleet.instances.values() if i.state.is_alive]
    controller.tick("demo")
    controller.tick("demo")
    assert world.store.services() == []


def test_launches_per_minute_have_a_ceiling() -> None:
    """What the brake holds back is launched in the minutes after, and seen to be held."""
    world = World.of(replace(demo_spec(replicas=10), max_launches_per_minute=4))
    controller = Controller(world.ports())
    controller.tick("demo")
    assert len(world.fleet.instances) == 4
    assert world.telemetry.counts[Metric.LAUNCHES_HELD] == 6
    settle(world, controller, rounds=70)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 10
    assert len(world.fleet.instances) == 10
