"""The command behind `make demo`: `python -m lab.demo [--warning-s S] [--service FILE] [--out DIRECTORY]`.

Exit status: 0 if every promise was kept, 1 if one was broken, 2 if the demo could not be given, 128 plus the
signal's number if it was interrupted.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from lab.demo import stopping
from lab.demo.errors import DemoError, Interrupted

NOT_GIVEN = 2


def main() -> int:
    """Give the demo; the exit status."""
    stopping.listen()
    try:
        # Late, because it takes a while: Ctrl-C shall be understood before.
        from lab.demo import command

        return command.run()
    except DemoError as error:
        _complain(str(error))
        return NOT_GIVEN
    except Interrupted as interrupted:
        name = signal.Signals(interrupted.signal_number).name
        _complain(f"interrupted ({name}); the local cloud and everything in it is stopped")
        return 128 + interrupted.signal_number


def _complain(message: str) -> None:
    # The terminal may be what is gone.
    with suppress(OSError):
        sys.stderr.write(f"demo: {message}\n")


if __name__ == "__main__":
    sys.exit(main())
