"""`ports.Ticker` on two SQS queues: a tick may wait for a replica that is silent, a leave may not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.held import Override
from spotrelay.plane.events.ticks import Tick, TickKind

MAX_DELAY_S = 900
"""SQS holds a message back for a quarter of an hour at most."""


class SqsTicker:
    """`ports.Ticker`: delayed messages on the queues of ticks and leaves."""

    def __init__(self, clients: Clients, tick_queue_url: str, leave_queue_url: str) -> None:
        self._clients = clients
        self._tick_queue_url = tick_queue_url
        self._leave_queue_url = leave_queue_url

    def schedule(self, service: str, due: datetime | None = None, delay_s: float = 0) -> None:
        _send(self._clients, self._tick_queue_url, Tick(service, due), delay_s)

    def schedule_leave(self, service: str, delay_s: float) -> None:
        _send(self._clients, self._leave_queue_url, Tick(service, kind=TickKind.LEAVE), delay_s)

    def schedule_override(self, service: str, override: Override, delay_s: float) -> None:
        tick = Tick(service, kind=TickKind.OVERRIDE, override=override)
        _send(self._clients, self._tick_queue_url, tick, delay_s)


class SqsAnnouncer:
    """`ports.Announcer`: a message on the tick queue."""

    def __init__(self, clients: Clients, tick_queue_url: str) -> None:
        self._clients = clients
        self._tick_queue_url = tick_queue_url

    def announce(self, service: str, announced: Mapping[str, str]) -> None:
        _send(self._clients, self._tick_queue_url, Tick(service, announced=tuple(sorted(announced.items()))))


def _send(clients: Clients, queue_url: str, tick: Tick, delay_s: float = 0) -> None:
    """Whole seconds, rounded up: who looks too early finds nothing to do."""
    delay = min(max(math.ceil(delay_s), 0), MAX_DELAY_S)
    with translated():
        clients.sqs.send_message(QueueUrl=queue_url, MessageBody=tick.to_json(), DelaySeconds=delay)
