"""One batch of ten warnings through the signal function, beside what one could write by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.figures import Figure, Row, Tell, ratio
from benchmarks.loopback.client import loopback, pretend_lambda
from benchmarks.world import BATCH, Service, context, settings, sqs_event, warning

WARM_UP = 5
RUNS = 60
"""Each takes some twenty milliseconds: many, so that a neighbour's load on one or two doesn't matter."""


def measure(tell: Tell) -> Sequence[Figure]:
    """Ours, the bare calls and the sample, in turn."""
    service = Service("demo", 100)
    with loopback() as server:
        pretend_lambda(server, settings(server))
        # With the environment in place: the handler's logger reads it as it is imported.
        from benchmarks.alternatives import Bare, Sample
        from lambdas.on_signal import handler

        service.load_into(server)
        bodies = [warning(service.instance_id(n)) for n in range(1, BATCH + 1)]
        event, single = sqs_event(bodies), [json.loads(body) for body in bodies]
        bare, sample = Bare(service.spec), Sample(service.spec)
        contestants: dict[str, Callable[[], object]] = {
            "ours": lambda: handler(event, context()),
            "bare": lambda: bare.handle(event),
            "sample": lambda: sample.handle_all(single),
        }
        walls: dict[str, list[float]] = {name: [] for name in contestants}
        cpus: dict[str, list[float]] = {name: [] for name in contestants}
        calls: dict[str, int] = {}
        for run in range(WARM_UP + RUNS):
            tell(run, WARM_UP + RUNS, "batches of ten warnings")
            for name, contestant in contestants.items():
                server.rewind()
                before = server.counts()
                began, cpu_began = time.perf_counter(), time.process_time()
                contestant()
                took, cpu_took = time.perf_counter() - began, time.process_time() - cpu_began
                calls[name] = (server.counts() - before).total()
                if run >= WARM_UP:
                    walls[name].append(took)
                    cpus[name].append(cpu_took)
    return [
        Figure(
            "wall_to_bare",
            ratio(walls["ours"], walls["bare"]),
            "x",
            "ours to the five calls that a batch can't do without",
            at_most=1.3,
            tolerance=0.15,
        ),
        Figure(
            "rate_to_sample",
            ratio(walls["sample"], walls["ours"]),
            "x",
            "events per second, to a handler in the style of the AWS sample",
            at_least=5,
            tolerance=0.15,
            higher_is_better=True,
        ),
        Figure("cpu_to_bare", ratio(cpus["ours"], cpus["bare"]), "x", "processor time", tolerance=0.15),
        *(
            Figure(
                f"calls_{name}", count, "calls", "to AWS, per batch", tolerance=0 if name == "ours" else None
            )
            for name, count in calls.items()
        ),
        *(Figure(f"batch_{name}", median(took) * 1000, "ms", "wall, median") for name, took in walls.items()),
    ]


ROW = Row("batch", "One batch of ten warnings, beside the bare calls and the AWS sample's way", 20, measure)
