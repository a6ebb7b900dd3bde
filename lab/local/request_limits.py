"""How many requests of a kind EC2 takes from an account in a region: a bucket of tokens for each action."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from lab.local.wire import AwsError

BUCKETS: Mapping[str, tuple[float, float]] = {
    "RunInstances": (5, 2),
    "StartInstances": (5, 2),
    "TerminateInstances": (100, 5),
}
"""By action, the tokens that there are at most, and those that come back each second. Of other actions EC2
takes fifty or a hundred at once, which no account here comes near, or documents nothing, as for CreateFleet.
Source: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html"""


class RequestLimits:
    """The account's buckets."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._left = {action: (most, monotonic_s()) for action, (most, _) in BUCKETS.items()}

    def take(self, action: str) -> None:
        """Let a request through, if it is one of those that are counted.

        Raises:
            AwsError: the bucket is empty.
        """
        if action not in BUCKETS:
            return
        most, refill_s = BUCKETS[action]
        left, at_s = self._left[action]
        now_s = self._monotonic_s()
        left = min(most, left + (now_s - at_s) * refill_s)
        self._left[action] = (left, now_s)
        if left < 1:
            raise AwsError("RequestLimitExceeded", "Request limit exceeded.", status=503)
        self._left[action] = (left - 1, now_s)
