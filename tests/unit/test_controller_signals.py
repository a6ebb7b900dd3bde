"""The controller and EC2's signals: exactly one replacement for a loss, whatever comes together."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import OPTIONS
from spotrelay.plane.core.ports import Conflict, Throttled, Unavailable
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import OnRebalance, OnWarning
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import InterruptionWarning, RebalanceRecommendation, StateChange
from spotrelay.plane.serving import steps
from spotrelay.plane.serving.steps import WARNED
from tests.examples import demo_spec
from tests.unit.worlds import (
    Troubled,
    active,
    alive,
    counted,
    dry,
    in_rotation,
    instance_of,
    reclaim,
    recorded,
    rows,
    serving,
    settle,
    table,
    warn,
    world_of,
)

# One loss, one replacement.


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


@pytest.mark.parametrize("ready_s", [0, timing.LEASE_S])
def test_a_replica_that_has_just_become_ready_is_taken_out_twice(ready_s: float) -> None:
    """The tick that put it into rotation may do so after the first time, but not after its own time-out."""
    world = world_of(demo_spec())
    controller = Controller(world.ports())
    settle(world, controller)
    victim = active(world)[0]
    world.clock.advance(ready_s - (world.clock.now() - victim.since).total_seconds() if ready_s else 0)
    assert (world.clock.now() - victim.since >= seconds(timing.LEASE_S)) is bool(ready_s)
    world.router.calls.clear()
    controller.handle(warn(world, victim))
    assert world.router.calls == [("deregister", (victim.instance_id,))] * (1 if ready_s else 2)


def test_what_came_back_meanwhile_is_not_taken_out_once_more() -> None:
    """While the replacement is launched, a tick brings back what has left, as nobody else serves."""
    world = world_of(replace(demo_spec(replicas=1), on_warning=OnWarning.LEAVE))
    controller = Controller(world.ports())
    settle(world, controller)
    (victim,) = active(world)

    def come_back(_: object) -> None:
        left = table(world).replicas[victim.id]
        table(world).replicas[victim.id] = steps.come_back(left, world.clock.now()).row

    world.meddle("fleet.launch", come_back)
    world.router.calls.clear()
    controller.handle(warn(world, victim))
    assert world.router.calls == [("deregister", (victim.instance_id,))]


@pytest.mark.parametrize("is_back", [True, False])
def test_what_has_left_is_looked_at_again_after_a_call_that_hung(is_back: bool) -> None:
    """This decision doesn't write its row, which may be another by now. If the table is silent, it counts."""
    world, controller = serving()
    left, other, _ = active(world)
    again = warn(world, left)
    controller.handle(again)
    row = table(world).replicas[left.id]

    def hang(*_: object) -> None:
        world.clock.advance(8)
        if is_back:
            table(world).replicas[left.id] = steps.come_back(row, world.clock.now()).row
        else:
            world.refuse("store.read", Unavailable("no answer"))

    world.meddle("store.commit", hang, after=True)
    world.router.calls.clear()
    controller.handle([*again, *warn(world, other)])
    out = {id_ for call, ids in world.router.calls for id_ in ids if call == "deregister"}
    assert (left.instance_id in out) is not is_back


def test_an_answer_that_was_long_on_its_way_is_asked_for_again() -> None:
    """The look at what has left hangs, too, and it comes back in between: it stays."""
    world, controller = serving()
    left, other, _ = active(world)
    again = warn(world, left)
    controller.handle(again)
    row = table(world).replicas[left.id]

    def come_back(*_: object) -> None:
        world.clock.advance(8)
        table(world).replicas[left.id] = steps.come_back(row, world.clock.now()).row

    def hang(*_: object) -> None:
        world.clock.advance(8)
        world.meddle("store.read", come_back, after=True)

    world.meddle("store.commit", hang, after=True)
    world.router.calls.clear()
    controller.handle([*again, *warn(world, other)])
    out = {id_ for call, ids in world.router.calls for id_ in ids if call == "deregister"}
    assert left.instance_id not in out


def test_what_may_have_left_delays_nobody_else_who_enters() -> None:
    """Whether a warned one was taken out meanwhile can't be read: another one is registered all the same."""
    world, controller = serving(replace(demo_spec(), on_warning=OnWarning.SERVE_ON))
    warned, other, _ = active(world)
    controller.handle(warn(world, warned))
    world.router.deregister(demo_spec(), [warned.instance_id or "", other.instance_id or ""], {})
    controller.tick("demo")  # which notes it in their rows
    world.refuse("store.read", Unavailable("no answer"))
    world.router.calls.clear()
    with pytest.raises(Unavailable):
        controller.tick("demo")
    assert ("register", (other.instance_id,)) in world.router.calls


