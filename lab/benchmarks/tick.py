"""A tick of a service at rest, from ten replicas to ten thousand."""

from __future__ import annotations

import json
import math
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import mean, median

from lab.benchmarks.figures import Figure, Row, Tell, ratio
from lab.benchmarks.loopback.client import loopback, pretend_lambda
from lab.benchmarks.world import MeasuredService, context, settings, sqs_event

ROUNDS = 7

TICKS = {10: 10, 100: 5, 1_000: 5, 10_000: 1}
"""Replicas → ticks in each round: a busy machine lets short ones through between two turns of others, so what
is compared must take about as long to be disturbed as much."""

PAGE = 1000
"""Instances that one DescribeInstances shows."""

GROWTH = 1.1
"""Of the wall for each replica, from one size to the next: 1 is linear. A tick's fixed part, some calls, only
makes it less. A tenth is the measurement's: nine runs on a quiet machine had 0.96 to 1.09 from 1,000 to
10,000, whether or not the garbage collector ran. What grows faster shows all the same: 1.33 by sorting them
all, 10 by comparing all with all. `tests/unit/test_growth.py` counts the interpreter's steps instead."""

MAX_CPU_S = 20
MAX_MB = 512

PAGED = ("ec2.DescribeInstances", "dynamodb.Query")
"""What EC2 and DynamoDB give in pages only; a page of the table is a megabyte, a row about 0.6 kB."""


def measure(tell: Tell) -> Sequence[Figure]:
    """Rounds through all sizes, so that what disturbs the machine disturbs neighbours in size alike."""
    walls: dict[int, list[float]] = {size: [] for size in TICKS}
    cpus: dict[int, list[float]] = {size: [] for size in TICKS}
    calls: dict[int, Mapping[str, float]] = {}
    steps = ROUNDS * len(TICKS)
    with loopback() as server:
        pretend_lambda(server, settings(server))
        from lambdas.reconcile import handler  # with the environment in place

        services = {
            size: MeasuredService(f"fleet{size}", size, number) for number, size in enumerate(TICKS, 1)
        }
        events = {size: sqs_event([json.dumps({"service": s.name})]) for size, s in services.items()}
        for size, service in services.items():
            tell(0, steps, f"filling the table, {size:,} replicas")
            service.load_into(server)
            # Not measured. The largest takes long, and by then all is warm.
            if size < max(TICKS):
                handler(events[size], context())
        for step in range(steps):
            size = list(TICKS)[step % len(TICKS)]
            tell(step, steps, f"{size:,} replicas")
            before = server.counts()
            began, cpu_began = time.perf_counter(), time.process_time()
            for _ in range(TICKS[size]):
                handler(events[size], context())
            walls[size].append((time.perf_counter() - began) / TICKS[size])
            cpus[size].append((time.process_time() - cpu_began) / TICKS[size])
            calls[size] = {call: n / TICKS[size] for call, n in (server.counts() - before).items()}
    return [
        *(figure for size in TICKS for figure in _of_size(size, walls[size], cpus[size], calls[size])),
        *(
            Figure(
                f"growth_{small}_to_{large}",
                ratio([wall / (large / small) for wall in walls[large]], _around(walls[small])),
                "x",
                "of the wall, for each replica: 1 is linear",
                at_most=GROWTH,
            )
            for small, large in pairwise(sorted(TICKS))
        ),
        Figure(
            "memory",
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            "MB",
            "the most that the process ever had, interpreter and benchmark included",
            at_most=MAX_MB,
        ),
    ]


def _around(walls: Sequence[float]) -> list[float]:
    """For each round the mean of its wall and the next one's: just before and just after the larger size."""
    return [mean(walls[n : n + 2]) for n in range(len(walls))]


def _of_size(
    size: int, walls: Sequence[float], cpus: Sequence[float], calls: Mapping[str, float]
) -> Iterator[Figure]:
    yield Figure(f"wall_{size}", median(walls), "s", "median")
    yield Figure(
        f"cpu_{size}", median(cpus), "s", "median", at_most=MAX_CPU_S if size == max(TICKS) else None
    )
    yield from calls_of_size(size, calls)


def calls_of_size(size: int, calls: Mapping[str, float]) -> Iterator[Figure]:
    """What one tick of so many replicas called."""
    for call in PAGED:
        pages = math.ceil(size / PAGE)
        yield Figure(f"{call}_{size}", calls.get(call, 0), "calls", at_most=pages, tolerance=0)
    others = {call: n for call, n in calls.items() if call not in PAGED}
    names = ", ".join(call.partition(".")[2] for call in sorted(others))
    yield Figure(f"other_calls_{size}", sum(others.values()), "calls", names, tolerance=0)


ROW = Row("tick", "A tick at rest", 60, measure)
