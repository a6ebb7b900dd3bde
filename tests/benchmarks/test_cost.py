"""What the control plane costs: docs/cost.md has what is counted, and that is what was promised."""

from __future__ import annotations

import re

import pytest

from lab.benchmarks import cost
from spotrelay.operator.look.cost import CONTROL_PLANE_USD_PER_HOUR
from spotrelay.plane.core.timing import HOURS_OF_MONTH

pytestmark = pytest.mark.xdist_group("cost")  # so that it is counted once, not once by each worker

MOST_USD = 6.0
"""A month at rest with one service: 3 of them for the board, 2 for alarms."""

MOST_USD_FOR_ANOTHER = 1.6
"""A month more for each further service."""

MOST_USD_FOR_LOAD = 0.6
"""A month more, if its number of replicas follows its load by one signal."""


@pytest.fixture(scope="module")
def counts() -> cost.Counts:
    """Everything counted, once."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        return cost.counted()


def test_the_document_has_what_is_counted(counts: cost.Counts) -> None:
    """`python -m lab.benchmarks.cost --write` puts it right."""
    assert cost.in_document(cost.DOCUMENT.read_text(encoding="utf-8")) == cost.report(counts)


def test_one_service_at_rest_costs_no_more_than_was_promised(counts: cost.Counts) -> None:
    """And the README says how much it is, to a tenth of a dollar."""
    one, ten, *_ = cost.total(cost.rows(counts))
    assert one <= MOST_USD
    assert (ten - one) / 9 <= MOST_USD_FOR_ANOTHER
    assert cost.FLEETS[:2] == (1, 10)
    readme = (cost.ROOT / "README.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"\*\*([0-9.]+) USD a month\*\* with one service at rest", readme)
    assert float(said) == round(one, 1)
    assert round(CONTROL_PLANE_USD_PER_HOUR * HOURS_OF_MONTH, 1) == round(one, 1), "as `spotrelay cost` says"


@pytest.mark.parametrize("situation", ["requests each minute", "no requests", "no replica", "`ongoing`"])
def test_a_number_that_follows_the_load_costs_no_more_than_was_promised(
    counts: cost.Counts, situation: str
) -> None:
    """Be there requests or none, replicas or none, and by the replicas' own account."""
    totals = cost.total(cost.followed_rows(counts))
    found = {one.situation.name: usd for one, usd in zip(counts.followed, totals, strict=True)}
    assert found.pop(situation) <= MOST_USD_FOR_LOAD
    assert len(found) == 3


def test_while_there_are_requests_one_metric_a_minute_is_asked_for(counts: cost.Counts) -> None:
    """Each costs 0.44 USD a month."""
    (busy,) = (one for one in counts.followed if one.situation.requests)
    assert busy.minute.asked == pytest.approx(1)
