"""Tells EventBridge when a parameter changes, which MiniStack doesn't."""

from __future__ import annotations

from datetime import UTC, datetime

from spotrelay.local.ministack import MiniStack


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
