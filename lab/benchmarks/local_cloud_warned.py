"""From EC2's warning until the replica is out of rotation and its replacement launched, in a local cloud.

Beside functions that EventBridge calls directly and that make the one call without which it can't be done;
and, for one warning at a time, beside one that makes the three without which it can't be done reliably.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.benchmarks.figures import Figure, Row, Tell

if TYPE_CHECKING:
    from lab.benchmarks.local_cloud import Stand
    from lab.benchmarks.local_cloud_minimal import Minimal, Rules

SERVICE_FILE = Path(__file__).with_name("local_cloud_fleet.yaml")

AT_ONCE = 50

WARM_UP = 1
"""Rounds that don't count: clients that haven't been used yet connect, and read what they keep."""

ROUNDS, MOST_ROUNDS = 7, 35
"""That count: at least, and at most as time allows."""

SINGLES_S, WAVES_S = 60.0, 65.0
"""What the rounds may take where the machine lets more than the fewest pass in it."""

BOOTED_S = 0.8
"""After a launch, until the new instances' own events have been sent."""

MAX_RATIO = 1.5

MAX_TO_BY_HAND = 1.3
"""As much as a batch's path may take beside the calls that it can't do without."""

TOLERANCE = 1.0
"""Of the ratios: on a machine that has as much other work to do they were seen to double from run to run."""

DEREGISTERED, LAUNCHED = "deregistered", "launched"
OURS, THEIRS, BY_HAND = "SpotRelay", "minimal", "by hand"

Sample = tuple[str, str]
"""(what happened, to whom)"""


class Supply:
    """Instances that may be warned, each only once; `find` finds all that there are, at least so many."""

    def __init__(self, find: Callable[[int], Sequence[str]]) -> None:
        self._find = find
        self._found: list[str] = []

    def take(self, count: int) -> list[str]:
        """So many of them."""
        if len(self._found) < count:
            self._found = list(self._find(count))
        taken, self._found = self._found[:count], self._found[count:]
        return taken


@dataclass(frozen=True, slots=True)
class Contestant:
    """One that reacts to warnings: whom to warn, and what is to happen then."""

    name: str
    rules: frozenset[str]
    tag: str
    """Value of the service tag on its instances."""
    does: tuple[str, ...]
    victims: Supply


class Race:
    """Warns the contestants' instances in turn, and reads from the local cloud's records what came of it."""

    def __init__(self, stand: Stand, rules: Rules, contestants: Sequence[Contestant]) -> None:
        self._stand = stand
        self._rules = rules
        self._contestants = list(contestants)
        self._random = random.Random(1)  # noqa: S311 - an order, not a secret

    def round(self, count: int) -> Mapping[Sample, list[float]]:
        """Everybody loses so many instances at once; the seconds that each took.

        Raises:
            NeverHappenedError: somebody didn't do what it should, or did it twice.
        """
        took: dict[Sample, list[float]] = {}
        # What was lost before leaves fewer pools to ask; the minimal function always asks all of them.
        self._stand.forgive_pools()
        # In another order each time, so that nobody always comes after the same one.
        for contestant in self._random.sample(self._contestants, len(self._contestants)):
            for event, times in self._warn(contestant, count).items():
                took[event, contestant.name] = times
        return took

    def _warn(self, contestant: Contestant, count: int) -> Mapping[str, list[float]]:
        from lab.benchmarks.local_cloud import in_turn

        stand = self._stand
        victims = contestant.victims.take(count)
        before = {row["instance_id"] for row in stand.cloud.instances()}
        self._rules.only(contestant.rules)
        stand.settle()
        stand.cloud.warn_all(victims)
        took = {}
        if DEREGISTERED in contestant.does:
            stand.eventually(
                lambda: self._times(victims, "deregistered_at"),
                count,
                f"warned instances of {contestant.name} deregistered",
            )
            took[DEREGISTERED] = self._times(victims, "deregistered_at")
        if LAUNCHED in contestant.does:
            took[LAUNCHED] = self._launched(contestant, before, count)
            if count > 1:
                # Before others have their turn.
                time.sleep(BOOTED_S)
                stand.settle()
        warned = self._times(victims, "warned_at")
        return {event: in_turn(warned, times) for event, times in took.items()}

    def _times(self, instance_ids: Sequence[str], event: str) -> list[float]:
        records = self._stand.warned(instance_ids)
        return [record[event] for record in records if record[event] is not None]

    def _launched(self, contestant: Contestant, before: set[str], count: int) -> list[float]:
        def launched() -> list[float]:
            return [
                row["launched_at"]
                for row in self._stand.cloud.instances()
                if row["instance_id"] not in before and row["service"] == contestant.tag
            ]

        return list(self._stand.eventually(launched, count, f"replacements by {contestant.name} launched"))