def test_a_batch_of_warnings_is_one_deregistration_and_one_launch() -> None:
    """Losses of one batch share their calls."""
    world, controller = serving(replace(demo_spec(replicas=10), on_warning=OnWarning.LEAVE))
    controller.handle(warn(world, *active(world)))
    assert [call for call, _ in world.router.calls] == ["deregister"]
    assert [launch.count for launch in world.fleet.launches] == [10]
    assert [r.id for r in active(world)] == list(range(11, 21))


@pytest.mark.parametrize("on_warning", OnWarning)
def test_an_event_delivered_three_times_makes_one_replacement(on_warning: OnWarning) -> None:
    """Within one batch or in several, a duplicate changes nothing, whether its replica leaves or stays."""
    world, controller = serving(replace(demo_spec(), on_warning=on_warning))
    signals = warn(world, active(world)[0])
    controller.handle(signals * 3)
    controller.handle(signals)
    controller.tick("demo")
    assert counted(world) == [2, 3, 4]
    assert len(world.fleet.launches) == 1
    assert world.telemetry.counts[Metric.INTERRUPTION_WARNINGS] == 1


def test_two_deciders_at_once_make_one_replacement() -> None:
    """Whoever loses the race for the row reads again and finds nothing left to do."""
    world, controller = serving()
    signals = warn(world, active(world)[0])
    rival = Controller(world.ports())
    world.meddle("store.commit", lambda _: rival.handle(signals))
    controller.handle(signals)
    assert [r.id for r in active(world)] == [2, 3, 4]
    assert world.telemetry.counts[Metric.CONFLICTS] == 1
    assert len(world.fleet.launches) == 1


def test_a_batch_that_loses_many_races_gets_through() -> None:
    """In a storm others take the IDs again and again; the batch decides anew until it wins."""
    world, controller = serving(demo_spec(replicas=5))
    world.refuse("store.commit", Conflict("highest ID has moved"), times=20)
    assert controller.handle(warn(world, *active(world))) == []
    assert counted(world) == [6, 7, 8, 9, 10]
    world, controller = serving()
    world.refuse("store.commit", Conflict("highest ID has moved"), times=None)
    signals = warn(world, *active(world))
    assert controller.handle(signals) == signals, "but not for ever: then it comes again"


def test_a_tick_and_a_signal_at_once_make_one_replacement() -> None:
    """A tick that saw the loss before the signal was handled creates nothing on the strength of old rows."""
    world, controller = serving()
    signals = warn(world, active(world)[0])
    rival = Controller(world.ports())
    world.meddle("fleet.warned", lambda _: rival.handle(signals))
    controller.tick("demo")
    assert [r.id for r in active(world)] == [2, 3, 4]


def test_a_replacement_that_is_on_its_way_is_read_with_its_replica() -> None:
    """Warned while its successor comes up, a replica gets no second one: that would be one GPU too many."""
    world, controller = serving(replace(demo_spec(), on_rebalance=OnRebalance.REPLACE))
    world.clock.advance(timing.REBALANCE_MIN_AGE_S)
    victim = active(world)[0]
    controller.handle([RebalanceRecommendation(instance_of(victim), world.clock.now())])
    controller.tick("demo")
    assert [r.id for r in active(world)] == [1, 2, 3, 4]
    controller.handle(warn(world, victim))
    assert (counted(world), len(world.fleet.launches)) == ([2, 3, 4], 1)
    settle(world, controller)
    assert [r.id for r in active(world)] == [2, 3, 4]
    assert len(world.fleet.launches) == 1


@pytest.mark.parametrize("is_replaced", [False, True])
def test_each_message_costs_one_read_of_its_rows(*, is_replaced: bool) -> None:
    """In a storm every further read is felt: neither a first warning nor the end of a drain needs another."""
    world, controller = serving()
    victim = active(world)[0]
    signals = warn(world, victim)
    if is_replaced:
        controller.handle(signals)
        settle(world, controller)
        signals = reclaim(world, victim)
        world.calls.clear()
    controller.handle(signals)
    assert world.calls.count("store.read") == 1


