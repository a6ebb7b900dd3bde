"""From EC2's warning until the replica is out of rotation and its replacement launched, in a local cloud.

Beside functions that EventBridge calls directly and that make the one call without which it can't be done.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Row, Tell

if TYPE_CHECKING:
    from benchmarks.local_cloud import Stand
    from benchmarks.local_cloud_minimal import Minimal, Rules

SERVICE_FILE = Path(__file__).with_name("local_cloud_fleet.yaml")

SINGLES, SINGLES_WARM_UP = 40, 5
"""Interruptions one at a time, of each contestant."""

AT_ONCE = 50
WAVES, WAVES_WARM_UP = 7, 1

MAX_RATIO = 1.5

TOLERANCE = 0.35
"""Of the ratios, from run to run on a machine that has other work to do."""

DEREGISTERED, LAUNCHED = "deregistered", "launched"
OURS, THEIRS = "SpotRelay", "minimal"

Sample = tuple[str, str]
"""(what happened, to whom)"""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One that reacts to warnings: how to find whom to warn, and what is to happen then."""

    name: str
    rule: str
    tag: str
    """Value of the service tag on its instances."""
    does: tuple[str, ...]
    victims: Callable[[int], Sequence[str]]


class Race:
    """Warns the contestants' instances in turn, and reads from the local cloud's records what came of it."""

    def __init__(self, stand: Stand, rules: Rules, contestants: Sequence[Contestant]) -> None:
        self._stand = stand
        self._rules = rules
        self._contestants = list(contestants)
        self._random = random.Random(1)  # noqa: S311 - an order, not a secret

    def round(self, count: int) -> Mapping[Sample, list[float]]:
        """Everybody loses so many instances at once; the seconds that each took."""
        took: dict[Sample, list[float]] = {}
        # In another order each time, so that nobody always comes after the same one.
        for contestant in self._random.sample(self._contestants, len(self._contestants)):
            for event, times in self._warn(contestant, count).items():
                took[event, contestant.name] = times
        return took

    def _warn(self, contestant: Contestant, count: int) -> Mapping[str, list[float]]:
        from benchmarks.local_cloud import eventually, in_turn

        victims = contestant.victims(count)
        self._rules.only(contestant.rule)
        self._stand.settle()
        before = {row["instance_id"] for row in self._stand.cloud.instances()}
        self._stand.cloud.warn_all(victims)
        warned = [record["warned_at"] for record in self._stand.warned(victims)]
        took = {}
        if DEREGISTERED in contestant.does:
            deregistered = eventually(
                lambda: all_of([r["deregistered_at"] for r in self._stand.warned(victims)]),
                f"{contestant.name}: {count} deregistered",
            )
            took[DEREGISTERED] = in_turn(warned, deregistered)
        if LAUNCHED in contestant.does:
            launched = eventually(
                lambda: enough(self._launched(contestant, before), count),
                f"{contestant.name}: {count} launched",
            )
            took[LAUNCHED] = in_turn(warned, launched)
        return took

    def _launched(self, contestant: Contestant, before: set[str]) -> list[float]:
        return [
            row["launched_at"]
            for row in self._stand.cloud.instances()
            if row["instance_id"] not in before and row["service"] == contestant.tag
        ]


def all_of(times: Sequence[float | None]) -> list[float] | None:
    """The times once there is none missing."""
    there = [time for time in times if time is not None]
    return there if len(there) == len(times) else None


def enough(times: list[float], count: int) -> list[float] | None:
    """The times once there are so many."""
    return times if len(times) >= count else None


def figures(took: Mapping[Sample, Sequence[float]], how: str) -> list[Figure]:
    """What the samples of one way to lose instances say."""
    found = []
    for event in (DEREGISTERED, LAUNCHED):
        from benchmarks.local_cloud import percentile

        ours, theirs = took[event, OURS], took[event, THEIRS]
        ratio = percentile(ours, 50) / percentile(theirs, 50)
        found.append(
            Figure(
                f"{event}, {how}",
                ratio,
                "x",
                "p50 since the warning / a minimal function's",
                at_most=MAX_RATIO,
                tolerance=TOLERANCE,
            )
        )
        found += [
            Figure(f"{event}, {how}: {name} p{percent}", 1000 * percentile(times, percent), "ms")
            for name, times in ((OURS, ours), (THEIRS, theirs))
            for percent in (50, 99)
        ]
    return found


def measure(tell: Tell) -> Sequence[Figure]:
    """One at a time, then many at once, the contestants in turn."""
    from benchmarks.local_cloud import deployed
    from benchmarks.local_cloud_minimal import Minimal, Rules

    began = time.monotonic()

    def say(doing: str) -> None:
        tell(min(time.monotonic() - began, ROW.takes_s), ROW.takes_s, doing)

    with deployed("warned", SERVICE_FILE, say) as stand:
        say("the fleet comes up")
        stand.serving(stand.spec.replicas)
        minimal = Minimal(stand)
        rules = Rules(stand)
        say(f"{AT_ONCE} processes of the minimal function start")
        minimal.warm_up(AT_ONCE)
        race = Race(stand, rules, _contestants(stand, minimal, rules))
        return [
            *_measured(race, 1, SINGLES, SINGLES_WARM_UP, "one at a time", say),
            *_measured(race, AT_ONCE, WAVES, WAVES_WARM_UP, f"{AT_ONCE} at once", say),
        ]


def _measured(
    race: Race, count: int, rounds: int, warm_up: int, how: str, say: Callable[[str], None]
) -> list[Figure]:
    took: dict[Sample, list[float]] = defaultdict(list)
    for number in range(-warm_up, rounds):
        say(
            f"interruptions {how}: {number} of {rounds} rounds"
            if number > 0
            else f"interruptions {how}: warm-up"
        )
        for sample, times in race.round(count).items():
            if number >= 0:
                took[sample] += times
    return figures(took, how)


def _contestants(stand: Stand, minimal: Minimal, rules: Rules) -> list[Contestant]:
    from benchmarks.local_cloud import SERVICE
    from benchmarks.local_cloud_minimal import DEREGISTER, LAUNCH, NAME

    def ours(count: int) -> list[str]:
        return stand.serving(count)

    return [
        Contestant(OURS, rules.product, SERVICE, (DEREGISTERED, LAUNCHED), ours),
        Contestant(THEIRS, DEREGISTER, NAME, (DEREGISTERED,), minimal.victims),
        Contestant(THEIRS, LAUNCH, NAME, (LAUNCHED,), minimal.victims),
    ]


ROW = Row("warned", "From the warning to the reaction, on the local cloud", 200, measure)
