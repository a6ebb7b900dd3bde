"""Client tokens: how EC2 makes a launch that is asked for twice happen once."""

from __future__ import annotations

import json

from lab.local.context import Params, Result
from lab.local.wire import AwsError

MAX_TOKEN_LENGTH = 64


class Tokens:
    """Client tokens and what they were used for, by action. They are kept for the process's life."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], tuple[str, Result]] = {}

    def recall(self, action: str, params: Params) -> Result | None:
        """The earlier answer to the same request, if it had the same token.

        Raises:
            AwsError: the token was used for another request, or is too long.
        """
        token = params.get("ClientToken")
        if not token:
            return None
        if len(token) > MAX_TOKEN_LENGTH or not token.isascii():
            raise AwsError(
                "InvalidParameterValue", f"ClientToken: at most {MAX_TOKEN_LENGTH} ASCII characters"
            )
        fingerprint, result = self._used.get((action, token), ("", {}))
        if not result:
            return None
        if fingerprint != _fingerprint(params):
            raise AwsError(
                "IdempotentParameterMismatch",
                f"The client token {token} was used before, with other parameters.",
            )
        return result

    def remember(self, action: str, params: Params, result: Result) -> None:
        """Give this answer again when the token comes again."""
        if params.get("ClientToken"):
            self._used[action, params["ClientToken"]] = (_fingerprint(params), result)


def _fingerprint(params: Params) -> str:
    return json.dumps(params, sort_keys=True, default=str)
