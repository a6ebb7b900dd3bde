"""What the controller does before what, and that a step that fails keeps no other from being taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.control.performing import Decision
from spotrelay.plane.core import timing
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.ports import Conflict, Denied, LaunchRequest, PortError, Throttled, Unavailable
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import OnWarning, ReadinessProbe
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import steps
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec
from tests.unit.worlds import (
    Troubled,
    active,
    alive,
    counted,
    in_rotation,
    instance_of,
    recorded,
    rows,
    serving,
    settle,
    warn,
    world_of,
)

EFFECTS = {
    "store.commit",
    "router.deregister",
    "router.register",
    "fleet.launch",
    "store.cool",
    "store.claim_tick",
    "ticker.schedule",
    "fleet.terminate",
}
ERRORS = [Throttled("slow down"), Denied("not allowed", "AccessDenied"), Unavailable("no answer")]


def effects(world: Troubled) -> list[str]:
    """What was changed anywhere, in order; the same thing in a row once."""
    calls = [call for call in world.calls if call in EFFECTS]
    return [c for i, c in enumerate(calls) if i == 0 or calls[i - 1] != c]


def test_what_is_resumed_on_its_way_back_is_not_taken_out() -> None:
    """It left, could not be deregistered, and is needed once more before it was stopped."""
    world, controller = serving()
    standby = replace(active(world)[0], is_standby=True, is_fallback=True)
    left = standby.to(ReplicaState.DRAINING, world.clock.now(), "Spot is back")
    world.store.commit(Changes("demo", update=(left,)))
    read = rows(world)
    actions: list[Step] = [
        steps.take_out(instance_of(left)),
        steps.resume(read.replicas[left.id], world.clock.now(), "a replica is missing"),
    ]
    controller._performer.perform(Decision("demo", demo_spec(), read, actions))
    assert instance_of(left) in in_rotation(world)


def busy() -> tuple[Troubled, Controller]:
    """The next tick has everything to do: 1 is warned, 4 has drained, and 5's instance runs by now."""
    spec = replace(demo_spec(replicas=4), on_warning=OnWarning.LEAVE)
    world, controller = serving(spec)
    for wanted in (3, 4):
        world.services.specs["demo"] = replace(spec, replicas=wanted)
        controller.tick("demo")
    world.router.pass_checks()
    world.fleet.run()
    world.clock.advance(timing.DRAIN_SETTLE_S)
    warn(world, active(world)[0])
    world.calls.clear()
    return world, controller


def test_rows_first_then_the_rotation_then_instances() -> None:
    """Commit, deregister, launch, tell, announce: who loses the race for a row does nothing about it."""
    world, controller = serving()
    controller.handle(warn(world, active(world)[0]))
    assert effects(world) == [
        "store.commit",
        "router.deregister",
        "fleet.launch",
        "store.commit",
        "store.cool",
        "store.claim_tick",
        "ticker.schedule",
    ]


def test_a_tick_keeps_to_the_same_order() -> None:
    """Commit, deregister, register, launch, tell, announce, and to terminate comes last of all."""
    world, controller = busy()
    controller.tick("demo")
    assert effects(world) == [
        "store.commit",
        "router.deregister",
        "router.register",
        "fleet.launch",
        "store.commit",
        "store.cool",
        "store.claim_tick",
        "ticker.schedule",
        "fleet.terminate",
        "store.claim_tick",
    ]


def test_without_its_commit_nothing_is_done() -> None:
    """The table is down: nobody leaves on the strength of a row that wasn't written, and it comes again."""
    world, controller = serving()
    victim = active(world)[0]
    world.refuse("store.commit", Unavailable("table down"), times=None)
    signals = warn(world, victim)
    assert controller.handle(signals) == signals
    assert {"router.deregister", "fleet.launch"}.isdisjoint(world.calls)
    world.before.clear()
    assert controller.handle(signals) == []
    assert instance_of(victim) not in in_rotation(world)


def test_what_was_decided_with_a_lost_commit_is_decided_anew() -> None:
    """IDs that others gave meanwhile could make the next commit fit by chance: it isn't tried."""
    world = world_of(demo_spec(replicas=Changes.MAX_ROWS + 1))
    controller = Controller(world.ports())
    world.refuse("store.commit", Conflict("somebody else was faster"))
    controller.tick("demo")
    assert (world.calls.count("store.commit"), active(world)) == (1, [])
    settle(world, controller)
    assert [r.id for r in active(world)] == list(range(1, Changes.MAX_ROWS + 2))