def test_what_launches_nothing_asks_nothing_about_pools() -> None:
    """Most events and ticks neither launch nor teach: none of them pays for what is known about pools."""
    world, controller = serving()
    controller.handle(reclaim(world, active(world)[0]))
    settle(world, controller)
    world.calls.clear()
    controller.handle([StateChange(instance_of(active(world)[0]), world.clock.now(), InstanceState.RUNNING)])
    controller.tick("demo", world.clock.now())
    assert "store.recall" not in world.calls


# Serve on.


def test_the_last_ones_serve_on_until_their_replacements_do() -> None:
    """All warned at once: everybody stays in rotation, the replacements come, and then the old ones leave."""
    world, controller = serving()
    old = active(world)
    assert controller.handle(warn(world, *old)) == []
    assert in_rotation(world) == {instance_of(r) for r in old}
    assert [r.id for r in active(world)] == [1, 2, 3, 4, 5, 6]
    assert counted(world) == [4, 5, 6]
    settle(world, controller)
    assert [r.id for r in active(world)] == [4, 5, 6]
    assert in_rotation(world) == {instance_of(r) for r in active(world)}
    assert world.telemetry.counts[Metric.INTERRUPTION_WARNINGS] == 3, (
        "each once, and not again when it leaves"
    )
    assert world.telemetry.counts[Metric.DEREGISTERED] == 3


def test_two_of_the_last_ones_never_leave_because_of_each_other() -> None:
    """Each is enough for the other, and both are warned at the same moment: one leaves, one serves on."""
    world, controller = serving(demo_spec(replicas=2))
    first, second = active(world)
    rival = Controller(world.ports())
    later = warn(world, second)
    world.meddle("store.commit", lambda _: rival.handle(later))
    controller.handle(warn(world, first))
    assert in_rotation(world) == {instance_of(first)}, "the rival was faster, and then it was the last one"
    assert counted(world) == [3, 4]


def test_what_serves_on_is_called_back_in_time() -> None:
    """One message for its drain deadline, and one for its last, written before anything else can fail."""
    world, controller = serving(demo_spec(replicas=1))
    signals = warn(world, *active(world))
    world.clock.advance(2.5)
    world.refuse("fleet.launch", Unavailable("no answer"))
    controller.handle(signals)
    assert world.ticker.leaves == [("demo", 69), ("demo", 109)], "rounded up: never too early"
    calls = [c for c in world.calls if c in ("store.commit", "ticker.schedule_leave", "fleet.launch")]
    assert calls[:4] == ["store.commit", "ticker.schedule_leave", "ticker.schedule_leave", "fleet.launch"]


def test_a_slow_call_back_makes_none_after_it_late() -> None:
    """Each delay is counted from the moment at which it is asked for."""
    world, controller = serving(demo_spec(replicas=1))
    signals = warn(world, *active(world))
    world.meddle("ticker.schedule_leave", lambda *_: world.clock.advance(8), after=True)
    controller.handle(signals)
    assert world.ticker.leaves == [("demo", 71), ("demo", 103)]


def test_a_call_back_that_failed_is_made_by_the_warning_that_comes_again() -> None:
    """The row is written by then, and says nothing of who was told to look."""
    world, controller = serving(demo_spec(replicas=1))
    signals = warn(world, *active(world))
    world.refuse("ticker.schedule_leave", Unavailable("no answer"))
    assert controller.handle(signals) == signals, "to be delivered again"
    world.clock.advance(2.5)
    assert controller.handle(signals) == []
    assert world.ticker.leaves == [("demo", 69), ("demo", 109)]


def test_what_is_called_back_leaves_without_the_lease() -> None:
    """A tick that hangs holds it: neither the lease nor the tick is needed to take out who must leave."""
    world, controller = serving(demo_spec(replicas=2))
    dry(world, *OPTIONS.values())
    first, last = active(world)
    signals = warn(world, first)
    world.clock.advance(1)
    controller.handle([*signals, *warn(world, last)])
    world.store.acquire("demo", "somebody", world.clock.now(), 999)
    world.clock.advance(68)
    controller.leave("demo")
    assert in_rotation(world) == {instance_of(first), instance_of(last)}, "a second too early"
    world.clock.advance(1)
    controller.leave("demo")
    assert in_rotation(world) == {instance_of(last)}, "its drain deadline; the other is the very last one"
    world.clock.advance(40)
    controller.leave("demo")
    assert in_rotation(world) == {instance_of(last)}
    world.clock.advance(1)
    controller.leave("demo")
    assert in_rotation(world) == set()
    assert [r.state for r in active(world)] == [ReplicaState.REQUESTED] * 2


