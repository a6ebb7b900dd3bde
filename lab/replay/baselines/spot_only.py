"""What policies have in common that buy nothing but Spot: they differ in where, and in how often they
look."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar

from lab.replay.baselines.news import News
from lab.replay.cloud import LOST, NEVER

if TYPE_CHECKING:
    from lab.replay.cloud import Event, Machine, ReplayCloud
    from lab.replay.settings import ReplaySettings
    from lab.replay.traces import Trace


class SpotOnly(ABC):
    """N Spot replicas and `extra` ones, looked after every `period_s`.

    A loss is noticed when the policy looks next: at a moment drawn anew for each, because nothing ties its
    clock to the recording's. What is missing is launched then; what is refused is tried again a period later,
    for ever.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    hears_warnings: ClassVar[bool] = False
    period_s: ClassVar[float]
    extra: ClassVar[int] = 0

    def __init__(self, trace: Trace, settings: ReplaySettings) -> None:  # noqa: ARG002
        self._wanted = settings.replicas + self.extra
        self._chance = Random(f"{settings.seed} {self.name}")  # noqa: S311 - to be repeated
        self._believed: dict[str, Machine] = {}
        self._news = News()
        self._look_at = 0.0

    def wake(self, cloud: ReplayCloud, events: Sequence[Event]) -> float:
        """Launch what is known to be missing, when it is time to."""
        for event in events:
            if event.kind is LOST:
                self._news.add(event.at + self._chance.uniform(0, self.period_s), event)
        lost = self._news.known(cloud.now)
        for event in lost:
            self._believed.pop(event.machine.id, None)
        if lost or cloud.now >= self._look_at:
            self._look_at = NEVER
            missing = self._wanted - len(self._believed)
            launched = self.place(cloud, missing, list(self._believed.values())) if missing > 0 else []
            self._believed.update((machine.id, machine) for machine in launched)
            if len(launched) < missing:
                self._look_at = cloud.now + self.period_s
        return min(self._look_at, self._news.next_at)

    @abstractmethod
    def place(self, cloud: ReplayCloud, missing: int, present: Sequence[Machine]) -> list[Machine]:
        """Ask for so many instances, beside those that it believes to have; those that it got."""
