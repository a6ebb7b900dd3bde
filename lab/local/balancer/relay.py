"""Carries one HTTP request to a target and its response back, piece by piece as the pieces come."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from lab.local.balancer.config import BalancerConfig
from lab.local.balancer.target import LoggedRequest

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CONNECT_TIMEOUT_S = 10.0
"""Fixed in the ALB."""

_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"}
    | {b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
# The body goes on whole, with its own length; and the ASGI server has dealt with Expect.
_NOT_FORWARDED = _HOP_BY_HOP | {b"content-length", b"expect"}
_VALID = re.compile(rb"[-A-Za-z0-9]+")
_REASONS = {
    502: "Bad Gateway",
    503: "Service Temporarily Unavailable",
    504: "Gateway Time-out",
}


class Relay:
    """Talks to targets. Create it inside the event loop; `close` it."""

    def __init__(self) -> None:
        self._sessions: dict[float, aiohttp.ClientSession] = {}
        """By how long an idle connection to a target is kept: for the balancer's idle time-out. A target must
        keep it longer, or a request meets a closed one."""

    async def close(self) -> None:
        """Closes the connections to all targets."""
        for session in self._sessions.values():
            await session.close()

    def _session(self, keep_s: float) -> aiohttp.ClientSession:
        if keep_s not in self._sessions:
            self._sessions[keep_s] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=keep_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            )
        return self._sessions[keep_s]

    async def forward(
        self,
        scope: Scope,
        body: bytes,
        send: Send,
        request: LoggedRequest,
        origin: str,
        config: BalancerConfig,
    ) -> None:
        """Sends the request to `origin` (http://address:port) and streams the response into `send`.

        A target that refuses the connection, or closes before it answers, makes a 502; one that neither makes
        nor refuses it for `CONNECT_TIMEOUT_S`, or is silent for its idle time-out, a 504. Nothing is tried
        twice. If the target breaks off its response, `request.cut` is set and the response stays unfinished.
        `request.ended` is set once the outcome is decided.
        """
        try:
            async with self._session(config.idle_timeout_s).request(
                scope["method"],
                URL(origin + _target_of(scope), encoded=True),
                data=body or None,
                headers=_request_headers(scope, config),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    sock_connect=CONNECT_TIMEOUT_S, sock_read=config.idle_timeout_s
                ),
            ) as response:
                request.answered, request.status = time.time(), response.status
                headers = _response_headers(response.raw_headers)
                await send({"type": "http.response.start", "status": response.status, "headers": headers})
                async for piece in response.content.iter_any():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                request.ended = time.time()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError as error:
            await _fail(send, request, 504, error)
        except (aiohttp.ClientError, OSError) as error:
            await _fail(send, request, 502, error)


async def reach_nobody(send: Send, request: LoggedRequest, why: str) -> None:
    """What comes of connecting to an instance that isn't there: packets to it are lost."""
    await asyncio.sleep(CONNECT_TIMEOUT_S)
    await _fail(send, request, 504, TimeoutError(why))


async def read_body(receive: Receive) -> bytes | None:
    """The whole request body; None if the client goes before it is complete."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_error(send: Send, request: LoggedRequest, status: int) -> None:
    """Answers with an error of the load balancer's own."""
    title = f"{status} {_REASONS[status]}"
    page = f"<html>\r\n<head><title>{title}</title></head>\r\n<body><h1>{title}</h1></body>\r\n</html>\r\n"
    await send_fixed(send, request, status, "text/html", page)


async def send_fixed(send: Send, request: LoggedRequest, status: int, content_type: str, text: str) -> None:
    """Answers without a target."""
    request.status, request.ended = status, time.time()
    body = text.encode()
    headers = [
        (b"server", b"awselb/2.0"),
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _fail(send: Send, request: LoggedRequest, status: int, error: BaseException) -> None:
    request.error = f"{type(error).__name__}: {error}"
    if request.answered is None:
        await send_error(send, request, status)
    else:
        request.cut, request.ended = True, time.time()


def _target_of(scope: Scope) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    path: str = scope["raw_path"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _request_headers(scope: Scope, config: BalancerConfig) -> CIMultiDict[str]:
    headers = CIMultiDict(
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name.lower() not in _NOT_FORWARDED and (_VALID.fullmatch(name) or not config.drops_invalid_headers)
    )
    scheme = scope.get("scheme", "http")
    client = (scope.get("client") or ("127.0.0.1", 0))[0]
    headers["X-Forwarded-For"] = ", ".join((*headers.popall("X-Forwarded-For", []), client))
    headers["X-Forwarded-Proto"] = scheme
    # The listener's port, whatever loopback port stands in for it.
    headers["X-Forwarded-Port"] = "443" if scheme == "https" else "80"
    headers.setdefault("X-Amzn-Trace-Id", f"Root=1-{int(time.time()):08x}-{secrets.token_hex(12)}")
    return headers


def _response_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers if name.lower() not in _HOP_BY_HOP]
