"""Cron expressions in time zones: when they last fired."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.core.schedules import Cron, CronError

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def fired(text: str, now: str, zone: ZoneInfo = BERLIN) -> str | None:
    """When it last fired before a UTC time, as such a time."""
    at = Cron.parse(text).last_fired(zone, datetime.fromisoformat(now).replace(tzinfo=UTC))
    return at.strftime("%Y-%m-%dT%H:%M") if at else None


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("0 8 * * *", "2026-11-23T07:00", "2026-11-23T07:00"),  # now is included
        ("0 8 * * *", "2026-11-23T06:59:59", "2026-11-22T07:00"),
        ("0 8 * * *", "2026-07-23T06:00", "2026-07-23T06:00"),  # in summer an hour sooner
        ("*/20 * * * *", "2026-11-23T10:59", "2026-11-23T10:40"),
        ("5-10/2 9 * * *", "2026-11-23T12:00", "2026-11-23T08:09"),
        ("7/30 * * * *", "2026-11-23T12:30", "2026-11-23T12:07"),
        ("0 8 * * MON-FRI", "2026-11-22T12:00", "2026-11-20T07:00"),  # a Sunday
        ("0 8 * * 1,sun", "2026-11-22T12:00", "2026-11-22T07:00"),
        ("0 8 * * 7", "2026-11-23T12:00", "2026-11-22T07:00"),  # 7 is Sunday, too
        ("0 0 1 jan *", "2026-11-23T12:00", "2025-12-31T23:00"),
        ("0 0 29 2 *", "2026-11-23T12:00", "2024-02-28T23:00"),
        ("0 0 29 2 *", "2103-12-31T00:00", "2096-02-28T23:00"),  # 2100 has none
        ("0 0 13 * FRI", "2026-11-23T12:00", "2026-11-19T23:00"),  # either of the two days, as in cron
        ("0 0 */2 * FRI", "2026-11-24T12:00", "2026-11-12T23:00"),  # a star restricts nothing: both
    ],
)
def test_when_it_last_fired(text: str, now: str, expected: str) -> None:
    """In Berlin, told in UTC."""
    assert fired(text, now) == expected


def test_a_time_that_daylight_saving_skips_fires_an_hour_later() -> None:
    """At 2:30 on 29 March 2026 Berlin's clocks show 3:30: what is scheduled then isn't left out."""
    assert fired("30 2 * * *", "2026-03-29T01:29") == "2026-03-28T01:30"
    assert fired("30 2 * * *", "2026-03-29T01:30") == "2026-03-29T01:30"


def test_a_time_that_comes_twice_fires_the_first_time() -> None:
    """2:30 on 25 October 2026 is 0:30 and 1:30 UTC in Berlin."""
    assert fired("30 2 * * *", "2026-10-25T00:29") == "2026-10-24T00:30"
    assert fired("30 2 * * *", "2026-10-25T00:30") == "2026-10-25T00:30"
    assert fired("30 2 * * *", "2026-10-25T12:00") == "2026-10-25T00:30"


def test_clocks_that_are_put_back_over_midnight() -> None:
    """Havana's go from 1:00 to 0:00, so the day that follows has begun once before."""
    havana = ZoneInfo("America/Havana")
    assert fired("30 0 * * *", "2026-11-01T04:40", havana) == "2026-11-01T04:30"
    assert fired("30 0 * * *", "2026-11-01T05:40", havana) == "2026-11-01T04:30"


@pytest.mark.parametrize("text", ["0 8 30 2 *", "0 0 31 4,6 *"])
def test_what_never_fires_is_refused(text: str) -> None:
    """30 February."""
    with pytest.raises(CronError, match="never fires"):
        Cron.parse(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0 8 * *", "five fields"),
        ("@daily", "five fields"),
        ("60 8 * * *", "minute: expected numbers from 0 to 59"),
        ("0 24 * * *", "hour"),
        ("0 8 0 * *", "day: "),
        ("0 8 * 13 *", "month: .* or JAN to DEC"),
        ("0 8 * * 8", "day of the week"),
        ("0 8 * * MOO", "day of the week"),
        ("5-3 8 * * *", "minute"),
        ("*/0 8 * * *", "minute"),
        ("*/x 8 * * *", "minute"),
        ("-1 8 * * *", "minute"),
        ("1, 8 * * *", "minute"),
        ("\u0661 8 * * *", "minute"),
        ("1- 8 * * *", "minute"),
        ("0 8 ? * L", "day"),
    ],
)
def test_what_is_no_cron_expression(text: str, part: str) -> None:
    """The message names the field, and what would be one."""
    with pytest.raises(CronError, match=part):
        Cron.parse(text)


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - made aware below
    st.sampled_from(["0 * * * *", "30 2 * * *", "15 0 * * 1", "0 23 28 * *"]),
    st.sampled_from([BERLIN, NEW_YORK, ZoneInfo("Australia/Lord_Howe"), ZoneInfo("UTC")]),
)
def test_nothing_fires_in_the_future_or_is_missed(now: datetime, text: str, zone: ZoneInfo) -> None:
    """The last time isn't after now, and a minute later none before it is found."""
    cron, moment = Cron.parse(text), now.replace(tzinfo=UTC)
    at = cron.last_fired(zone, moment)
    assert at is not None
    assert at <= moment
    assert cron.last_fired(zone, at) == at
