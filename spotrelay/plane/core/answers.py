"""What replicas answer when they are asked: whether they are ready, and how busy they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyEvidence:
    """What a replica must show for its silence to be taken for a full queue.

    Its own server counts both, in the Prometheus text format, summed over all labels.
    """

    limit: float
    """A replica that has so many requests or more is full; the probe that waits is one of them."""
    finished: tuple[str, ...]
    """Metrics that count the requests it has answered since it started."""
    ongoing: tuple[str, ...]
    """Metrics of the requests it has, in progress or waiting."""
    path: str = "/metrics"
    longest_s: float = 1800
    """For so long at most the evidence excuses silence."""

    def __post_init__(self) -> None:
        for name in ("finished", "ongoing"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has lists alone


@dataclass(frozen=True, slots=True)
class Work:
    """What a replica has done and has to do, by its own account."""

    finished: float
    ongoing: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a replica isn't ready, by its own account."""

    words: str
    is_crash: bool = False
    """Its server keeps ending: see `spotrelay.file.instance.crash`."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What came of asking replicas with their readiness probe. Who is nowhere here didn't answer in time."""

    answering: frozenset[str] = frozenset()
    """By instance: with status 200."""
    refusing: frozenset[str] = frozenset()
    """In time, with an error that isn't about load, or with a connection that was refused."""
    work: Mapping[str, Work] = field(default_factory=dict)
    """Of those that are neither, what they tell about their work, where they were asked and told."""
    trouble: Mapping[str, Trouble] = field(default_factory=dict)
    """Of those that aren't ready, why, as far as they tell."""

    def __or__(self, other: Answers) -> Answers:
        return Answers(
            self.answering | other.answering,
            self.refusing | other.refusing,
            {**self.work, **other.work},
            {**self.trouble, **other.trouble},
        )
