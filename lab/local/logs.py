"""What functions write to their logs, and Lambda beside it."""

from __future__ import annotations

import json
import os
import re
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

CHUNK_BYTES = 65_536
"""A pipe of Linux's holds as much."""


_TIMED_OUT = re.compile(r"Task timed out after [\d.]+ seconds")
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class Report:
    """One invocation, as Lambda reports it in the function's log.

    A time-out is a status and no line of its own, in both formats
    (https://github.com/DataBiosphere/azul/issues/8140; the schema of JSON is
    https://docs.aws.amazon.com/lambda/latest/dg/telemetry-schema-reference.html). What a handler raises is a
    line of the runtime's then (https://github.com/aws/aws-lambda-python-runtime-interface-client).
    """

    request_id: str
    version: str
    is_failed: bool
    duration_ms: int
    memory_mib: int
    is_json: bool

    def lines(self, said: str) -> list[str]:
        """All of its log, from what MiniStack takes for the function's own words."""
        lines = said.splitlines()
        status = "error" if self.is_failed else "success"
        if self.is_failed and lines and _TIMED_OUT.fullmatch(lines[-1]):
            status = "timeout"
            del lines[-1]
        return (self._json if self.is_json else self._text)(lines, status)

    def _text(self, lines: list[str], status: str) -> list[str]:
        took = f"Duration: {self.duration_ms} ms\tBilled Duration: {self.duration_ms} ms"
        memory = f"Memory Size: {self.memory_mib} MB\tMax Memory Used: {self.memory_mib} MB"
        shown = "" if status == "success" else f"\tStatus: {status}"
        return [
            f"START RequestId: {self.request_id} Version: {self.version}",
            *lines,
            f"END RequestId: {self.request_id}",
            f"REPORT RequestId: {self.request_id}\t{took}\t{memory}{shown}",
        ]

    def _json(self, lines: list[str], status: str) -> list[str]:
        if status == "error" and _TRACEBACK in lines:
            first = len(lines) - 1 - lines[::-1].index(_TRACEBACK)
            kind, _, words = lines[-1].partition(": ")
            error = {"errorMessage": words, "errorType": kind, "stackTrace": lines[first:-1]}
            told = {"level": "ERROR", **error, "requestId": self.request_id}
            lines = [*lines[:first], json.dumps({"timestamp": _now(), **told})]
        metrics = {
            "durationMs": self.duration_ms,
            "billedDurationMs": self.duration_ms,
            "memorySizeMB": self.memory_mib,
            "maxMemoryUsedMB": self.memory_mib,
        }
        return [
            self._event("platform.start", version=self.version),
            *lines,
            self._event("platform.report", metrics=metrics, status=status),
        ]

    def _event(self, type_: str, **record: Any) -> str:
        return json.dumps(
            {"time": _now(), "type": type_, "record": {"requestId": self.request_id, **record}},
            separators=(",", ":"),
        )


def any_term(pattern: str) -> Callable[[str], bool] | None:
    """What a filter pattern such as `?ERROR ?timeout` matches: lines with one of the terms, as it is written.

    None for any other pattern. Source:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntax.html
    """
    terms = pattern.split()
    if not terms or not all(re.fullmatch(r"\?\w+", term) for term in terms):
        return None
    return lambda line: any(term[1:] in line for term in terms)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LogPipe:
    """The log of one function's process: read as it comes, so that the process never waits, taken at will."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe  # keeps it open
        self._lock = threading.Lock()
        self._unread = b""
        os.set_blocking(pipe.fileno(), False)

    def pump(self) -> None:
        """Read until the process has closed its end; a thread of its own does this."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while self._read():
            poll.poll()

    def take(self) -> str:
        """All that was written up to now and wasn't taken before, however far `pump` has come."""
        self._read()
        with self._lock:
            taken, self._unread = self._unread, b""
        return taken.decode("utf-8", errors="replace").rstrip("\n")

    def _read(self) -> bool:
        """Empty the pipe; False at its end."""
        with self._lock:
            try:
                while chunk := os.read(self._pipe.fileno(), CHUNK_BYTES):
                    self._unread += chunk
            except BlockingIOError:
                return True
        return False
