"""What Lambda hands to a function beside an event."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Context:
    """An invocation with plenty of time: what Powertools and the runtime read of it."""

    function_name: str = "function"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:function"
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        """How long it may still take: as a function's longest time-out."""
        return 900_000
