"""Recordings of a Spot market, ready to replay: which pool could hold how many instances, and when.

Three formats, told apart by what is in the files: see `readers`. A recording is a file, or a folder of
files of one format; what else lies in the folder (a licence, a README) is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from lab.replay.readers import capacity_csv, node_events, pool_json
from lab.replay.readers.recording import Recording, TraceError, text_of
from lab.replay.wording import span
from spotrelay.plane.core.pools import CapacityPool

__all__ = ["ANY_NUMBER", "EQUAL_PRICES", "PoolTrace", "Regions", "Trace", "TraceError", "by_region", "load"]

ANY_NUMBER = 1_000_000
"""Instances of a pool that was only asked whether it has any: as many as you ask for."""

EQUAL_PRICES = "equal"
"""What `Trace.prices` says if nothing is known of them."""


@dataclass(frozen=True, slots=True)
class PoolTrace:
    """How much a capacity pool could hold, and what a Spot instance in it costs, over time."""

    pool: CapacityPool
    capacity: tuple[tuple[float, int], ...]
    """Second since the trace's start, and the instances that the pool holds from then on.

    The first is at 0.0; the others are changes, in order, all before the trace's end."""
    prices: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    """In the same way the Spot price, as a multiple of the recording's mean Spot price."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A market to replay."""

    name: str
    pools: tuple[PoolTrace, ...]
    duration_s: float
    notes: tuple[str, ...] = ()
    """What a reader of the results must know: what was cut, or read in another sense than the plain one."""
    prices: str = EQUAL_PRICES
    """Where the Spot prices are from: `equal`, `recorded`, or `made-up:` and the seed."""


class Regions(StrEnum):
    """What to make of a recording of several regions."""

    ONE = "one"
    """A market for each region, as one deployment has it."""
    ALL = "all"
    """One market with the pools of all."""
    BOTH = "both"
    """That one, and each region's."""


def by_region(trace: Trace, which: Regions, replicas: int) -> list[Trace]:
    """The markets that a recording is replayed as: for one of a single region always just that."""
    names = list(dict.fromkeys(p.pool.region for p in trace.pools))
    if len(names) == 1:
        return [trace]
    merged = f"the pools of {len(names)} regions are made one market, which no deployment has"
    whole = replace(trace, notes=(*trace.notes, merged))
    each = [
        _with_scarcity(
            replace(
                trace,
                name=f"{trace.name}/{region}",
                pools=tuple(p for p in trace.pools if p.pool.region == region),
            ),
            replicas,
        )
        for region in names
    ]
    return {Regions.ONE: each, Regions.ALL: [whole], Regions.BOTH: [whole, *each]}[which]


def _with_scarcity(trace: Trace, replicas: int) -> Trace:
    """The trace, with a note if its pools never hold so many instances."""
    most = sum(max(held for _, held in pool.capacity) for pool in trace.pools)
    note = f"all pools together never hold {replicas} instances: the rest is on-demand's"
    return trace if most >= replicas or note in trace.notes else replace(trace, notes=(*trace.notes, note))


def load(path: Path, replicas: int) -> Trace:
    """Read a recording, whatever its format, for a service of so many replicas.

    Files of unequal length are cut to the shortest, with a note.

    Raises:
        TraceError: nothing there, or not what a recording looks like.
    """
    files = _files(path)
    recordings, notes = _read(path, files)
    end_s = min(recording.end_s for recording in recordings)
    if end_s <= 0:
        shortest = min(recordings, key=lambda r: r.end_s)
        raise TraceError(
            f"{shortest.file}: covers no time: nothing happens after its first second; record longer"
        )
    if end_s < max(recording.end_s for recording in recordings):
        notes.append(f"files of unequal length: the common prefix of {span(end_s)} is replayed")
    factor = 1
    if _only_asked_whether(recordings):
        notes.append("every value is 0 or 1: a 1 is read as “as many as you ask for”")
        factor = ANY_NUMBER
    pools = tuple(PoolTrace(r.pool, _changes(r, end_s, factor)) for r in recordings)
    name = path.resolve().name if path.is_dir() else path.stem
    return _with_scarcity(Trace(name, pools, end_s, tuple(notes)), replicas)


def _files(path: Path) -> list[Path]:
    """The recording's files, in order of their names."""
    if not path.exists():
        raise TraceError(f"{path}: no such file or folder: check the path")
    if not path.is_dir():
        return [path]
    try:
        inside = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise TraceError(f"{path}: can't be read ({error.strerror or error}): mend that first") from None
    files = [entry for entry in inside if entry.suffix in (".json", ".csv") and not entry.is_dir()]
    if files:
        return files
    folders = [entry.name for entry in inside if entry.is_dir()]
    remedy = (
        f"give one of its folders ({', '.join(folders[:5])})" if folders else "give a folder that has some"
    )
    raise TraceError(f"{path}: has no traces, neither .json nor .csv files: {remedy}")


def _read(path: Path, files: Sequence[Path]) -> tuple[list[Recording], list[str]]:
    kinds = {file: _kind(file) for file in files}
    first = files[0]
    for file, kind in kinds.items():
        if kind != kinds[first]:
            raise TraceError(
                f"{path}: has files of different formats, {first.name} ({kinds[first]}) and "
                f"{file.name} ({kind}): give each format a folder of its own"
            )
    if kinds[first] == _JSON:
        recordings = pool_json.read_all(files)
        is_made_up = recordings[0].pool.zone == pool_json.MADE_UP_ZONE
        return recordings, ["the files' names have no zone: all pools are put into one"] if is_made_up else []
    if kinds[first] == _CAPACITY:
        return capacity_csv.read_all(files), []
    notes = ["node events: a pool holds as many as were alive; zones and types are named after the files"]
    return node_events.read_all(files), notes


_JSON = "capacity at equal steps"
_CAPACITY = "capacity by rows"
_EVENTS = "node events"


def _kind(file: Path) -> str:
    if file.suffix == ".json":
        return _JSON
    if file.suffix != ".csv":
        raise TraceError(f"{file}: is neither a .json nor a .csv file: give a recording, or a folder of them")
    first = next((line for line in text_of(file).splitlines() if line.strip()), "")
    if node_events.FORM.match(first):
        return _EVENTS
    if first.startswith(capacity_csv.COLUMNS[0]):
        return _CAPACITY
    if not first:
        raise TraceError(f"{file}: is empty: record something first, or leave it out")
    raise TraceError(
        f"{file}:1: neither the header {','.join(capacity_csv.COLUMNS)} nor an event ms,add|remove,node, "
        f"but {first[:60]!r}: see docs/replay.md for the formats"
    )


def _only_asked_whether(recordings: Sequence[Recording]) -> bool:
    """Nobody counted: the recorder asked for one instance and noted whether it got it."""
    return {held for recording in recordings for _, held in recording.points} in ({0, 1}, {1})


def _changes(recording: Recording, end_s: float, factor: int) -> tuple[tuple[float, int], ...]:
    """Changes only, before the end; of several at one moment the last."""
    held_from: dict[float, int] = {}
    for at, held in recording.points:
        if at < end_s:
            held_from[at] = min(held * factor, ANY_NUMBER)
    changes: list[tuple[float, int]] = []
    for at, held in held_from.items():
        if not changes or held != changes[-1][1]:
            changes.append((at, held))
    return tuple(changes)
