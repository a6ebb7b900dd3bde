"""Reads a JSON file per capacity pool: how many instances it could hold, at equal steps.

The format of github.com/skypilot-org/spot-traces: a file `<zone>_<accelerator>_<count>.json` with
`{"metadata": {"gap_seconds": 300}, "data": [2, 2, 0, …]}`. Other keys are left alone. Accelerators may have
underscores of their own (`us-central1-a_a100_40gb_8.json`).

Files may also be named without a zone, `<accelerator>_<count>.json`. Then all files of the folder are pools
of one zone, which is made up.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab.replay.readers.recording import Recording, TraceError, pool_in, text_of

_REGION = r"[a-z]+(?:-[a-z]+)+-?\d{1,2}(?!\d)(?:-[a-z]+-\d)?"
"""`us-east-1`, a local zone's `us-east-1-bos-1`, or another cloud's `us-central1`; but no `rtx-pro-6000`."""

_NAME = re.compile(
    rf"(?:(?P<zone>{_REGION}-?[a-z])_|(?!{_REGION}))"  # what begins like a zone has to be one
    r"(?P<accelerator>[^_]+(?:_[^_]+)*)_(?P<count>[1-9]\d*)\.json"
)

MADE_UP_ZONE = "recorded-1a"
"""Where pools are whose files name no zone."""


def read_all(files: Sequence[Path]) -> list[Recording]:
    """The files' pools.

    Raises:
        TraceError: a name or a content of another form, steps of different length, or some files with a zone
            and some without.
    """
    recordings = []
    first_gap_s = 0.0
    for file in files:
        recording, gap_s = _read(file)
        first_gap_s = first_gap_s or gap_s
        if gap_s != first_gap_s:
            raise TraceError(
                f"{file}: metadata.gap_seconds is {gap_s:g}, but {first_gap_s:g} in {files[0].name}: "
                "these are different recordings; give each a folder of its own"
            )
        recordings.append(recording)
        if (recording.pool.zone == MADE_UP_ZONE) != (recordings[0].pool.zone == MADE_UP_ZONE):
            named, nameless = sorted((recordings[0], recording), key=lambda r: r.pool.zone == MADE_UP_ZONE)
            raise TraceError(
                f"{nameless.file}: the file's name has no zone, but that of {named.file.name} has one: "
                "rename it to <zone>_<accelerator>_<count>.json, or give it a folder of its own"
            )
    return recordings


def _read(file: Path) -> tuple[Recording, float]:
    named = _NAME.fullmatch(file.name)
    if not named:
        raise TraceError(
            f"{file}: the file's name must be <zone>_<accelerator>_<count>.json, such as "
            "us-east-1a_v100_1.json, or the same without a zone: rename it, or take it out of the folder"
        )
    document = _document(file)
    gap_s = _gap_s(file, document)
    data = _data(file, document)
    pool = pool_in(named["zone"] or MADE_UP_ZONE, f"{named['accelerator']}:{named['count']}")
    points = [(0.0, data[0])]
    points += [(i * gap_s, now) for i, (before, now) in enumerate(pairwise(data), 1) if now != before]
    return Recording(file, pool, points, len(data) * gap_s), gap_s


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(text_of(file))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{file}: is not JSON ({error}): record it again, or leave it out") from None
    if not isinstance(document, dict):
        raise TraceError(f'{file}: must be a JSON object {{"metadata": {{"gap_seconds": 300}}, "data": […]}}')
    return document


def _gap_s(file: Path, document: dict[str, Any]) -> float:
    metadata = document.get("metadata")
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 < gap < math.inf:
        raise TraceError(
            f"{file}: metadata.gap_seconds must be the seconds between two values, a number above 0, "
            f"not {_shown(gap)}"
        )
    return float(gap)


def _data(file: Path, document: dict[str, Any]) -> list[int]:
    data = document.get("data")
    if not isinstance(data, list) or not data:
        raise TraceError(
            f"{file}: data must be a list of at least one number of instances, not {_shown(data)}"
        )
    for index, value in enumerate(data):
        if type(value) is not int or value < 0:  # a bool is an int, too
            raise TraceError(
                f"{file}: data[{index}] must be a whole number of instances, 0 or more, not {_shown(value)}: "
                "mend the value, or leave out the file"
            )
    return data


def _shown(value: object) -> str:
    """The value as JSON has it, short enough for one line."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"
