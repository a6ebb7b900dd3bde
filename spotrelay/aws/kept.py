"""Answers that are kept for a while: a function's execution environment often serves several invocations."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Values by key, each fresh for `for_s`."""

    def __init__(self, for_s: float, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._for_s = for_s
        self._monotonic_s = monotonic_s
        self._values: dict[K, tuple[float, V]] = {}

    def get(self, key: K, ask: Callable[[], V]) -> V:
        """The kept value, or what `ask` gives; if that raises, nothing is kept."""
        kept = self._values.get(key)
        if kept and self._monotonic_s() - kept[0] < self._for_s:
            return kept[1]
        value = ask()
        self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep what was learned otherwise; it is fresh as of now."""
        self._values[key] = self._monotonic_s(), value

    def forget(self, key: K) -> None:
        """Ask the next time: it is known to be outdated."""
        self._values.pop(key, None)
