"""What an instance wrote to its console."""

from __future__ import annotations

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.ports import Denied
from spotrelay.plane.core.replica import CONSOLE_MARK


def console_output(clients: Clients, instance_id: str) -> str:
    """The last 64 KiB; empty if EC2 has none: for some minutes after a start, and an hour after the end.

    Raises:
        PortError: EC2 doesn't say.
    """
    try:
        found = _asked(clients, instance_id, latest=True)
    except Denied:
        # Types older than Nitro's have no latest output, nor may an instance that has ended. A permission
        # that is missing is missing again.
        found = ""
    return _once(found or _asked(clients, instance_id, latest=False))


def _once(output: str) -> str:
    """Without what the instance repeats of its start: see `file.instance.console`."""
    told = set[str]()
    lines = []
    for line in output.splitlines(keepends=True):
        words = line.strip()
        if not (words.startswith(CONSOLE_MARK) and words in told):
            lines.append(line)
        told.add(words)
    return "".join(lines)


def _asked(clients: Clients, instance_id: str, *, latest: bool) -> str:
    # Without `Latest` it is what EC2 kept when the instance came to run: before a replica has said a word.
    with translated():
        answer = clients.ec2.get_console_output(InstanceId=instance_id, Latest=latest)
    return answer.get("Output", "")
