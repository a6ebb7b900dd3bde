"""The number of replicas follows the load, by what they themselves tell of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from types import TracebackType
from typing import Self

import pytest

from spotrelay.plane.core.scaling import OngoingTarget, Scaling
from tests.e2e.clients import MODEL, Answer, Client
from tests.e2e.stand import WITHIN_S, Stand

MEASURED_S = 240.0
"""Fewer requests are known to be fewer once a whole minute of them is over, and complete a minute later."""

STREAMS = Scaling(
    min_replicas=1,
    max_replicas=3,
    upscale_delay_s=5,
    downscale_delay_s=10,
    # The server counts the request for its metrics, too: with four streams a replica says five.
    ongoing=OngoingTarget(target=5.0, metrics=("chat_server_requests_in_flight",)),
)


class Streams:
    """So many answers under way at any time, until the end of the `with` block."""

    def __init__(self, ask: Callable[[], Answer], number: int) -> None:
        self._ask = ask
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(number)]
        self.statuses: Counter[int] = Counter()

    def _send(self) -> None:
        while not self._stop.is_set():
            self.statuses[self._ask().status] += 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.slow
@pytest.mark.timeout(4 * WITHIN_S + 3 * MEASURED_S)
def test_the_number_follows_the_answers_under_way(stand: Stand) -> None:
    """Twelve at any time, whatever their rate, are three replicas' at four each; without any it is one again.

    None of the requests fails.
    """
    stand.want(1)
    stand.whole(1)
    question = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
    stand.change(scaling=asdict(STREAMS))
    try:
        with Streams(partial(Client(stand).ask, "POST", "/v1/chat/completions", question), 12) as streams:
            stand.whole(3, within_s=MEASURED_S)
        assert {*streams.statuses} == {200}
        stand.whole(1, within_s=MEASURED_S)
    finally:
        stand.change(scaling=None, replicas=3)
        stand.whole(3)
