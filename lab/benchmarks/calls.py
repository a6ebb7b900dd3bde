"""What a thousand warnings of one service cost in calls to AWS, in batches of ten as SQS delivers them."""

from __future__ import annotations

from collections.abc import Sequence

from lab.benchmarks.figures import Figure, Row, Tell
from lab.benchmarks.loopback.client import loopback, pretend_lambda
from lab.benchmarks.world import BATCH, MeasuredService, batches, context, settings, warning

WARNINGS = 1000

MAX_PER_WARNING = 3
"""Calls to DynamoDB."""

BY_THE_CLOCK = ("sqs.", "ssm.")
"""A tick is announced again after seconds, the service's document read again after a minute: a slow machine
calls more often. The same calls are a few of DynamoDB's."""


def measure(tell: Tell) -> Sequence[Figure]:
    """The signal function's calls, counted by whoever answers them. Nothing here depends on time."""
    service = MeasuredService("demo", WARNINGS)
    with loopback() as server:
        pretend_lambda(server, settings(server))
        from lambdas.on_signal import handler  # with the environment in place

        service.load_into(server)
        bodies = [warning(service.instance_id(n)) for n in range(1, WARNINGS + 1)]
        for n, event in enumerate(batches(bodies)):
            tell(n * BATCH, WARNINGS, "warnings")
            failed = handler(event, context())["batchItemFailures"]
            if failed:
                raise RuntimeError(
                    f"batch {n}: {len(failed)} warnings are to be delivered again: see the log"
                )
        counts = server.counts()
    dynamodb = sum(n for call, n in counts.items() if call.startswith("dynamodb."))
    describes = sum(n for call, n in counts.items() if call.startswith("ec2.Describe"))
    others = {call: n for call, n in counts.items() if not call.startswith(("dynamodb.", "ec2.Describe"))}
    return [
        Figure(
            "dynamodb",
            dynamodb / WARNINGS,
            "calls",
            "per warning",
            at_most=MAX_PER_WARNING,
            # One call more for each batch would be a quarter.
            tolerance=0.1,
        ),
        Figure("ec2.Describe", describes, "calls", "all kinds", at_most=0, tolerance=0),
        *(
            Figure(
                call,
                count,
                "calls",
                at_most=WARNINGS // BATCH if call in ("elbv2.DeregisterTargets", "ec2.CreateFleet") else None,
                tolerance=None if call.startswith(BY_THE_CLOCK) else 0,
            )
            for call, count in sorted(others.items())
        ),
        *(Figure(call, n, "calls") for call, n in sorted(counts.items()) if call.startswith("dynamodb.")),
    ]


ROW = Row("calls", "AWS calls for 1,000 warnings of one service, in batches of ten", 10, measure)
