"""Which incidents a service has, and what its alarms hear of them: at their edges, once each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core.incidents import Incidents, alarms_of
from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.names import Alarm
from spotrelay.plane.core.ports import Conflict, Denied, Unavailable
from spotrelay.plane.core.scaling import Scaling
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH
from spotrelay.plane.serving import incidents
from spotrelay.plane.serving.incidents import BLOCKED_S, SERVED_WITHIN_S, ZEROS, Situation
from tests.examples import demo_spec
from tests.unit.worlds import Troubled, active, dry, instance_of, recorded, serving, warn

ALL = tuple(alarm.value for alarm in incidents.CAUSES)
SPEC = replace(demo_spec(), alarms=ALL, initial_delay_s=600.0)
WHOLE = Situation(desired=3, ready=3, launched=3, has_served=True, is_better_elsewhere=False)
STARTING = replace(WHOLE, ready=0, launched=0, has_served=False)
START = EPOCH + seconds(3600.0)
"""No hour in which any alarm hears how it is, whatever the day."""


class Ticks:
    """Ticks of a service, and what its alarms heard."""

    def __init__(self, spec: ServiceSpec = SPEC, first: Situation = WHOLE) -> None:
        self.spec = spec
        self.now = START
        self.record = Incidents()
        self.heard: list[tuple[datetime, Alarm, bool]] = []
        for _ in range(ZEROS + 1):
            self.pass_s(60, first)
        self.heard.clear()

    def pass_s(self, duration_s: float, seen: Situation, every_s: float = 60) -> Ticks:
        """Let time pass, and tick at the end of each interval."""
        for _ in range(round(duration_s / every_s)):
            self.now += seconds(every_s)
            told = incidents.after(self.record, self.spec, seen, self.now)
            if told.record != self.record:
                self.record = replace(told.record, revision=told.record.revision + 1)
            self.heard += [(self.now, alarm, lasts) for alarm, lasts in told.heard.items()]
        return self

    def rings(self) -> set[Alarm]:
        """Those that ring by what they heard, as CloudWatch works it out: the maximum of the last minute."""
        state: dict[Alarm, tuple[datetime, bool]] = {}
        for at, alarm, lasts in self.heard:
            minute = at.replace(second=0, microsecond=0)
            before = state.get(alarm, (minute, False))
            state[alarm] = (minute, lasts or (before[0] == minute and before[1]))
        return {alarm for alarm, (_, rings) in state.items() if rings}


def test_a_new_service_hears_that_all_is_well_and_then_nothing() -> None:
    """Three minutes of zeros for each alarm; at rest nothing is sent, and nothing is written."""
    record, heard = Incidents(), list[dict[Alarm, bool]]()
    for minute in range(6):
        told = incidents.after(record, SPEC, WHOLE, START + seconds(60 * minute))
        heard.append(dict(told.heard))
        last, record = record, told.record
    assert heard == [dict.fromkeys(incidents.CAUSES, False)] * ZEROS + [{}] * (6 - ZEROS)
    assert record == last


def test_zeros_come_in_other_minutes_than_ones() -> None:
    """Ticks are three seconds apart: a zero in the minute of the last 1 would leave the maximum at 1."""
    ticks = Ticks().pass_s(60, replace(WHOLE, is_crash_looping=True), every_s=3)
    assert ticks.rings() == {Alarm.CRASH_LOOPING}
    ended = ticks.now
    ticks.pass_s(300, WHOLE, every_s=3)
    zeros = [at for at, _, lasts in ticks.heard if not lasts]
    assert len({at.replace(second=0, microsecond=0) for at in zeros}) == len(zeros) == ZEROS
    assert min(zeros) >= ended.replace(second=0, microsecond=0) + seconds(60)
    assert ticks.rings() == set()


def test_a_deployment_in_the_minute_of_an_end_costs_no_zero() -> None:
    """Two of three may get lost, so the third one counts: none comes in the minute of the last 1."""
    ticks = Ticks().pass_s(57, replace(WHOLE, is_crash_looping=True), every_s=3)
    ticks.pass_s(3, WHOLE, every_s=3)
    ended = ticks.now
    ticks.spec = replace(SPEC, version=2)
    ticks.heard.clear()
    ticks.pass_s(300, WHOLE, every_s=3)
    zeros = [at for at, alarm, _ in ticks.heard if alarm is Alarm.CRASH_LOOPING]
    assert len(zeros) == ZEROS
    assert min(zeros) >= ended.replace(second=0, microsecond=0) + seconds(60)


@pytest.mark.parametrize(
    ("alarm", "bad", "wait_s"),
    [
        (Alarm.NOTHING_READY, replace(WHOLE, ready=0), 60),
        (Alarm.CRASH_LOOPING, replace(WHOLE, is_crash_looping=True), 0),
        (Alarm.CRASH_LOOPING, replace(WHOLE, ready=2, launched=2, is_crash_looping=True), 0),
        (Alarm.CANNOT_LAUNCH, replace(WHOLE, launched=2), 180),
        (Alarm.NOT_WHOLE, replace(WHOLE, ready=2), 780),
        (Alarm.ROLLOUT_STOPPED, replace(WHOLE, is_rollout_stopped=True), 0),
        (Alarm.BETTER_ELSEWHERE, replace(WHOLE, is_better_elsewhere=True), 0),
    ],
)
def test_each_alarm_rings_after_its_wait_and_until_the_end(
    alarm: Alarm, bad: Situation, wait_s: float
) -> None:
    """No sooner, no later than the next tick; it hears so with every tick, and is over within two minutes."""
    ticks = Ticks().pass_s(wait_s, bad)
    assert ticks.rings() == set()
    ticks.pass_s(60, bad)
    assert ticks.rings() == {alarm}
    ticks.heard.clear()
    ticks.pass_s(600, bad)
    assert [(name, lasts) for _, name, lasts in ticks.heard] == [(alarm, True)] * 10
    ticks.pass_s(120, WHOLE)
    assert ticks.rings() == set()


def test_a_fallback_rings_by_its_age() -> None:
    """Two hours after it was launched, however many ticks came."""
    ticks = Ticks()
    there = replace(WHOLE, fallback_since=ticks.now)
    assert ticks.pass_s(7140, there, every_s=1020).rings() == set()
    assert ticks.pass_s(120, there).rings() == {Alarm.FALLBACK_TOO_LONG}


def test_a_refusal_counts_until_it_was_surely_asked_again() -> None:
    """EC2 is asked again after a quarter of an hour: until then nobody knows that it is mended."""
    ticks = Ticks()
    refused = replace(WHOLE, blocked_at=ticks.now)
    assert ticks.pass_s(60, refused).rings() == {Alarm.CANNOT_LAUNCH}
    ticks.pass_s(BLOCKED_S - 60, WHOLE)  # the row is gone that told it
    assert ticks.rings() == {Alarm.CANNOT_LAUNCH}
    assert ticks.pass_s(180, WHOLE).rings() == set()


def test_a_first_start_is_no_outage() -> None:
    """Nothing was ready ever, or for a week: that is a start, and what takes too long NotWhole."""
    ticks = Ticks(first=STARTING).pass_s(700, replace(STARTING, launched=3))
    assert Alarm.NOTHING_READY not in ticks.rings()
    asleep = replace(WHOLE, desired=0, ready=0, launched=0)
    ticks = Ticks().pass_s(SERVED_WITHIN_S + 2 * 3600, asleep, every_s=3600)
    assert ticks.pass_s(600, replace(WHOLE, ready=0)).rings() == set()


def test_a_service_that_sleeps_may_take_a_start_to_wake() -> None:
    """Where the load brings it to zero, nothing is ready for a start each time."""
    spec = replace(SPEC, scaling=Scaling(min_replicas=0, max_replicas=3))
    ticks = Ticks(spec).pass_s(780, replace(WHOLE, ready=0))
    assert ticks.rings() == set()
    assert ticks.pass_s(60, replace(WHOLE, ready=0)).rings() == {Alarm.NOTHING_READY}


def test_what_explains_another_rings_alone() -> None:
    """Nothing is ready, nothing can be launched, and it goes on for hours: one message."""
    dead = replace(WHOLE, ready=0, launched=0, blocked_at=START)
    ticks = Ticks().pass_s(3 * 3600, dead)
    assert {alarm for _, alarm, lasts in ticks.heard if lasts} == {Alarm.NOTHING_READY}


def test_what_is_left_after_the_explanation_rings_a_start_later() -> None:
    """One serves again, and the others don't come: that is a matter of its own."""
    ticks = Ticks().pass_s(3600, replace(WHOLE, ready=0))
    ticks.pass_s(720, replace(WHOLE, ready=1))
    assert ticks.rings() == set()
    assert ticks.pass_s(120, replace(WHOLE, ready=1)).rings() == {Alarm.NOT_WHOLE}


