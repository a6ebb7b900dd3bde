"""A local cloud with EC2's own two minutes of warning, whose replicas are a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.local.environment import EC2_WARNING_S
from tests.e2e import deploying
from tests.e2e.deploying import Unhurried
from tests.e2e.faults.bench import Bench

FILE = Path(__file__).parent / "engine.yaml"


@pytest.fixture(scope="package")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The unmodified app with the demo's service, and the engine's, which is whole."""
    settings = Unhurried(EC2_WARNING_S, tmp_path_factory.mktemp("engine"))
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch"), [FILE]) as operator:
        bench = Bench(operator, "engine")
        bench.settled()
        yield bench
