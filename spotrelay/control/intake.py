"""What the functions make of their queues' messages; the entry points in lambdas/ only hand them over."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from spotrelay.control.controller import Controller
from spotrelay.core.names import SERVICE_NAME, Metric
from spotrelay.core.ports import DeadLetters, PortError, Telemetry
from spotrelay.events import Ignored, Signal, parse


class MalformedTickError(ValueError):
    """A message on the tick queue that isn't a tick."""


class TickKind(StrEnum):
    """What a message of the tick queue asks for."""

    TICK = "tick"
    """Compare what is with what should be."""
    LEAVE = "leave"
    """Look who of the warned replicas must leave the rotation by now."""
    REMOVED = "removed"
    """Put on record that the service's stack was removed, and tick."""
    OVERRIDE = "override"
    """Tick, and carry out what a tick would hold back: a person vouches for what it sees."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One service's tick, or (None) the schedule's, which is every service's.

    It is for now, whatever `due` says: that is the announced time that it serves, if any.
    """

    service: str | None
    due: datetime | None = None
    kind: TickKind = TickKind.TICK

    def to_json(self) -> str:
        """The message's body."""
        due = self.due and self.due.isoformat()
        return json.dumps({"service": self.service, "due": due, "kind": self.kind.value})


# {"service": "llama3", "due": "2026-11-21T07:00:03.000000+00:00", "kind": "tick"}; due may be null, and due
#  and kind missing
# {"version": "0", "id": "…", "detail-type": "Scheduled Event", "source": "aws.events", …, "detail": {}}
# {…, "detail-type": "Parameter Store Change", "source": "aws.ssm", …,
#  "detail": {"operation": "Update", "name": "/spotrelay/services/llama3", "type": "String"}}
def parse_tick(body: str) -> Tick:
    """The tick in a message's body.

    Raises:
        MalformedTickError: not JSON, no service of a name that one can have, or a time that is none.
    """
    try:
        message = json.loads(body)
        match message.get("source"):
            case "aws.events":
                return Tick(None)
            case "aws.ssm":
                detail = message["detail"]
                is_removed = detail.get("operation") == "Delete"
                kind = TickKind.REMOVED if is_removed else TickKind.TICK
                tick = Tick(detail["name"].rsplit("/", 1)[-1], kind=kind)
            case _:
                due = message.get("due")
                at = None if due is None else datetime.fromisoformat(due)
                tick = Tick(message["service"], at, TickKind(message.get("kind", TickKind.TICK)))
    # RecursionError: JSON as deep as Python's stack.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MalformedTickError(f"not a tick ({error!r}): {body[:200]}") from error
    # The name becomes part of keys and of a parameter's name, which AWS would refuse at each attempt.
    if not isinstance(tick.service, str) or not re.fullmatch(SERVICE_NAME, tick.service):
        raise MalformedTickError(f"a tick names its service, this one doesn't: {body[:200]}")
    if tick.due is not None and tick.due.tzinfo is None:
        raise MalformedTickError(f"the time of a tick has a zone, this one hasn't: {body[:200]}")
    return tick


@dataclass(frozen=True, slots=True)
class Intake:
    """A function's work: the controller, and what becomes of messages that it can't take."""

    controller: Controller
    dead_letters: DeadLetters
    telemetry: Telemetry

    def signals(self, messages: Mapping[str, str]) -> list[str]:
        """React to events (message ID → body); the IDs of those to be delivered again.

        Malformed ones are set aside and events that aren't for us counted; neither holds up the others.
        """
        signals: dict[str, Signal] = {}
        again: list[str] = []
        for id_, body in messages.items():
            try:
                signal = self._signal(body)
            except PortError as error:  # it couldn't be set aside
                self.telemetry.record("not_set_aside", error=repr(error))
                again.append(id_)
                continue
            if signal is not None:
                signals[id_] = signal
        try:
            failed = set(self.controller.handle(list(signals.values())))
        except PortError as error:
            self.telemetry.record("batch_failed", error=repr(error))
            failed = set(signals.values())
        return again + [id_ for id_, signal in signals.items() if signal in failed]

    def tick(self, body: str) -> None:
        """Run the tick of a message; a malformed one is set aside.

        Raises:
            PortError: it failed, and is to be delivered again.
        """
        try:
            tick = parse_tick(body)
        except MalformedTickError as error:
            self._set_aside(body, error)
            return
        if tick.service is None:
            self.controller.tick_all()
            return
        match tick.kind:
            case TickKind.TICK:
                self.controller.tick(tick.service, tick.due)
            case TickKind.LEAVE:
                self.controller.leave(tick.service)
            case TickKind.REMOVED:
                self.controller.note_removal(tick.service)
            case TickKind.OVERRIDE:
                self.controller.tick(tick.service, is_vouched_for=True)

    def _signal(self, body: str) -> Signal | None:
        """The signal in a message. Whatever else is in it is this message's trouble, and no other's."""
        try:
            signal = parse(json.loads(body))
        # ValueError: no JSON, or a number of thousands of digits. RecursionError: as deep as Python's stack.
        except (ValueError, RecursionError) as error:
            self._set_aside(body, error)
            return None
        if isinstance(signal, Ignored):
            self.telemetry.count(Metric.SIGNALS_IGNORED)
            self.telemetry.record("ignored_event", why=signal.why)
            return None
        return signal

    def _set_aside(self, body: str, error: Exception) -> None:
        why = (str(error) or type(error).__name__)[:1000]
        self.telemetry.count(Metric.MESSAGES_MALFORMED)
        self.telemetry.record("malformed_message", error=why, body=body[:1000])
        self.dead_letters.set_aside(body, why)
