"""The level-triggered path: ticks from the tick queue, one service each, or the schedule's: all of them."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.logging import Logger

from spotrelay.aws import compose, ticker
from spotrelay.aws.telemetry import PowertoolsTelemetry
from spotrelay.names import METRICS_NO_SERVICE

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service=METRICS_NO_SERVICE)
telemetry = PowertoolsTelemetry(logger)


@cache
def runtime() -> compose.Runtime:
    """Built once per execution environment, at the first tick."""
    return compose.runtime(os.environ, telemetry)


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - Lambda's signature
    """Run the ticks; one that fails is delivered again, and so is counted as an error of the function's."""
    try:
        for record in event["Records"]:
            _tick(record["body"])
        return {"batchItemFailures": []}
    finally:
        telemetry.flush()


def _tick(body: str) -> None:
    try:
        tick = ticker.parse(body)
    except ticker.MalformedTickError as error:
        telemetry.record("malformed_tick", error=str(error))
        runtime().dead_letters.set_aside(body, str(error))
        return
    if tick.service is None:
        runtime().controller.tick_all()
    else:
        runtime().controller.tick(tick.service, tick.due)
