"""Reads answers of EC2's DescribeSpotPriceHistory, as `aws ec2 describe-spot-price-history` prints them.

An answer is `{"SpotPriceHistory": [{"AvailabilityZone": …, "InstanceType": …, "ProductDescription": …,
"SpotPrice": "1.067100", "Timestamp": …}, …]}`. It may be in several files, as the pages of a long one; other
keys are left alone.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lab.replay.readers.recording import TraceError, pool_in, text_of
from spotrelay.plane.core.pools import CapacityPool

LINUX = frozenset({"Linux/UNIX", "Linux/UNIX (Amazon VPC)"})
"""The products that cost the plain price; the others have a licence in it. Old accounts say the second."""


@dataclass(frozen=True, slots=True)
class PriceHistory:
    """What a Linux Spot instance in a pool cost."""

    pool: CapacityPool
    points: Sequence[tuple[datetime, float]]
    """From when on, in order of time, and USD per hour."""


def read_all(paths: Sequence[Path]) -> list[PriceHistory]:
    """The histories in the files, and in the .json files of the folders and of theirs; in order of pools.

    Raises:
        TraceError: a file that is no answer, or no prices at all.
    """
    points: dict[CapacityPool, dict[datetime, float]] = defaultdict(dict)
    for path in paths:
        for file in _files(path):
            for index, entry in enumerate(_entries(file)):
                place = f"{file}: SpotPriceHistory[{index}]"
                if not isinstance(entry, dict):
                    raise TraceError(f"{place} must be an object with a price: get the answer again")
                if _text(place, entry, "ProductDescription") in LINUX:
                    pool = pool_in(
                        _text(place, entry, "AvailabilityZone"), _text(place, entry, "InstanceType")
                    )
                    points[pool][_time(place, entry)] = _price(place, entry)
    if not points:
        raise TraceError(
            f"{', '.join(map(str, paths))}: has no price of {' or '.join(sorted(LINUX))}: ask with "
            "--product-descriptions Linux/UNIX"
        )
    return [PriceHistory(pool, sorted(points[pool].items())) for pool in sorted(points)]


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise TraceError(f"{path}: no such file or folder: check the path")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*.json") if file.is_file())
    if not files:
        raise TraceError(f"{path}: has no .json files: give a folder that has answers")
    return files


def _entries(file: Path) -> list[Any]:
    try:
        document = json.loads(text_of(file))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{file}: is not JSON ({error}): get the answer again, or leave it out") from None
    entries = document.get("SpotPriceHistory") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise TraceError(
            f"{file}: has no list SpotPriceHistory: give what `aws ec2 describe-spot-price-history` prints"
        )
    return entries


def _text(place: str, entry: dict[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise TraceError(f"{place}.{key} must be a text, not {value!r}: get the answer again")
    return value


def _time(place: str, entry: dict[str, Any]) -> datetime:
    text = _text(place, entry, "Timestamp")
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise TraceError(
            f"{place}.Timestamp must be a time with its zone, such as 2026-01-31T12:00:00Z, not {text!r}"
        )
    return time


def _price(place: str, entry: dict[str, Any]) -> float:
    text = _text(place, entry, "SpotPrice")
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 < price < math.inf:
        raise TraceError(f"{place}.SpotPrice must be USD per hour, more than 0, not {text!r}")
    return price