def test_what_should_have_been_looked_at_already_is_looked_at_now() -> None:
    """A warning that comes after the drain deadline calls back at once, and again at the last moment."""
    world, controller = serving(demo_spec(replicas=1))
    signals = warn(world, *active(world))
    world.clock.advance(80)
    controller.handle(signals)
    assert world.ticker.leaves == [("demo", 0), ("demo", 31)]


def stays_while_ec2_spares_it(world: Troubled, controller: Controller, last: Replica) -> None:
    """Its last moment comes: it stays if EC2 took its warning back, and leaves if EC2 can't be asked."""
    world.clock.advance(110)
    world.fleet.interrupted.clear()
    controller.leave("demo")
    assert in_rotation(world) == {instance_of(last)}
    world.refuse("fleet.warned", Throttled("slow down"))
    with pytest.raises(Throttled):
        controller.leave("demo")
    assert in_rotation(world) == set(), "where nobody says so, its time has come"


def test_the_last_one_is_asked_about_before_it_leaves() -> None:
    """EC2 took its warning back: it stays, and nobody is asked about while another one serves."""
    world, controller = serving(demo_spec(replicas=1))
    dry(world, *OPTIONS.values())
    (last,) = active(world)
    controller.handle(warn(world, last))
    stays_while_ec2_spares_it(world, controller, last)


def test_ec2_is_asked_about_nobody_before_the_last_moment() -> None:
    """Its drain deadline has passed, and nobody else serves: there is nothing yet that EC2 could change."""
    world, controller = serving(demo_spec(replicas=1))
    dry(world, *OPTIONS.values())
    controller.handle(warn(world, *active(world)))
    world.clock.advance(80)
    world.refuse("fleet.warned", Throttled("slow down"))
    controller.leave("demo")
    assert len(in_rotation(world)) == 1


def test_what_has_left_and_may_be_alone_is_asked_about_too() -> None:
    """Who was to take it out died over it, and EC2 took its warning back: nobody else is in rotation."""
    world, controller = serving(demo_spec(replicas=1))
    dry(world, *OPTIONS.values())
    (last,) = active(world)
    controller.handle(warn(world, last))
    (warned,) = (r for r in active(world) if r.id == last.id)
    table(world).replicas[last.id] = warned.to(ReplicaState.DRAINING, world.clock.now())
    stays_while_ec2_spares_it(world, controller, last)


def test_a_row_of_another_instance_is_not_what_a_signal_is_about() -> None:
    """The table is restored while a warning is handled, and its replica waits for an instance."""
    world, controller = serving()
    victim = active(world)[0]
    waiting = replace(
        victim, state=ReplicaState.REQUESTED, entered={ReplicaState.REQUESTED: victim.since}, instance_id=None
    )
    kept = table(world).replicas
    world.meddle("services.get", lambda *_: kept.update({victim.id: waiting}))
    assert controller.handle(warn(world, victim)) == []
    assert kept[victim.id] == waiting


def test_what_comes_back_is_registered_and_serves() -> None:
    """A warned replica left, as another one was enough; that is gone. It serves until its own end."""
    world, controller = serving(demo_spec(replicas=2))
    dry(world, *OPTIONS.values())
    first, second = active(world)
    controller.handle(warn(world, first))
    assert in_rotation(world) == {instance_of(second)}
    controller.handle(reclaim(world, second))
    settle(world, controller)
    assert in_rotation(world) == {instance_of(first)}
    row = world.store.load("demo").replicas[first.id]
    assert (row.state, row.is_warned) == (ReplicaState.READY, True)
    world.clock.advance(100)
    controller.leave("demo")
    assert in_rotation(world) == set(), "and leaves at its last moment"


@pytest.mark.parametrize("leaves", [False, True])
def test_a_warned_one_is_not_registered_once_more_as_it_leaves(leaves: bool) -> None:
    """A call takes it out while a tick, which read the row before, is about to put it in."""
    world, controller = serving(demo_spec(replicas=1))
    (last,) = active(world)
    now = world.clock.now()
    entered = {**last.entered, ReplicaState.STARTING: now}
    starting = replace(last, state=ReplicaState.STARTING, entered=entered, warned_at=now)
    world.store.commit(Changes("demo", update=(starting,)))
    world.router.deregister(demo_spec(), [instance_of(last)])
    (starting,) = active(world)
    if leaves:
        drained = starting.to(ReplicaState.DRAINING, now, WARNED)
        world.meddle("router.health", lambda *_: world.store.commit(Changes("demo", update=(drained,))))
    controller.tick("demo")
    assert (instance_of(last) in in_rotation(world)) is not leaves


