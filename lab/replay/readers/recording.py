"""What a reader makes of a file: a capacity pool and how many instances it could hold, from when on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spotrelay.plane.core.pools import CapacityPool


class TraceError(Exception):
    """A recording can't be replayed: one line that names the thing, the place and the remedy."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One pool as its file tells it."""

    file: Path
    pool: CapacityPool
    points: Sequence[tuple[float, int]]
    """Seconds since the recording's start, rising from 0.0, and what the pool holds from then on."""
    end_s: float
    """How long the file knows the pool."""


def pool_in(zone: str, instance_type: str) -> CapacityPool:
    """A pool, its region taken from the zone's name: `us-east-1a`, or another cloud's `us-central1-a`."""
    return CapacityPool(zone[:-1].rstrip("-"), zone, instance_type)


def text_of(file: Path) -> str:
    """The file's text.

    Raises:
        TraceError: it can't be read, or isn't text.
    """
    try:
        return file.read_text(encoding="utf-8-sig")  # spreadsheets put a byte-order mark first
    except UnicodeDecodeError:
        raise TraceError(f"{file}: is not UTF-8 text: save it as UTF-8, or leave it out") from None
    except OSError as error:
        raise TraceError(f"{file}: can't be read ({error.strerror or error}): mend that first") from None
