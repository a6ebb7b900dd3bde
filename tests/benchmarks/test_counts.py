"""The part of the benchmark that doesn't depend on the machine: what the path asks of AWS."""

from __future__ import annotations

import pytest

from lab.benchmarks import baseline, counts
from lab.benchmarks.running import Outcome, run
from tests.benchmarks.support import silent


@pytest.fixture(scope="module", params=counts.COUNTED)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    """What the production functions asked of the loopback server."""
    return run(counts.COUNTED[request.param], silent, only_counts=True)


def test_no_more_calls_than_the_baseline(outcome: Outcome) -> None:
    """Nothing calls AWS more often than lab/benchmarks/baseline.json says, and every count is in there."""
    assert baseline.regressions([outcome], only_counts=True) == []


def test_counts_keep_to_their_targets(outcome: Outcome) -> None:
    """However the baseline was recorded, the counts are what was promised."""
    assert [figure.name for figure in outcome.missed] == []