def test_what_drains_and_is_still_in_rotation_is_taken_out_by_the_call() -> None:
    """Whoever wrote the row died before the load balancer heard of it, and holds the lease."""
    world, controller = serving()
    victim = active(world)[0]
    world.refuse("router.deregister", Unavailable("no answer"), times=None)
    controller.handle(warn(world, victim))
    assert instance_of(victim) in in_rotation(world)
    world.store.acquire("demo", "somebody", world.clock.now(), 999)
    world.before.clear()
    world.router.calls.clear()
    controller.leave("demo")
    assert instance_of(victim) not in in_rotation(world)
    assert world.router.calls == [("deregister", (victim.instance_id,))], "and once is enough"


def test_a_call_that_loses_the_race_decides_anew() -> None:
    """Somebody changed who serves meanwhile: what is due leaves all the same."""
    world, controller = serving(demo_spec(replicas=1))
    dry(world, *OPTIONS.values())
    controller.handle(warn(world, *active(world)))
    world.clock.advance(110)
    world.refuse("store.commit", Conflict("others serve"), times=3)
    controller.leave("demo")
    assert in_rotation(world) == set()


def test_a_call_that_fails_comes_again() -> None:
    """What can't be deregistered is raised, so that the queue delivers the message once more."""
    world, controller = serving(demo_spec(replicas=1))
    dry(world, *OPTIONS.values())
    controller.handle(warn(world, *active(world)))
    world.clock.advance(110)
    world.refuse("router.deregister", Throttled("slow down"))
    with pytest.raises(Throttled):
        controller.leave("demo")
    controller.leave("demo")
    assert in_rotation(world) == set()


# What races put back.


def test_a_warning_takes_out_what_a_race_put_back() -> None:
    """A replica that drains and is in rotation all the same is taken out by its warning."""
    world, controller = serving()
    victim = active(world)[0]
    world.services.specs["demo"] = demo_spec(replicas=2)
    controller.tick("demo")
    drained = next(r for r in rows(world).replicas.values() if not r.state.is_active)
    world.router.register(demo_spec(), [instance_of(drained)])
    controller.handle(warn(world, drained))
    assert instance_of(drained) not in in_rotation(world)
    assert victim in active(world)


def test_a_replica_that_ends_leaves_nothing_in_rotation() -> None:
    """If a race put its instance back, its end is the last time that anybody looks."""
    world, controller = serving()
    victim = active(world)[0]
    controller.handle(warn(world, victim))
    world.router.register(demo_spec(), [instance_of(victim)])
    controller.handle(reclaim(world, victim))
    assert instance_of(victim) not in in_rotation(world)


# Several services, and foreign instances.


def test_foreign_instances_cost_one_read() -> None:
    """Somebody else's instance is dropped after one look-up, and counted."""
    world, controller = serving()
    signal = InterruptionWarning("i-foreign", world.clock.now(), "terminate")
    assert controller.handle([signal, signal]) == []
    assert world.telemetry.counts[Metric.FOREIGN_INSTANCES] == 1
    assert world.calls == ["store.locate"]


def test_one_service_failing_does_not_hold_up_another() -> None:
    """Only the signals of the services that failed are delivered again, but of each of those."""
    world, controller = serving(demo_spec("good"), demo_spec("bad"), demo_spec("worse"))
    bad, worse = (warn(world, active(world, name)[0]) for name in ("bad", "worse"))
    good = warn(world, active(world, "good")[0])

    def fail_for_bad(changes: Changes) -> None:
        if changes.service != "good":
            raise Throttled("dynamodb")

    world.meddle("store.commit", fail_for_bad, times=None)
    assert list(controller.handle([*bad, *good, *worse])) == [*bad, *worse]
    assert [r.id for r in active(world, "good")] == [2, 3, 4]
    assert [r.id for r in active(world, "bad")] == [1, 2, 3]


# What is told.


def test_what_did_not_happen_is_not_counted() -> None:
    """Each metric of a service costs money from its first value on, also if that is zero."""
    world, controller = serving()
    controller.handle(warn(world, active(world)[0]))
    assert set(world.telemetry.counts) == {
        Metric.SIGNALS_RECEIVED,
        Metric.INTERRUPTION_WARNINGS,
        Metric.LOSSES_WARNED,
        Metric.DEREGISTERED,
        Metric.REPLICAS_LAUNCHED,
        Metric.WARNING_TO_DEREGISTERED_MS,
        Metric.WARNING_TO_LAUNCHED_MS,
    }


