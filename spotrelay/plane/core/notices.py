"""What SpotRelay tells the outside: events of its own. docs/events.md has them for those who receive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

SCHEMA = 1
"""Of an event's detail: it rises if a field goes or means something else. A new field is no change."""


class NoticeKind(StrEnum):
    """What an event is about: its detail-type."""

    REPLICA_READY = "ReplicaReady"
    """A replica serves."""
    REPLICA_LOST = "ReplicaLost"
    """EC2 takes a replica's instance back, or it ended or vanished without our doing."""
    REPLICA_REPLACED = "ReplicaReplaced"
    """A replica serves that was requested in place of a lost one."""
    FLEET_NOT_WHOLE = "FleetNotWhole"
    """Fewer replicas are in rotation than desired, and there had been as many."""
    FLEET_WHOLE = "FleetWhole"
    """As many are again."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that happened to a service, to be told once, or more often if nobody knows whether it was."""

    kind: NoticeKind
    service: str
    subject: str
    """What tells it from others of its kind and service: a replica's ID, or a time."""
    at: datetime
    """When it happened."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What JSON can say of it."""

    @property
    def id(self) -> str:
        """The same whenever it is told."""
        return f"{self.service}/{self.kind}/{self.subject}"

    @property
    def detail(self) -> dict[str, Any]:
        """The event's detail."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "service": self.service,
            "at": text_of(self.at),
            **self.facts,
        }


def text_of(at: datetime | None) -> str | None:
    """A time as events have it: RFC 3339 in UTC, with milliseconds."""
    if at is None:
        return None
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
