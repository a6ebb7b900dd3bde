"""What every run of the tests has, whatever part of them it is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import cache
from ipaddress import IPv4Address

import botocore.session
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


LONGEST = (
    *("lifecycle", "e2e", "counted", "walk", "availability", "chains"),
    *("starts", "standard run", "engine", "faults", "no_harm", "rollouts"),
    *("local", "template", "operators", "skyserve", "test_demo", "cost", "views"),
)
"""Groups of pytest-xdist that take minutes, in the order in which they begin: one that began late would run
on when all else is over. A worker whose group has two tests gets the next one at once, so a short one stands
behind the first ones."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest. `--no-loadscope-reorder` has pytest-xdist keep the order."""
    places = {group: place for place, group in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(_group(item), len(places)))


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else ""


def pytest_configure(config: pytest.Config) -> None:
    """What is judged once all tests have run."""
    config.pluginmanager.register(Check(config))


# Where a shell runs the tests in its background they ignore SIGINT, and so would what a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def models_are_read_once() -> Iterator[None]:
    """boto3's sessions share what they read of AWS's services: a test's clients take half a second for it."""
    made = cache(botocore.session.create_loader)  # by where the data lies
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", made)
        yield


@pytest.fixture(scope="module")
def on_loopback() -> Iterator[None]:
    """The prober takes loopback, where the servers of tests listen, for a network of instances."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IPv4Address, "is_loopback", False)
        yield