def test_what_is_not_counted_is_only_logged() -> None:
    """Most of what is done has no metric of its own."""
    world, controller = serving()
    controller.handle(reclaim(world, active(world)[0]))
    settle(world, controller)
    assert {"Start", "MarkReady"} <= {event for event, _ in world.telemetry.records}
    assert set(world.telemetry.counts) <= set(Metric)


def test_a_line_says_what_was_done_to_whom_and_why() -> None:
    """Who asks the log why an instance was drained, or why more were launched, finds the answer there."""
    world, controller = serving()
    victim = active(world)[0]
    controller.handle(warn(world, victim))
    assert recorded(world, "Drain, Replace") == [
        {
            "service": "demo",
            "replica": 1,
            "instance_id": victim.instance_id,
            "offering": str(victim.offering),
            "reason": "interruption warning",
        }
    ]
    world.services.specs["demo"] = demo_spec(replicas=5)
    controller.tick("demo")
    assert recorded(world, "Request") == [
        {"service": "demo", "count": 2, "reason": "fewer replicas than wanted"}
    ]


def test_nothing_is_logged_before_the_launch() -> None:
    """A function that has just started loads what writes its log once it has deregistered and launched."""
    world, controller = serving()
    before = list[object]()
    world.meddle("fleet.launch", lambda _: before.extend(world.telemetry.records))
    assert controller.handle(warn(world, active(world)[0])) == []
    assert before == []
    assert world.telemetry.records[0][0] == "launch"


def test_how_long_it_took_is_counted_from_the_warning() -> None:
    """The deregistration when it has happened, the launch when it has; each for its own instance."""
    world, controller = serving()
    first, second = active(world)[:2]
    signals = warn(world, first)
    world.clock.advance(1.5)
    signals += warn(world, second)
    world.clock.advance(0.25)
    world.meddle("router.deregister", lambda *_: world.clock.advance(0.5), after=True)
    world.meddle("fleet.launch", lambda _: world.clock.advance(2), after=True)
    world.services.specs["demo"] = replace(demo_spec(), on_warning=OnWarning.LEAVE)
    controller.handle(signals)
    counts = world.telemetry.counts
    assert counts[Metric.DEREGISTERED] == 2
    assert counts[Metric.WARNING_TO_DEREGISTERED_MS] == (1750 + 500) + (250 + 500)
    assert counts[Metric.WARNING_TO_LAUNCHED_MS] == (1750 + 2500) + (250 + 2500)
    assert counts[Metric.INTERRUPTION_WARNINGS] == counts[Metric.SIGNALS_RECEIVED] == 2


def test_who_serves_on_was_launched_for_and_not_deregistered() -> None:
    """Its time to the deregistration is none of the controller's slowness: it isn't counted."""
    world, controller = serving(demo_spec(replicas=1))
    signals = warn(world, *active(world))
    world.clock.advance(0.25)
    controller.handle(signals)
    counts = world.telemetry.counts
    assert counts[Metric.WARNING_TO_LAUNCHED_MS] == 250
    assert counts[Metric.INTERRUPTION_WARNINGS] == 1
    assert Metric.WARNING_TO_DEREGISTERED_MS not in counts
    assert Metric.DEREGISTERED not in counts


def test_a_launch_that_brought_nothing_took_no_time() -> None:
    """Every pool refuses: no time from the warning to the launch is counted, nor one from the future."""
    world, controller = serving()
    dry(world, *OPTIONS.values())
    (signal,) = warn(world, active(world)[0])
    assert isinstance(signal, InterruptionWarning)
    controller.handle([replace(signal, at=signal.at + timedelta(seconds=1))])
    counts = world.telemetry.counts
    assert Metric.WARNING_TO_LAUNCHED_MS not in counts
    assert counts[Metric.WARNING_TO_DEREGISTERED_MS] == 0
    assert counts[Metric.DEREGISTERED] == 1
    assert len(alive(world)) == 3


def test_the_balancer_is_not_asked_for_ports_that_the_rows_say() -> None:
    """Not even if all that were read leave: a call less between the warning and the deregistration."""
    world, controller = serving(replace(demo_spec(), on_warning=OnWarning.LEAVE))
    controller.handle(warn(world, *active(world)))
    assert in_rotation(world) == set()
    assert "router.ports" not in world.calls
