"""What starts, what is alone, what is busy and what fails: nothing that serves is taken away.

All are told at the same time, while clients stream; see `stories`.
"""

from __future__ import annotations

import pytest

from tests.e2e.no_harm import stories
from tests.e2e.no_harm.stories import Told

pytestmark = pytest.mark.timeout(600)  # the deployment is made within the first test's time


def test_empty_answers_end_nothing_that_starts(told: Told) -> None:
    """Two replacements that EC2 doesn't show at first serve before EC2 takes what they replace."""
    told(stories.a_burst_while_all_starts)


def test_a_version_with_another_image_repairs_launches(told: Told) -> None:
    """What was refused under a version is launched as the next one, before EC2 has taken all that serves."""
    told(stories.an_image_is_gone)


def test_health_decides_who_serves_and_not_the_row(told: Told) -> None:
    """A warned replica whose row says that it starts serves on until another does."""
    told(stories.a_row_is_behind)


def test_the_only_one_is_not_ended_on_absence(told: Told) -> None:
    """Two views without it, for 45 s, leave it in rotation."""
    told(stories.nobody_shows_the_only_one)


def test_a_reclaim_is_found_without_its_event(told: Told) -> None:
    """The Spot request says `instance-terminated-no-capacity` while the instance lives, which is enough."""
    told(stories.no_event_of_a_reclaim)


def test_what_boots_gets_no_request_while_nobody_is_healthy(told: Told) -> None:
    """The load balancer sends to all that are registered; what doesn't listen isn't."""
    told(stories.overloaded_beside_one_that_boots)


def test_a_lone_fallback_stays_until_another_serves(told: Told) -> None:
    """Three minutes of failed checks end none that is the one that answers."""
    told(stories.a_lone_fallback_is_overloaded)


def test_what_fails_fast_fails_for_two_looks(told: Told) -> None:
    """It leaves while its successor still starts, and nobody else's requests fail."""
    told(stories.one_fails_fast)


def test_a_busy_replica_is_not_replaced(told: Told) -> None:
    """Its own counters prove that it works, and it is told instead."""
    told(stories.one_is_busy)


def test_long_answers_are_finished(told: Told) -> None:
    """A way out that nobody hurries, or that EC2 leaves two minutes for, cuts no answer of half a minute."""
    told(stories.long_answers)
