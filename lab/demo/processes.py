"""The demo's child processes: every one logs into a file, and none outlives the demo."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.demo import tether
from lab.demo.errors import DemoError

STOP_WITHIN_S = 10.0
"""Before a child that was asked to stop is killed: the tether's own grace, and time to spare."""

LAST_LINES = 8
"""Of a log, in an error: enough to see what happened, little enough to read."""


class Process:
    """A running command, stopped with all its descendants by `stop`, or when the demo dies."""

    def __init__(self, command: Sequence[str | Path], log: Path, env: Mapping[str, str], cwd: Path) -> None:
        self.log = log
        arguments = [str(part) for part in command]
        with log.open("ab") as output:
            output.write(f"$ {' '.join(arguments)}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                # Isolated (-I): the tether is ours, whatever the command's environment says about Python.
                [sys.executable, "-I", tether.__file__, *arguments],
                stdin=subprocess.PIPE,  # never written to; see tether
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,  # Ctrl-C reaches the demo alone, which stops its children in order
            )

    @property
    def pid(self) -> int:
        """Process ID of the tether; the command is its child."""
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._process.poll()

    def wait(self, within_s: float) -> int:
        """The exit status.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        return self._process.wait(within_s)

    def stop(self) -> None:
        """End it and everything that it started; nothing happens if it has ended."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """Where its log is and how it ends, to be put behind an error."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return "\n    ".join([f"see {self.log}, which ends:", *lines[-LAST_LINES:]])


class Processes:
    """All children, so that they can be stopped together, the latest first."""

    def __init__(self, logs: Path, cwd: Path) -> None:
        self.logs = logs
        self._cwd = cwd
        self._running: list[Process] = []

    def start(
        self, name: str, command: Sequence[str | Path], env: Mapping[str, str], cwd: Path | None = None
    ) -> Process:
        """Start a command that logs into `<name>.log`."""
        process = Process(command, self.logs / f"{name}.log", env, cwd or self._cwd)
        self._running.append(process)
        return process

    def finish(self, process: Process, what: str, within_s: float) -> None:
        """Wait for a command that is to end well.

        Raises:
            DemoError: it failed, or took longer.
        """
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.stop()
            raise DemoError(
                f"{what} took longer than {within_s:.0f} s and was stopped; {process.last_words()}"
            ) from None
        if code != 0:
            raise DemoError(f"{what} failed (exit status {code}); {process.last_words()}")

    def stop_all(self) -> None:
        """Stop every child, the latest first."""
        for process in reversed(self._running):
            process.stop()
        self._running.clear()
