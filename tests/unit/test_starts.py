"""What a start has reached: noted once, with as few writes as can be, and for people alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.control.consoles import Consoles
from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import Denied, Throttled, Unavailable
from spotrelay.plane.core.replica import CONSOLE_MARK, TOLD_BY_INSTANCES, Phase, Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.slots import slot
from spotrelay.plane.core.spec import ReadinessProbe
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import starts, steps
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


# What instances tell.


def line(**at: datetime) -> str:
    """As an instance tells when it reached what."""
    words = (f"{name}={time.timestamp():.3f}" for name, time in at.items())
    return f"{CONSOLE_MARK} {' '.join(words)}"


def phases_of(console: str) -> dict[str, datetime]:
    """What is believed of a console, of a start that began a minute ago."""
    said = starts.said(console, NOW, NOW + seconds(60))
    return {phase.value: at for phase, at in said.phases.items()}


def test_the_last_line_counts() -> None:
    """It has all that was reached; other words stand before and after it, whatever they are."""
    told = {phase.value: NOW + seconds(n) for n, phase in enumerate(TOLD_BY_INSTANCES)}
    console = "\r\n".join(
        ["[0.0] boots", line(booted=NOW), "engine starts", line(**told), "\x00\x1b[0m done"]
    )
    assert phases_of(console) == told


@pytest.mark.parametrize(
    "console",
    [
        "",
        "2026-01-01T00:00:00+0000 host bash[1]: " + line(booted=NOW),
        "2026-01-01T00:00:00+0000 host bash[1]: \x0b" + line(booted=NOW),
        line(booted=NOW).replace(" ", "", 1),
        line(booted=NOW).replace("booted=", "booted=-"),
        line(booted=NOW)[:-1],
        line(booted=NOW) + "4",
        line(booted=NOW).replace("booted", "BOOTED"),
        line(booted=NOW - seconds(1)),
        line(booted=NOW + seconds(61)),
        line(answered=NOW, registered=NOW, READY=NOW),
        f"{CONSOLE_MARK} {'x ' * starts.MOST_WORDS}" + line(booted=NOW).partition(" ")[2],
        f"{CONSOLE_MARK} {'x' * starts.MOST_LINE} " + line(booted=NOW).partition(" ")[2],
    ],
    ids=[
        "nothing", "a service's words", "a service's trick", "another word", "a negative time",
        "a time that is cut", "a time that goes on", "capitals", "before the launch", "after now",
        "not its to tell", "after too many words", "too far behind",
    ],
)  # fmt: skip
def test_what_is_not_strictly_ours_is_dropped(console: str) -> None:
    """Who has the instance can write to its console: nothing of that is believed but times of this start."""
    assert phases_of(console) == {}


def test_a_start_begins_with_its_request_and_a_resume_with_itself() -> None:
    """A boot may be over before EC2's answer is on record; a standby was requested days before its resume."""
    entered = {ReplicaState.REQUESTED: NOW, ReplicaState.PROVISIONING: LATER, ReplicaState.STARTING: LATER}
    one = replace(STARTS, entered=entered)
    assert starts.began(one) == NOW
    assert starts.began(replace(one, is_standby=True, is_fallback=True)) == LATER


def test_what_is_dropped_is_counted() -> None:
    """Of two words for the same the first one counts."""
    told = f"{line(booted=NOW, sings=NOW)} booted={NOW.timestamp() + 1:.3f} loads="
    found = starts.said(told, NOW, NOW + seconds(9))
    assert (found.phases, found.dropped) == ({Phase.BOOTED: NOW}, 3)


@given(st.text(), st.text(), st.sampled_from(["booted=", "loads=", "x=", ""]))
def test_no_console_breaks_it(before: str, after: str, name: str) -> None:
    """Whatever stands there, each time is one of this start."""
    until = NOW + seconds(60)
    found = starts.said(f"{before}\n{CONSOLE_MARK} {name}{after}", NOW, until)
    assert all(NOW <= at <= until for at in found.phases.values())
    assert found.phases.keys() <= {*TOLD_BY_INSTANCES}


def answering(world: Troubled) -> tuple[Controller, str]:
    """A controller whose next tick hears a first answer, of the instance that comes back."""
    controller = Controller(world.ports())
    first = f"i-{1:017x}"
    world.prober.silent = {first}
    settle(world, controller)
    world.prober.silent.clear()
    world.clock.advance(timing.PROBE_AGAIN_S)
    world.fleet.consoles[first] = line(booted=world.clock.now(), loads=world.clock.now())
    world.calls.clear()
    world.telemetry.records.clear()
    return controller, first


def of(world: Troubled, instance_id: str) -> Replica:
    """The row of the instance's replica."""
    return next(r for r in active(world) if r.instance_id == instance_id)


