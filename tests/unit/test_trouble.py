"""Replicas that start and tell why they aren't ready: what their rows keep of it, and what is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core.answers import Answers, Trouble
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.spec import ReadinessProbe
from spotrelay.plane.serving import steps, trouble
from tests.examples import demo_spec
from tests.unit.cases import NOW, a_replica
from tests.unit.worlds import Troubled, active, in_rotation, settle, world_of

CRASH = Trouble("crashes: said last:\nno GPU", is_crash=True)
STARTS = a_replica(1, ReplicaState.STARTING)
CRASHES = replace(STARTS, trouble=CRASH.words, is_crashing=True)
ONE = str(STARTS.instance_id)


def test_what_has_changed_is_noted_once() -> None:
    """Not again with each tick: a row that changes makes the next one."""
    (note,) = trouble.told([STARTS], Answers(trouble={ONE: CRASH}))
    assert note.row == CRASHES
    assert not trouble.told([CRASHES], Answers(trouble={ONE: CRASH}))


def test_between_two_starts_it_stays_known() -> None:
    """Nobody listens then; and another's words are another's."""
    assert not trouble.told([CRASHES], Answers(trouble={"i-other": CRASH}))


@pytest.mark.parametrize(
    "answers", [Answers(frozenset({ONE})), Answers(trouble={ONE: Trouble("answers its probe with 404")})]
)
def test_what_is_over_is_taken_back(answers: Answers) -> None:
    """It answers, or has other trouble: then it no longer crashes."""
    (note,) = trouble.told([CRASHES], answers)
    after = note.row
    assert not after.is_crashing
    assert after.trouble in (None, "answers its probe with 404")


def test_what_is_ready_has_none() -> None:
    """Also where it came in unasked, because the prober failed."""
    after = steps.mark_ready(CRASHES, NOW).row
    assert (after.trouble, after.is_crashing) == (None, False)


@pytest.fixture
def world() -> Troubled:
    """Three replicas that are asked before they come in."""
    return world_of(replace(demo_spec(), readiness_probe=ReadinessProbe("/v1", {"max_tokens": 1})))


def test_a_crash_is_counted_while_it_lasts_and_forgotten_once_ready(world: Troubled) -> None:
    """In each tick, for the alarm; what became ready says nothing more, and nothing is ended for it."""
    controller = Controller(world.ports())
    first = f"i-{1:017x}"
    world.prober.silent, world.prober.trouble = {first}, {first: CRASH}
    settle(world, controller)
    (starting,) = (r for r in active(world) if r.state is ReplicaState.STARTING)
    assert (starting.instance_id, starting.trouble, starting.is_crashing) == (first, CRASH.words, True)
    assert len(in_rotation(world)) == 2
    counted = world.telemetry.counts[Metric.CRASH_LOOPING]
    assert counted > 0
    controller.tick("demo")
    assert world.telemetry.counts[Metric.CRASH_LOOPING] == counted + 1
    assert "fleet.terminate" not in world.calls
    world.prober.silent.clear()
    world.prober.trouble.clear()
    settle(world, controller)
    assert {(r.state, r.trouble, r.is_crashing) for r in active(world)} == {(ReplicaState.READY, None, False)}


def test_what_it_says_when_it_is_given_up_is_kept() -> None:
    """It is told and given up by the same tick: its row has both."""
    world = world_of(replace(demo_spec(), readiness_probe=ReadinessProbe("/v1", {"max_tokens": 1})))
    controller = Controller(world.ports())
    first = f"i-{1:017x}"
    world.prober.silent = {first}
    settle(world, controller)
    world.prober.trouble = {first: CRASH}
    world.clock.advance(demo_spec().initial_delay_s + 200)
    controller.tick("demo")
    (failed,) = (r for r in world.store.history("demo", 10) if r.state is ReplicaState.FAILED)
    assert (failed.instance_id, failed.trouble) == (first, CRASH.words)


def test_one_that_was_given_up_keeps_its_words(world: Troubled) -> None:
    """They are why it failed, for who asks later."""
    controller = Controller(world.ports())
    first = f"i-{1:017x}"
    world.prober.silent, world.prober.trouble = {first}, {first: CRASH}
    settle(world, controller)
    world.clock.advance(demo_spec().initial_delay_s + 200)
    controller.tick("demo")
    (failed,) = (r for r in world.store.history("demo", 10) if r.state is ReplicaState.FAILED)
    assert (failed.instance_id, failed.trouble) == (first, CRASH.words)
