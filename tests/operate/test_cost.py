"""From when on a service costs something."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from spotrelay.operator.look.cost import beginning

TODAY = date(2026, 11, 20)


@pytest.mark.parametrize(
    ("first", "begun", "since", "begins"),
    [
        (TODAY, datetime(2026, 11, 20, 23, tzinfo=UTC), TODAY, datetime(2026, 11, 20, 23, tzinfo=UTC)),
        (
            date(2026, 11, 1),
            datetime(2026, 11, 20, 23, tzinfo=UTC),
            TODAY,
            datetime(2026, 11, 20, 23, tzinfo=UTC),
        ),
        (TODAY, datetime(2026, 11, 1, tzinfo=UTC), date(2026, 11, 1), datetime(2026, 11, 20, tzinfo=UTC)),
        (
            date(2026, 9, 1),
            datetime(2026, 11, 2, 5, tzinfo=UTC),
            date(2026, 9, 9),
            datetime(2026, 9, 9, tzinfo=UTC),
        ),
    ],
    ids=[
        "an hour old, its day on record",
        "the same, looked back further",
        "older",
        "its first rows are gone",
    ],
)
def test_the_balancer_is_charged_from_the_beginning(
    first: date, begun: datetime, since: date, begins: datetime
) -> None:
    """With the service, and not with the midnight before it, of which a day is on record an hour later."""
    assert beginning(first, begun, since) == begins
