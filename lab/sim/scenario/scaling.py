"""Operators who ask for another number of replicas for a while, as `spotrelay scale` does."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SHARE = 0.3
"""The share of runs in which somebody does so."""

PER_MINUTE = 0.3
"""How often in a long run."""

LASTS_S, LONG_S = (5.0, 150.0), 20_000.0
"""Most requests end while faults last or soon after; some last until the run is over."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that will be made."""

    at: float
    service: str
    change: int
    """By how many replicas it differs from the deployed number, if at least one is left."""
    lasts_s: float
    reset_after_s: float | None
    """None: it isn't reset, and ends by itself."""


def draw(seed: int, services: list[str], faults_s: float, minutes: float | None) -> tuple[Asked, ...]:
    """A seed's requests, from a generator of their own: the rest of the run doesn't depend on them."""
    random = Random(f"{seed}-scale")  # noqa: S311 - to be repeated, not to be unpredictable
    number = random.choice((1, 2)) if random.random() < SHARE else 0
    if minutes is not None:
        number = round(PER_MINUTE * minutes)
    return tuple(_draw(random, services, faults_s) for _ in range(number))


def _draw(random: Random, services: list[str], faults_s: float) -> Asked:
    lasts_s = LONG_S if random.random() < 0.2 else random.uniform(*LASTS_S)
    return Asked(
        random.uniform(0, 0.9 * faults_s),
        random.choice(services),
        random.choice((-3, -2, -1, 1, 2, 3)),
        lasts_s,
        random.uniform(1, LASTS_S[1]) if random.random() < 0.3 else None,
    )
