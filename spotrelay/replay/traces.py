"""Recordings of a Spot market, ready to replay: which pool could hold how many instances, and when."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spotrelay.model import CapacityPool
from spotrelay.replay.readers.recording import TraceError

__all__ = ["ANY_NUMBER", "PoolTrace", "Trace", "TraceError", "load"]

ANY_NUMBER = 1_000_000
"""Instances of a pool that was only asked whether it has any: as many as you ask for."""


@dataclass(frozen=True, slots=True)
class PoolTrace:
    """How much a capacity pool could hold, over time."""

    pool: CapacityPool
    capacity: tuple[tuple[float, int], ...]
    """Second since the trace's start, and the instances that the pool holds from then on. The first is at 0.0;
    the others are changes, in order, all before the trace's end."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A market to replay."""

    name: str
    pools: tuple[PoolTrace, ...]
    duration_s: float
    notes: tuple[str, ...] = ()
    """What a reader of the results must know: what was cut, or read in another sense than the plain one."""


def load(path: Path, replicas: int) -> Trace:
    """Read a recording, whatever its format, for a service of so many replicas.

    Raises:
        TraceError: nothing there, or not what a recording looks like.
    """
    raise NotImplementedError
