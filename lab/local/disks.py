"""What is kept of an instance's disk: images, and the snapshots that they are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(slots=True)
class LocalSnapshot:
    """Of a volume. It outlives its image."""

    id: str
    started_at: datetime
    size: int
    """In bytes."""
    tags: dict[str, str]
    is_complete: bool = False


@dataclass(slots=True)
class LocalImage:
    """One that was made of an instance here."""

    id: str
    name: str
    description: str
    source: str
    """The instance's ID."""
    made_at: datetime
    tags: dict[str, str]
    snapshots: list[str] = field(default_factory=list)
    state: str = "pending"
    why: str = ""
    """Why it failed."""