def figures(rounds: Sequence[Mapping[Sample, Sequence[float]]], how: str) -> list[Figure]:
    """What the rounds of one way to lose instances say."""
    from lab.benchmarks.local_cloud import middle_ratio, percentile

    def ratio(name: str, event: str, other: str, what: str, at_most: float) -> Figure:
        ours, theirs = ([took[event, who] for took in rounds] for who in (OURS, other))
        value = middle_ratio(ours, theirs)
        return Figure(name, value, "x", what, at_most=at_most, tolerance=TOLERANCE)

    def time_of(event: str, who: str, percent: int) -> Figure:
        times = [t for took in rounds for t in took[event, who]]
        return Figure(f"{event}, {how}: {who} p{percent}", 1000 * percentile(times, percent), "ms")

    found = []
    if (LAUNCHED, BY_HAND) in rounds[0]:
        what = "p50 / p50 of deregister, record, launch"
        found = [
            ratio(f"{LAUNCHED}, {how}, to {BY_HAND}", LAUNCHED, BY_HAND, what, MAX_TO_BY_HAND),
            time_of(LAUNCHED, BY_HAND, 50),
        ]
    for event in (DEREGISTERED, LAUNCHED):
        what = f"p50 / minimal's p50, {len(rounds)} rounds"
        found.append(ratio(f"{event}, {how}", event, THEIRS, what, MAX_RATIO))
        found += [time_of(event, who, percent) for who in (OURS, THEIRS) for percent in (50, 99)]
    return found


def measure(tell: Tell) -> Sequence[Figure]:
    """One at a time, then many at once, the contestants in turn."""
    from lab.benchmarks.local_cloud import deployed
    from lab.benchmarks.local_cloud_minimal import Minimal, Rules

    began = time.monotonic()

    def say(doing: str) -> None:
        tell(min(time.monotonic() - began, ROW.takes_s), ROW.takes_s, doing)

    with deployed("warned", SERVICE_FILE, say) as stand:
        minimal = Minimal(stand)
        rules = Rules(stand)
        say(f"the fleet comes up, and {AT_ONCE} processes of the minimal function start")
        minimal.warm_up(AT_ONCE)
        stand.serving(stand.spec.replicas)
        *contestants, by_hand = _contestants(stand, minimal, rules)
        singles, waves = Race(stand, rules, [*contestants, by_hand]), Race(stand, rules, contestants)
        return [
            *_measured(singles, 1, SINGLES_S, "one at a time", say),
            *_measured(waves, AT_ONCE, WAVES_S, f"{AT_ONCE} at once", say),
        ]


def _measured(race: Race, count: int, for_s: float, how: str, say: Callable[[str], None]) -> list[Figure]:
    for _ in range(WARM_UP):
        say(f"interruptions {how}: warm-up")
        race.round(count)
    took: list[Mapping[Sample, list[float]]] = []
    end = time.monotonic() + for_s
    while len(took) < ROUNDS or (len(took) < MOST_ROUNDS and time.monotonic() < end):
        say(f"interruptions {how}: round {len(took) + 1} of at least {ROUNDS}")
        took.append(race.round(count))
    return figures(took, how)


def _contestants(stand: Stand, minimal: Minimal, rules: Rules) -> list[Contestant]:
    """Ours, theirs, and the one by hand last."""
    from lab.benchmarks.local_cloud import SERVICE
    from lab.benchmarks.local_cloud_minimal import DEREGISTER, LAUNCH, NAME, REPLACE

    theirs = Supply(minimal.victims)
    return [
        Contestant(OURS, rules.product, SERVICE, (DEREGISTERED, LAUNCHED), Supply(stand.serving)),
        Contestant(THEIRS, frozenset({DEREGISTER}), NAME, (DEREGISTERED,), theirs),
        Contestant(THEIRS, frozenset({LAUNCH}), NAME, (LAUNCHED,), theirs),
        Contestant(BY_HAND, frozenset({REPLACE}), NAME, (DEREGISTERED, LAUNCHED), theirs),
    ]


ROW = Row("warned", "From the warning to the reaction, on the local cloud", 180, measure)
