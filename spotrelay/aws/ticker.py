"""`ports.Ticker` on two SQS queues: a tick may wait for what doesn't answer, and no leave may wait for it."""

from __future__ import annotations

import math
from datetime import datetime

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.core.held import Override
from spotrelay.events.ticks import Tick, TickKind

MAX_DELAY_S = 900
"""SQS holds a message back for a quarter of an hour at most."""


class SqsTicker:
    """See `ports.Ticker`."""

    def __init__(self, clients: Clients, tick_queue_url: str, leave_queue_url: str) -> None:
        self._clients = clients
        self._tick_queue_url = tick_queue_url
        self._leave_queue_url = leave_queue_url

    def schedule(self, service: str, due: datetime | None = None, delay_s: float = 0) -> None:
        """See `ports.Ticker.schedule`."""
        self._send(self._tick_queue_url, Tick(service, due), delay_s)

    def schedule_leave(self, service: str, delay_s: float) -> None:
        """See `ports.Ticker.schedule_leave`."""
        self._send(self._leave_queue_url, Tick(service, kind=TickKind.LEAVE), delay_s)

    def schedule_override(self, service: str, override: Override, delay_s: float) -> None:
        """See `ports.Ticker.schedule_override`."""
        tick = Tick(service, kind=TickKind.OVERRIDE, override=override)
        self._send(self._tick_queue_url, tick, delay_s)

    def _send(self, queue_url: str, tick: Tick, delay_s: float) -> None:
        """Whole seconds, rounded up: who looks too early finds nothing to do."""
        delay = min(max(math.ceil(delay_s), 0), MAX_DELAY_S)
        with translated():
            self._clients.sqs.send_message(QueueUrl=queue_url, MessageBody=tick.to_json(), DelaySeconds=delay)
