"""One batch of ten warnings through the signal function, beside what one could write by hand."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low
from typing import Any

from lab.benchmarks.figures import REPEATS, Figure, Row, Tell, ratio
from lab.benchmarks.loopback.client import Loopback, loopback, pretend_lambda
from lab.benchmarks.world import BATCH, MeasuredService, context, settings, sqs_event, warning
from spotrelay.plane.aws.items import service_partition

WARM_UP = 5
RUNS = 60
"""Each takes some twenty milliseconds: many, so that a neighbour's load on one or two doesn't matter."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Warnings, as SQS hands them over and one by one."""

    event: dict[str, Any]
    single: Sequence[Mapping[str, Any]]

    @classmethod
    def number(cls, n: int, service: MeasuredService) -> Batch:
        """The n-th: each is about other instances, because a function may remember whose they are."""
        first = n * BATCH + 1
        bodies = [warning(service.instance_id(id_)) for id_ in range(first, first + BATCH)]
        return cls(sqs_event(bodies), [json.loads(body) for body in bodies])


class BatchRace:
    """Contestants that handle the same batches in turn, each as often first as last."""

    def __init__(
        self,
        server: Loopback,
        partition: str,
        batches: Iterator[Batch],
        contestants: Mapping[str, Callable[[Batch], object]],
    ) -> None:
        self._server = server
        self._partition = partition
        self._batches = batches
        self._contestants = contestants
        self.walls: dict[str, list[float]] = {name: [] for name in contestants}
        self.cpus: dict[str, list[float]] = {name: [] for name in contestants}
        self.calls: dict[str, list[int]] = {name: [] for name in contestants}

    def run(self, runs: int, tell: Callable[[int], None]) -> None:
        """So many times each, after a few that don't count."""
        names = list(self._contestants)
        for run in range(WARM_UP + runs):
            tell(run)
            batch = next(self._batches)
            for name in names:
                self._once(name, batch, counts=run >= WARM_UP)
            names.append(names.pop(0))

    def _once(self, name: str, batch: Batch, *, counts: bool) -> None:
        # The replicas only: in a storm, the batch before has taught what there is to learn of the pools.
        self._server.rewind(self._partition)
        before = self._server.counts()
        began, cpu_began = time.perf_counter(), time.process_time()
        self._contestants[name](batch)
        took, cpu_took = time.perf_counter() - began, time.process_time() - cpu_began
        if counts:
            self.calls[name].append((self._server.counts() - before).total())
            self.walls[name].append(took)
            self.cpus[name].append(cpu_took)


def measure(tell: Tell) -> Sequence[Figure]:
    """Ours beside the bare calls and the sparing sample; then beside the one that makes clients each time.

    That one by itself: to make a client leaves nothing of ours in the processor's caches.
    """
    service = MeasuredService("demo", BATCH * (WARM_UP + RUNS + WARM_UP + REPEATS))
    with loopback() as server:
        pretend_lambda(server, settings(server))
        # With the environment in place: the handler's logger reads it as it is imported.
        from lab.benchmarks.alternatives import Bare, Sample
        from lambdas.on_signal import handler

        service.load_into(server)
        partition = service_partition(service.spec.service)
        batches = (Batch.number(n, service) for n in itertools.count())
        bare = Bare(service.spec)
        sample = Sample(service.spec, keeps_clients=False)
        sparing_sample = Sample(service.spec, keeps_clients=True)

        def ours(batch: Batch) -> object:
            return handler(batch.event, context())

        race = BatchRace(
            server,
            partition,
            batches,
            {
                "ours": ours,
                "bare": lambda batch: bare.handle(batch.event),
                "sparing_sample": lambda batch: sparing_sample.handle_all(batch.single),
            },
        )
        race.run(RUNS, lambda run: tell(run, RUNS + REPEATS, "batches of ten warnings"))
        other = BatchRace(
            server,
            partition,
            batches,
            {"ours": ours, "sample": lambda batch: sample.handle_all(batch.single)},
        )
        other.run(REPEATS, lambda run: tell(RUNS + run, RUNS + REPEATS, "batches of ten warnings"))
    walls = {**race.walls, "sample": other.walls["sample"]}
    calls = {**race.calls, "sample": other.calls["sample"]}
    return [
        Figure(
            "wall_to_bare",
            ratio(race.walls["ours"], race.walls["bare"]),
            "x",
            "ours to the calls that a batch can't do without",
            at_most=1.3,
            tolerance=0.15,
        ),
        Figure(
            "rate_to_sample",
            ratio(other.walls["sample"], other.walls["ours"]),
            "x",
            "events per second, to a handler in the style of AWS's sample",
            at_least=5,
            tolerance=0.3,
            higher_is_better=True,
        ),
        Figure(
            "rate_to_sparing_sample",
            ratio(race.walls["sparing_sample"], race.walls["ours"]),
            "x",
            "the same, if that handler keeps its clients",
            tolerance=0.15,
            higher_is_better=True,
        ),
        Figure("cpu_to_bare", ratio(race.cpus["ours"], race.cpus["bare"]), "x", "processor time"),
        *(
            Figure(
                f"calls_{name}",
                # What is done anew every few seconds is in a few of them.
                median_low(counts),
                "calls",
                "to AWS, per batch",
                tolerance=0 if name == "ours" else None,
            )
            for name, counts in calls.items()
        ),
        *(Figure(f"batch_{name}", median(took) * 1000, "ms", "wall, median") for name, took in walls.items()),
    ]


ROW = Row("batch", "One batch of ten warnings, beside the bare calls and the AWS sample's way", 20, measure)
