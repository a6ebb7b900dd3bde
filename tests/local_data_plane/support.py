"""What the tests of the data plane share: addresses, patience, targets that obey, a served balancer."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp
from aiohttp import web
from hypercorn.asyncio import serve
from hypercorn.config import Config

from lab.local.balancer import Balancer, BalancerConfig, HealthCheck, TargetGroup

T = TypeVar("T")
PATIENCE_S = 60.0  # far longer than anything here takes on a busy machine: only a failure waits for it
PORT = 8171
"""Of no service file: without network namespaces one of those that listens everywhere answers here, too."""
GROUP = "arn:aws:elasticloadbalancing:us-east-1:000000000000:targetgroup/demo/0123456789abcdef"
FRONT = "demo"
QUICK = HealthCheck(
    path="/health", interval_s=0.05, timeout_s=5.0, healthy_threshold=2, unhealthy_threshold=2
)
CHAT = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


def free_address() -> str:
    """A loopback address that no other test uses: tests run side by side, instances share a port."""
    return "127." + ".".join(str(1 + secrets.randbelow(250)) for _ in range(3))


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Waits until something has happened."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)


async def until(condition: Callable[[], object], what: str) -> None:
    """Waits until something has happened, letting the loop run."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.01)


async def soon(awaitable: Awaitable[T]) -> T:
    """Its result; fails if it never comes."""
    return await asyncio.wait_for(awaitable, PATIENCE_S)


@dataclass
class Stream:
    """A response under the test's control: what is put into `pieces` is sent, None ends it, b"" cuts it."""

    pieces: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    closed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class FakeTarget:
    """A server at an address of its own whose health and streams the test commands."""

    address: str = field(default_factory=free_address)
    status: int = 200
    checks: int = 0
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    connections: list[object] = field(default_factory=list)
    """Which of them each quick answer went by."""
    streams: list[Stream] = field(default_factory=list)

    async def health(self, request: web.Request) -> web.Response:
        """What the load balancer checks."""
        self.checks += 1
        return web.Response(status=self.status)

    async def quick(self, request: web.Request) -> web.Response:
        """An answer at once, saying who gave it and to what."""
        self.paths.append(request.raw_path)
        self.connections.append(request.transport and request.transport.get_extra_info("peername"))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return web.json_response({"address": self.address, "body": await request.text()}, status=201)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """A response the test dictates."""
        stream = Stream()
        self.streams.append(stream)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while (piece := await stream.pieces.get()) is not None:
                if not piece:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                await response.write(piece)
        except asyncio.CancelledError:
            stream.closed.set()
            raise
        return response

    async def silence(self, request: web.Request) -> web.Response:
        """No answer at all; the connection is closed."""
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeTarget]:
        """Serves on its address."""
        app = web.Application()
        app.router.add_get("/health", self.health)
        app.router.add_post("/stream", self.stream)
        app.router.add_post("/silence", self.silence)
        app.router.add_route("*", "/{rest:.*}", self.quick)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, self.address, PORT).start()
        try:
            yield self
        finally:
            await runner.cleanup()


@dataclass
class Site:
    """A balancer behind a real HTTP server, with a client that keeps no connection."""

    balancer: Balancer
    addresses: dict[str, str]
    url: str
    client: aiohttp.ClientSession

    def configure(self, group: TargetGroup | None = None, front: BalancerConfig | None = None) -> None:
        """One load balancer, one target group."""
        group = group or TargetGroup(GROUP, PORT, QUICK)
        self.balancer.configure([front or BalancerConfig(FRONT, GROUP)], [group])

    def add(self, instance_id: str, address: str) -> None:
        """An instance runs, and is registered."""
        self.addresses[instance_id] = address
        self.balancer.register(GROUP, [(instance_id, None)])

    def states(self) -> dict[str, str]:
        """The state of every target, by instance ID."""
        return {row["id"]: row["state"] for row in self.balancer.health(GROUP)}

    async def until_state(self, instance_id: str, state: str) -> None:
        """Waits for a target's state; "gone" is having none."""
        await until(lambda: self.states().get(instance_id, "gone") == state, f"{instance_id} is {state}")

    def post(self, path: str, body: bytes = b"") -> aiohttp.client._RequestContextManager:
        """A request through the load balancer."""
        return self.client.post(self.url + path, data=body)


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """A site in the running loop."""
    addresses: dict[str, str] = {}
    balancer = Balancer(addresses.get)
    await balancer.start()

    async def app(scope, receive, send):  # type: ignore[no-untyped-def] # hypercorn's types name each message
        if scope["type"] == "http":
            await balancer.proxy(scope, receive, send, FRONT)

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.errorlog = None
    stop = asyncio.Event()
    server = asyncio.create_task(serve(app, config, shutdown_trigger=stop.wait))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        try:
            yield Site(balancer, addresses, f"http://127.0.0.1:{port}", client)
        finally:
            await balancer.close()
            stop.set()
            await server
