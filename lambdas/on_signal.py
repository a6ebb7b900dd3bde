"""The fast path: a batch of EC2's events from the signal queue.

Answers with the messages to deliver again, so that one that fails doesn't take the rest of its batch along.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.logging import Logger

from spotrelay.aws import compose
from spotrelay.aws.telemetry import PowertoolsTelemetry
from spotrelay.names import METRICS_NO_SERVICE, Metric
from spotrelay.ports import PortError
from spotrelay.signals import Ignored, MalformedEventError, Signal, parse

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service=METRICS_NO_SERVICE)
telemetry = PowertoolsTelemetry(logger)


@cache
def runtime() -> compose.Runtime:
    """Built once per execution environment, at the first event."""
    return compose.runtime(os.environ, telemetry)


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - Lambda's signature
    """React to the signals; malformed events are set aside, events that aren't for us are counted."""
    try:
        signals = {r["messageId"]: s for r in event["Records"] if (s := _signal(r["body"])) is not None}
        try:
            failed = set(runtime().controller.handle(list(signals.values())))
        except PortError as error:
            telemetry.record("batch_failed", error=repr(error))
            failed = set(signals.values())
        return {"batchItemFailures": [{"itemIdentifier": id_} for id_, s in signals.items() if s in failed]}
    finally:
        telemetry.flush()


def _signal(body: str) -> Signal | None:
    try:
        signal = parse(json.loads(body))
    except (MalformedEventError, json.JSONDecodeError) as error:
        telemetry.count(Metric.SIGNALS_MALFORMED)
        telemetry.record("malformed_event", error=str(error), body=body[:1000])
        runtime().dead_letters.set_aside(body, str(error))
        return None
    if isinstance(signal, Ignored):
        telemetry.count(Metric.SIGNALS_IGNORED)
        telemetry.record("ignored_event", why=signal.why)
        return None
    return signal
