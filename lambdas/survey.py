"""The slow path: asks every hour, and after each deployment, what EC2 offers to the services.

Every hour it also writes down what they cost, and sees that the dead-letter queue is measured.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from spotrelay.plane.accounting.ledger import Ledger
from spotrelay.plane.aws import compose_survey
from spotrelay.plane.aws.dead_letters import MeasuredQueue
from spotrelay.plane.aws.runtime import clients, invocation, telemetry
from spotrelay.plane.placement.surveying import Surveying

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def surveying() -> Surveying:
    """Made at the first event."""
    return compose_survey.surveying(os.environ, telemetry, clients)


@cache
def ledger() -> Ledger:
    """Made at the first event."""
    return compose_survey.ledger(os.environ, telemetry, clients)


@cache
def dead_letters() -> MeasuredQueue:
    """Made at the first event."""
    return compose_survey.dead_letters(os.environ, telemetry, clients)


def handler(event: dict[str, Any], context: LambdaContext) -> None:
    """Survey the service that the event is about, or all, and write their days.

    What fails is raised: Lambda tries again. All of it can be repeated.
    """
    with invocation(context):
        dead_letters().keep_in_use()
        try:
            surveying().on_event(event)
        finally:
            # Whatever keeps one service from being surveyed, all have their days.
            ledger().on_event(event)
