"""What the functions make of their queues' messages; the entry points in lambdas/ only hand them over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from spotrelay.controller import Controller
from spotrelay.names import Metric
from spotrelay.ports import DeadLetters, PortError, Telemetry
from spotrelay.signals import Ignored, MalformedEventError, Signal, parse


class MalformedTickError(ValueError):
    """A message on the tick queue that isn't a tick."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One service's tick, or (None) the schedule's, which is every service's.

    It is for now, whatever `due` says: that is the announced time that it serves, if any.
    """

    service: str | None
    due: datetime | None = None

    def to_json(self) -> str:
        """The message's body."""
        return json.dumps({"service": self.service, "due": self.due and self.due.isoformat()})


# {"service": "llama3", "due": "2026-11-21T07:00:03.000000+00:00"}; due may be null or missing
# {"version": "0", "id": "…", "detail-type": "Scheduled Event", "source": "aws.events", …, "detail": {}}
# {…, "detail-type": "Parameter Store Change", "source": "aws.ssm", …,
#  "detail": {"operation": "Update", "name": "/spotrelay/services/llama3", "type": "String"}}
def parse_tick(body: str) -> Tick:
    """The tick in a message's body.

    Raises:
        MalformedTickError: not JSON, no service, or a time that is none.
    """
    try:
        message = json.loads(body)
        match message.get("source"):
            case "aws.events":
                return Tick(None)
            case "aws.ssm":
                return Tick(message["detail"]["name"].rsplit("/", 1)[-1])
        service, due = message["service"], message.get("due")
        tick = Tick(service, None if due is None else datetime.fromisoformat(due))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MalformedTickError(f"not a tick ({error!r}): {body[:200]}") from error
    if not isinstance(service, str) or not service:
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
        signals = {id_: s for id_, body in messages.items() if (s := self._signal(body)) is not None}
        try:
            failed = set(self.controller.handle(list(signals.values())))
        except PortError as error:
            self.telemetry.record("batch_failed", error=repr(error))
            failed = set(signals.values())
        return [id_ for id_, signal in signals.items() if signal in failed]

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
        else:
            self.controller.tick(tick.service, tick.due)

    def _signal(self, body: str) -> Signal | None:
        try:
            signal = parse(json.loads(body))
        except (MalformedEventError, json.JSONDecodeError) as error:
            self._set_aside(body, error)
            return None
        if isinstance(signal, Ignored):
            self.telemetry.count(Metric.SIGNALS_IGNORED)
            self.telemetry.record("ignored_event", why=signal.why)
            return None
        return signal

    def _set_aside(self, body: str, why: Exception) -> None:
        self.telemetry.count(Metric.MESSAGES_MALFORMED)
        self.telemetry.record("malformed_message", error=str(why), body=body[:1000])
        self.dead_letters.set_aside(body, str(why))
