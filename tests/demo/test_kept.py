"""What the demo says of a local cloud that stays up."""

from __future__ import annotations

import shlex

from lab.demo.deployment import Deployment
from lab.demo.kept import to_try

ENDPOINT = "http://127.0.0.1:4566"
HOST = "demo-1.us-east-1.elb.amazonaws.com"


def test_how_to_send_a_request_is_said() -> None:
    """By a command of ours and by curl, which names the load balancer that no DNS knows."""
    lines = to_try(Deployment(ENDPOINT, {}, {"demo": HOST})).splitlines()
    assert any(line.startswith("  spotrelay request demo ") for line in lines)
    (curl,) = (shlex.split(line) for line in lines if line.startswith("  curl "))
    assert f"{ENDPOINT}/v1/chat/completions" in curl
    assert f"Host: {HOST}" in curl
