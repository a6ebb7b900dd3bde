"""A local cloud with two services, beside which others come and go by the operator's commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import DemoSettings
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S
from tests.e2e.faults.bench import Bench
from tests.e2e.operators.conftest import Command, spotrelay

__all__ = ["Command", "spotrelay"]

RARE_FILE = Path(__file__).parent / "rare.yaml"


@pytest.fixture(scope="package")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The unmodified app with services/demo.yaml and a light one."""
    settings = DemoSettings(WARNING_S, tmp_path_factory.mktemp("lifecycle"))
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch"), [RARE_FILE]) as operator:
        for service in ("demo", "rare"):
            Bench(operator, service).settled()
        yield operator
