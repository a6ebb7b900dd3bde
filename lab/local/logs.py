"""What functions write to their logs."""

from __future__ import annotations

import os
import select
import threading
from typing import IO

CHUNK_BYTES = 65_536
"""A pipe of Linux's holds as much."""


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
