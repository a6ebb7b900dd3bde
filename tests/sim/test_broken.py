"""The checker notices each of a set of mistakes."""

from __future__ import annotations

import pytest

from lab.sim.run import run
from tests.sim.broken import MISTAKES, Mistake

WITHIN = 1000
"""Seeds: a campaign of a hundred thousand would notice it some hundred times."""


@pytest.mark.parametrize("broken", MISTAKES, ids=lambda broken: broken.name)
def test_a_broken_controller_is_caught(broken: Mistake) -> None:
    """One of so many seeds shows it: some rule is broken, whichever is first.

    A `TypeError` shows that the mistake itself is called as its function was before.
    """
    with broken.patched():
        outcomes = (
            run(seed, replicas=broken.replicas) for seed in range(broken.since, broken.since + WITHIN)
        )
        violation = next((outcome.violation for outcome in outcomes if outcome.violation), None)
    assert violation is not None, broken.promise
    assert "TypeError" not in str(violation)


def test_there_are_enough_of_them() -> None:
    """Each mistake is one of its own, and there are more than a handful."""
    assert len({broken.name for broken in MISTAKES}) == len(MISTAKES) >= 20