def test_what_rings_isnt_ended_by_an_explanation() -> None:
    """It lacked a replica, and then all: NotWhole goes on, or its end would be told while it is true."""
    ticks = Ticks().pass_s(1000, replace(WHOLE, ready=2)).pass_s(1000, replace(WHOLE, ready=0))
    assert ticks.rings() == {Alarm.NOT_WHOLE, Alarm.NOTHING_READY}


def test_an_unanswered_question_changes_nothing() -> None:
    """Only some ticks look at the survey: BetterElsewhere rings on until one finds that it isn't so."""
    ticks = Ticks().pass_s(60, replace(WHOLE, is_better_elsewhere=True))
    ticks.pass_s(600, replace(WHOLE, is_better_elsewhere=None))
    assert ticks.rings() == {Alarm.BETTER_ELSEWHERE}
    assert ticks.pass_s(180, WHOLE).rings() == set()


def test_a_deployment_is_told_and_clears_nothing_that_lasts() -> None:
    """A new version's alarms may be new: those that don't ring hear so, those that do go on."""
    ticks = Ticks().pass_s(60, replace(WHOLE, is_crash_looping=True))
    ticks.heard.clear()
    ticks.spec = replace(SPEC, version=2)
    ticks.pass_s(240, replace(WHOLE, is_crash_looping=True))
    told = {alarm: [lasts for _, a, lasts in ticks.heard if a is alarm] for alarm in incidents.CAUSES}
    assert told.pop(Alarm.CRASH_LOOPING) == [True] * 4
    assert set(map(tuple, told.values())) == {(False,) * ZEROS}


