"""What SQS set aside can be had back, and what was put there by somebody only to a queue that is named."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.conftest import Aws

pytestmark = pytest.mark.xdist_group("local")


@dataclass(frozen=True, slots=True)
class Pair:
    """A queue and its dead-letter queue, each as URL and ARN."""

    aws: Aws
    source: tuple[str, str]
    dead: tuple[str, str]

    def fail(self, body: str) -> None:
        """Have a message received as often as the queue lets it, and set aside."""
        url = self.source[0]
        self.aws.sqs.send_message(QueueUrl=url, MessageBody=body)
        for _ in range(3):
            self.aws.sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)

    def redrive(self, **to: Any) -> tuple[str, int, str]:
        """Status of the task, how many it moved, and why it failed."""
        self.aws.sqs.start_message_move_task(SourceArn=self.dead[1], **to)
        (task,) = self.aws.sqs.list_message_move_tasks(SourceArn=self.dead[1])["Results"]
        return task["Status"], task["ApproximateNumberOfMessagesMoved"], task.get("FailureReason", "")

    def bodies(self, url: str) -> list[tuple[str, str]]:
        """(body, how often it was received) of what is in a queue."""
        got = self.aws.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["ApproximateReceiveCount"]
        )
        return [(m["Body"], m["Attributes"]["ApproximateReceiveCount"]) for m in got.get("Messages", [])]


@pytest.fixture
def pair(aws: Aws) -> Pair:
    """A queue that sets aside what was received twice."""
    found = Pair(aws, aws.queue(), aws.queue())
    policy = {"deadLetterTargetArn": found.dead[1], "maxReceiveCount": 2}
    aws.sqs.set_queue_attributes(QueueUrl=found.source[0], Attributes={"RedrivePolicy": json.dumps(policy)})
    return found


def test_what_failed_comes_back_as_new(pair: Pair) -> None:
    """To the queue that it came from, with no attempts."""
    pair.fail("late")
    assert pair.redrive() == ("COMPLETED", 1, "")
    assert pair.bodies(pair.dead[0]) == []
    assert pair.bodies(pair.source[0]) == [("late", "1")]


def test_what_came_from_nowhere_needs_a_destination(pair: Pair) -> None:
    """What a function put aside itself, SQS can't lead back; named, the queue gets it."""
    pair.aws.sqs.send_message(QueueUrl=pair.dead[0], MessageBody="odd")
    assert pair.redrive() == ("FAILED", 0, "CouldNotDetermineMessageSource")
    assert pair.redrive(DestinationArn=pair.source[1]) == ("COMPLETED", 1, "")
    assert pair.bodies(pair.source[0]) == [("odd", "1")]


def test_only_dead_letter_queues_are_emptied_so(pair: Pair) -> None:
    """As SQS refuses it."""
    with pytest.raises(ClientError, match="must be configured as a Dead Letter Queue"):
        pair.aws.sqs.start_message_move_task(SourceArn=pair.source[1])
