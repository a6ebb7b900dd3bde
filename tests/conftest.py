"""What every run of the tests has, whatever part of them it is."""

from __future__ import annotations

import pytest

from tests.e2e.emitted import Check


def pytest_configure(config: pytest.Config) -> None:
    """What is judged once all tests have run."""
    config.pluginmanager.register(Check(config))
