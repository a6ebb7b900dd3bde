"""Messages that no retry would mend: set aside at once, with the reason, where an alarm watches.

SQS would move them there by itself after as many attempts as its redrive policy has, minutes later and
without saying why. The queue is one for all that fails, so each message says where it came from: one that SQS
moved by its system attribute DeadLetterQueueSourceArn, one of EventBridge's by RULE_ARN, ours by `source`.
"""

from __future__ import annotations

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.ports import PortError, Telemetry

MAX_REASON = 1000
"""Characters; far below what a message may carry, and enough for any sentence of ours."""


class SqsDeadLetters:
    """`ports.DeadLetters`, as an SQS queue."""

    def __init__(self, clients: Clients, queue_url: str) -> None:
        self._clients = clients
        self._queue_url = queue_url

    def set_aside(self, body: str, why: str, source: str) -> None:
        """The message's attributes `why` and `source` carry both."""
        with translated():
            self._clients.sqs.send_message(
                QueueUrl=self._queue_url,
                MessageBody=body,
                MessageAttributes={
                    "why": {"DataType": "String", "StringValue": why[:MAX_REASON]},
                    "source": {"DataType": "String", "StringValue": source},
                },
            )


class MeasuredQueue:
    """A queue that nobody uses while all is well, and whose alarm is to be in time all the same."""

    def __init__(self, clients: Clients, queue_url: str, telemetry: Telemetry) -> None:
        self._clients = clients
        self._queue_url = queue_url
        self._telemetry = telemetry

    def keep_in_use(self) -> None:
        """Ask it for something. SQS measures a queue for six hours after any call to it, else it comes late.

        If that fails it is on record, and no more: an alarm that comes some minutes late.
        """
        try:
            with translated():
                self._clients.sqs.get_queue_attributes(
                    QueueUrl=self._queue_url, AttributeNames=["ApproximateNumberOfMessages"]
                )
        except PortError as error:
            self._telemetry.record("queue_not_asked", error=repr(error))
