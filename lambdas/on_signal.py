"""The fast path: batches of EC2's events from the signal queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotrelay.plane.aws.runtime import intake, invocation

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """React to the signals; answers with the messages to deliver again, so that the rest are done with."""
    with invocation(context):
        failed = intake().signals({r["messageId"]: r["body"] for r in event["Records"]})
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
