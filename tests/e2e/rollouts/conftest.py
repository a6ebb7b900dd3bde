"""A local cloud of its own: while a version rolls out, no other test may count replicas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.demo.settings import DemoSettings
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S
from tests.e2e.faults.bench import Bench


@pytest.fixture(scope="package")
def deployed_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The unmodified app with services/demo.yaml, which rolls out."""
    settings = DemoSettings(WARNING_S, tmp_path_factory.mktemp("rollouts"))
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch")) as operator:
        yield Bench(operator, "demo")


@pytest.fixture
def demo(deployed_demo: Bench) -> Bench:
    """The demo's service, whole."""
    deployed_demo.settled(has_history=False)
    return deployed_demo
