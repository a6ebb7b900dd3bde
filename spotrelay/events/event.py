"""What all of EventBridge's events have in common, and what becomes of those that aren't for us."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

INSTANCE_ID = re.compile(r"i-[0-9A-Za-z-]{1,64}")
"""EC2's have 8 or 17 hexadecimal digits. DynamoDB refuses far longer keys, and the whole batch with them."""


class MalformedEventError(ValueError):
    """An event that claims to be one of ours and lacks what such an event carries."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Not for us, and why."""

    why: str


def instance_id_of(event: Mapping[str, Any], detail: Mapping[str, Any]) -> str:
    """The instance that it is about. Raises `MalformedEventError`."""
    # From the detail, never from the ARN, which carries the zone in some samples and the account in others.
    instance_id = detail.get("instance-id")
    if not isinstance(instance_id, str) or not INSTANCE_ID.fullmatch(instance_id):
        raise MalformedEventError(f"{event['detail-type']} {event.get('id')}: has no instance-id")
    return instance_id


def time_of(event: Mapping[str, Any]) -> datetime:
    """When it happened. Raises `MalformedEventError`."""
    try:
        at = datetime.fromisoformat(str(event["time"]))
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    # OverflowError: the first and the last day of all may have no such time in UTC.
    except (KeyError, ValueError, OverflowError) as error:
        raise MalformedEventError(f"{event['detail-type']} {event.get('id')}: has no time") from error
    raise MalformedEventError(f"{event['detail-type']} {event.get('id')}: its time has no zone")
