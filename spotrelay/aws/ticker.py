"""`ports.Ticker` on an SQS queue."""

from __future__ import annotations

import math
from datetime import datetime

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated
from spotrelay.intake import Tick

MAX_DELAY_S = 900
"""SQS holds a message back for a quarter of an hour at most."""


class SqsTicker:
    """See `ports.Ticker`."""

    def __init__(self, clients: Clients, queue_url: str) -> None:
        self._clients = clients
        self._queue_url = queue_url

    def schedule(self, service: str, due: datetime | None = None, delay_s: float = 0) -> None:
        """See `ports.Ticker.schedule`. Whole seconds, rounded up: a tick that is early finds nothing new."""
        body = Tick(service, due).to_json()
        delay = min(max(math.ceil(delay_s), 0), MAX_DELAY_S)
        with translated():
            self._clients.sqs.send_message(QueueUrl=self._queue_url, MessageBody=body, DelaySeconds=delay)
