"""`ports.Ticker` and `ports.Announcer` on an SQS queue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.core.held import Override
from spotrelay.events.ticks import Tick, TickKind

MAX_DELAY_S = 900
"""SQS holds a message back for a quarter of an hour at most."""


class SqsTicker:
    """See `ports.Ticker`, `ports.Announcer`."""

    def __init__(self, clients: Clients, queue_url: str) -> None:
        self._clients = clients
        self._queue_url = queue_url

    def schedule(self, service: str, due: datetime | None = None, delay_s: float = 0) -> None:
        """See `ports.Ticker.schedule`."""
        self._send(Tick(service, due), delay_s)

    def schedule_leave(self, service: str, delay_s: float) -> None:
        """See `ports.Ticker.schedule_leave`."""
        self._send(Tick(service, kind=TickKind.LEAVE), delay_s)

    def schedule_override(self, service: str, override: Override, delay_s: float) -> None:
        """See `ports.Ticker.schedule_override`."""
        self._send(Tick(service, kind=TickKind.OVERRIDE, override=override), delay_s)

    def announce(self, service: str, announced: Mapping[str, str]) -> None:
        """See `ports.Announcer.announce`."""
        self._send(Tick(service, announced=tuple(sorted(announced.items()))), 0)

    def _send(self, tick: Tick, delay_s: float) -> None:
        """Whole seconds, rounded up: who looks too early finds nothing to do."""
        delay = min(max(math.ceil(delay_s), 0), MAX_DELAY_S)
        with translated():
            self._clients.sqs.send_message(
                QueueUrl=self._queue_url, MessageBody=tick.to_json(), DelaySeconds=delay
            )
