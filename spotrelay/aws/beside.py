"""`ports.Beside` in a thread: while one call's answer is awaited, another is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

HEAD_START_S = 0.001
"""For the block, whose call clients wait for: by then it is on its way. Without, it was chance which of the
two was sent first, and on a local cloud the other was answered two milliseconds later. Half wasn't enough."""


class Thread:
    """One thread, started when it is first needed, and kept: what it does can't do anything beside itself.

    Clients stand that, but not being built by two at once: whoever uses it sees to that.
    """

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")

    @contextmanager
    def __call__(self, act: Callable[[], T]) -> Iterator[Callable[[], T]]:
        """See `ports.Beside`."""
        answer = self._thread.submit(self._second, act)
        try:
            yield answer.result
        finally:
            # Lambda freezes a function that has answered, with whatever it has under way.
            wait([answer])

    def _second(self, act: Callable[[], T]) -> T:
        self._sleep(HEAD_START_S)
        return act()
