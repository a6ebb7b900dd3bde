"""What a start has reached: noted once, with as few writes as can be, and for people alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.replica import Phase, ReplicaState
from spotrelay.plane.core.spec import ReadinessProbe
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import starts
from tests.examples import demo_spec
from tests.unit.cases import NOW, a_replica
from tests.unit.worlds import Troubled, active, recorded, settle, world_of

STARTS = a_replica(1, ReplicaState.STARTING)
ONE = str(STARTS.instance_id)
LATER = NOW + seconds(1)


@pytest.fixture
def world() -> Troubled:
    """Three replicas that are asked before they come in."""
    return world_of(replace(demo_spec(), readiness_probe=ReadinessProbe("/v1", {"max_tokens": 1})))


def test_the_first_answer_is_noted_once() -> None:
    """A later one is none: where all change at once, it answers long before it is registered."""
    assert starts.first_answers([STARTS], {ONE}) == [STARTS]
    (note,) = starts.noted([STARTS], {1}, set(), NOW, LATER)
    assert note.row.phases == {Phase.ANSWERED: NOW}
    assert starts.first_answers([note.row], {ONE}) == []
    (second,) = starts.noted([note.row], set(), {1}, LATER, LATER)
    assert second.row.phases == {Phase.ANSWERED: NOW, Phase.REGISTERED: LATER}
    assert starts.noted([second.row], set(), {1}, LATER, LATER) == []


def test_who_comes_back_does_not_start() -> None:
    """Its start is over, and stays as it was."""
    back = replace(STARTS, entered={**STARTS.entered, ReplicaState.DRAINING: NOW})
    assert starts.first_answers([back], {ONE}) == []
    assert starts.noted([back], set(), {1}, NOW, LATER) == []


def test_a_start_costs_one_write_more_and_nothing_is_decided_by_it(
    world: Troubled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answer and registration are one; its times survive until the replica is ready, and are in the log."""
    controller = Controller(world.ports())
    first = f"i-{1:017x}"
    world.prober.silent = {first}
    settle(world, controller)
    (starting,) = (r for r in active(world) if r.state is ReplicaState.STARTING)
    assert starting.phases == {}
    before = world.calls.count("store.commit")
    world.prober.silent.clear()
    at, register = world.clock.now(), world.router.register

    def slowly(*arguments: Any) -> frozenset[str]:
        world.clock.advance(1)
        return register(*arguments)

    monkeypatch.setattr(world.router, "register", slowly)
    controller.tick("demo")
    assert world.calls.count("store.commit") == before + 1
    settle(world, controller)
    ready = next(r for r in active(world) if r.instance_id == first)
    assert ready.state is ReplicaState.READY
    assert ready.phases == {Phase.ANSWERED: at, Phase.REGISTERED: at + seconds(1)}
    (line,) = (line for line in recorded(world, "NoteStart") if line["replica"] == ready.id)
    assert line["phases"].keys() == {"answered", "registered"}


def test_while_one_is_asked_the_next_tick_comes_sooner(world: Troubled) -> None:
    """Its clients wait for its first answer."""
    controller = Controller(world.ports())
    world.prober.silent = {f"i-{1:017x}"}
    settle(world, controller)
    world.ticker.scheduled.clear()
    world.clock.advance(timing.PROBE_AGAIN_S)
    controller.tick("demo")
    ((_, _, delay_s),) = world.ticker.scheduled
    assert delay_s == timing.PROBE_AGAIN_S
