"""What a service's own days say of its types: the reasons are true, and little speaks for dropping one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from spotrelay.file import catalog
from spotrelay.operator.advice.own_history import OwnHistory, Verdict, own_history
from spotrelay.plane.accounting.days import Day, PoolDay
from spotrelay.plane.core.pools import Survey
from spotrelay.plane.core.requirements import Accelerators, Requirements

FIRST = date(2026, 11, 1)
ASKED = Requirements(accelerators=(Accelerators("L4", 1),), arch="x86_64", use_spot=True)
ON_DEMAND = {"g6.xlarge": 0.8048, "g5.xlarge": 1.006}


def day(number: int, scores: Mapping[str, Mapping[int, int]] | None = None, **pools: PoolDay) -> Day:
    """A day; pools by `a_g6_xlarge`."""
    named = {f"us-east-1{name[0]}/{name[2:].replace('_', '.')}": one for name, one in pools.items()}
    at = datetime.combine(FIRST + timedelta(number), datetime.min.time(), UTC)
    return Day("chat", FIRST + timedelta(number), at, pools=named, scores=scores or {})


def said(*days: Day, asked: Requirements = ASKED, **facts: Any) -> OwnHistory:
    """What they say."""
    facts = {"on_demand_prices": ON_DEMAND, **facts}
    survey = Survey("chat", asked, datetime(2026, 11, 20, tzinfo=UTC), (), **facts)
    return own_history("chat", days, survey, asked, catalog.all_types(), 10)


def verdicts(history: OwnHistory) -> dict[str, tuple[Verdict, str]]:
    """By type."""
    return {one.instance_type: (one.verdict, one.why) for one in history.types}


def test_pools_are_added_up_over_days() -> None:
    """Hours, launches, losses and refusals are sums; prices and scores are means of what was told."""
    history = said(
        day(0, {"us-east-1a": {1: 9, 2: 5}}, a_g6_xlarge=PoolDay(0.3, 2, 1, 4, 10.5)),
        day(1, {"us-east-1a": {1: 4}}, a_g6_xlarge=PoolDay(None, 1, 0, 0, 20.0)),
        day(2, None, a_g6_xlarge=PoolDay(0.5, 0, 0, 1, 0.0), b_g5_xlarge=PoolDay()),
    )
    first, second = history.pools
    assert (first.zone, first.instance_type) == ("us-east-1a", "g6.xlarge")
    assert (first.hours, first.launched, first.lost, first.refused) == (30.5, 3, 1, 5)
    assert (first.usd_per_hour, first.score) == (0.4, 6.0)
    assert (second.hours, second.usd_per_hour, second.score) == (0.0, None, None)
    assert history.days == 3


def test_what_ran_and_stayed_earned_its_place() -> None:
    """The price is weighed by the hours in each zone."""
    history = said(
        day(0, None, a_g6_xlarge=PoolDay(0.3, 1, 0, 0, 30.0), b_g6_xlarge=PoolDay(0.6, 1, 1, 0, 10.0))
    )
    assert verdicts(history) == {
        "g6.xlarge": (Verdict.EARNED, "ran 40 h at 0.375 USD an hour, lost 1"),
    }


@pytest.mark.parametrize(
    ("lost", "others_lost", "others_hours", "verdict"),
    [
        (3, 1, 100.0, Verdict.DROP),  # one in 10 h beside one in 100 h
        (3, 0, 100.0, Verdict.DROP),
        (2, 0, 100.0, Verdict.EARNED),  # chance
        (3, 1, 20.0, Verdict.EARNED),  # the others have hardly run
        (3, 4, 100.0, Verdict.EARNED),  # not far more often
        (3, 1, 30.0, Verdict.EARNED),  # exactly three times as often
    ],
)
def test_what_is_lost_far_more_often_than_the_rest_should_go(
    lost: int, others_lost: int, others_hours: float, verdict: Verdict
) -> None:
    """By losses for each hour, and only where both are enough to say so."""
    history = said(
        day(
            0,
            None,
            a_g6_xlarge=PoolDay(0.3, 9, lost, 0, 30.0),
            b_g5_xlarge=PoolDay(0.4, 9, others_lost, 0, others_hours),
        )
    )
    assert verdicts(history)["g6.xlarge"][0] is verdict


def test_the_reason_names_the_rates() -> None:
    """What was lost, and how the others fared."""
    pools = {"a_g6_xlarge": PoolDay(0.3, 9, 6, 0, 30.0), "b_g5_xlarge": PoolDay(0.4, 9, 2, 0, 100.0)}
    history = said(day(0, None, **pools))
    assert verdicts(history)["g6.xlarge"][1] == "lost 6 in 30 h, where the others lost one in 50 h"
    assert history.notes[0] == (
        "Without g6.xlarge 1 types are left, and AWS asks for at least 10 for Spot: add others first."
    )


def test_spot_that_costs_what_on_demand_does_should_go() -> None:
    """The cheapest on-demand type of the service's own: it would stay, for no more."""
    history = said(
        day(0, None, a_g6_xlarge=PoolDay(0.3, 1, 0, 0, 9.0), b_g5_xlarge=PoolDay(0.8048, 1, 0, 0, 9.0))
    )
    assert verdicts(history)["g5.xlarge"] == (
        Verdict.DROP,
        "its Spot price, 0.805 USD an hour, is no less than g6.xlarge costs on demand, 0.805",
    )


