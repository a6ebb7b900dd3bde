"""The demo's chat server with moods, which a test puts into files while it runs: see `Moods`.

`python -m tests.e2e.no_harm.server`; `MOODS` is where the files are.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import h11

from lab.demo import chat_server
from lab.demo.chat_api import ApiError

REFUSES = "refuses"
"""Each POST fails at once. The health check doesn't notice."""

SERIAL = "serial"
"""One POST at a time, in the order in which they came."""

CHECKS_WAIT = "checks-wait"
"""Health checks wait their turn, too, where POSTs do: a server that has too much to do for them."""


class Moods:
    """What replicas of a service are like, and how they boot. `place` is a directory of the service's own."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def put(self, address: str, *moods: str) -> None:
        """From its next request on the replica at the address is so."""
        (self.place / address).write_text(" ".join(moods), encoding="utf-8")

    def of(self, address: str) -> list[str]:
        """How it is."""
        file = self.place / address
        return file.read_text(encoding="utf-8").split() if file.exists() else []

    def boot(self, script: str) -> None:
        """What starts from now on runs this first, in the shell."""
        (self.place / "boot").write_text(script, encoding="utf-8")


class _Connection(chat_server._Connection):
    """Answers as the replica's mood is."""

    turn = asyncio.Lock()

    async def _answer(self, request: h11.Request) -> None:
        moods = Moods(Path(os.environ["MOODS"])).of(os.environ["HOST"])
        is_post = request.method == b"POST"
        if is_post and REFUSES in moods:
            await self._body()
            raise ApiError(500, "out of order")
        waits = SERIAL in moods and (is_post or (request.target == b"/health" and CHECKS_WAIT in moods))
        if not waits:
            await super()._answer(request)
            return
        async with self.turn:
            await super()._answer(request)


if __name__ == "__main__":
    chat_server._Connection = _Connection  # type: ignore[misc]  # so that there is one server, and no hooks in it
    sys.exit(chat_server.main())
