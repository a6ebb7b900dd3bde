"""Reads nodes that came and went: a CSV file without header, `ms,add|remove,node`, one line per event.

The format of github.com/uclasystem/bamboo (`traces/`): milliseconds since the recording's start, and the
name of a Spot instance that came or was taken. One file is one pool, which could hold as many instances as
were alive; it ends with its last event. Zone and instance type aren't on record: the zone is made up, the
type is the file's name. Several files in a folder are several pools in zones of their own, all taken to
begin at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from lab.replay.readers.recording import Recording, TraceError, pool_in, text_of

FORM = re.compile(r"\s*-?[\d.]+\s*,\s*(add|remove)\b", re.IGNORECASE)
"""What a line looks like: tells the format from the other CSV."""

LONGEST_LEAD_MS = 31 * 86_400_000
"""A first event later than this has the time of some clock, not the time since the recording's start."""

MOST_FILES = 26
"""Each file is a zone of its own, and zones of a region have a letter."""


def read_all(files: Sequence[Path]) -> list[Recording]:
    """The files' pools, each in a zone of its own.

    Raises:
        TraceError: a line of another form, times that go back, nodes that come twice or leave unseen.
    """
    if len(files) > MOST_FILES:
        raise TraceError(
            f"{files[0].parent}: has {len(files)} files of node events, at most {MOST_FILES} can be replayed "
            "together: use several folders"
        )
    return [_read(file, zone=f"recorded-1{chr(ord('a') + n)}") for n, file in enumerate(files)]


def _read(file: Path, zone: str) -> Recording:
    alive: set[str] = set()
    points = [(0.0, 0)]
    last_ms = 0.0
    for number, line in enumerate(text_of(file).splitlines(), 1):
        if not line.strip():
            continue
        at = f"{file}:{number}"
        ms, kind, node = _event(at, line)
        if ms < last_ms:
            raise TraceError(f"{at}: {ms:g} ms comes after {last_ms:g} ms: sort the lines by time")
        if len(points) == 1 and ms > LONGEST_LEAD_MS:
            raise TraceError(
                f"{at}: the first event is {ms / 86_400_000:,.0f} days after the recording's start: "
                "subtract the time at which it began"
            )
        last_ms = ms
        if kind == "add" and node in alive:
            raise TraceError(f"{at}: {node} is added twice: remove it first, or give each node its own name")
        if kind == "remove" and node not in alive:
            raise TraceError(f"{at}: {node} is removed but was never added: add it first")
        (alive.add if kind == "add" else alive.discard)(node)
        points.append((ms / 1000, len(alive)))
    return Recording(file, pool_in(zone, file.stem), points, last_ms / 1000)


def _event(at: str, line: str) -> tuple[float, str, str]:
    fields = [field.strip() for field in line.split(",")]
    try:
        ms_text, kind, node = fields
        ms = float(ms_text)
    except ValueError:
        ms, kind, node = math.nan, "", ""
    if not 0 <= ms < math.inf or kind not in ("add", "remove") or not node:
        raise TraceError(
            f"{at}: expected ms,add|remove,node such as 480000,add,node1 with 0 ms or more, not {line[:60]!r}"
        )
    return ms, kind, node
