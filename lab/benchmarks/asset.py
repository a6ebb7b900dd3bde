"""How much a cold start has to unpack."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.benchmarks.figures import Figure, Row, Tell

MAX_MB = 6


def measure(tell: Tell) -> Sequence[Figure]:
    """The asset as the CDK would upload it."""
    from stacks.bundling import stage  # with the CDK, which takes seconds to import

    tell(0, 1, "putting the asset together")
    with tempfile.TemporaryDirectory(prefix="spotrelay-bench-") as directory:
        stage(Path(directory))
        files = [path for path in Path(directory).rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
    return [
        Figure(
            "size",
            size / 1e6,
            "MB",
            "unzipped; boto3 comes with the runtime",
            at_most=MAX_MB,
            # A feature is a few kilobytes; a package nobody thought about is more than this.
            tolerance=0.05,
        ),
        Figure("files", len(files), "files"),
    ]


ROW = Row("asset", "The functions' code", 3, measure)
