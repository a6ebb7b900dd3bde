"""The log of AWS calls, and of what IAM decided on them."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MAX_CALLS = 100_000
"""Kept in memory; a day of a demo's polling. The JSONL file has them all."""


@dataclass(frozen=True, slots=True)
class AwsCall:
    """One AWS call. `n` counts from 1, `t` is in epoch seconds, `role` is "" for the operator."""

    n: int
    t: float
    service: str
    action: str
    role: str
    status: int
    error_code: str


class CallLog:
    """Every call, in memory and, if a path is given, as JSON lines."""

    def __init__(self, path: Path | None = None) -> None:
        self._calls: list[AwsCall] = []
        self._count = 0
        self._decisions: Counter[tuple[str, str, bool]] = Counter()
        self._file = path.open("a", encoding="utf-8") if path else None

    def add(self, service: str, action: str, role: str, status: int, error_code: str) -> None:
        """Record a call that has just been answered."""
        self._count += 1
        call = AwsCall(self._count, time.time(), service, action, role, status, error_code)
        self._calls.append(call)
        del self._calls[:-MAX_CALLS]
        if self._file:
            self._file.write(json.dumps(asdict(call)) + "\n")
            self._file.flush()

    def decided(self, role: str, action: str, allowed: bool) -> None:
        """Count what IAM decided on an action of a role, as in ec2:RunInstances."""
        self._decisions[role, action, allowed] += 1

    def decisions(self) -> list[dict[str, Any]]:
        """What roles asked IAM for, how often it was allowed and how often refused.

        A call may ask for several: CreateFleet for that of each launch, a transaction for its writes'.
        """
        asked = sorted({(role, action) for role, action, _ in self._decisions})
        return [
            {
                "role": role,
                "action": action,
                "allowed": self._decisions[role, action, True],
                "refused": self._decisions[role, action, False],
            }
            for role, action in asked
        ]

    def since(self, n: int) -> list[dict[str, Any]]:
        """The calls after call number `n`."""
        return [asdict(call) for call in self._calls if call.n > n]

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


_XML_CODE = re.compile(rb"<Code>([^<]+)</Code>")
_JSON_TYPE = re.compile(rb'"(?:__type|code|Code)"\s*:\s*"([^"]+)"')


def error_code_of(status: int, headers: dict[str, str], body: bytes) -> str:
    """The AWS error code in an answer, or "" if it is none."""
    if status < 400:
        return ""
    typed = headers.get("x-amzn-errortype", "").split(":")[0]
    if typed:
        return typed
    found = _XML_CODE.search(body) or _JSON_TYPE.search(body)
    return found.group(1).decode().rpartition("#")[2] if found else str(status)
