"""What the functions make of their queues' messages; the entry points in lambdas/ only hand them over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import DeadLetters, PortError, Telemetry
from spotrelay.plane.events import Ignored, Signal, parse
from spotrelay.plane.events.ticks import MalformedTickError, Tick, TickKind, parse_tick


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
            self._set_aside(body, error, "ticks", Metric.TICKS_MALFORMED)
            return
        if tick.service is None:
            self.controller.tick_all()
            return
        try:
            self._run(tick.service, tick)
        except PortError as error:  # Lambda's own line about it doesn't name the service
            self.telemetry.record("tick_failed", service=tick.service, error=repr(error))
            raise

    def _run(self, service: str, tick: Tick) -> None:
        match tick.kind:
            case TickKind.TICK:
                self.controller.tick(service, tick.due, announced=dict(tick.announced))
            case TickKind.LEAVE:
                self.controller.leave(service)
            case TickKind.REMOVED:
                self.controller.note_removal(service)
            case TickKind.OVERRIDE:
                self.controller.tick(service, override=tick.override)

    def _signal(self, body: str) -> Signal | None:
        """The signal in a message. Whatever else is in it is this message's trouble, and no other's."""
        try:
            signal = parse(json.loads(body))
        # ValueError: no JSON, or a number of thousands of digits. RecursionError: as deep as Python's stack.
        except (ValueError, RecursionError) as error:
            self._set_aside(body, error, "signals", Metric.MESSAGES_MALFORMED)
            return None
        if isinstance(signal, Ignored):
            self.telemetry.count(Metric.SIGNALS_IGNORED)
            self.telemetry.record("ignored_event", why=signal.why)
            return None
        return signal

    def _set_aside(self, body: str, error: Exception, source: str, counted: Metric) -> None:
        # It may quote what SQS refuses, such as a NUL: `repr` escapes that.
        why = repr(error)[:1000]
        self.telemetry.count(counted)
        self.telemetry.record("malformed_message", error=why, body=body[:1000])
        self.dead_letters.set_aside(body, why, source)
