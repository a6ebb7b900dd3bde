"""When a composite alarm holds its tongue, second by second."""

from __future__ import annotations

from typing import Any

import pytest

from lab.local.suppression import Suppression

WAIT_S, EXTENSION_S = 120, 300


class Alarms:
    """One composite alarm, and the one that suppresses it."""

    def __init__(self) -> None:
        self.alarm: dict[str, Any] = {
            "AlarmName": "lesser",
            "ActionsSuppressor": "greater",
            "ActionsSuppressorWaitPeriod": WAIT_S,
            "ActionsSuppressorExtensionPeriod": EXTENSION_S,
            "StateValue": "OK",
        }
        self.greater = "OK"
        self.told: list[tuple[float, str]] = []
        self.now = 0.0
        self.suppression = Suppression(self)

    def composite_alarms(self) -> list[dict[str, Any]]:
        """See `lab.local.suppression.Alarms`."""
        return [self.alarm]

    def composite_alarm(self, name: str) -> dict[str, Any] | None:
        """See `lab.local.suppression.Alarms`."""
        return self.alarm if name == self.alarm["AlarmName"] else None

    def alarm_state_of(self, reference: str) -> str | None:
        """See `lab.local.suppression.Alarms`."""
        return self.greater if reference == "greater" else None

    def act_on_alarm(self, alarm: dict[str, Any], old_state: str) -> None:
        """See `lab.local.suppression.Alarms`."""
        assert old_state != alarm["StateValue"]
        self.told.append((self.now, alarm["StateValue"]))

    def until(self, second: int) -> None:
        """Let time pass."""
        while self.now < second:
            self.now += 1
            self.suppression.pass_time(self.now)

    def enter(self, state: str) -> None:
        """The lesser alarm changes its state."""
        old, self.alarm["StateValue"] = self.alarm["StateValue"], state
        if self.suppression.may_act(self.alarm, old, state, self.now):
            self.act_on_alarm(self.alarm, old)


@pytest.fixture
def alarms() -> Alarms:
    """Both well."""
    return Alarms()


def test_it_waits_and_tells(alarms: Alarms) -> None:
    """Nothing suppresses it: told after WaitPeriod, and at once when it is over."""
    alarms.until(10)
    alarms.enter("ALARM")
    alarms.until(10 + WAIT_S - 1)
    assert alarms.told == []
    assert alarms.alarm["ActionsSuppressedBy"] == "WaitPeriod"
    alarms.until(500)
    assert alarms.told == [(10 + WAIT_S, "ALARM")]
    assert "ActionsSuppressedBy" not in alarms.alarm
    alarms.enter("OK")
    assert alarms.told[1:] == [(500, "OK")]


def test_what_is_over_while_it_waits_is_never_told(alarms: Alarms) -> None:
    """Neither that it was, nor that it is over."""
    alarms.enter("ALARM")
    alarms.until(WAIT_S - 1)
    alarms.enter("OK")
    alarms.until(1000)
    assert alarms.told == []


@pytest.mark.parametrize("greater_at", [0, 100], ids=["before", "within the wait"])
def test_it_is_silent_while_the_other_rings_and_tells_after(alarms: Alarms, greater_at: int) -> None:
    """Also for ExtensionPeriod after it; then what still rings is told, once."""
    alarms.until(1)
    alarms.enter("ALARM") if greater_at else None
    alarms.until(max(greater_at, 1))
    alarms.greater = "ALARM"
    alarms.until(max(greater_at, 1) + 1)
    alarms.enter("ALARM") if not greater_at else None
    alarms.until(700)
    assert alarms.alarm["ActionsSuppressedBy"] == "Alarm"
    alarms.greater = "OK"
    alarms.until(700 + EXTENSION_S - 2)
    assert alarms.alarm["ActionsSuppressedBy"] == "ExtensionPeriod"
    assert alarms.told == []
    alarms.until(2000)
    ((at, state),) = alarms.told
    assert state == "ALARM"
    assert 700 <= at - EXTENSION_S <= 702


def test_what_begins_in_the_extension_is_told_after_it(alarms: Alarms) -> None:
    """Not after WaitPeriod: the other alarm's end may still explain it."""
    alarms.greater = "ALARM"
    alarms.until(100)
    alarms.greater = "OK"
    alarms.until(110)
    alarms.enter("ALARM")
    assert alarms.alarm["ActionsSuppressedBy"] == "ExtensionPeriod"
    alarms.until(100 + EXTENSION_S - 2)
    assert alarms.told == []
    alarms.until(1000)
    assert [state for _, state in alarms.told] == ["ALARM"]


def test_what_is_over_in_the_extension_is_never_told(alarms: Alarms) -> None:
    """All of it was the other alarm's."""
    alarms.greater = "ALARM"
    alarms.until(10)
    alarms.enter("ALARM")
    alarms.until(100)
    alarms.greater = "OK"
    alarms.until(200)
    alarms.enter("OK")
    alarms.until(2000)
    assert alarms.told == []
