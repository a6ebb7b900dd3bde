"""A local cloud whose minutes are AWS's own, and a service whose start lasts as long as a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.demo.settings import EC2_SCHEDULE_S, DemoSettings
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S
from tests.e2e.stand import Stand


@dataclass(frozen=True, slots=True)
class Unhurried(DemoSettings):
    """A schedule that isn't compressed: each of its ticks would begin a chain of its own."""

    @property
    def schedule_s(self) -> float:
        """A minute."""
        return EC2_SCHEDULE_S


@pytest.fixture(scope="package")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The service, deployed beside the demo's."""
    settings = Unhurried(WARNING_S, tmp_path_factory.mktemp("chains"))
    file = Path(__file__).parent / "cold.yaml"
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch"), [file]) as operator:
        yield Stand(operator, "cold")
