"""A queue in front of a function, with the dead-letter queue for what the function can't take."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

MAX_RECEIVE_COUNT = 5
"""Attempts before a message is set aside: AWS's advice, since what Lambda took from the queue and couldn't
run, because the function was throttled, has been received, too."""

DEAD_LETTER_RETENTION = Duration.days(14)
"""The longest SQS offers: an alarm on Friday evening still has its evidence after the holidays."""

RETENTION = Duration.hours(1)
"""Longer than all attempts of a message take, so that none expires on its way to the dead-letter queue. No
longer: an hour after a signal or a tick, those that followed have made it pointless."""

VISIBILITY_FACTOR = 6
"""AWS's rule: with less, a throttled function gets a message again while it still works on it."""


def dead_letter_queue(scope: Construct, id_: str) -> sqs.Queue:
    """A queue that only an operator reads."""
    return sqs.Queue(
        scope,
        id_,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=DEAD_LETTER_RETENTION,
    )


class FunctionQueue(Construct):
    """A queue whose messages a function takes; what failed `MAX_RECEIVE_COUNT` times is set aside."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        function_timeout: Duration,
        visibility: Duration | None = None,
        dead_letters: sqs.Queue | None = None,
    ) -> None:
        """`visibility`: when a message comes back, if that is other than AWS advises.

        `dead_letters` is another queue's; None: one of its own, for others to use, too.
        """
        super().__init__(scope, id_)
        advised = Duration.seconds(VISIBILITY_FACTOR * int(function_timeout.to_seconds()))
        self.dead_letters = dead_letters or dead_letter_queue(self, "DeadLetters")
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=RETENTION,
            visibility_timeout=visibility or advised,
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=MAX_RECEIVE_COUNT
            ),
        )

    def feed(
        self, function: lambda_.Function, *, batch_size: int, max_concurrency: int | None = None
    ) -> None:
        """Have `function` called at once with what is there; it answers with the messages that failed.

        `max_concurrency`: so many batches at the same time. Without it Lambda begins with five, and adds more
        only while messages are left; where there is little to do, it also asks the queue less often, which is
        what a queue at rest costs.
        https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html
        """
        function.add_event_source(
            sources.SqsEventSource(
                self.queue,
                batch_size=batch_size,
                max_concurrency=max_concurrency,
                report_batch_item_failures=True,
            )
        )
