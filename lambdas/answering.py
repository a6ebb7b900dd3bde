"""How a custom resource's function answers CloudFormation."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

ANSWER_WITHIN_S = 10.0
"""For the upload of the answer: a few hundred bytes to S3."""


def answer(
    event: Mapping[str, Any], physical_id: str, reason: str = "", data: Mapping[str, str] | None = None
) -> None:
    """Say how it went, where CloudFormation looks for it; `reason`: why it failed.

    `physical_id` is the same for as long as the resource is: another would be a replacement, and the end of
    the one before. `data`: what templates read by `Fn::GetAtt`.
    """
    body = {
        "Status": "FAILED" if reason else "SUCCESS",
        "Reason": reason,
        "PhysicalResourceId": physical_id,
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
        **({"Data": data} if data else {}),
    }
    # The URL is signed for a request without a content type.
    request = urllib.request.Request(  # noqa: S310 - CloudFormation's own
        event["ResponseURL"], json.dumps(body).encode(), {"Content-Type": ""}, method="PUT"
    )
    with urllib.request.urlopen(request, timeout=ANSWER_WITHIN_S):  # noqa: S310 - as above
        pass
