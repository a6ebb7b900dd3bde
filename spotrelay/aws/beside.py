"""`ports.Beside` in a thread: while one call's answer is awaited, another is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Thread:
    """One thread, started when it is first needed, and kept: what it does can't do anything beside itself.

    Clients stand that, but not being built by two at once: whoever uses it sees to that.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")

    @contextmanager
    def __call__(self, act: Callable[[], T]) -> Iterator[Callable[[], T]]:
        """See `ports.Beside`."""
        answer = self._thread.submit(act)
        try:
            yield answer.result
        finally:
            # Lambda freezes a function that has answered, with whatever it has under way.
            wait([answer])
