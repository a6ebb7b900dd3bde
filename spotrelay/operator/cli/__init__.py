"""The operator's commands."""

from __future__ import annotations

import errno
import gc
import os
import sys

COLLECTED_AFTER = 50_000
"""Objects that are made before Python looks for circles among them. A command makes a few hundred thousand,
in modules and AWS's models, and keeps nearly all: with Python's own 700, a sixth of `status` went into
looking."""


def main() -> None:
    """Run the `spotrelay` command."""
    gc.set_threshold(COLLECTED_AFTER)
    try:
        from spotrelay.operator.cli.app import app

        try:
            app()
        finally:
            sys.stdout.flush()
    except ModuleNotFoundError as error:
        if error.name != "greenlet":
            raise
        # A clone into which only the commands have been installed, as `pip install -e` does.
        sys.stderr.write("spotrelay: greenlet, which simulates, is not installed: run make setup\n")
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is not None:  # what is written goes to a file that is open, and has no name then
            sys.stderr.write(f"spotrelay: {error.filename}: {error.strerror}\n")
            raise SystemExit(1) from None
        # What is still buffered can't be written at the exit either: Python would say so, in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:  # the reader has seen enough, as `head` does
            raise SystemExit(1) from None
        sys.stderr.write(f"spotrelay: can't write the output: {error.strerror}\n")
        raise SystemExit(1) from None
