"""How a command that takes minutes says how far it is; and how each prints JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

if TYPE_CHECKING:
    from rich.status import Status


SCHEMA = 1
"""Of what commands print with `--json`, see docs/json.md: it rises if a field goes or means something else. A
new field is no change."""


def echo_json(document: Mapping[str, Any]) -> None:
    """Print a command's one document."""
    typer.echo(json.dumps({"schema": SCHEMA, **document}, indent=2, ensure_ascii=False))


BEAT_S = 9.0
"""Between two lines without a terminal: ten seconds at most, on a busy machine, too."""


class Teller:
    """Lines for what has happened, and on terminals one that changes for what happens now.

    Elsewhere what happens now is a line on standard error whenever nothing was said for a while: a log of a
    command that waits shows that it does, and for what. With `--json`, standard output is the document's
    alone: all lines go to standard error.
    """

    def __init__(self, *, is_json: bool = False, beat_s: float = BEAT_S) -> None:
        self._is_json = is_json
        self._beat_s = beat_s
        self._last = ""
        self._doing = ""
        self._said_at = time.monotonic()
        self._ended = threading.Event()
        self._status: Status | None = None

    def say(self, line: str) -> None:
        """Something has happened. The same line twice in a row is said once."""
        if line != self._last:
            typer.echo(line, err=self._is_json)
            self._last = line
            self._said_at = time.monotonic()

    def now(self, line: str) -> None:
        """Something happens, and will be over soon: for people who look on."""
        self._doing = line
        if self._status is not None:
            self._status.update(line)

    def end(self, line: str, result: dict[str, Any]) -> None:
        """The last thing that is said: a line, or the document."""
        if self._is_json:
            echo_json(result)
        elif line:
            self.say(line)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While a person is asked something."""
        doing, self._doing = self._doing, ""
        if self._status is not None:
            self._status.stop()
        yield
        self._doing = doing
        if self._status is not None:
            self._status.start()

    def __enter__(self) -> Self:
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal:
            self._status = console.status("")
            self._status.start()
        else:
            threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _beat(self) -> None:
        while not self._ended.wait(max(self._said_at + self._beat_s - time.monotonic(), 0)):
            if time.monotonic() < self._said_at + self._beat_s:
                continue  # something was said meanwhile
            if self._doing:
                typer.echo(f"… {self._doing}", err=True)
            self._said_at = time.monotonic()
