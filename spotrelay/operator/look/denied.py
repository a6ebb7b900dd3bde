"""Which permission AWS says is missing."""

from __future__ import annotations

import re

from botocore.exceptions import ClientError

from spotrelay.plane.core.ports import PortError

_CODES = ("AccessDenied", "UnauthorizedOperation", "NotAuthorized", "AuthorizationError")
"""What the codes of such errors have in them: each service has its own."""

_NO_IDENTITY = (
    "ExpiredToken",
    "InvalidClientTokenId",
    "InvalidSignature",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
    "AuthFailure",
)
"""The same of credentials that AWS doesn't take at all, or not any more."""

VALID_CREDENTIALS = "valid credentials"
"""How what is missing begins, where it is no action."""

_PREFIXES = {
    "DeleteStack": "cloudformation",
    "DescribeStackEvents": "cloudformation",
    "DescribeStacks": "cloudformation",
    "GetTemplate": "cloudformation",
    "ListStacks": "cloudformation",
    "DescribeTargetHealth": "elasticloadbalancing",
    "DescribeTargetGroups": "elasticloadbalancing",
    "DescribeAlarms": "cloudwatch",
    "GetMetricData": "cloudwatch",
    "FilterLogEvents": "logs",
    "GetProducts": "pricing",
    "GetRole": "iam",
    "GetParameters": "ssm",
    "GetParametersByPath": "ssm",
    "SendMessage": "sqs",
    "Query": "dynamodb",
    "GetItem": "dynamodb",
    "BatchGetItem": "dynamodb",
    "UpdateItem": "dynamodb",
    "PutItem": "dynamodb",
    "TransactWriteItems": "dynamodb",
}
"""By operation, whose permission it takes, for answers that don't say. All others are EC2's."""


def action_in(words: str) -> str | None:
    """The IAM action that AWS's words name as not allowed; None: they name none."""
    named = re.search(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z]+)", words)
    return named[1] if named else None


def missing_action(error: Exception) -> str | None:
    """The IAM action that the credentials lack, such as `dynamodb:Query`; None if that isn't what is wrong.

    For credentials that AWS doesn't take at all, it is a word about them.
    """
    cause = error.__cause__ if isinstance(error, PortError) else error
    if not isinstance(cause, ClientError):
        return None
    code = str(cause.response.get("Error", {}).get("Code", ""))
    if any(name in code for name in _NO_IDENTITY):
        return f"{VALID_CREDENTIALS} ({code})"
    if not any(name in code for name in _CODES):
        return None
    if named := action_in(str(cause)):
        return named
    operation = str(cause.operation_name)
    return f"{_PREFIXES.get(operation, 'ec2')}:{operation}"
