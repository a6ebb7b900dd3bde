"""Runs a command that must not outlive its parent: `python -I tether.py COMMAND ARGUMENT…`. Run by path.

Standard input is a pipe that nobody ever writes to. Its end means that the parent is gone or wants the
command gone, whatever happened to it, and then the command's whole process group goes: first asked, then
killed. This also ends what the command has started (the CDK starts the app, the app starts Node), which the
parent of a killed command can't find any more.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

GRACE_S = 3.0
"""Long enough for Node and Python to end in good order, short enough for somebody waiting after Ctrl-C."""


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def main() -> int:
    """The command's exit status, as a shell would tell it."""
    ended_read, ended_write = os.pipe()
    os.set_blocking(ended_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ended_write, warn_on_full_buffer=False)
    # Ctrl-C is for the parent to handle, which then closes the pipe.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True) as command:
        while command.poll() is None:
            readable = select.select([0, ended_read], [], [])[0]
            if ended_read in readable:
                os.read(ended_read, 4096)
            if 0 in readable and not os.read(0, 4096):
                _signal_group(command.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    command.wait(GRACE_S)
                break
        _signal_group(command.pid, signal.SIGKILL)
        code = command.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
