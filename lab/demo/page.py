"""`spotrelay ui` of a local cloud, beside whatever else goes on."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from lab.demo.errors import DemoError
from lab.demo.processes import Processes

STARTS_WITHIN_S = 60.0
"""It takes two seconds; more on busy machines."""

POLL_S = 0.1


def start(processes: Processes, env: Mapping[str, str]) -> str:
    """Start it; its address.

    Raises:
        DemoError: it ended, or doesn't say where it listens.
    """
    command = Path(sys.executable).with_name("spotrelay")
    process = processes.start("ui", [command, "ui", "--port", "0", "--no-browser"], env)
    deadline = time.monotonic() + STARTS_WITHIN_S
    while not (found := re.search(r"(http://\S+) shows", process.log.read_text(encoding="utf-8"))):
        if process.poll() is not None or time.monotonic() > deadline:
            raise DemoError(f"the local page doesn't start; {process.last_words()}")
        time.sleep(POLL_S)
    return found[1]
