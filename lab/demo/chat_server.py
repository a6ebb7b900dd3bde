"""A chat server with OpenAI's API and no model behind it: `python -m lab.demo.chat_server`.

It behaves like an inference server where the demo needs it: it takes its time to load, answers 503 until it
has, and streams a token at a time. h11 and asyncio alone, because many replicas start at once on a small
machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import h11

from lab.demo.chat_api import ApiError, Reply, models, parse_request

_MAX_BODY = 1 << 20  # far above any chat prompt; refuses a runaway upload
# Longer than the 60 s for which a load balancer keeps idle connections: it never meets one just closed.
_KEEP_ALIVE_S = 75.0
_READ_SIZE = 1 << 16
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What the server is told: durations in seconds, `tokens` per reply, `token_s` between two of them."""

    host: str
    port: int
    model: str
    load_s: float
    tokens: int
    token_s: float
    replica: str


class ChatServer:
    """Answers chat completion requests, once its "model" is loaded."""

    def __init__(self, settings: ChatSettings) -> None:
        self.settings = settings
        self.loaded = False
        self.stopping = False
        self.created = int(time.time())
        self.counters: Counter[str] = Counter()
        self._connections: dict[_Connection, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT, then finishes what is in flight. Raises OSError: can't listen."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        server = await asyncio.start_server(self._accept, self.settings.host, self.settings.port)
        loop.call_later(self.settings.load_s, self._load)
        await stop.wait()
        self.stopping = True
        server.close()
        for connection, task in self._connections.items():
            if not connection.busy:
                task.cancel()
        await asyncio.gather(*self._connections.values(), return_exceptions=True)

    def metrics(self) -> str:
        """The counters, in Prometheus's text format."""
        busy = sum(connection.busy for connection in self._connections)
        values = {"requests_in_flight": busy, **self.counters}
        return "".join(f"chat_server_{name} {value}\n" for name, value in sorted(values.items()))

    def _load(self) -> None:
        self.loaded = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        task = self._connections[connection] = asyncio.ensure_future(connection.serve())
        try:
            await task
        finally:
            del self._connections[connection]
            writer.close()


class _Connection:
    """One client connection and its requests, one after the other."""

    def __init__(
        self, server: ChatServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._http = h11.Connection(h11.SERVER)
        self.busy = False

    async def serve(self) -> None:
        """Serves requests until the client goes, is silent for too long, or the server stops."""
        try:
            while not self._server.stopping and await self._exchange():
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                await self._reply_json(400, ApiError(400, f"not HTTP: {error}").body)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            self.busy = False

    async def _exchange(self) -> bool:
        """Serves one request; False if there can't be another one."""
        async with asyncio.timeout(_KEEP_ALIVE_S):
            request = await self._next_event()
        if not isinstance(request, h11.Request):
            return False
        self.busy = True
        try:
            await self._answer(request)
        except ApiError as error:
            self._server.counters["requests_refused_total"] += 1
            await self._reply_json(error.status, error.body)
        self.busy = False
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _answer(self, request: h11.Request) -> None:
        body = await self._body()
        method, path = request.method.decode(), request.target.decode().partition("?")[0]
        server = self._server
        match method, path:
            case "GET", "/health" if server.loaded:
                await self._reply_json(200, {"status": "ok"})
            case "GET", "/health":
                await self._reply_json(503, {"status": "loading"})
            case "GET", "/v1/models":
                await self._reply_json(200, models(server.settings.model, server.created))
            case "GET", "/metrics":
                await self._reply(200, "text/plain; version=0.0.4", server.metrics().encode())
            case "POST", "/v1/chat/completions":
                await self._chat(body)
            case _, "/health" | "/v1/models" | "/metrics" | "/v1/chat/completions":
                raise ApiError(405, f"{method} is not supported on {path}")
            case _:
                raise ApiError(404, f"unknown path {path}")

    async def _chat(self, body: bytes) -> None:
        settings, counters = self._server.settings, self._server.counters
        counters["requests_total"] += 1
        request = parse_request(body, settings.model)
        if not self._server.loaded:
            raise ApiError(503, "the model is still loading", code="model_loading")
        reply = Reply(request, settings.model, settings.tokens)
        try:
            if request.stream:
                await self._stream(reply)
            else:
                await asyncio.sleep(reply.length * settings.token_s)
                counters["tokens_total"] += reply.length
                await self._reply_json(200, reply.completion())
        except ConnectionError:
            counters["requests_abandoned_total"] += 1
            raise
        counters["requests_finished_total"] += 1

    async def _stream(self, reply: Reply) -> None:
        await self._send(
            h11.Response(
                status_code=200,
                headers=[*self._headers("text/event-stream"), ("cache-control", "no-cache")],
            ),
            h11.Data(data=reply.first_chunk()),
        )
        for word in reply.words():
            await asyncio.sleep(self._server.settings.token_s)
            if self._reader.at_eof():
                raise ConnectionResetError("the client has gone")
            self._server.counters["tokens_total"] += 1
            await self._send(h11.Data(data=reply.chunk(word)))
        await self._send(h11.Data(data=reply.last_chunks()), h11.EndOfMessage())

    async def _body(self) -> bytes:
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        body = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            # What is too long is read on and dropped: a client that is still sending would miss the refusal.
            if len(body) <= _MAX_BODY:
                body += event.data
        if len(body) > _MAX_BODY:
            raise ApiError(413, f"the request body is larger than {_MAX_BODY} bytes")
        return bytes(body)

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_READ_SIZE))
        # h11 declares the union with NEED_DATA, which the loop has excluded.
        return event  # type: ignore[return-value]

    async def _reply_json(self, status: int, document: dict[str, Any]) -> None:
        await self._reply(status, _JSON, json.dumps(document).encode())

    async def _reply(self, status: int, content_type: str, body: bytes) -> None:
        headers = [*self._headers(content_type), ("content-length", str(len(body)))]
        await self._send(
            h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()
        )

    def _headers(self, content_type: str) -> list[tuple[str, str]]:
        return [("content-type", content_type), ("x-replica", self._server.settings.replica)]

    async def _send(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
        await self._writer.drain()


def parse_settings(arguments: Sequence[str], environment: dict[str, str]) -> ChatSettings:
    """Reads command line and environment; the command line wins. Exits with 2 and a message on nonsense."""
    parser = argparse.ArgumentParser(prog="python -m lab.demo.chat_server", description=__doc__)

    def option(name: str, variable: str, default: str, kind: Any, text: str) -> None:
        default = environment.get(variable, default)
        parser.add_argument(name, type=kind, default=default, help=f"{text}; or set {variable} (%(default)s)")

    option("--host", "HOST", "127.0.0.1", str, "the address to listen on")
    option("--port", "PORT", "8081", _port, "the port to listen on")
    option("--model", "MODEL_NAME", "demo", str, "the model's name")
    option("--load-s", "LOAD_S", "0", _duration, "seconds until the model is loaded")
    option("--tokens", "TOKENS", "50", _count, "tokens per reply")
    option("--token-s", "TOKEN_S", "0.02", _duration, "seconds per token")
    found = parser.parse_args(arguments)
    # On 0.0.0.0 the address says nothing about which machine this is.
    name = socket.gethostname() if found.host in {"", "0.0.0.0", "::"} else found.host  # noqa: S104 - compared only
    return ChatSettings(
        found.host, found.port, found.model, found.load_s, found.tokens, found.token_s, f"{name}:{found.port}"
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 1 to 65535, got {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, at least 1, got {text!r}")
    return int(text)


def _duration(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    # Written so that it refuses "nan", too.
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, 0 or more, got {text!r}")
    return seconds


def main() -> int:
    """Runs the server; returns the exit status."""
    settings = parse_settings(sys.argv[1:], dict(os.environ))
    try:
        asyncio.run(ChatServer(settings).run())
    except OSError as error:
        sys.stderr.write(f"chat_server: can't listen on {settings.host}:{settings.port}: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
