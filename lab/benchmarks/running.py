"""Runs a row in a process of its own and keeps what came of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.benchmarks.figures import Figure, Row, Tell

ROOT = Path(__file__).absolute().parents[2]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a row: figures, or the reason why there are none."""

    row: Row
    took_s: float
    figures: Sequence[Figure] = ()
    error: str = ""
    skipped: str = ""
    """Why this machine can't measure it, which is no error."""

    @property
    def missed(self) -> list[Figure]:
        """The figures that don't reach their targets."""
        return [figure for figure in self.figures if not figure.is_met]


def run(row: Row, tell: Tell, *, only_counts: bool = False) -> Outcome:
    """Measure the row, or only what `counts` has of it; an error of its own is an outcome, too."""
    began = time.monotonic()
    last: dict[str, Any] = {}
    with subprocess.Popen(
        [sys.executable, "-m", "lab.benchmarks.worker", row.name, *(["counts"] if only_counts else [])],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            last = json.loads(line)
            if "doing" in last:
                tell(last["done"], last["of"], last["doing"])
    took_s = time.monotonic() - began
    if "figures" in last:
        return Outcome(row, took_s, [Figure(**figure) for figure in last["figures"]])
    if "skipped" in last:
        return Outcome(row, took_s, skipped=last["skipped"])
    return Outcome(row, took_s, error=last.get("error", f"ended with exit code {worker.returncode}"))
