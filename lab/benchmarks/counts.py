"""The guarded counts of some rows without their measurements: what `make test` runs of `make bench-check`.

Each function does once what its row measures many times, so its figures have the names and, on any machine,
the values of the row's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import and_
from statistics import median_low

from lab.benchmarks import batch, calls, tick
from lab.benchmarks.figures import Figure, Row, Tell
from lab.benchmarks.loopback.client import loopback, pretend_lambda
from lab.benchmarks.world import BATCH, MeasuredService, context, settings, sqs_event

BATCHES = 7
"""One or two of them do what is done anew every few seconds."""

TICK_ROUNDS = 3
"""At least one of them does nothing that is done anew every few seconds, however busy the machine."""

TICK_SIZES = tuple(size for size in tick.TICKS if size < max(tick.TICKS))
"""The largest takes most of the row's time and says nothing new."""


def of_batch(_tell: Tell) -> Sequence[Figure]:
    """What one batch calls once the function is warm."""
    service = MeasuredService("demo", BATCH * (batch.WARM_UP + BATCHES))
    with loopback() as server:
        pretend_lambda(server, settings(server))
        from lambdas.on_signal import handler  # with the environment in place

        service.load_into(server)
        counts = []
        for run in range(batch.WARM_UP + BATCHES):
            before = server.counts()
            handler(batch.Batch.number(run, service).event, context())
            counts.append((server.counts() - before).total())
    usual = median_low(counts[batch.WARM_UP :])
    return [Figure("calls_ours", usual, "calls", "to AWS, per batch", tolerance=0)]


def of_tick(_tell: Tell) -> Sequence[Figure]:
    """What every tick of each size calls."""
    return list(_of_ticks())


def _of_ticks() -> Iterator[Figure]:
    with loopback() as server:
        pretend_lambda(server, settings(server))
        from lambdas.reconcile import handler  # with the environment in place

        for number, size in enumerate(TICK_SIZES, 1):
            service = MeasuredService(f"fleet{size}", size, number)
            service.load_into(server)
            event = sqs_event([json.dumps({"service": service.name})])
            handler(event, context())
            counts = [server.counts()]
            for _ in range(TICK_ROUNDS):
                handler(event, context())
                counts.append(server.counts())
            yield from tick.calls_of_size(
                size, reduce(and_, (after - before for before, after in pairwise(counts)))
            )


COUNTED: Mapping[str, Row] = {
    row.name: row
    for row in (
        Row(batch.ROW.name, batch.ROW.title, 2, of_batch),
        calls.ROW,  # nothing but counts anyway
        Row(tick.ROW.name, tick.ROW.title, 6, of_tick),
    )
}
