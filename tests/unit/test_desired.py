"""How many replicas are desired: derived in one place, and read wherever something is decided."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import UnreadableDocument
from spotrelay.plane.core.rows import Desired, ScaleRequest, Source, as_desired, derive
from spotrelay.plane.core.spec import OnWarning
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH
from tests.examples import demo_spec
from tests.unit.worlds import (
    Troubled,
    active,
    alive,
    counted,
    in_rotation,
    instance_of,
    rows,
    serving,
    settle,
)
from tests.unit.worlds import warn as warned

LATER = EPOCH + seconds(60)
HOUR_S = 3600.0

moments = st.integers(-100, 100).map(lambda s: EPOCH + seconds(s))
requests = st.dictionaries(st.sampled_from(Source), st.builds(ScaleRequest, st.integers(0, 1000), moments))


def ask(world: Troubled, replicas: int, lasts_s: float = HOUR_S) -> None:
    """An operator asks for so many from now on."""
    request = ScaleRequest(replicas, world.clock.now() + seconds(lasts_s))
    world.store.note_request("demo", Source.OPERATOR, request)


def test_without_a_request_the_service_file_counts() -> None:
    """Its number has no end, and the document in effect is the deployed one."""
    assert derive(demo_spec(), {}, EPOCH) == Desired(3, Source.SERVICE_FILE, None)
    assert as_desired(demo_spec(), {}, EPOCH) == demo_spec()


def test_a_request_counts_until_the_very_instant_of_its_end() -> None:
    """A microsecond before it counts, and at its end the service file's number is back."""
    asked = {Source.OPERATOR: ScaleRequest(5, LATER)}
    assert derive(demo_spec(), asked, LATER - seconds(1e-6)) == Desired(5, Source.OPERATOR, LATER)
    assert derive(demo_spec(), asked, LATER) == Desired(3, Source.SERVICE_FILE, None)


@given(requests, moments, st.integers(0, 9))
def test_nobody_goes_by_a_request_that_is_over(
    asked: dict[Source, ScaleRequest], now: datetime, replicas: int
) -> None:
    """Whatever was asked for, the number is that of the highest source whose request isn't over."""
    found = derive(demo_spec(replicas=replicas), asked, now)
    live = [
        source
        for source in Source
        if source in asked and asked[source].counts(now) and source is not Source.LOAD
    ]
    if live:
        assert found == Desired(asked[live[-1]].replicas, live[-1], asked[live[-1]].until)
    else:
        assert found == Desired(replicas, Source.SERVICE_FILE, None)


@pytest.mark.parametrize(("asked", "base"), [(0, 0), (1, 1), (2, 2), (4, 2)])
def test_the_on_demand_base_is_a_part_of_the_replicas(asked: int, base: int) -> None:
    """Fewer replicas than the base leave so many of it, more leave all; nothing else changes."""
    spec = replace(demo_spec(), base_on_demand=2)
    applied = Desired(asked, Source.OPERATOR, LATER).applied_to(spec)
    assert applied == replace(spec, replicas=asked, base_on_demand=base)


def test_a_tick_launches_what_an_operator_asks_for() -> None:
    """Two more than the file says are launched, counted as missing until they serve, and all stay."""
    world, controller = serving()
    ask(world, 5)
    controller.tick("demo")
    assert counted(world) == [1, 2, 3, 4, 5]
    assert world.telemetry.counts[Metric.REPLICAS_MISSING] == 2
    settle(world, controller)
    assert counted(world) == [1, 2, 3, 4, 5]
    assert len(in_rotation(world)) == 5


def test_after_its_time_the_tick_goes_by_the_service_file_again() -> None:
    """The two additional ones go, and nobody has to say so."""
    world, controller = serving()
    ask(world, 5)
    settle(world, controller)
    world.clock.advance(HOUR_S)
    settle(world, controller)
    assert counted(world) == [1, 2, 3]


def test_a_reset_ends_it_at_once() -> None:
    """The next tick knows the service file's number only."""
    world, controller = serving()
    ask(world, 1)
    world.store.note_request("demo", Source.OPERATOR, None)
    controller.tick("demo")
    assert counted(world) == [1, 2, 3]


def test_what_is_kept_is_the_service_file_s_document() -> None:
    """An operator's number that was kept as the file's would outlive its time."""
    world, controller = serving()
    ask(world, 5)
    controller.tick("demo")
    world.services.specs["demo"] = replace(demo_spec(), drain_s=31)
    controller.tick("demo")
    assert rows(world).document == replace(demo_spec(), drain_s=31)
    world.calls.clear()
    controller.tick("demo")
    assert "store.keep_document" not in world.calls


def test_a_request_counts_with_the_last_document_too() -> None:
    """Where the deployed one can't be read, what is asked for is added to the one on record."""
    world, controller = serving()
    world.refuse("services.get", UnreadableDocument("demo"), times=None)
    ask(world, 4)
    controller.tick("demo")
    assert counted(world) == [1, 2, 3, 4]


def test_a_warning_goes_by_what_an_operator_asks_for() -> None:
    """Where all that are wanted must serve, one of three leaves at once if two are asked for."""
    world, controller = serving(replace(demo_spec(), on_warning=OnWarning.SERVE_ON))
    victim = active(world)[0]
    ask(world, 2)
    controller.handle(warned(world, victim))
    assert instance_of(victim) not in in_rotation(world)


def test_a_look_at_who_must_leave_goes_by_it() -> None:
    """One that serves on because all three were needed leaves when fewer are asked for."""
    world, controller = serving(replace(demo_spec(), on_warning=OnWarning.SERVE_ON))
    victim = active(world)[0]
    controller.handle(warned(world, victim))
    controller.leave("demo")
    assert instance_of(victim) in in_rotation(world)
    ask(world, 2)
    controller.leave("demo")
    assert instance_of(victim) not in in_rotation(world)


def test_one_serves_on_while_more_are_asked_for() -> None:
    """Of three that serve none leaves at once if five are asked for; by the file's three it would."""
    world, controller = serving()
    victim = active(world)[0]
    ask(world, 5)
    controller.handle(warned(world, victim))
    assert instance_of(victim) in in_rotation(world)


def test_none_at_all_means_what_the_file_s_none_means() -> None:
    """Asked for none, the service ends all that serve, and starts anew when its time is over."""
    world, controller = serving()
    ask(world, 0)
    settle(world, controller)
    world.clock.advance(200)
    settle(world, controller)
    assert not alive(world)
    world.clock.advance(HOUR_S)
    controller.tick("demo")
    assert len(counted(world)) == 3