def test_a_record_that_was_lost_clears_no_alarm_whose_reason_may_last() -> None:
    """A table from a backup: replicas are missing, so NotWhole may ring, and hears nothing meanwhile."""
    ticks = Ticks(first=replace(WHOLE, ready=2))
    ticks.record = Incidents()
    ticks.pass_s(600, replace(WHOLE, ready=2))
    assert Alarm.NOT_WHOLE not in {alarm for _, alarm, _ in ticks.heard}
    ticks.pass_s(240, WHOLE)
    assert [lasts for _, alarm, lasts in ticks.heard if alarm is Alarm.NOT_WHOLE] == [False] * ZEROS


def test_a_service_seen_first_in_an_outage_has_one() -> None:
    """It was whole before there was this record: what isn't ready now is no first start."""
    ticks = Ticks(first=replace(WHOLE, ready=0))
    assert Alarm.NOTHING_READY in ticks.record.ringing


def test_each_alarm_hears_once_a_week_how_it_is() -> None:
    """So one that was set by hand ends, and a search finds the service; one that rings hears no zero."""
    ticks = Ticks().pass_s(60, replace(WHOLE, is_crash_looping=True))
    ticks.heard.clear()
    ticks.pass_s(7 * 86_400, replace(WHOLE, is_crash_looping=True))
    zeros = [alarm for _, alarm, lasts in ticks.heard if not lasts]
    assert {alarm: zeros.count(alarm) for alarm in zeros} == dict.fromkeys(
        incidents.CAUSES.keys() - {Alarm.CRASH_LOOPING}, ZEROS
    )
    hours = {at.replace(minute=0, second=0) for at, _, lasts in ticks.heard if not lasts}
    assert len(hours) == len(incidents.CAUSES) - 1, "each hour of a metric is paid for"


def test_only_the_alarms_that_there_are_hear() -> None:
    """A document without any is of before: its alarms look at what is counted."""
    spec = replace(SPEC, alarms=("NotWhole",))
    assert set(incidents.after(Incidents(), spec, WHOLE, START).heard) == {Alarm.NOT_WHOLE}
    assert incidents.after(Incidents(), replace(SPEC, alarms=()), WHOLE, START).heard == {}


@pytest.mark.parametrize(
    ("changes", "types", "missing"),
    [
        ({"on_update": OnUpdate.ROLLING}, 3, set()),
        ({}, 3, {Alarm.ROLLOUT_STOPPED}),
        (
            {"on_update": OnUpdate.ROLLING, "use_spot": False},
            3,
            {Alarm.FALLBACK_TOO_LONG, Alarm.BETTER_ELSEWHERE},
        ),
        ({"on_update": OnUpdate.ROLLING, "on_demand_fallback": False}, 3, {Alarm.FALLBACK_TOO_LONG}),
        ({"on_update": OnUpdate.ROLLING}, 2, {Alarm.BETTER_ELSEWHERE}),
    ],
)
def test_a_service_has_the_alarms_that_its_file_gives_a_meaning(
    changes: dict[str, object], types: int, missing: set[Alarm]
) -> None:
    """None that could never ring."""
    spec = replace(SPEC, **changes)  # type: ignore[arg-type]
    assert incidents.CAUSES.keys() - alarms_of(spec, types) == missing


SITUATIONS = st.builds(
    Situation,
    desired=st.integers(0, 3),
    ready=st.integers(0, 3),
    launched=st.integers(0, 3),
    has_served=st.booleans(),
    is_crash_looping=st.booleans(),
    is_rollout_stopped=st.booleans(),
    is_better_elsewhere=st.booleans(),
)


