"""The operator's commands."""

from __future__ import annotations

import errno
import os
import sys


def main() -> None:
    """Run the `spotrelay` command."""
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
