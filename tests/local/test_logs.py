"""Logs of functions are whole."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import IO

import pytest

from lab.local.logs import LogPipe

Pipe = tuple[IO[str], IO[str]]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Both ends."""
    theirs, ours = os.pipe()
    with os.fdopen(theirs) as reads, os.fdopen(ours, "w", buffering=1) as writes:
        yield reads, writes


def test_all_that_was_written_is_taken(pipe: Pipe) -> None:
    """Even if the reader's thread has had no turn at all, nothing waits for next time; a line comes once."""
    reads, writes = pipe
    log = LogPipe(reads)
    assert log.take() == ""
    writes.write("one\ntwo ü\n")
    assert log.take() == "one\ntwo ü"
    writes.write("three\n")
    writes.close()
    assert (log.take(), log.take()) == ("three", "")


def test_a_writer_never_waits(pipe: Pipe) -> None:
    """More than a pipe holds is read while nobody takes it, and the reader ends with the writer."""
    reads, writes = pipe
    log = LogPipe(reads)
    pump = threading.Thread(target=log.pump, daemon=True)
    pump.start()
    lines = [f"{n:1000}" for n in range(1000)]
    writes.write("\n".join(lines) + "\n")
    writes.close()
    pump.join()
    assert log.take().splitlines() == lines
