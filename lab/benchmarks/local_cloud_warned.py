"""From EC2's warning until the replica is out of rotation and its replacement launched, in a local cloud.

Beside a function that EventBridge calls directly and that makes the three calls without which it can't be
done reliably. One warning at a time: fifty functions at once would compete for this machine's processors, and
on Lambda they don't.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.benchmarks.figures import Figure, Row, Tell, ratio

if TYPE_CHECKING:
    from lab.benchmarks.local_cloud import Stand
    from lab.benchmarks.local_cloud_by_hand import Rules

SERVICE_FILE = Path(__file__).with_name("local_cloud_fleet.yaml")

WARNING_S = 120.0
"""EC2's own. The rounds are over by then: no event of an instance's end comes while a warning is measured."""

WARM_UP = 2
"""Rounds that don't count: clients that haven't been used yet connect, and read what they keep."""

ROUNDS, MOST_ROUNDS = 15, 35
"""That count: at least, and at most as time allows."""

ROUNDS_S = 60.0
"""What the rounds may take where the machine lets more than the fewest pass in it."""

UNWATCHED_S = 0.2
"""After a warning nobody looks for so long: to look takes time from what is measured, and more of it from
what takes longer. How much: docs/performance.md, *A single warning*."""

TOLERANCE = 1.0
"""Of the ratios: on a machine that has as much other work to do they were seen to double from run to run."""

DEREGISTERED, LAUNCHED = "deregistered", "launched"
OURS, BY_HAND = "SpotRelay", "by hand"

MAX_RATIO = {DEREGISTERED: 2.0, LAUNCHED: 1.3}
"""To the calls by hand. Until a deregistration there are two by hand and four of ours, which also read
whose the instance is and which replicas serve. A launch may take as much as a batch beside its calls by hand.
"""

Sample = tuple[str, str]
"""(what happened, by whom)"""


class Supply:
    """Instances that may be warned, each only once; `find` finds all that there are, at least one."""

    def __init__(self, find: Callable[[], Sequence[str]]) -> None:
        self._find = find
        self._found: list[str] = []

    def take(self) -> str:
        """One of them."""
        if not self._found:
            self._found = list(self._find())
        return self._found.pop(0)


@dataclass(frozen=True, slots=True)
class Contestant:
    """One that reacts to warnings, and whom to warn."""

    name: str
    rules: frozenset[str]
    tag: str
    """Value of the service tag on its instances."""
    victims: Supply


class WarnedRace:
    """Warns the contestants' instances in turn, and reads from the local cloud's records what came of it."""

    def __init__(self, stand: Stand, rules: Rules, contestants: Sequence[Contestant]) -> None:
        self._stand = stand
        self._rules = rules
        self._contestants = list(contestants)
        self._random = random.Random(1)  # noqa: S311 - an order, not a secret

    def round(self) -> Mapping[Sample, float]:
        """Each loses one instance; the seconds that each took.

        Raises:
            NeverHappenedError: somebody didn't do what it should, or did it twice.
        """
        took: dict[Sample, float] = {}
        # What was lost before leaves fewer pools to ask; the one by hand always asks all of them.
        self._stand.forgive_pools()
        # In another order each time, so that nobody always comes after the same one.
        for contestant in self._random.sample(self._contestants, len(self._contestants)):
            for event, seconds in self._warn(contestant).items():
                took[event, contestant.name] = seconds
        return took

    def _warn(self, contestant: Contestant) -> Mapping[str, float]:
        from lab.benchmarks.local_cloud import the_only

        stand = self._stand
        victim = contestant.victims.take()
        before = {row["instance_id"] for row in stand.cloud.instances()}

        def deregistered() -> list[float]:
            at = stand.warned([victim])[0]["deregistered_at"]
            return [] if at is None else [at]

        def launched() -> list[float]:
            return [
                row["launched_at"]
                for row in stand.cloud.instances()
                if row["instance_id"] not in before and row["service"] == contestant.tag
            ]

        self._rules.only(contestant.rules)
        stand.settle()
        stand.cloud.warn_all([victim])
        time.sleep(UNWATCHED_S)
        stand.eventually(deregistered, 1, f"warned instance of {contestant.name} deregistered")
        stand.eventually(launched, 1, f"replacement by {contestant.name} launched")
        warned_at = stand.warned([victim])[0]["warned_at"]
        return {
            DEREGISTERED: the_only(deregistered()) - warned_at,
            LAUNCHED: the_only(launched()) - warned_at,
        }


def figures(rounds: Sequence[Mapping[Sample, float]]) -> list[Figure]:
    """What the rounds say."""
    from lab.benchmarks.local_cloud import percentile

    found = []
    for event in (DEREGISTERED, LAUNCHED):
        ours, by_hand = ([took[event, who] for took in rounds] for who in (OURS, BY_HAND))
        what = f"to the calls by hand, {len(rounds)} rounds"
        value, target = ratio(ours, by_hand), MAX_RATIO[event]
        found.append(Figure(event, value, "x", what, at_most=target, tolerance=TOLERANCE))
        found += [
            Figure(f"{event}: {who} p{percent}", 1000 * percentile(times, percent), "ms")
            for who, times in ((OURS, ours), (BY_HAND, by_hand))
            for percent in (50, 99)
        ]
    return found


def measure(tell: Tell) -> Sequence[Figure]:
    """One warning at a time, the contestants in turn."""
    from lab.benchmarks.local_cloud import deployed

    began = time.monotonic()

    def say(doing: str) -> None:
        tell(min(time.monotonic() - began, ROW.takes_s), ROW.takes_s, doing)

    with deployed("warned", SERVICE_FILE, say, WARNING_S) as stand:
        say("the fleet comes up")
        stand.serving(stand.spec.replicas)
        race = _race(stand)
        for _ in range(WARM_UP):
            say("warnings: warm-up")
            race.round()
        took: list[Mapping[Sample, float]] = []
        end = time.monotonic() + ROUNDS_S
        while len(took) < ROUNDS or (len(took) < MOST_ROUNDS and time.monotonic() < end):
            say(f"warnings: round {len(took) + 1} of at least {ROUNDS}")
            took.append(race.round())
        return figures(took)


def _race(stand: Stand) -> WarnedRace:
    from lab.benchmarks.local_cloud import SERVICE
    from lab.benchmarks.local_cloud_by_hand import NAME, ByHand, Rules

    by_hand = ByHand(stand)
    rules = Rules(stand)
    contestants = (
        Contestant(OURS, rules.product, SERVICE, Supply(lambda: stand.serving(stand.spec.replicas))),
        Contestant(BY_HAND, frozenset({NAME}), NAME, Supply(by_hand.victims)),
    )
    return WarnedRace(stand, rules, contestants)


ROW = Row("warned", "From the warning to the reaction, on the local cloud", 110, measure)
