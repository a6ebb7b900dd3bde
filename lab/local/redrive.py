"""SQS's way back from a dead-letter queue: StartMessageMoveTask, which MiniStack lacks. It is done at once.

Sources: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_StartMessageMoveTask.html,
and its guide, *Learn how to configure a dead-letter queue redrive in Amazon SQS*.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

JsonObject = dict[str, Any]


class RefusedError(ValueError):
    """SQS's code and words for a task that it doesn't begin."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Redrive:
    """Its tasks. `queues` gives every queue as MiniStack keeps it."""

    def __init__(self, queues: Callable[[], Collection[JsonObject]]) -> None:
        self._queues = queues
        self._tasks: list[JsonObject] = []

    def start(self, request: Mapping[str, Any]) -> JsonObject:
        """Move what is in a dead-letter queue to `DestinationArn`, or back to where each message came from.

        What was sent to the dead-letter queue itself came from nowhere: without a destination the task ends
        there. What is moved is a new message, with a new age and no attempts.

        Raises:
            RefusedError: there is no such queue, or it is nobody's dead-letter queue.
        """
        by_arn = {queue["attributes"]["QueueArn"]: queue for queue in self._queues()}
        source, wanted = request["SourceArn"], request.get("DestinationArn", "")
        for arn in (source, *([wanted] if wanted else [])):
            if arn not in by_arn:
                raise RefusedError(
                    "ResourceNotFoundException", "The resource that you specified doesn't exist."
                )
        if not any(_dead_letters_of(queue) == source for queue in by_arn.values()):
            raise RefusedError(
                "InvalidParameterValue",
                "Source queue must be configured as a Dead Letter Queue.",
            )
        messages = by_arn[source]["messages"]
        task = {"SourceArn": source, "Status": "COMPLETED", "ApproximateNumberOfMessagesMoved": 0}
        task["ApproximateNumberOfMessagesToMove"] = len(messages)
        for message in list(messages):
            target = by_arn.get(wanted or message["sys"].get("DeadLetterQueueSourceArn", ""))
            if target is None:
                task |= {"Status": "FAILED", "FailureReason": "CouldNotDetermineMessageSource"}
                break
            messages.remove(message)
            target["messages"].append(_anew(message))
            task["ApproximateNumberOfMessagesMoved"] += 1
        self._tasks.insert(0, {**task, "StartedTimestamp": int(time.time() * 1000)})
        return {"TaskHandle": str(uuid.uuid4())}

    def tasks(self, request: Mapping[str, Any]) -> JsonObject:
        """The last ones of a queue, the newest first: one, unless more are asked for."""
        found = [task for task in self._tasks if task["SourceArn"] == request["SourceArn"]]
        return {"Results": found[: int(request.get("MaxResults", 1))]}


def _dead_letters_of(queue: JsonObject) -> str:
    return str(json.loads(queue["attributes"].get("RedrivePolicy") or "{}").get("deadLetterTargetArn", ""))


def _anew(message: JsonObject) -> JsonObject:
    now = time.time()
    attributes = {name: value for name, value in message["sys"].items() if name != "DeadLetterQueueSourceArn"}
    return {
        **message,
        "id": str(uuid.uuid4()),
        "receipt_handle": None,
        "sent_at": now,
        "visible_at": now,
        "receive_count": 0,
        "first_receive_at": None,
        "sys": {**attributes, "SentTimestamp": str(int(now * 1000))},
    }
