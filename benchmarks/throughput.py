"""Messages per second, from a handful to what an account-wide event brings.

The sizes are those of Karpenter's interruption benchmark, which has no published figures to compare with. A
queue sees the events of every instance of the account, so most of them are somebody else's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from benchmarks.figures import Figure, Row, Tell, ratio
from benchmarks.loopback.client import loopback, pretend_lambda
from benchmarks.world import BATCH, Service, batches, context, settings, warning

FEW = 100
SIZES = (1_000, 5_000, 15_000)

SECTION = 1_000
"""Messages after which a ratio is taken: the largest run gives fifteen, and their median counts."""

LARGE_PER_SMALL = 5
"""Batches of a large run between two batches of a small one, which is what it is compared with: so finely
interleaved, whatever slows the machine down slows both."""

FLAT = 0.9
"""Of the rate of 100, what 15,000 must reach."""

FOREIGN = 9
"""Number of a service that there isn't."""

EVERY_HUNDREDTH = 100


def measure(tell: Tell) -> Sequence[Figure]:
    """Each mix in each size."""
    small, large = Service("small", FEW, number=1), Service("large", max(SIZES), number=2)
    foreign = Service("foreign", 0, number=FOREIGN)

    def mixed(service: Service, count: int, share: int) -> list[str]:
        """Warnings, of which one in `share` is about the service's own instances (0: none)."""
        owners = (service if share and n % share == 0 else foreign for n in range(count))
        return [warning(owner.instance_id(n + 1)) for n, owner in enumerate(owners)]

    mixes = {"foreign": 0, "1_percent_ours": EVERY_HUNDREDTH, "ours": 1}
    done, total = 0, len(mixes) * sum(SIZES)
    figures: list[Figure] = []
    with loopback() as server:
        pretend_lambda(server, settings(server))
        from lambdas.on_signal import handler  # with the environment in place

        tell(0, total, "filling the table")
        small.load_into(server)
        large.load_into(server)

        def seconds(event: dict[str, Any]) -> float:
            began = time.perf_counter()
            if handler(event, context())["batchItemFailures"]:
                raise RuntimeError("messages are to be delivered again: see the log")
            return time.perf_counter() - began

        # Warm: clients are built, connections opened, documents read.
        for service in (small, large):
            for event in batches(mixed(service, FEW, 1)):
                seconds(event)
        for mix, share in mixes.items():
            for size in SIZES:
                server.rewind()
                pair = _Pair(seconds, mixed(small, FEW, share), lambda: server.rewind("SERVICE#small"))
                many = mixed(large, size, share)
                for start in range(0, size, SECTION):
                    tell(done, total, f"{mix}: {size:,} messages")
                    pair.section(many[start : start + SECTION])
                    done += SECTION
                figures.append(Figure(f"{mix}_{size}", 1 / mean(pair.large_s), "messages/s"))
            figures.insert(-len(SIZES), Figure(f"{mix}_{FEW}", 1 / mean(pair.small_s), "messages/s"))
            figures.append(
                Figure(
                    f"{mix}_flatness",
                    ratio(pair.small_s, pair.large_s),
                    "x",
                    f"rate of {max(SIZES):,} to that of {FEW}, interleaved",
                    at_least=FLAT,
                    tolerance=0.1,
                    higher_is_better=True,
                )
            )
    return figures


class _Pair:
    """A large run, and small ones of `FEW` messages again and again in between."""

    def __init__(
        self, seconds: Callable[[dict[str, Any]], float], few: Sequence[str], rewind: Callable[[], None]
    ) -> None:
        self._seconds = seconds
        self._rewind = rewind
        self._few = list(batches(few))
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
            if len(large) % LARGE_PER_SMALL == 0:
                small.append(self._seconds(self._few[self._turn]))
                self._turn = (self._turn + 1) % len(self._few)
                if self._turn == 0:
                    self._rewind()
        self.large_s.append(mean(large) / BATCH)
        self.small_s.append(mean(small) / BATCH)


ROW = Row("throughput", "Messages per second, ten at a time, one batch after the other", 90, measure)
