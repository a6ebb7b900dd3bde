"""Reads recordings in a CSV of ours: what each pool could hold, from when on.

    second,zone,instance_type,capacity
    0,us-east-1a,g5.xlarge,4
    0,us-east-1b,g5.xlarge,0
    60,us-east-1b,g5.xlarge,2

`second` counts from the recording's start; a pool keeps its capacity until its next row. Every pool has a
row at second 0, its later rows are in order, and the recording ends at the last row of all: repeat a row
there if nothing changed. Rows of different pools may come in any order. A loop that asks EC2 now and then
can write it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from lab.replay.readers.recording import Recording, TraceError, pool_in, text_of
from spotrelay.plane.core.pools import CapacityPool

COLUMNS = ("second", "zone", "instance_type", "capacity")


def read_all(files: Sequence[Path]) -> list[Recording]:
    """The files' pools.

    Raises:
        TraceError: other columns, a value that is missing or none, times that go back, a pool twice.
    """
    recordings: list[Recording] = []
    files_of: dict[CapacityPool, Path] = {}
    for file in files:
        for recording in _read(file):
            other = files_of.setdefault(recording.pool, file)
            if other != file:
                raise TraceError(f"{file}: {recording.pool} is in {other.name} as well: keep one of them")
            recordings.append(recording)
    return recordings


def _read(file: Path) -> list[Recording]:
    lines = csv.reader(text_of(file).splitlines())
    header = tuple(name.strip() for name in next(lines, []))
    if header != COLUMNS:
        raise TraceError(f"{file}:1: the columns must be {','.join(COLUMNS)}, not {','.join(header)[:60]!r}")
    points: dict[CapacityPool, list[tuple[float, int]]] = {}
    for number, row in enumerate(lines, 2):
        if not any(row):
            continue
        at = f"{file}:{number}"
        second, pool, capacity = _row(at, row)
        known = points.setdefault(pool, [])
        if not known and second != 0:
            raise TraceError(f"{at}: {pool} begins at second {second:g}: add a row for second 0")
        if known and second <= known[-1][0]:
            what = "has two rows for" if second == known[-1][0] else "goes back to"
            raise TraceError(f"{at}: {pool} {what} second {second:g}: keep each pool's rows in order of time")
        known.append((second, capacity))
    if not points:
        raise TraceError(f"{file}: has no rows below its header: record something first")
    end_s = max(known[-1][0] for known in points.values())
    return [Recording(file, pool, known, end_s) for pool, known in points.items()]


def _row(at: str, row: Sequence[str]) -> tuple[float, CapacityPool, int]:
    fields = [field.strip() for field in row]
    if len(fields) != len(COLUMNS) or not all(fields):
        raise TraceError(
            f"{at}: expected {','.join(COLUMNS)}, got {','.join(row)[:60]!r}: fill in what is missing"
        )
    second_text, zone, instance_type, capacity_text = fields
    try:
        second = float(second_text)
    except ValueError:
        second = math.nan
    if not 0 <= second < math.inf:
        raise TraceError(f"{at}: second must be a number, 0 or more, not {second_text!r}")
    if not (capacity_text.isascii() and capacity_text.isdigit()):
        raise TraceError(f"{at}: capacity must be a whole number, 0 or more, not {capacity_text!r}")
    return second, pool_in(zone, instance_type), int(capacity_text)
