"""HTTP requests and answers as plain values, and the few ASGI types that we need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, quote

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class ClientGoneError(ConnectionError):
    """The client went away before its request was complete; nobody is there to answer."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. Header names are lower case; `body` is empty where the front lets it stream through."""

    method: str
    path: str
    raw_path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    raw_headers: list[tuple[bytes, bytes]]
    client: str
    body: bytes = b""

    @classmethod
    def of(cls, scope: Scope, body: bytes = b"") -> HttpRequest:
        """The request that an ASGI scope describes."""
        raw_headers = list(scope["headers"])
        raw_path = scope.get("raw_path") or quote(scope["path"]).encode()
        return cls(
            method=scope["method"],
            path=scope["path"],
            raw_path=raw_path.decode("latin-1"),
            query=parse_qs(scope["query_string"].decode(), keep_blank_values=True),
            headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw_headers},
            raw_headers=raw_headers,
            client=(scope.get("client") or ("127.0.0.1", 0))[0],
            body=body,
        )


@dataclass(frozen=True, slots=True)
class Response:
    """One complete answer."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, send: Send) -> None:
        """Send it as an ASGI answer."""
        headers = {**self.headers, "content-length": str(len(self.body))}
        start = {
            "type": "http.response.start",
            "status": self.status,
            "headers": encode_headers(headers.items()),
        }
        await send(start)
        await send({"type": "http.response.body", "body": self.body})


def encode_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Headers in ASGI's form."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request.

    Raises:
        ClientGoneError: the client went away before it was complete.
    """
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


def rewrite(send: Send, change: Callable[[bytes], bytes]) -> Send:
    """A `send` that holds an answer until it is complete and, if it is a success, changes its body."""
    start: Message = {}
    pieces: list[bytes] = []

    async def rewritten(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
            return
        pieces.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        body = b"".join(pieces)
        if start["status"] < 300:
            body = change(body)
        headers = [(n, v) for n, v in start["headers"] if n.lower() != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({**start, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return rewritten


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read already, and after it what the client does."""
    pending = [body]

    async def replayed() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return replayed
