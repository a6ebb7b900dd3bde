"""SQS queues, and the functions that they invoke."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random

from lab.sim.gate import Invocation
from lab.sim.scheduler import Killed, Scheduler
from lab.sim.timeline import Timeline
from spotrelay.plane.core.ports import PortError


@dataclass(slots=True, eq=False)
class Message:
    """One message on a queue."""

    id: str
    body: str
    visible_at: float
    receives: int = 0
    failed_deliveries: int = 0
    """Deliveries that failed because of a fault, not because of the message."""
    warned: str | None = None
    """The instance that it warns of, if it is a warning."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue and the function behind it; the numbers are the stack's."""

    name: str
    batch: int
    timeout_s: float
    visibility_s: float
    concurrency: int = 5
    max_receives: int = 5


TIMEOUT_S = 60.0
"""Of each function."""

SIGNALS = QueueSettings("signals", batch=10, timeout_s=TIMEOUT_S, visibility_s=90)
TICKS = QueueSettings("ticks", batch=1, timeout_s=TIMEOUT_S, visibility_s=360)
LEAVES = QueueSettings("leaves", batch=1, timeout_s=TIMEOUT_S, visibility_s=60, concurrency=3)

MAX_SKEW_S = 0.5
"""How wrong a function's clock may be; two of them may be a second apart."""

POLL_S = 0.2
"""The time between two polls of a queue."""

Handler = Callable[[Invocation, Mapping[str, str]], list[str]]
"""Takes message bodies by ID; returns the IDs of those to redeliver."""

OnEnd = Callable[[Invocation, list[Message], bool], None]
"""Takes the invocation, the messages that it deleted, and whether it came to its end."""


@dataclass(slots=True)
class SimQueue:
    """A queue, its function, and its dead-letter queue."""

    settings: QueueSettings
    scheduler: Scheduler
    random: Random
    handler: Handler
    on_end: OnEnd
    on_crash: Callable[[Exception], None]
    timeline: Timeline | None = None
    duplicates: float = 0.0
    """The share of messages that are delivered twice."""
    messages: dict[Message, None] = field(default_factory=dict)
    dead: list[Message] = field(default_factory=list)
    running: int = 0
    _numbers: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    @property
    def is_empty(self) -> bool:
        """Whether no message waits or is in flight."""
        return not self.messages and not self.running

    def send(self, body: str, delay_s: float = 0.0, warned: str | None = None) -> None:
        """Put a message on the queue."""
        self._send(body, delay_s, warned)
        if self.duplicates and self.random.random() < self.duplicates:
            self._send(body, delay_s + self.random.uniform(0, 5), warned)

    def send_once(self, body: str) -> None:
        """Put a message on the queue that is never duplicated."""
        self._send(body, 0.0, None)

    def _send(self, body: str, delay_s: float, warned: str | None) -> None:
        name = f"{self.settings.name}-{self._numbers()}"
        message = Message(name, body, self.scheduler.now + delay_s, warned=warned)
        self.messages[message] = None
        # Queues are polled: messages that arrive between two polls come together.
        self.scheduler.at(math.ceil(message.visible_at / POLL_S) * POLL_S, self._deliver)

    def _deliver(self) -> None:
        """Deliver visible messages, up to the function's concurrency."""
        settings, now = self.settings, self.scheduler.now
        while self.running < settings.concurrency:
            batch = []
            for message in list(self.messages):
                if message.visible_at <= now:
                    if message.receives == settings.max_receives:
                        del self.messages[message]
                        self.dead.append(message)
                    else:
                        batch.append(message)
                        if len(batch) == settings.batch:
                            break
            if not batch:
                return
            self._invoke(batch)

    def _invoke(self, batch: list[Message]) -> None:
        now, settings = self.scheduler.now, self.settings
        for message in batch:
            message.receives += 1
            message.visible_at = now + settings.visibility_s
            self.scheduler.at(message.visible_at, self._deliver)
        invocation = Invocation(f"{settings.name} {self._numbers()}", now + settings.timeout_s)
        invocation.began_at = now
        invocation.skew_s = self.random.uniform(-MAX_SKEW_S, MAX_SKEW_S)
        self.running += 1
        if self.timeline is not None:
            for message in batch:
                self.timeline.add(now, invocation.name, None, f"takes {message.id}", message.body)
        self.scheduler.start(invocation, lambda: self._work(invocation, batch))

    def _work(self, invocation: Invocation, batch: list[Message]) -> None:
        failed = {m.id for m in batch}
        done: list[Message] = []
        came_to_end = False
        try:
            failed = set(self.handler(invocation, {m.id: m.body for m in batch}))
            done = [m for m in batch if m.id not in failed]
            came_to_end = True
        except Exception as error:  # noqa: BLE001 - any error is checked, and redelivers the message
            if not isinstance(error, PortError):
                self.on_crash(error)
            self._trace_end(invocation, error)
        except Killed as error:
            self._trace_end(invocation, error)
        for message in batch:
            if message.id in failed:
                message.failed_deliveries += invocation.disturbances > 0
            else:
                self.messages.pop(message, None)
        self.running -= 1
        self.on_end(invocation, done, came_to_end)
        if self.messages:
            self.scheduler.at(self.scheduler.now, self._deliver)

    def _trace_end(self, invocation: Invocation, error: BaseException) -> None:
        if self.timeline is not None:
            self.timeline.add(self.scheduler.now, invocation.name, None, "ends with", repr(error))
