"""The process behind `lab.demo.load.Load`: sends the requests, and reports in lines of JSON.

Its only argument is what to do, as JSON. "stop" on standard input lets it finish what is in flight; the end
of standard input means that its parent is gone, and ends it at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from typing import Any, Literal

import aiohttp

from lab.demo.load import Failure, Percentiles

_REPORT_EVERY_S = 0.25
# Not a retry: the next request is another one. It keeps an outage from becoming a million failures.
_PAUSE_AFTER_FAILURE_S = 0.2
# As patient as the load balancer, whose idle timeout it is; a stream that is silent for longer is lost.
_SILENCE_S = 60.0
_KEPT_FAILURES = 1000


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What one process of `lab.demo.load.Load` is to send, and where to."""

    url: str
    hosts: Sequence[str]
    concurrency: int
    model: str
    prompt: str
    max_tokens: int | None
    pause_s: float
    stream: bool

    def body(self) -> dict[str, Any]:
        """The request that is sent again and again."""
        body: dict[str, Any] = {
            "model": self.model,
            "stream": self.stream,
            "messages": [{"role": "user", "content": self.prompt}],
        }
        return body if self.max_tokens is None else body | {"max_tokens": self.max_tokens}


@dataclass(slots=True)
class _Exchange:
    """One request and what came of it; `error` is None if it was served to its end."""

    status: int = 0
    replica: str | None = None
    tokens: int = 0
    first_token_s: float = 0.0
    latency_s: float = 0.0
    error: str | None = "no response"

    async def run(self, session: aiohttp.ClientSession, url: str, host: str, body: bytes) -> None:
        """Sends the request and reads the response to its end. Raises nothing that a server can cause."""
        started = time.perf_counter()
        try:
            async with session.post(url, data=body, headers={"Host": host}) as response:
                self.status, self.replica = response.status, response.headers.get("x-replica")
                if self.status != 200:
                    self.error = (await response.text())[:500]
                    return
                if response.content_type == "application/json":
                    self.tokens = (await response.json())["usage"]["completion_tokens"]
                    self.error, self.latency_s = None, time.perf_counter() - started
                    self.first_token_s = self.latency_s
                    return
                self.error = "the stream ended without [DONE]"
                async for line in response.content:
                    if line == b"data: [DONE]\n":
                        self.error, self.latency_s = None, time.perf_counter() - started
                    elif _has_token(line):
                        self.tokens += 1
                        self.first_token_s = self.first_token_s or time.perf_counter() - started
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # After [DONE] the client has all there is.
            if self.error is not None:
                self.error = f"{type(error).__name__}: {error}; {self.tokens} tokens had come"


class Worker:
    """The clients and what they have seen."""

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self._url = settings.url.rstrip("/") + "/v1/chat/completions"
        self._body = json.dumps(settings.body()).encode()
        self._counts = Counter(sent=0, finished=0, failed=0, cut=0, in_flight=0, tokens=0)
        self._by_replica: Counter[str] = Counter()
        self._latencies: list[float] = []
        self._first_tokens: list[float] = []
        self._new_failures: list[Failure] = []
        self._kept_failures = 0
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Sends until `stop`, reporting all the while; the last report is marked complete."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=_SILENCE_S)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=timeout,
            headers={"Content-Type": "application/json"},
        ) as session:
            hosts = islice(cycle(self._settings.hosts), self._settings.concurrency)
            share_s = self._settings.pause_s / self._settings.concurrency
            clients = [
                asyncio.create_task(self._send_for_ever(session, host, number * share_s))
                for number, host in enumerate(hosts)
            ]
            reporter = asyncio.create_task(self._report_for_ever())
            await asyncio.gather(*clients)
            reporter.cancel()
        self._report(complete=True)

    def stop(self) -> None:
        """No new requests."""
        self._stopping.set()

    async def _send_for_ever(self, session: aiohttp.ClientSession, host: str, begins_after_s: float) -> None:
        await self._pause(begins_after_s)
        while not self._stopping.is_set():
            self._counts["sent"] += 1
            self._counts["in_flight"] += 1
            exchange = _Exchange()
            await exchange.run(session, self._url, host, self._body)
            self._counts["in_flight"] -= 1
            self._count(exchange)
            failed_s = 0.0 if exchange.error is None else _PAUSE_AFTER_FAILURE_S
            await self._pause(max(self._settings.pause_s, failed_s))

    async def _pause(self, duration_s: float) -> None:
        """Wait, but not beyond the end."""
        if duration_s:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), duration_s)

    def _count(self, exchange: _Exchange) -> None:
        if exchange.error is None:
            self._counts["finished"] += 1
            self._counts["tokens"] += exchange.tokens
            self._by_replica[exchange.replica or "unknown"] += 1
            self._latencies.append(exchange.latency_s)
            if exchange.tokens:
                self._first_tokens.append(exchange.first_token_s)
            return
        kind: Literal["cut", "failed"] = "cut" if exchange.status == 200 else "failed"
        self._counts[kind] += 1
        if self._kept_failures < _KEPT_FAILURES:
            self._kept_failures += 1
            self._new_failures.append(
                Failure(kind, time.time(), exchange.status, exchange.error, exchange.replica)
            )

    async def _report_for_ever(self) -> None:
        while True:
            self._report(complete=False)
            await asyncio.sleep(_REPORT_EVERY_S)

    def _report(self, *, complete: bool) -> None:
        failures, self._new_failures = self._new_failures, []
        report = {
            "complete": complete,
            "counts": dict(self._counts),
            "latency": asdict(percentiles(self._latencies)),
            "first_token": asdict(percentiles(self._first_tokens)),
            "by_replica": dict(self._by_replica),
            "failures": [asdict(failure) for failure in failures],
        }
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()


def percentiles(values: Sequence[float]) -> Percentiles:
    """By nearest rank: each is a value that was measured."""
    if not values:
        return Percentiles()
    ordered = sorted(values)
    return Percentiles(ordered[(len(ordered) - 1) // 2], ordered[(len(ordered) - 1) * 95 // 100], ordered[-1])


def _has_token(line: bytes) -> bool:
    """Whether a line of the stream carries text. Raises ValueError if it is no chunk of OpenAI's API."""
    if not line.startswith(b"data: "):
        return False
    chunk = json.loads(line[len(b"data: ") :])
    try:
        return any(choice["delta"].get("content") for choice in chunk["choices"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no chat completion chunk: {line[:200]!r}") from error


def _obey(worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
    # Not through sys.stdin, whose lock a thread that waits in it would keep from the interpreter's shutdown.
    while os.read(0, 4096):
        loop.call_soon_threadsafe(worker.stop)
    os._exit(1)  # the parent is gone: nobody is left to report to, and nothing to clean up


async def _main(settings: LoadSettings) -> None:
    worker = Worker(settings)
    threading.Thread(target=_obey, args=(worker, asyncio.get_running_loop()), daemon=True).start()
    await worker.run()


if __name__ == "__main__":
    asyncio.run(_main(LoadSettings(**json.loads(sys.argv[1]))))
