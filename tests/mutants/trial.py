"""The two stages that a mutant is tried by. Each says what caught it, None if it got through.

They run in a process of their own, see `children`.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from enum import StrEnum

import pytest

from tests.mutants import hook
from tests.mutants.mutant import Mutant
from tests.mutants.sites import ROOT


class Stage(StrEnum):
    """Who is to notice a mistake."""

    SIMULATION = "simulation"
    TESTS = "tests"


Seeds = Sequence[tuple[int, int, float | None]]
"""How many seeds to run with how many replicas, one after the other, and for how many minutes; None: for as
long as each seed says."""

SEEDS: Seeds = (
    (400, 5, None), (300, 2, None), (200, 3, None), (100, 1, None), (30, 30, None), (30, 5, 60),
)  # fmt: skip
"""A minute and a half for what gets through. The standard run has 3000 seeds and `make chaos` 100,000, but a
mistake that none of these finds is found by luck. An hour shows what a minute or two can't: of 66 that got
through the others, 16 seeds of an hour caught six. So do few replicas: of 49 that got through, 600 seeds of
two and three caught five."""

FEW_SEEDS: Seeds = ((200, 5, None),)
"""Twenty seconds at most. The sample is of mutants that are caught within the first tens."""

SPEND_S = {Stage.SIMULATION: 270, Stage.TESTS: 300}
"""Seconds of processor time that a stage may take: three times what it takes without a mistake, as one that
shares its core with others gets half as much done. More is a hang, and counts as caught; processor time, so
that a busy machine makes no difference."""

LEFT_OUT = {
    "tests/unit/test_model.py": "values below the core",
    "tests/unit/test_requirements.py": "what a service file asks for",
    **dict.fromkeys(
        (
            f"tests/contract/test_{name}.py"
            for name in (
                "clients", "ec2_fleet", "errors", "fleet", "items", "prober", "router", "services",
                "store", "store_property", "surveyor", "table", "telemetry",
            )
        ),
        "a port and its adapter: no line of the core runs",
    ),
}  # fmt: skip
"""Test files that execute no line of the core, and take half the time. (Found by `sys.setprofile`.)"""


def simulated(mutant: Mutant, seeds: Seeds) -> str | None:
    """Run the simulation's seeds until one breaks a rule."""
    hook.install(mutant)
    from lab.sim.campaign import GARBAGE_AFTER
    from lab.sim.run import run

    gc.set_threshold(GARBAGE_AFTER)
    for count, replicas, minutes in seeds:
        for seed in range(count):
            which = f"seed {seed}, {replicas} replicas{f', {minutes:g} minutes' if minutes else ''}"
            try:
                violation = run(seed, replicas=replicas, minutes=minutes).violation
            except Exception as error:
                raise RuntimeError(f"{which}: {error!r}") from error
            if violation is not None:
                return f"{which}: {violation}"
    return None


def tested(mutant: Mutant) -> str | None:
    """Run the unit and contract tests until one fails, beginning with those of the mutant's module."""
    from hypothesis import settings

    hook.install(mutant)
    # The same examples each time, none of earlier runs, and none too slow.
    settings.register_profile("mutants", derandomize=True, database=None, deadline=None)
    settings.load_profile("mutants")
    plugin = _Plugin(f"test_{mutant.module.rsplit('.', 1)[-1]}.py")
    arguments = [
        *("tests/unit", "tests/contract", "--rootdir", str(ROOT)),
        *(f"--ignore={path}" for path in LEFT_OUT),
        *("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
    ]
    code = pytest.main(arguments, plugins=[plugin])
    if code == pytest.ExitCode.OK:
        return None
    # A mutant that can't even be imported ends the collection, without a test that fails.
    return plugin.failure or f"pytest ends with {code!r}"


class _Plugin:
    """Runs the tests of one file first, and keeps which test failed, or file couldn't be read, and why."""

    def __init__(self, first: str) -> None:
        self.failure: str | None = None
        self._first = first

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """pytest has collected the tests, by the alphabet."""
        items.sort(key=lambda item: item.path.name != self._first)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has run."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file has been read."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and self.failure is None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message if crash else report.longreprtext
            self.failure = f"{report.nodeid}: {why.strip().splitlines()[0]}"