def test_what_was_written_before_a_lost_commit_is_carried_out() -> None:
    """Of two commits the second is lost: the first one's replicas leave and are launched all the same."""
    world, controller = serving(demo_spec(replicas=Changes.MAX_ROWS))
    last = iter([False, True])

    def lose_the_second(_: Changes) -> None:
        if next(last, False):
            raise Conflict("somebody else was faster")

    world.meddle("store.commit", lose_the_second, times=None)
    assert controller.handle(warn(world, *active(world))) == []
    assert sum(launch.count for launch in world.fleet.launches) == Changes.MAX_ROWS
    assert len(counted(world)) == Changes.MAX_ROWS


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_load_balancer_that_fails_is_no_reason_not_to_launch(error: PortError) -> None:
    """The replacement is there; the signal comes again and takes the replica out."""
    world, controller = serving()
    victim = active(world)[0]
    world.refuse("router.deregister", error)
    signals = warn(world, victim)
    assert controller.handle(signals) == signals
    assert [r.id for r in active(world)] == [2, 3, 4]
    assert active(world)[-1].instance_id is not None
    assert world.ticker.scheduled, "and a tick is announced"
    event = "denied" if isinstance(error, Denied) else "step_failed"
    assert recorded(world, event) == [{"service": "demo", "step": "deregister", "error": str(error)}]
    assert world.telemetry.counts[Metric.CALLS_DENIED] == isinstance(error, Denied)
    assert world.telemetry.counts[Metric.ACTION_REQUIRED] == isinstance(error, Denied)
    assert controller.handle(signals) == []
    assert instance_of(victim) not in in_rotation(world)
    assert len(world.fleet.launches) == 1


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize(
    "call", ["router.deregister", "router.register", "store.recall", "store.claim_tick", "fleet.terminate"]
)
def test_a_tick_takes_every_step_and_raises_what_failed(call: str, error: PortError) -> None:
    """None holds up the others, and in the end the tick fails, so that its message comes again."""
    world, controller = busy()
    world.refuse(call, error)
    with pytest.raises(type(error)):
        controller.tick("demo")
    follows = {"store.recall": "fleet.launch", "store.claim_tick": "ticker.schedule"}
    others = {"router.deregister", "router.register", "fleet.launch", "ticker.schedule", "fleet.terminate"}
    assert others - {follows.get(call, call)} <= set(world.calls)
    assert world.store.acquire("demo", "another", world.clock.now(), 1), "the lease was given back"
    world.store.release("demo", "another")
    settle(world, controller, rounds=30)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 4
    assert len(alive(world)) == 5, "and the warned one, which EC2 ends"


@pytest.mark.parametrize("call", ["store.cool", "store.claim_tick"])
def test_what_follows_a_launch_does_not_prevent_it(call: str) -> None:
    """Neither the lessons nor the next tick can be written: the replacement is launched, and on record."""
    world, controller = serving()
    world.refuse(call, Unavailable("table down"), times=None)
    signals = warn(world, active(world)[0])
    again = controller.handle(signals)
    assert again == ([] if call == "store.cool" else signals), "lessons aren't worth a second delivery"
    assert [launch.count for launch in world.fleet.launches] == [1]
    assert active(world)[-1].instance_id


def test_a_launch_of_which_nothing_is_known_keeps_its_intent() -> None:
    """The table can't say what cools: nothing is asked, and the tick launches it when the intent is over."""
    world, controller = serving()
    world.refuse("store.recall", Unavailable("table down"))
    signals = warn(world, active(world)[0])
    assert controller.handle(signals) == signals
    assert world.fleet.launches == []
    assert len(rows(world).intents) == 1
    settle(world, controller, rounds=30)
    assert [(r.id, r.state) for r in active(world)] == [(i, ReplicaState.READY) for i in (2, 3, 4)]
    assert [launch.count for launch in world.fleet.launches] == [1]


