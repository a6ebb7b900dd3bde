"""What MiniStack's Parameter Store lacks: events when a parameter changes, and refusals of values."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from lab.local.ministack import MiniStack

STANDARD_LIMIT, ADVANCED_LIMIT = 4096, 8192
"""Characters of a value, by tier. Intelligent-Tiering makes a parameter advanced where it must be."""


def why_refused(value: str, tier: str) -> str | None:
    """Parameter Store's words for a value that it doesn't take; None for one that it takes."""
    if re.search(r"\{\{.*\}\}", value, re.DOTALL):
        return 'Parameter value can\'t nest another parameter. Do not use "{{}}" in the value.'
    if len(value) > ADVANCED_LIMIT:
        return (
            "1 validation error detected: Value at 'value' failed to satisfy constraint:"
            f" Member must have length less than or equal to {ADVANCED_LIMIT}"
        )
    if tier == "Standard" and len(value) > STANDARD_LIMIT:
        return (
            f"Standard tier parameters support a maximum parameter value of {STANDARD_LIMIT} characters."
            " To create a larger parameter value, upgrade the parameter to use the advanced-parameter tier."
        )
    return None


class ParameterChanges:
    """Compares Parameter Store with what it was: changes come from clients and from CloudFormation alike."""

    def __init__(self, ministack: MiniStack) -> None:
        self._ministack = ministack
        self._known = ministack.parameters()

    def emit(self) -> None:
        """One event for every parameter created, updated or deleted since the last call."""
        now = self._ministack.parameters()
        for name in sorted(now.keys() | self._known.keys()):
            if now.get(name) == self._known.get(name):
                continue
            operation = "Create" if name not in self._known else "Update" if name in now else "Delete"
            arn, _ = now.get(name) or self._known[name]
            detail = {"operation": operation, "name": name, "type": "String"}
            self._ministack.emit(
                "Parameter Store Change", detail, [arn], at=datetime.now(UTC), source="aws.ssm"
            )
        self._known = now