def test_a_console_is_read_once_when_all_else_is_done(world: Troubled) -> None:
    """Registered, the lease given back, the next tick announced: then. The row says it once it is ready."""
    controller, first = answering(world)
    controller.tick("demo")
    order = [world.calls.index(c) for c in ("router.register", "store.release", "ticker.schedule")]
    assert max(order) < world.calls.index("fleet.console") < world.calls.index("store.note_starts")
    assert world.calls[-1] == "store.note_starts"
    assert Phase.BOOTED not in of(world, first).phases
    settle(world, controller)
    ready = of(world, first)
    assert ready.state is ReplicaState.READY
    assert ready.phases.keys() == {Phase.ANSWERED, Phase.REGISTERED, Phase.BOOTED, Phase.LOADS}
    assert world.calls.count("fleet.console") == 1
    (read,) = recorded(world, "console_read")
    assert (read["replica"], read["dropped"], read["phases"].keys()) == (ready.id, 0, {"booted", "loads"})
    (became,) = (one for one in recorded(world, "MarkReady") if one["replica"] == ready.id)
    assert became["phases"].keys() == {"booted", "loads"}


def test_what_is_heard_after_it_became_ready_is_noted_once(world: Troubled) -> None:
    """The next tick may be quicker than EC2's answer about the console."""
    controller, first = answering(world)
    world.meddle("store.note_starts", lambda *_: settle(world, Controller(world.ports())))
    controller.tick("demo")
    assert of(world, first).state is ReplicaState.READY
    assert Phase.LOADS not in of(world, first).phases
    settle(world, controller)
    assert Phase.LOADS in of(world, first).phases
    revision = of(world, first).revision
    settle(world, controller)
    assert of(world, first).revision == revision


@pytest.mark.parametrize("error", [Denied("no"), Throttled("later"), Unavailable("nobody answers")])
@pytest.mark.parametrize("call", ["fleet.console", "store.note_starts"])
def test_what_cannot_be_read_stays_unknown_and_fails_nothing(
    world: Troubled, call: str, error: Exception
) -> None:
    """The tick is done, nobody is alarmed, and the replica serves as soon as any other."""
    controller, first = answering(world)
    world.refuse(call, error)
    controller.tick("demo")
    assert not {Metric.CALLS_DENIED, Metric.ACTION_REQUIRED} & world.telemetry.counts.keys()
    settle(world, controller)
    assert of(world, first).state is ReplicaState.READY
    assert Phase.BOOTED not in of(world, first).phases
    assert world.calls.count("fleet.console") == 1
    (told,) = recorded(world, "console_unknown" if call == "fleet.console" else "starts_not_kept")
    assert str(error) in told["error"]


def test_consoles_take_no_longer_than_is_set_aside_for_them(world: Troubled) -> None:
    """Of many that start at once the rest stay unknown: the function has others to look after."""
    controller = Controller(world.ports())
    ids = {f"i-{n:017x}" for n in (1, 2, 3)}
    world.prober.silent = set(ids)
    settle(world, controller)
    world.prober.silent.clear()
    world.meddle("fleet.console", lambda _: world.clock.advance(0.6 * timing.CONSOLES_S), times=None)
    world.calls.clear()
    controller.tick("demo")
    assert world.calls.count("fleet.console") == 2
    (left_out,) = recorded(world, "console_unknown")
    assert left_out["error"] == "others took the 5 s that are set aside for consoles"


def test_a_standby_that_is_prepared_is_no_start(world: Troubled) -> None:
    """Nobody waits for it; its resume tells its own."""
    Consoles(world.ports()).read("demo", Rows(), [replace(STARTS, is_standby=True)])
    assert "fleet.console" not in world.calls


def test_replicas_of_one_instance_have_one_console(world: Troubled) -> None:
    """It is asked once, and what it told is the start of each of them."""
    second = replace(STARTS, id=2, instance_id=slot(ONE, 1, 8081))
    now = world.clock.now()
    world.fleet.consoles[ONE] = line(booted=now)
    asked_for = [replace(one, entered={ReplicaState.STARTING: now}) for one in (STARTS, second)]
    Consoles(world.ports()).read("demo", Rows(), asked_for)
    assert world.calls.count("fleet.console") == 1
    assert world.store.load("demo").starts == {1: {Phase.BOOTED: now}, 2: {Phase.BOOTED: now}}


def test_those_that_start_still_stay_on_record() -> None:
    """What was told of others, who are ready or gone by now, goes."""
    told = {1: {Phase.LOADS: NOW}, 2: {Phase.LOADS: NOW}, 3: {Phase.LOADS: NOW}}
    replicas = {1: STARTS, 2: a_replica(2, ReplicaState.READY)}
    new = {4: {Phase.BOOTED: NOW}}
    assert starts.to_keep(Rows(replicas=replicas, starts=told), new) == {1: told[1], 4: new[4]}


def test_what_an_instance_told_meanwhile_is_on_the_row_that_gets_ready() -> None:
    """Beside what is there: one write says both."""
    known = replace(STARTS, phases={Phase.BOOTED: NOW})
    ready = steps.mark_ready(known, LATER, {Phase.SETS_UP: LATER})
    assert ready.row.phases == {Phase.BOOTED: NOW, Phase.SETS_UP: LATER}
