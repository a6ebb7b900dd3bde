"""A local cloud whose minutes are AWS's own, and a service whose start lasts as long as a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo.settings import EC2_SCHEDULE_S
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S
from tests.e2e.deploying import Unhurried
from tests.e2e.stand import Stand


@pytest.fixture(scope="package")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, what starts doesn't get any further."""
    return tmp_path_factory.mktemp("held") / "held"


@pytest.fixture(scope="package")
def cold(tmp_path_factory: pytest.TempPathFactory, held: Path) -> Iterator[Stand]:
    """The service, deployed beside the demo's."""
    # Compressed, each of the schedule's ticks would begin a chain of its own.
    settings = Unhurried(WARNING_S, tmp_path_factory.mktemp("chains"), minute_s=EC2_SCHEDULE_S)
    text = (Path(__file__).parent / "cold.yaml").read_text(encoding="utf-8")
    file = tmp_path_factory.mktemp("cold") / "cold.yaml"
    file.write_text(text.replace("/a/path/of/the/tests", str(held)), encoding="utf-8")
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch"), [file]) as operator:
        yield Stand(operator, "cold")
