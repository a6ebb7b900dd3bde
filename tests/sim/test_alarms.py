"""The simulation's alarms: they hear as CloudWatch does, and nothing else of a run depends on it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lab.sim import alarms
from lab.sim.alarms import SimAlarms
from lab.sim.gate import Invocation, Word
from lab.sim.rules import Rule
from lab.sim.rules.history import History
from lab.sim.rules.incidents import IncidentChecker, _Service
from lab.sim.run import run
from lab.sim.scheduler import Scheduler
from spotrelay.plane.core.names import Alarm


def heard(*values: tuple[float, bool], is_killed: bool = False, before: SimAlarms | None = None) -> SimAlarms:
    """An alarm that is told these, each at its time, by an invocation of its own."""
    told = before or SimAlarms(Scheduler(), seed=0, faults_s=-alarms.GOES_ON_S)
    for at, lasts in values:
        invocation = Invocation("a tick", 60.0)
        invocation.words.append(Word("demo", Alarm.NOT_WHOLE, lasts, at))
        invocation.is_dead = is_killed
        told.hear(invocation)
    return told


def rings(told: SimAlarms) -> bool | None:
    """Whether it rings."""
    return told.rings("demo", Alarm.NOT_WHOLE)


def test_an_alarm_takes_the_maximum_of_its_newest_minute() -> None:
    """A 0 in the minute of the last 1 changes nothing, one in a later minute does, and a late 1 doesn't."""
    assert rings(heard()) is None
    assert rings(heard((10, True), (50, False))) is True
    assert rings(heard((10, True), (70, False))) is False
    assert rings(heard((70, False), (10, True))) is False
    assert rings(heard((70, False), (80, True))) is True


def test_what_a_killed_function_told_nobody_hears() -> None:
    """Its lines are written when it ends; three in a row are too many to clear an alarm."""
    told = heard((10, True))
    for minute in range(1, 4):
        assert not told.is_deaf("demo", Alarm.NOT_WHOLE)
        heard((60.0 * minute, False), is_killed=True, before=told)
    assert rings(told) is True
    assert told.is_deaf("demo", Alarm.NOT_WHOLE)


@pytest.mark.parametrize(
    ("loaded_at", "at", "is_broken"),
    [(43, 94, False), (43, 121, True), (86, 94, True)],
    ids=["in its minute", "in the next minute", "of a tick that looked later"],
)
def test_a_late_word_of_a_tick_that_looked_before_clears_nothing(
    loaded_at: float, at: float, is_broken: bool
) -> None:
    """A slow tick goes by what it saw; another has told the alarm to ring since, in the same minute."""
    history = History(Scheduler(), cast("Any", None))
    checker = IncidentChecker(history, SimAlarms(Scheduler(), seed=0, faults_s=0.0))
    known = checker.services.setdefault("demo", _Service())
    one = known.alarms[Alarm.NOT_WHOLE]
    one.told_since, one.told_at, one.gone_at = 84.0, 88.0, 1.0
    slow = Invocation("a tick", 60.0)
    slow.loaded_at = loaded_at
    checker._check_word(slow, known, Word("demo", Alarm.NOT_WHOLE, False, at))
    assert [found.rule for found in history.violations] == [Rule.INCIDENT_LASTS] * is_broken


@pytest.mark.parametrize("seed", [3, 5])
def test_what_alarms_hear_changes_nothing_else(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of it goes wrong, the same other calls fail in the same way."""
    monkeypatch.setattr(alarms, "SHARES", (0.0,))
    without = run(seed)
    monkeypatch.setattr(alarms, "SHARES", (0.4,))
    assert (run(seed).hits, run(seed).violation) == (without.hits, None)
