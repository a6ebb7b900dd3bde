"""Messages that no retry would mend: set aside at once, with the reason, where an alarm watches.

SQS would move them there by itself after as many attempts as its redrive policy has, minutes later and
without saying why.
"""

from __future__ import annotations

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated

MAX_REASON = 1000
"""Characters; far below what a message may carry, and enough for any sentence of ours."""


class SqsDeadLetters:
    """See `ports.DeadLetters`."""

    def __init__(self, clients: Clients, queue_url: str) -> None:
        self._clients = clients
        self._queue_url = queue_url

    def set_aside(self, body: str, why: str) -> None:
        """See `ports.DeadLetters.set_aside`. The message's attribute `why` carries the reason."""
        with translated():
            self._clients.sqs.send_message(
                QueueUrl=self._queue_url,
                MessageBody=body,
                MessageAttributes={"why": {"DataType": "String", "StringValue": why[:MAX_REASON]}},
            )
