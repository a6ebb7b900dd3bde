"""The demo's load: streaming chat requests without a pause, from a process of their own.

The process is `lab.demo.load_worker`; here is the handle on it. A view that draws, or a deployment that
keeps this process busy, doesn't disturb the measurement.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self

_KEPT_LINES = 20  # of the worker's standard error: enough for a traceback's end


class LoadError(RuntimeError):
    """The load's process didn't do what it was asked: nothing it has reported proves anything."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of durations in seconds; all 0 while there are none."""

    p50_s: float = 0.0
    p95_s: float = 0.0
    max_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that wasn't served. `time` is in epoch seconds, `status` 0 if there was no response."""

    kind: Literal["failed", "cut"]
    time: float
    status: int
    error: str
    replica: str | None


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """The load so far: sent = finished + failed + cut + in_flight.

    Failed: no response, or one that isn't 200. Cut: the stream began and ended without `[DONE]`. `latency`
    and `first_token` (since the request was sent), `tokens` and `by_replica` are of finished requests;
    `failures` holds the first thousand.
    """

    sent: int = 0
    finished: int = 0
    failed: int = 0
    cut: int = 0
    in_flight: int = 0
    tokens: int = 0
    latency: Percentiles = Percentiles()
    first_token: Percentiles = Percentiles()
    by_replica: dict[str, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()


class Load:
    """`concurrency` clients, each sending one request after the other until `stop`, for streams if `stream`.

    `pause_s` is how long a client waits after an answer; the clients begin spread over it.
    `url` is where requests go ("http://127.0.0.1:4566"), `hosts` whom they name there, client by client: load
    balancers' DNS names. Nothing is ever retried. Also a context manager, which kills a load that still runs.
    """

    def __init__(
        self,
        url: str,
        hosts: Sequence[str],
        concurrency: int = 20,
        *,
        model: str = "demo",
        prompt: str = "How do you survive an interruption?",
        max_tokens: int | None = None,
        pause_s: float = 0.0,
        stream: bool = True,
    ) -> None:
        arguments = {
            "url": url,
            "hosts": hosts,
            "concurrency": concurrency,
            "model": model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "pause_s": pause_s,
            "stream": stream,
        }
        self._command = [sys.executable, "-m", "lab.demo.load_worker", json.dumps(arguments)]
        self._process: subprocess.Popen[str] | None = None
        self._readers: list[threading.Thread] = []
        self._snapshot = LoadSnapshot()
        self._errors: list[str] = []
        self._complete = False

    def start(self) -> None:
        """Begins sending. Raises LoadError if it has been started before."""
        if self._process is not None:
            raise LoadError("a load can be started once only")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the demo to handle, which then stops the load.
            start_new_session=True,
        )
        for read in (self._read_reports, self._read_errors):
            reader = threading.Thread(target=read, args=(self._process,), daemon=True)
            reader.start()
            self._readers.append(reader)

    def snapshot(self) -> LoadSnapshot:
        """The latest report, at most some 0.3 s old. Cheap, from any thread.

        Raises LoadError if the load's process has died.
        """
        if self._process is not None and self._process.poll() is not None:
            self._check_complete(self._process)
        return self._snapshot

    def stop(self, timeout_s: float = 60.0) -> LoadSnapshot:
        """Sends nothing more, waits until what is in flight has ended, and returns the final report.

        Raises LoadError if that takes longer than `timeout_s`, or the load's process died.
        """
        process = self._process
        if process is None or process.stdin is None:
            raise LoadError("the load was never started")
        with contextlib.suppress(OSError, ValueError):  # it may have died, which shows below
            process.stdin.write("stop\n")
            process.stdin.flush()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            in_flight = self._snapshot.in_flight
            self.kill()
            raise LoadError(
                f"{in_flight} requests were still in flight {timeout_s:g} s after the stop"
            ) from None
        self._check_complete(process)
        return self._snapshot

    def kill(self) -> None:
        """Ends the load at once, cutting what is in flight. No error if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._join()
            if self._process.stdin is not None:
                with contextlib.suppress(OSError):  # what it never read doesn't matter any more
                    self._process.stdin.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _check_complete(self, process: subprocess.Popen[str]) -> None:
        self._join()
        if not self._complete:
            raise LoadError(
                f"the load's process ended with status {process.returncode} and without its final report: "
                + ("\n".join(self._errors) or "it said nothing")
            )

    def _join(self) -> None:
        """Waits until everything has been read that the process, which has ended, had to say."""
        for reader in self._readers:
            reader.join()

    def _read_reports(self, process: subprocess.Popen[str]) -> None:
        if process.stdout is None:
            return
        with process.stdout:
            for line in process.stdout:
                # A process that is killed may leave half a line.
                with contextlib.suppress(ValueError):
                    report = json.loads(line)
                    self._snapshot = _read(report, self._snapshot.failures)
                    self._complete = bool(report["complete"])

    def _read_errors(self, process: subprocess.Popen[str]) -> None:
        if process.stderr is None:
            return
        with process.stderr:
            for line in process.stderr:
                self._errors = [*self._errors, line.rstrip()][-_KEPT_LINES:]


def _read(report: dict[str, Any], earlier: tuple[Failure, ...]) -> LoadSnapshot:
    counts = LoadSnapshot(**report["counts"])
    return replace(
        counts,
        latency=Percentiles(**report["latency"]),
        first_token=Percentiles(**report["first_token"]),
        by_replica=report["by_replica"],
        failures=earlier + tuple(Failure(**failure) for failure in report["failures"]),
    )