def test_an_instance_that_cannot_be_terminated_keeps_no_other_from_admission() -> None:
    """Protected, tick after tick: the others end, new ones come into rotation, and it is told about."""
    spec = replace(demo_spec(), readiness_probe=ReadinessProbe("/", {}))
    world, controller = serving(replace(spec, replicas=5))
    stuck, *rest = sorted(active(world), key=lambda r: r.id)[3:]
    world.fleet.protected[instance_of(stuck)] = "OperationNotPermitted: disableApiTermination"
    world.services.specs["demo"] = spec
    settle(world, controller, rounds=20)
    assert instance_of(stuck) in alive(world)
    assert not {instance_of(r) for r in rest} & alive(world)
    world.services.specs["demo"] = replace(spec, replicas=4)
    settle(world, controller, rounds=6)
    ready = [r for r in active(world) if r.state is ReplicaState.READY]
    assert len(ready) == 4
    assert in_rotation(world) == {instance_of(r) for r in ready}
    assert world.telemetry.counts[Metric.CALLS_DENIED] > 0
    lines = recorded(world, "denied")
    assert {(line["instance_id"], line["error"]) for line in lines} == {
        (instance_of(stuck), "OperationNotPermitted: disableApiTermination")
    }


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_probes_that_fail_end_no_tick(error: PortError) -> None:
    """Nobody was asked, so nobody is late; what else there is to do is done, and the next tick asks again."""
    spec = replace(demo_spec(), readiness_probe=ReadinessProbe("/", {}), initial_delay_s=60)
    world = world_of(spec)
    controller = Controller(world.ports())
    controller.tick("demo")
    world.fleet.run()
    world.clock.advance(61)
    world.prober.silent = {f"i-{n:017x}" for n in (1, 2, 3)}
    world.refuse("prober.ask", error, times=2)
    controller.tick("demo")
    controller.tick("demo")
    assert [r.state for r in active(world)] == [ReplicaState.STARTING] * 3
    assert recorded(world, "probe_failed")[0] == {"service": "demo", "error": repr(error)}
    world.prober.silent.clear()
    settle(world, controller)
    assert [r.state for r in active(world)] == [ReplicaState.READY] * 3


@pytest.mark.parametrize("call", ["store.claim_tick", "fleet.terminate", "fleet.launch", "router.deregister"])
def test_a_tick_that_fails_still_admits(call: str) -> None:
    """What doesn't go keeps nobody from coming: who answers its probe is put into rotation all the same."""
    spec = replace(demo_spec(replicas=4), readiness_probe=ReadinessProbe("/", {}), on_warning=OnWarning.LEAVE)
    world, controller = serving(spec)
    for wanted in (3, 5):
        world.services.specs["demo"] = replace(spec, replicas=wanted)
        controller.tick("demo")
    world.router.pass_checks()
    world.fleet.run()
    controller.tick("demo")
    world.router.deregister(spec, [r.instance_id or "" for r in active(world)[3:]])
    world.router.pass_checks()
    assert [r.state for r in active(world)[3:]] == [ReplicaState.STARTING] * 2
    world.clock.advance(timing.DRAIN_SETTLE_S)
    warn(world, active(world)[0])
    world.refuse(call, Denied("not allowed"))
    world.calls.clear()
    if call == "fleet.launch":
        controller.tick("demo")  # that is on the replica's row, and tried again
    else:
        with pytest.raises(Denied):
            controller.tick("demo")
    assert call in world.calls
    assert {instance_of(r) for r in active(world) if r.id in (5, 6)} <= in_rotation(world)


def test_denied_launches_are_tried_again_and_stood_in_for() -> None:
    """EC2 says no to Spot for a reason that a person must mend: on-demand serves meanwhile."""
    world, controller = serving()

    def no_spot(request: LaunchRequest) -> None:
        if request.purchase_option is PurchaseOption.SPOT:
            raise Denied(
                "not authorized to create spot-slr", "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
            )

    world.meddle("fleet.launch", no_spot, times=None)
    assert controller.handle(warn(world, active(world)[0])) == []
    settle(world, controller)
    waiting, fallback = active(world)[-2:]
    assert (waiting.state, fallback.state) == (ReplicaState.REQUESTED, ReplicaState.READY)
    assert waiting.launch == "EC2 refuses the request: not authorized to create spot-slr"
    assert waiting.retry_at is not None
    assert waiting.retry_at > world.clock.now() - seconds(timing.RETRY_MAX_S)
    assert world.telemetry.counts[Metric.CALLS_DENIED] > 0
    world.before.clear()
    settle(world, controller, rounds=30)
    assert next(r for r in active(world) if r.id == waiting.id).state is ReplicaState.READY
