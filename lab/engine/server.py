"""llama.cpp's own server with a model file: `python -m lab.engine.server FILE`, on HOST and PORT.

`SLOTS` is how many requests it works on at once; the others wait. It ends at SIGTERM, as llama-server does.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import xllamacpp  # type: ignore[import-untyped]  # it comes without types


def main() -> None:
    """Serve until somebody ends it."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.model_alias = {Path(sys.argv[1]).stem}
    parameters.hostnames = [os.environ["HOST"]]
    parameters.port = int(os.environ["PORT"])
    slots = int(os.environ.get("SLOTS", "2"))
    parameters.n_parallel = slots
    parameters.n_ctx = 2048 * slots
    parameters.endpoint_metrics = True
    # Many replicas share a small machine.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"listens on {server.listening_address}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
