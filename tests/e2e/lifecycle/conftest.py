"""A local cloud with two services, beside which others come and go by the operator's commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import DemoSettings
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S
from tests.e2e.deploying import Standing
from tests.e2e.faults.bench import Bench
from tests.e2e.operators.conftest import Command, spotrelay

__all__ = ["Command", "spotrelay"]

HERE = Path(__file__).parent
RARE_FILE = HERE / "rare.yaml"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What removes everything comes last: there is nothing left to test."""
    items.sort(key=lambda item: item.path == HERE / "test_removal.py")


@pytest.fixture(scope="package")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """The unmodified app with services/demo.yaml and a light one; the removal looks around in it before."""
    settings = DemoSettings(WARNING_S, tmp_path_factory.mktemp("lifecycle"))
    with deploying.standing(settings, tmp_path_factory.mktemp("scratch"), [RARE_FILE]) as standing:
        for service in ("demo", "rare"):
            Bench(standing.operator, service).settled()
        yield standing


@pytest.fixture(scope="package")
def operator(standing: Standing) -> Operator:
    """Of that deployment."""
    return standing.operator
