"""Serves the page on loopback."""

from __future__ import annotations

import asyncio
import signal
import socket

from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.types import ASGIApp

ADDRESS = "127.0.0.1"
"""Nobody else's machine reaches it."""


def listen(port: int) -> socket.socket:
    """A socket on the port, any free one for 0.

    Raises:
        OSError: the port is taken, or not for this user.
    """
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((ADDRESS, port))
    except OSError:
        found.close()
        raise
    return found


def run(app: ASGIApp, on: socket.socket) -> None:
    """Serve until Ctrl-C, or until the process is asked to end."""
    asyncio.run(_run(app, on))


async def _run(app: ASGIApp, on: socket.socket) -> None:
    over = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, over.set)
    config = Config()
    config.bind = [f"fd://{on.detach()}"]
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    config.graceful_timeout = 1.0
    await serve(app, config, shutdown_trigger=over.wait)  # type: ignore[arg-type]
