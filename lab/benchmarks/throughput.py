"""Messages per second, from a handful to what an account-wide event brings.

The sizes are those of Karpenter's interruption benchmark, which has no published figures to compare with. A
queue sees the events of every instance of the account, so most of them are somebody else's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from lab.benchmarks.figures import Figure, Row, Tell, ratio
from lab.benchmarks.loopback.client import loopback, pretend_lambda
from lab.benchmarks.world import BATCH, MeasuredService, batches, context, settings, warning

FEW = 100
SIZES = (1_000, 5_000, 15_000)
"""One run of the largest; the others are how it begins."""

SECTION = 1_000
"""Messages after which a ratio is taken: the run gives fifteen, and their median counts."""

OFFSET = 30
"""Messages by which the small run is ahead of the large one."""

FLAT = 0.9
"""Of the rate of 100, what 15,000 must reach."""

FOREIGN = 9
"""Number of a service that there isn't."""


@dataclass(frozen=True, slots=True)
class _Mix:
    """Whose instances the messages are about."""

    name: str
    share: int
    """One in so many is about ours; 0: none."""
    large_per_small: int
    """Batches of the large run between two of the small one that it is compared with. So finely interleaved,
    whatever slows the machine down slows both; batches that take long disturb each other less."""


MIXES = (_Mix("foreign", 0, 1), _Mix("1_percent_ours", 100, 1), _Mix("ours", 1, 4))


def measure(tell: Tell) -> Sequence[Figure]:
    """Each mix in each size."""
    small, large = MeasuredService("small", FEW, number=1), MeasuredService("large", max(SIZES), number=2)
    foreign = MeasuredService("foreign", 0, number=FOREIGN)

    def mixed(service: MeasuredService, count: int, share: int) -> list[str]:
        """Warnings, of which one in `share` is about the service's own instances (0: none), not the first."""
        owners = (service if share and n % share == share // 2 else foreign for n in range(count))
        return [warning(owner.instance_id(n + 1)) for n, owner in enumerate(owners)]

    done, total = 0, len(MIXES) * max(SIZES)
    figures: list[Figure] = []
    with loopback() as server:
        pretend_lambda(server, settings(server))
        from lambdas.on_signal import handler  # with the environment in place

        tell(0, total, "filling the table")
        small.load_into(server)
        large.load_into(server)
        nothing = next(batches(mixed(foreign, BATCH, 1)))

        def seconds(event: dict[str, Any]) -> float:
            began = time.perf_counter()
            if handler(event, context())["batchItemFailures"]:
                raise RuntimeError("messages are to be delivered again: see the log")
            return time.perf_counter() - began

        def rewind() -> None:
            server.rewind(f"SERVICE#{small.name}")
            seconds(nothing)  # the server has had to touch all of its memory: nobody's turn pays for that

        # Warm: clients are built, connections opened, documents read.
        for service in (small, large):
            for event in batches(mixed(service, FEW, 1)):
                seconds(event)
        for mix in MIXES:
            server.rewind()
            pair = _Pair(mix, seconds, mixed(small, FEW, mix.share), rewind)
            many = mixed(large, max(SIZES), mix.share)
            for start in range(0, len(many), SECTION):
                tell(done, total, f"messages, {mix.name.replace('_', ' ')}")
                pair.section(many[start : start + SECTION])
                done += SECTION
            figures += _of_mix(mix, pair)
    return figures


class _Pair:
    """A large run, and small ones of `FEW` messages again and again in between."""

    def __init__(
        self,
        mix: _Mix,
        seconds: Callable[[dict[str, Any]], float],
        few: Sequence[str],
        rewind: Callable[[], None],
    ) -> None:
        self._mix = mix
        self._seconds = seconds
        self._rewind = rewind
        # Not those first that the large run begins with: what is rare would always be warm from its turn.
        self._few = list(batches([*few[OFFSET:], *few[:OFFSET]]))
        self._turn = 0
        self.large_s: list[float] = []
        """Per message, of each section."""
        self.small_s: list[float] = []

    def section(self, bodies: Sequence[str]) -> None:
        """Handle them, with their share of the small run's."""
        large: list[float] = []
        small: list[float] = []
        for event in batches(bodies):
            large.append(self._seconds(event))
            if len(large) % self._mix.large_per_small == 0:
                small.append(self._seconds(self._few[self._turn]))
                self._turn = (self._turn + 1) % len(self._few)
                if self._turn == 0 and self._mix.share:
                    self._rewind()
        self.large_s.append(mean(large) / BATCH)
        self.small_s.append(mean(small) / BATCH)


def _of_mix(mix: _Mix, pair: _Pair) -> Iterator[Figure]:
    yield Figure(f"{mix.name}_{FEW}", 1 / mean(pair.small_s), "messages/s")
    for size in SIZES:
        yield Figure(f"{mix.name}_{size}", 1 / mean(pair.large_s[: size // SECTION]), "messages/s")
    yield Figure(
        f"{mix.name}_flatness",
        ratio(pair.small_s, pair.large_s),
        "x",
        f"rate of {max(SIZES):,} to that of {FEW}, interleaved",
        at_least=FLAT,
        tolerance=0.1,
        higher_is_better=True,
    )


ROW = Row("throughput", "Messages per second, ten at a time, one batch after the other", 50, measure)
