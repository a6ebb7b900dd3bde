"""`ports.Ticker` on an SQS queue, and the message that it sends."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import translated

MAX_DELAY_S = 900
"""SQS holds a message back for a quarter of an hour at most."""


class MalformedTickError(ValueError):
    """A message on the tick queue that isn't a tick."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One service's tick, or (None) the schedule's, which is every service's.

    It is for now, whatever `due` says: that is the announced time that it serves, if any.
    """

    service: str | None
    due: datetime | None = None


# {"service": "llama3", "due": "2026-11-21T07:00:03.000000+00:00"}; due may be null or missing
# {"version": "0", "id": "…", "detail-type": "Scheduled Event", "source": "aws.events", …, "detail": {}}
# {…, "detail-type": "Parameter Store Change", "source": "aws.ssm", …,
#  "detail": {"operation": "Update", "name": "/spotrelay/services/llama3", "type": "String"}}
def parse(body: str) -> Tick:
    """The tick in a message's body.

    Raises:
        MalformedTickError: not JSON, no service, or a time that is none.
    """
    try:
        message = json.loads(body)
        match message.get("source"):
            case "aws.events":
                return Tick(None)
            case "aws.ssm":
                return Tick(message["detail"]["name"].rsplit("/", 1)[-1])
        service, due = message["service"], message.get("due")
        tick = Tick(service, None if due is None else datetime.fromisoformat(due))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MalformedTickError(f"not a tick ({error!r}): {body[:200]}") from error
    if not isinstance(service, str) or not service:
        raise MalformedTickError(f"a tick names its service, this one doesn't: {body[:200]}")
    if tick.due is not None and tick.due.tzinfo is None:
        raise MalformedTickError(f"the time of a tick has a zone, this one hasn't: {body[:200]}")
    return tick


class SqsTicker:
    """See `ports.Ticker`."""

    def __init__(self, clients: Clients, queue_url: str) -> None:
        self._clients = clients
        self._queue_url = queue_url

    def schedule(self, service: str, due: datetime | None = None, delay_s: float = 0) -> None:
        """See `ports.Ticker.schedule`. Whole seconds, rounded up: a tick that is early finds nothing new."""
        body = json.dumps({"service": service, "due": None if due is None else due.isoformat()})
        delay = min(max(math.ceil(delay_s), 0), MAX_DELAY_S)
        with translated():
            self._clients.sqs.send_message(QueueUrl=self._queue_url, MessageBody=body, DelaySeconds=delay)
