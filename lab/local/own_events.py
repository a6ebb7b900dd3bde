"""What EventBridge refuses of PutEvents, and MiniStack takes.

Source: https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEventsRequestEntry.html and
https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-putevents.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_ENTRIES = 10
MAX_BYTES = 262_144
"""Of all entries of a call together."""

TIME_BYTES = 14
"""What an entry's time counts for."""

REQUIRED = ("Source", "DetailType", "Detail")


def why_no_call(entries: Sequence[Mapping[str, Any]]) -> str | None:
    """EventBridge's words for a call that it refuses as a whole; None for one that it takes."""
    limit = "greater than or equal to 1" if not entries else f"less than or equal to {MAX_ENTRIES}"
    if not 0 < len(entries) <= MAX_ENTRIES:
        return (
            f"1 validation error detected: Value '{len(entries)}' at 'entries' failed to satisfy constraint:"
            f" Member must have length {limit}"
        )
    if sum(map(_size, entries)) > MAX_BYTES:
        return "Total size of the entries in the request is over the limit."
    return None


def refusal_of(entry: Mapping[str, Any]) -> tuple[str, str] | None:
    """The error of one entry: code and message; None for one that EventBridge takes."""
    for name in REQUIRED:
        if not entry.get(name):
            return "InvalidArgument", f"Parameter {name} is not valid. Reason: {name} is a required argument."
    try:
        detail = json.loads(entry["Detail"])
    except ValueError:
        detail = None
    if not isinstance(detail, dict):
        return "MalformedDetail", "Detail is malformed."
    return None


def _size(entry: Mapping[str, Any]) -> int:
    texts = (*(entry.get(name) or "" for name in REQUIRED), *(entry.get("Resources") or ()))
    return sum(len(str(text).encode()) for text in texts) + TIME_BYTES * ("Time" in entry)
