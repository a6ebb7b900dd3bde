"""The slow path: asks every hour, and after each deployment, what EC2 offers to the services."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from lambdas.wiring import logger, telemetry
from spotrelay.aws import compose_survey
from spotrelay.surveying import Surveying

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def surveying() -> Surveying:
    """Made at the first event."""
    return compose_survey.surveying(os.environ, telemetry)


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> None:  # noqa: ARG001 - Lambda's signature
    """Survey the service that the event is about, or all. What fails is raised: Lambda tries again."""
    try:
        surveying().on_event(event)
    finally:
        telemetry.flush()
