"""What was measured on, and with what: without it no figure means anything."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

MEASURED = ("boto3", "botocore", "urllib3", "aws-lambda-powertools", "ministack", "hypercorn")

MEMORY, NEEDED_BYTES = Path("/dev/shm"), 2 << 30  # noqa: S108 - what is made in it has a directory of its own
"""Where files are in memory, if there is room for all that any row writes there."""


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory, in memory if it has room: there no disk slows down what is measured."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > NEEDED_BYTES
    with TemporaryDirectory(dir=MEMORY if has_room else None, prefix="spotrelay-bench-") as name:
        yield Path(name)


def described() -> dict[str, Any]:
    """The machine, the versions and the time, as JSON-ready values."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": _processor(),
            "processors": os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
            "system": f"{platform.system()} {platform.release()}",
            # Others' work slows down both sides of a ratio, and still makes it less certain.
            "load": round(os.getloadavg()[0], 2),
        },
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": {name: metadata.version(name) for name in MEASURED},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
