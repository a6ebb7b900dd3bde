"""Instances that host several replicas, after any history: who serves stays, and all come back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.ports import Unavailable
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.slots import host
from spotrelay.plane.events import InterruptionWarning, Signal, StateChange
from tests.unit.test_slots import no_large_ones, shared
from tests.unit.worlds import Troubled, active, alive, in_rotation, rows, settle, table, world_of

MOST = 9
"""Replicas: two instances with four GPUs, and one more."""

ROUNDS = 120
"""Ticks of three seconds until everything is over: a drain, an orphan's grace, a back-off."""


@dataclass(frozen=True)
class Step:
    """Something that happens, to the nth of those that it can happen to."""

    what: str
    which: int


STEPS = st.builds(
    Step,
    st.sampled_from(
        ["tick", "settle", "scale", "warn", "lost warning", "end", "lose row", "no answer", "crash", "dry"]
    ),
    st.integers(0, MOST),
)


def happen(world: Troubled, controller: Controller, step: Step) -> None:
    """Have it happen, and tell the controller what it would be told."""
    running = sorted(alive(world))
    signals = to_instance(world, step.what, running[step.which % len(running)]) if running else []
    match step.what:
        case "settle":
            for _ in range(6):
                pass_time(world, controller)
        case "scale":
            world.services.specs["demo"] = shared(step.which)
        case "lose row":
            lose_row(world, step.which)
        case "no answer":
            world.lose("fleet.launch", Unavailable("no answer"))
        case "crash":
            world.refuse("store.commit", Unavailable("no answer"))
        case "dry":
            no_large_ones(world)
    with suppress(Unavailable):
        controller.handle(signals)
    tick(world, controller)


def to_instance(world: Troubled, what: str, instance_id: str) -> list[Signal]:
    """What happens to an instance, if the step is about one; the events."""
    now = world.clock.now()
    if what in ("warn", "lost warning"):
        world.fleet.interrupted[instance_id] = now
        return [InterruptionWarning(instance_id, now, "terminate")] * (what == "warn")
    if what == "end":
        world.fleet.enter(InstanceState.TERMINATED, [instance_id])
        return [StateChange(instance_id, now, InstanceState.TERMINATED)]
    return []


def lose_row(world: Troubled, which: int) -> None:
    """One that has an instance is gone from the table, and no longer counted."""
    kept = table(world)
    lost = [id_ for id_, row in sorted(kept.replicas.items()) if row.instance_id]
    if lost:
        kept.serving -= kept.replicas.pop(lost[which % len(lost)]).stays


def pass_time(world: Troubled, controller: Controller) -> None:
    """Instances boot, pass their checks, and a tick sees it."""
    world.clock.advance(timing.TICK_IN_TRANSITION_S)
    world.fleet.run()
    tick(world, controller)
    world.router.pass_checks()


def tick(world: Troubled, controller: Controller) -> None:
    """A tick, of which a step may fail."""
    with suppress(Unavailable):
        controller.tick("demo")


def never_one_that_serves(world: Troubled) -> Callable[..., None]:
    """Whoever terminates an instance takes away nobody who serves there and could go on."""

    def check(instance_ids: list[str]) -> None:
        assert not {i for i in instance_ids if ":" in i}, "EC2 knows no slots"
        staying = {host(r.instance_id or "") for r in rows(world).replicas.values() if r.stays}
        assert staying.isdisjoint(instance_ids)

    return check


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=12))
def test_nobody_who_serves_is_taken_away_and_all_come_back(steps: list[Step]) -> None:
    """In the end as many serve as are wanted, each in rotation, and no instance is left without a replica."""
    world = world_of(shared())
    controller = Controller(world.ports())
    world.meddle("fleet.terminate", never_one_that_serves(world), None)
    settle(world, controller)
    for step in steps:
        happen(world, controller, step)
    for _ in range(ROUNDS):
        pass_time(world, controller)
        over = [i for i in world.fleet.interrupted if i in alive(world)]
        world.fleet.enter(InstanceState.TERMINATED, over)
    wanted = world.services.specs["demo"].replicas
    there = active(world)
    assert [r.state for r in there] == [ReplicaState.READY] * wanted
    assert {str(r.instance_id) for r in there} <= in_rotation(world)
    assert alive(world) == {host(str(r.instance_id)) for r in there}
