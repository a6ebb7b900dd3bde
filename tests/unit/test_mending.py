"""What ticks find that a person must mend: what surveys found, surveys that don't come, late leaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.mending import Finding, FindingKind
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import Survey
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.requirements import Requirements
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import World
from spotrelay.plane.serving import interruption, mending, steps
from spotrelay.plane.serving.observation import Observation
from tests.examples import demo_spec
from tests.unit.cases import NOW, a_replica

SPEC = demo_spec()
SILENT = seconds(timing.SURVEY_SILENT_S)
A_SECOND = timedelta(seconds=1)
SHORT = Finding(FindingKind.QUOTA_SHORT, "0 vCPU")


def a_survey(at: datetime, **facts: object) -> Survey:
    """One that found no pools."""
    return Survey("demo", Requirements(), at, (), **facts)  # type: ignore[arg-type]


def kinds(found: object) -> list[FindingKind]:
    """Which they are."""
    return [finding.kind for finding in found]  # type: ignore[attr-defined]


def test_what_the_last_survey_found_is_told_while_it_is_the_last() -> None:
    """Each time that a tick looks, in the survey's own words."""
    assert list(mending.of_surveys(Rows(), a_survey(NOW, findings=(SHORT,)), NOW)) == [SHORT]
    assert list(mending.of_surveys(Rows(), a_survey(NOW), NOW)) == []


@pytest.mark.parametrize(("age", "is_told"), [(SILENT, False), (SILENT + A_SECOND, True)])
def test_surveys_that_do_not_come_are_told_after_three_hours(age: timedelta, is_told: bool) -> None:
    """From the last one on, or from the first replica of a service that never had one; and so are days."""
    wanted = [FindingKind.SURVEY_SILENT] * is_told
    assert kinds(mending.of_surveys(Rows(), a_survey(NOW - age), NOW)) == wanted
    first = replace(a_replica(1, ReplicaState.READY), entered={ReplicaState.REQUESTED: NOW - age})
    assert kinds(mending.of_surveys(Rows(replicas={1: first}), None, NOW)) == wanted
    unwritten = a_survey(NOW, accounted_at=NOW - age)
    assert kinds(mending.of_surveys(Rows(), unwritten, NOW)) == wanted


def test_a_service_without_replicas_awaits_no_survey() -> None:
    """Nothing is launched, so nobody needs one; and a row of before doesn't say when days were written."""
    assert list(mending.of_surveys(Rows(), None, NOW)) == []
    assert list(mending.of_surveys(Rows(), a_survey(NOW, accounted_at=None), NOW)) == []


def warned(number: int, ago_s: float, state: ReplicaState = ReplicaState.READY) -> Replica:
    """A replica that has served for an hour, and was warned so long ago."""
    return a_replica(number, state, warned_at=NOW - seconds(ago_s))


def late(*replicas: Replica, spared: frozenset[str] = frozenset()) -> list[FindingKind]:
    """What is told where the tick takes the first one out."""
    rows = Rows(replicas={r.id: r for r in replicas})
    first = replicas[0]
    if first.state is ReplicaState.DRAINING:
        left = steps.end(first, NOW, "interruption warning")
    else:
        left = steps.drain(first, NOW, "interruption warning", warned_at=first.warned_at)
    return kinds(mending.late_leaves(SPEC, Observation(rows, {}, {}, spared=spared), [left], NOW))


AT_DRAIN_S = (interruption.looks_due(SPEC, NOW)[0] - NOW).total_seconds()
AT_LAST_S = (interruption.looks_due(SPEC, NOW)[1] - NOW).total_seconds()
OTHER = a_replica(9, ReplicaState.READY)


@pytest.mark.parametrize("beyond_s", [-1.0, 0.0, timing.LATE_LEAVE_S])
def test_a_tick_that_is_a_moment_faster_than_the_message_finds_nothing_late(beyond_s: float) -> None:
    """It takes out what is due, as it must, and nobody hears of it."""
    assert late(warned(1, AT_DRAIN_S + beyond_s), OTHER) == []
    assert late(warned(1, AT_LAST_S + beyond_s)) == []


def test_a_replica_that_nobody_took_out_in_time_is_late() -> None:
    """After the look before its drain, or as the last one after the look at its last moment."""
    beyond_s = timing.LATE_LEAVE_S + 0.5
    assert late(warned(1, AT_DRAIN_S + beyond_s), OTHER) == [FindingKind.LATE_LEAVE]
    assert late(warned(1, AT_LAST_S + beyond_s)) == [FindingKind.LATE_LEAVE]


def test_who_had_to_stay_is_not_late() -> None:
    """The last one stays until its last moment, though another is ready since; what EC2 spared leaves later;
    and what wasn't warned before, or has left, nobody had to look at.
    """
    overdue_s = AT_DRAIN_S + timing.LATE_LEAVE_S + 0.5
    assert overdue_s < AT_LAST_S, "the file's drain is long enough to tell the two apart"
    assert late(warned(1, overdue_s)) == []
    came_since = a_replica(9, ReplicaState.READY, since_s=1)
    assert late(warned(1, overdue_s), came_since) == []
    spared = warned(1, AT_LAST_S + timing.NOTICE_S)
    assert late(spared) == []
    assert late(warned(1, overdue_s), OTHER, spared=frozenset({str(OTHER.instance_id)})) != []
    assert late(warned(1, overdue_s), OTHER, spared=frozenset({str(warned(1, 0).instance_id)})) == []
    assert late(a_replica(1, ReplicaState.READY), OTHER) == []
    assert late(warned(1, overdue_s, ReplicaState.DRAINING), OTHER) == []


def test_who_is_only_just_found_ready_is_not_late() -> None:
    """It started until this very tick, and has served on for no moment."""
    rows = Rows(replicas={9: OTHER, 1: warned(1, AT_DRAIN_S + 60, ReplicaState.STARTING)})
    ready = warned(1, AT_DRAIN_S + 60)
    seen = Observation(rows).with_rows(Rows(replicas={9: OTHER, 1: ready}))
    actions = [steps.drain(ready, NOW, "interruption warning", warned_at=ready.warned_at)]
    assert list(mending.late_leaves(SPEC, seen, actions, NOW)) == []


def test_each_minutes_tick_counts_what_is_to_be_mended() -> None:
    """With its words in the ticks' log; not the ticks in between, and nothing once it is over."""
    world = World.of(SPEC)
    controller = Controller(world.ports())
    world.store.note_survey(a_survey(world.clock.now(), findings=(SHORT,)))
    controller.tick("demo")
    assert world.telemetry.counts[Metric.ACTION_REQUIRED] == 1
    (told,) = (facts for event, facts in world.telemetry.records if event == "to_mend")
    assert told == {"service": "demo", "kind": "quota_short", "found": "0 vCPU"}
    controller.tick("demo", world.clock.now())
    assert world.telemetry.counts[Metric.ACTION_REQUIRED] == 1
    world.store.note_survey(a_survey(world.clock.now()))
    controller.tick("demo")
    assert world.telemetry.counts[Metric.ACTION_REQUIRED] == 1
