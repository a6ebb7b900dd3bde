"""Composite alarms that hold their tongue while another alarm rings.

The rules are those of CloudWatch's user guide, "Suppressing composite alarm actions"
(docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Create_Composite_Alarm_Suppression.html). One that
goes off waits WaitPeriod for its suppressor to go off, too; while that rings, and ExtensionPeriod after it,
nobody is told anything; what still rings then tells so. What becomes of an alarm that is over before isn't
documented: here, nobody hears of that, which is the worse case for whoever waits for the news.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

WAIT, ALARM, EXTENSION = "WaitPeriod", "Alarm", "ExtensionPeriod"
"""Why actions are suppressed, in CloudWatch's words: ActionsSuppressedBy."""


@dataclass(slots=True)
class _Held:
    """A composite alarm's news that nobody was told yet."""

    by: str
    until: float
    """When it is over by itself; without meaning while the suppressor rings."""
    old_state: str


class Alarms(Protocol):
    """What there is of alarms."""

    def composite_alarms(self) -> list[dict[str, Any]]:
        """Every composite alarm."""

    def composite_alarm(self, name: str) -> dict[str, Any] | None:
        """One of them, by its name."""

    def alarm_state_of(self, reference: str) -> str | None:
        """The state of an alarm of either kind, by its name or ARN; None if there is none."""

    def act_on_alarm(self, alarm: dict[str, Any], old_state: str) -> None:
        """Carry out what an alarm does about the state that it is in."""


class Suppression:
    """Decides for each change of a composite alarm's state whether its actions are carried out now."""

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms
        self._held: dict[str, _Held] = {}
        self._rang: dict[str, float] = {}
        """When a suppressor was last seen ringing."""

    def may_act(self, alarm: Mapping[str, Any], old_state: str, new_state: str, now: float) -> bool:
        """Whether what the alarm does about its new state is done now."""
        name = alarm["AlarmName"]
        suppressor = alarm.get("ActionsSuppressor")
        if not suppressor:
            return True
        self._look(now)
        held = self._held.get(name)
        if new_state != "ALARM":
            if held:
                self._drop(name)
                return False
            return not self._suppresses(alarm, now)
        if self._rings(suppressor):
            self._hold(name, ALARM, now, old_state)
        elif (until := self._extended_until(alarm)) > now:
            self._hold(name, EXTENSION, until, old_state)
        else:
            self._hold(name, WAIT, now + float(alarm["ActionsSuppressorWaitPeriod"]), old_state)
        return False

    def pass_time(self, now: float) -> None:
        """Do what is due: let the waiting end, and the news be told that nothing suppresses any more."""
        self._look(now)
        for name, held in list(self._held.items()):
            alarm = self._alarms.composite_alarm(name)
            if alarm is None or not alarm.get("ActionsSuppressor"):
                self._drop(name)
            elif self._rings(alarm["ActionsSuppressor"]):
                if held.by != ALARM:
                    self._hold(name, ALARM, now, held.old_state)
            elif held.by == ALARM:
                self._hold(name, EXTENSION, self._extended_until(alarm), held.old_state)
            if alarm and (held := self._held.get(name, held)).by != ALARM and held.until <= now:
                self._drop(name)
                self._alarms.act_on_alarm(alarm, held.old_state)

    def age(self, by_s: float) -> None:
        """Have all that was seen until now be so much older."""
        self._rang = {name: at - by_s for name, at in self._rang.items()}
        for held in self._held.values():
            held.until -= by_s

    def _look(self, now: float) -> None:
        """Note who rings."""
        for alarm in self._alarms.composite_alarms():
            suppressor = alarm.get("ActionsSuppressor")
            if suppressor and self._rings(suppressor):
                self._rang[suppressor] = now

    def _rings(self, suppressor: str) -> bool:
        return self._alarms.alarm_state_of(suppressor) == "ALARM"

    def _extended_until(self, alarm: Mapping[str, Any]) -> float:
        rang = self._rang.get(alarm["ActionsSuppressor"], float("-inf"))
        return rang + float(alarm["ActionsSuppressorExtensionPeriod"])

    def _suppresses(self, alarm: Mapping[str, Any], now: float) -> bool:
        return self._rings(alarm["ActionsSuppressor"]) or self._extended_until(alarm) > now

    def _hold(self, name: str, by: str, until: float, old_state: str) -> None:
        self._held[name] = _Held(by, until, old_state)
        alarm = self._alarms.composite_alarm(name)
        if alarm is not None:
            alarm["ActionsSuppressedBy"] = by
            alarm["ActionsSuppressedReason"] = f"Actions suppressed by {by}"

    def _drop(self, name: str) -> None:
        self._held.pop(name, None)
        alarm = self._alarms.composite_alarm(name)
        if alarm is not None:
            alarm.pop("ActionsSuppressedBy", None)
            alarm.pop("ActionsSuppressedReason", None)
