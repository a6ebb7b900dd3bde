"""What every run of the tests has, whatever part of them it is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest
from hypothesis import HealthCheck, settings

from tests.e2e.emitted import Check

# No test is judged by its speed: on a busy machine one example may take a second. The rest stays as
# Hypothesis has it, which differs where CI is set.
settings.register_profile(
    "spotrelay", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("spotrelay"), max_examples=100_000)
settings.load_profile("spotrelay")


def pytest_configure(config: pytest.Config) -> None:
    """What is judged once all tests have run."""
    config.pluginmanager.register(Check(config))


# Where a shell runs the tests in its background they ignore SIGINT, and so would what a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def on_loopback() -> Iterator[None]:
    """The prober takes loopback, where the servers of tests listen, for a network of instances."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IPv4Address, "is_loopback", False)
        yield
