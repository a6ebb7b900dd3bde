"""A local cloud with a light service, to which what seldom happens happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import DemoSettings
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S
from tests.e2e.faults.bench import Bench
from tests.e2e.lifecycle.conftest import RARE_FILE


@pytest.fixture(scope="package")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The unmodified app with the light service, which is whole, and the demo's."""
    settings = DemoSettings(WARNING_S, tmp_path_factory.mktemp("counted"))
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch"), [RARE_FILE]) as operator:
        Bench(operator, "rare").settled()
        yield operator
