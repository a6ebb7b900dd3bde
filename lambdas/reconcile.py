"""The level-triggered path: ticks from the tick queue, one service each, or the schedule's: all of them."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.logging import Logger

from spotrelay.aws import compose
from spotrelay.aws.telemetry import PowertoolsTelemetry
from spotrelay.intake import Intake
from spotrelay.names import METRICS_NO_SERVICE

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service=METRICS_NO_SERVICE)
telemetry = PowertoolsTelemetry(logger)


@cache
def intake() -> Intake:
    """Built once per execution environment, at the first tick."""
    return compose.intake(os.environ, telemetry)


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - Lambda's signature
    """Run the ticks. One that fails is raised, so that it is delivered again and an alarm counts it."""
    try:
        for record in event["Records"]:
            intake().tick(record["body"])
        return {"batchItemFailures": []}
    finally:
        telemetry.flush()
