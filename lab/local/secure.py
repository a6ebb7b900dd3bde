"""Where load balancers serve HTTPS: each at a port of its own, as on AWS at addresses of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from hypercorn.asyncio import serve
from hypercorn.config import Config

from lab.local.balancer import Balancer, Certificate
from lab.local.http import Receive, Scope, Send

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Open:
    """A port that is listened on."""

    port: int
    certificate: Certificate
    context: ssl.SSLContext
    stop: asyncio.Event
    server: asyncio.Task[None]


class SecurePorts:
    """The ports of all load balancers that have a certificate.

    Clients of AWS find a load balancer by its name. Here they connect to its port, and name in the handshake
    whom they mean to reach: the certificate is the listener's whatever they name, as on AWS.
    """

    def __init__(self, host: str, balancer: Balancer, configure: Callable[[Config], Config]) -> None:
        """`configure` gives a server its settings."""
        self._host = host
        self._balancer = balancer
        self._configure = configure
        self._open: dict[str, _Open] = {}

    def refresh(self) -> None:
        """Take over what has changed. Cheap, so it may be called at every request."""
        wanted = self._balancer.certificates()
        for name in self._open.keys() - wanted.keys():
            self._open.pop(name).stop.set()
        for name, certificate in wanted.items():
            known = self._open.get(name)
            if known is None or known.certificate != certificate:
                try:
                    self._show(name, certificate)
                except (ssl.SSLError, ValueError) as error:
                    _log.warning("%s: its certificate can't be served: %s", name, error)

    def port(self, load_balancer_name: str) -> int | None:
        """Where it serves HTTPS, if it does."""
        known = self._open.get(load_balancer_name)
        return known.port if known else None

    async def close(self) -> None:
        """Serve no more."""
        servers = [known.server for known in self._open.values()]
        for known in self._open.values():
            known.stop.set()
        self._open.clear()
        await asyncio.gather(*servers, return_exceptions=True)

    def _show(self, name: str, certificate: Certificate) -> None:
        known = self._open.get(name)
        # A certificate that replaces another is for the next handshake.
        context = known.context if known else ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{certificate.chain}\n{certificate.key}\n")
            file.flush()
            context.load_cert_chain(file.name)
        if known:
            known.certificate = certificate
            return
        context.set_alpn_protocols(["h2", "http/1.1"])
        listener = socket.create_server((self._host, 0))
        port = listener.getsockname()[1]
        config = self._configure(_OverTls(context))
        config.bind = [f"fd://{listener.detach()}"]
        stop = asyncio.Event()

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await self._balancer.proxy(scope, receive, send, name)

        # Hypercorn spells ASGI's messages out as types of its own; ours are plain mappings.
        serving = serve(cast("Any", application), config, shutdown_trigger=stop.wait)
        self._open[name] = _Open(port, certificate, context, stop, asyncio.create_task(serving))


class _OverTls(Config):
    """Settings of a server whose certificate is in no file."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    @property
    def ssl_enabled(self) -> bool:
        return True

    def create_ssl_context(self) -> ssl.SSLContext:
        return self._context