@given(seen=st.lists(st.tuples(SITUATIONS, st.sampled_from((3, 30, 60, 400, 4000))), max_size=40))
def test_whatever_happened_a_whole_service_has_no_alarm(seen: Sequence[tuple[Situation, int]]) -> None:
    """A few minutes after all is well, no alarm rings, by what it heard and by the record."""
    ticks = Ticks()
    for situation, every_s in seen:
        ticks.pass_s(every_s, situation, every_s=every_s)
        assert ticks.rings() >= ticks.record.ringing
    ticks.pass_s(60 * (ZEROS + 1), WHOLE)
    assert ticks.rings() == ticks.record.ringing == set()


# --- the controller ---


def watched() -> tuple[Troubled, Controller]:
    """A service that serves, whose alarms have heard that all is well."""
    world, controller = serving(replace(demo_spec(), alarms=ALL))
    tick(world, controller, ZEROS + 1)
    world.telemetry.told.clear()
    return world, controller


def tick(world: Troubled, controller: Controller, times: int) -> None:
    """The schedule's ticks, a minute apart."""
    for _ in range(times):
        world.clock.advance(60)
        controller.tick("demo")


def outage(world: Troubled) -> None:
    """All its instances end, and nothing else is to be had."""
    dry(world)
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(r) for r in active(world)])


def told(world: Troubled, alarm: Alarm) -> list[bool]:
    """What an alarm heard."""
    return [lasts for _, _, name, lasts in world.telemetry.told if name is alarm]


def test_at_rest_nothing_is_told_nor_written() -> None:
    """The metric costs nothing, and neither does the record."""
    world, controller = watched()
    world.calls.clear()
    tick(world, controller, 5)
    assert world.telemetry.told == []
    assert "store.note_incidents" not in world.calls


def test_alarms_of_an_earlier_stack_have_their_metrics() -> None:
    """A document that names no alarms is of before: all that a tick counts of the service is sent."""
    world, controller = serving(demo_spec())
    world.telemetry.sent.clear()
    tick(world, controller, 1)
    assert world.telemetry.sent == {"demo"}
    world, _ = watched()
    assert world.telemetry.sent == set()


def test_an_outage_is_told_and_its_end() -> None:
    """By ticks, with the time of the tick, and on record before it is told."""
    world, controller = watched()
    outage(world)
    world.meddle("store.note_incidents", lambda *_: untold.append(len(world.telemetry.told)), times=None)
    untold: list[int] = []
    tick(world, controller, 3)
    assert told(world, Alarm.NOTHING_READY)[-1]
    assert untold[0] == 0
    assert world.telemetry.told[-1][0] == world.clock.now()
    assert Alarm.NOTHING_READY in world.store.load("demo").incidents.ringing


def test_what_isnt_on_record_isnt_told_to_ring() -> None:
    """It would ring for ever if the next tick saw nothing. What is on record rings on, and hears zeros."""
    world, controller = watched()
    outage(world)
    world.refuse("store.note_incidents", Unavailable("no answer"), times=None)
    tick(world, controller, 4)
    assert told(world, Alarm.NOTHING_READY) == []
    assert recorded(world, "alarms_not_told")
    world.before.clear()
    tick(world, controller, 2)
    assert told(world, Alarm.NOTHING_READY)[-1]
    world.telemetry.told.clear()
    world.refuse("store.note_incidents", Unavailable("no answer"), times=None)
    tick(world, controller, 1)
    assert told(world, Alarm.NOTHING_READY) == [True]


def test_another_tick_s_record_wins() -> None:
    """Two at once: the one that wrote first tells alarms, and the other fails at nothing."""
    world, controller = watched()
    outage(world)
    tick(world, controller, 1)
    world.telemetry.told.clear()
    world.refuse("store.note_incidents", Conflict("somebody told them since"), times=None)
    tick(world, controller, 2)
    assert world.telemetry.told == []
    assert not recorded(world, "alarms_not_told")


def test_a_launch_that_a_person_must_mend_rings() -> None:
    """It is on the replica's row, whoever asked: a warning's launch, too, which tells no alarm itself."""
    world, controller = watched()
    world.refuse("fleet.launch", Denied("not authorized", "UnauthorizedOperation", "allow it"), times=None)
    controller.handle(warn(world, active(world)[0]))
    assert [r.blocked_at for r in active(world) if r.instance_id is None] == [world.clock.now()]
    assert world.telemetry.told == []
    tick(world, controller, 1)
    assert told(world, Alarm.CANNOT_LAUNCH) == [True]
