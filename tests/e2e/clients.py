"""Clients of a service's load balancer: some stream answers while a test hurts the service, some just ask."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from lab.demo.load import Load, LoadSnapshot
from tests.e2e.stand import POLL_S, WITHIN_S, Stand

CLIENTS = 4
"""Enough that every replica has somebody's answer under way, and little work for a small machine."""

MODEL = "spotrelay-demo"
"""As the service files have it."""

TOKENS = 20
"""An answer takes a second, so that no drain is the reason for a cut."""


class Clients:
    """So many clients of a service, each sending one streaming request after the other and never one again.

    They send from the beginning of the `with` block, which begins once answers come, until `stop` or its end.
    """

    def __init__(self, stand: Stand, number: int = CLIENTS, tokens: int = TOKENS) -> None:
        front = stand.balancer()
        self._cloud = stand.cloud
        self._balancer = str(front["LoadBalancerName"])
        self._load = Load(self._cloud.endpoint, [front["DNSName"]], number, model=MODEL, max_tokens=tokens)
        self._final: LoadSnapshot | None = None

    def requests(self) -> Sequence[Mapping[str, Any]]:
        """The load balancer's own log of the requests; see `LocalCloud.requests`."""
        return self._cloud.requests(self._balancer)

    def stop(self) -> LoadSnapshot:
        """Send nothing more and wait for what is in flight; what came of all requests."""
        if self._final is None:
            self._final = self._load.stop()
        return self._final

    def were_served(self) -> None:
        """Stop them. Fails if a single request failed or was cut, and says which."""
        seen = self.stop()
        assert (seen.failed, seen.cut) == (0, 0), (
            f"{seen.failed} failed, {seen.cut} cut: {seen.failures[:10]}"
        )
        assert seen.finished == seen.sent > 0

    def __enter__(self) -> Self:
        self._load.start()
        deadline = time.monotonic() + WITHIN_S
        while not self._load.snapshot().finished:
            assert time.monotonic() < deadline, f"no answer within {WITHIN_S:.0f} s: {self._load.snapshot()}"
            time.sleep(POLL_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._final is None:
            seen = self._load.snapshot()
            error.add_note(
                f"clients: {seen.sent} sent, {seen.failed} failed, {seen.cut} cut {seen.failures[:10]}"
            )
        self._load.kill()


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    status: int
    """0: no answer, but an error."""
    text: str


class Client:
    """Asks a service through its load balancer, each time over a connection of its own."""

    def __init__(self, stand: Stand) -> None:
        self._host = stand.operator.deployment.hosts[stand.service]
        self._address = urlsplit(stand.cloud.endpoint).netloc

    def ask(
        self, method: str, path: str, data: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request; `data` is sent as JSON."""
        connection = http.client.HTTPConnection(self._address, timeout=WITHIN_S)
        body = None if data is None else json.dumps(data)
        given = {**(headers or {}), "Host": self._host, "Content-Type": "application/json"}
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode())
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, repr(error))
        finally:
            connection.close()


class Requests:
    """So many requests a second, one after the other, until the end of the `with` block."""

    def __init__(self, ask: Callable[[], Answer], rate: float) -> None:
        self._ask = ask
        self._every_s = 1 / rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.answers: Counter[Answer] = Counter()

    @property
    def statuses(self) -> set[int]:
        """Of all answers so far."""
        return {answer.status for answer in list(self.answers)}

    def _send(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self.answers[self._ask()] += 1
            due += self._every_s
            self._stop.wait(due - time.monotonic())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
