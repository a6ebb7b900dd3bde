"""Measures one row in this process, `python -m lab.benchmarks.worker ROW`, and tells whoever started it.

With `counts` after it, the row's counts alone.

Lines of JSON on standard output: `{"done", "of", "doing"}` while it goes on, `{"figures"}`, `{"skipped"}` or
`{"error"}` at last.
What the measured code prints itself goes nowhere, as cheaply as Lambda takes it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from lab.benchmarks.counts import COUNTED
from lab.benchmarks.figures import Skipped
from lab.benchmarks.registry import ROWS


def main() -> int:
    """Measure the row named on the command line."""
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())

    def tell(done: float, of: float, doing: str) -> None:
        _say(channel, {"done": done, "of": of, "doing": doing})

    try:
        rows = COUNTED if "counts" in sys.argv[2:] else ROWS
        figures = rows[sys.argv[1]].measure(tell)
    except Skipped as reason:
        _say(channel, {"skipped": str(reason)})
        return 0
    except Exception as error:  # noqa: BLE001 - whatever it is, the row has failed and the others go on
        traceback.print_exc()
        _say(channel, {"error": f"{type(error).__name__}: {error}"})
        return 1
    _say(channel, {"figures": [asdict(figure) for figure in figures]})
    return 0


def _say(channel: TextIO, what: object) -> None:
    channel.write(json.dumps(what) + "\n")
    channel.flush()


if __name__ == "__main__":
    sys.exit(main())
