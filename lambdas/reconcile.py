"""The level-triggered path: ticks from the tick queue, one service each, or the schedule's: all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import spotrelay.plane.control.ticks  # noqa: F401  # with the function, not with its first tick
from spotrelay.plane.aws.runtime import intake, invocation

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Run the ticks. One that fails is raised, so that it is delivered again and an alarm counts it."""
    with invocation(context):
        for record in event["Records"]:
            intake().tick(record["body"])
        return {"batchItemFailures": []}
