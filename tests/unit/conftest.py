"""What unit tests have in common."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest


@pytest.fixture(scope="module")
def on_loopback() -> Iterator[None]:
    """The prober takes loopback, where the servers of tests listen, for a network of instances."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IPv4Address, "is_loopback", False)
        yield
