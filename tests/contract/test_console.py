"""What people see of an instance's console."""

from __future__ import annotations

from base64 import b64encode

from botocore.stub import Stubber

from spotrelay.operator.aws.console import console_output
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.replica import CONSOLE_MARK


def test_what_an_instance_repeats_of_its_start_is_shown_once(clients: Clients) -> None:
    """It repeats that after whatever it copies; what a service says twice is shown twice."""
    told = f"{CONSOLE_MARK} booted=1764320000.123"
    more = f"{told} loads=1764320009.123"
    said = "\r\n".join(["boots", told, "a token", told, more, "a token", more, ""])
    with Stubber(clients.ec2) as ec2:
        ec2.add_response("get_console_output", {"Output": b64encode(said.encode()).decode()})
        shown = console_output(clients, "i-1")
    assert shown.split("\r\n") == ["boots", told, "a token", more, "a token", ""]