def test_what_was_not_used_is_spare_and_says_why() -> None:
    """It costs nothing: that is no reason to drop it, also if EC2 refused it."""
    days = [day(n, None, a_g6_xlarge=PoolDay(0.3), b_g5_xlarge=PoolDay(0.4, 0, 0, 2)) for n in range(7)]
    assert verdicts(said(*days)) == {
        "g5.xlarge": (
            Verdict.SPARE,
            "EC2 refused it each time it was short (14); asking costs nothing",
        ),
        "g6.xlarge": (
            Verdict.SPARE,
            "not used in 7 days: EC2 had others that were cheaper or deeper; it costs nothing",
        ),
    }
    early = said(*days[:6])
    assert verdicts(early)["g6.xlarge"] == (Verdict.SPARE, "not used yet")
    assert early.notes == ["6 days are little: of types that weren't used, a week says more."]


def test_accelerators_with_as_much_memory_are_added() -> None:
    """Those nearest first, as many on each instance; none that has less, and none that the file names."""
    lines = said(day(0)).add
    nearest = (
        "accelerator A10G, 24 GB: g5.xlarge, g5.2xlarge, g5.4xlarge and 2 more, where the region has them"
    )
    assert lines[0] == nearest
    assert not any("T4" in line or "accelerator L4," in line for line in lines)
    assert len(lines) == 3
    assert not any("H100" in line for line in lines), "far larger, and far dearer"
    named = Requirements(instance_types=("g6.xlarge",), accelerators=ASKED.accelerators, arch="x86_64")
    assert said(day(0), asked=named).add == ()
    assert said(day(0), asked=Requirements(instance_types=("g6.xlarge",))).add == ()


def test_zones_that_score_clearly_better_are_added() -> None:
    """By three, like moves; a region's score is another question's."""
    history = said(
        day(0),
        scores={"us-east-1a": 3, "us-east-1b": 4},
        elsewhere={"us-east-1c": 7, "us-east-1d": 6, "us-east-1": 9, "eu-west-1": 10},
    )
    assert [line for line in history.add if "accelerator" not in line] == [
        "a subnet in us-east-1c: it scores 7, the best zone that the service has 4"
    ]


def test_without_days_nothing_is_said_of_types() -> None:
    """Nor without a survey."""
    history = own_history("chat", [], None, ASKED, catalog.all_types(), 10)
    assert (history.days, history.pools, history.types, history.notes) == (0, [], [], [])
