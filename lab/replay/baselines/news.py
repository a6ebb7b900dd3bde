"""Who polls learns late: what happened waits here until its policy would have found out."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.replay.cloud import Event


class News:
    """Events, each with the time at which it becomes known."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Event]] = []
        self._order = count()

    def add(self, known_at: float, event: Event) -> None:
        """It has happened, and will be known then."""
        heappush(self._waiting, (known_at, next(self._order), event))

    def known(self, now: float) -> list[Event]:
        """What became known since the last time this was asked, in the order in which it did."""
        events = []
        while self._waiting and self._waiting[0][0] <= now:
            events.append(heappop(self._waiting)[2])
        return events

    @property
    def next_at(self) -> float:
        """When there is something new to know; infinity for never."""
        return self._waiting[0][0] if self._waiting else math.inf
