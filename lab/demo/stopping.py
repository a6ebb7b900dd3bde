"""Ctrl-C and its relatives: they raise `Interrupted`, until cleaning up has begun."""

from __future__ import annotations

import signal
from types import FrameType

from lab.demo.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def listen() -> None:
    """From now on these signals raise `Interrupted` in the main thread."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def ignore() -> None:
    """From now on they do nothing: a second Ctrl-C must not break off the cleaning up after the first."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)
