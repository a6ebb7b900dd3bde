"""How much time the running invocation has left: Lambda ends it in the middle of whatever it does then."""

from __future__ import annotations

import time
from collections.abc import Callable


class Deadline:
    """Of the running invocation. Outside of a function, and before the first one, there is none."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._at_s = float("inf")

    def begin(self, remaining_s: float) -> None:
        """An invocation has begun that has so much time."""
        self._at_s = self._monotonic_s() + remaining_s

    def leaves(self, needed_s: float) -> bool:
        """Whether what may take so long can be begun."""
        return self._at_s - self._monotonic_s() >= needed_s
