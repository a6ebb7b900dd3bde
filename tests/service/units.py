"""The service's unit, with systemd's part played by hand: real processes, started and stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class Unit:
    """A directory with stop.sh, and what is started in it."""

    def __init__(self, directory: Path, start: Sequence[str], env: Mapping[str, str]) -> None:
        self._directory, self._start, self._env = directory, start, env
        self._said = directory / "said"
        self._main: subprocess.Popen[bytes] | None = None

    @property
    def main(self) -> subprocess.Popen[bytes]:
        """The main process."""
        assert self._main
        return self._main

    @property
    def said(self) -> list[str]:
        """What has been printed since the last start, line by line."""
        return self._said.read_text(encoding="utf-8").splitlines()

    def start(self, until: str) -> None:
        """ExecStart, until a line has been printed."""
        with self._said.open("w", encoding="utf-8") as said:
            self._main = subprocess.Popen(
                self._start,
                cwd=self._directory,
                env=self._env,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        # As systemd does: until somebody has waited for it, a process that has ended is still there.
        threading.Thread(target=self._main.wait, daemon=True).start()
        self.until(until)

    def until(self, line: str, times: int = 1) -> None:
        """Wait until it has been printed so often."""
        for _ in range(1200):
            if self.said.count(line) >= times:
                return
            time.sleep(0.05)
        raise AssertionError(self.said)

    def stop(self, *arguments: str, main: int | None = None) -> None:
        """ExecStop, with the main process in a variable."""
        env = {**self._env, "MAINPID": str(main or self.main.pid)}
        stop = ["bash", str(self._directory / "stop.sh"), *arguments]
        subprocess.run(stop, cwd=self._directory, env=env, check=True, timeout=60)

    def kill(self) -> None:
        """The rest of the control group."""
        if self._main is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._main.pid, signal.SIGKILL)
            self._main.wait()
