"""Days as they are worked out, kept and read again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws

from spotrelay.plane.accounting import days
from spotrelay.plane.accounting.days import Day, PoolDay
from spotrelay.plane.accounting.ledger import Ledger, NotAccountedError
from spotrelay.plane.accounting.spending import Spending
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.days import DynamoDays
from spotrelay.plane.aws.table import Key, Table, Values
from spotrelay.plane.core.pools import (
    CapacityPool,
    Cause,
    Cooldown,
    Offering,
    PoolMemory,
    PurchaseOption,
    Scope,
    Survey,
)
from spotrelay.plane.core.ports import Denied, Unavailable
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.requirements import Requirements
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.memory import MemoryTelemetry
from tests.accounting.test_spending import HOUR, NOON, POOL, ran
from tests.contract.conftest import TABLE, make_table
from tests.examples import demo_spec

OTHER = CapacityPool("us-east-1", "us-east-1b", "g5.xlarge")


def survey(at: datetime = NOON, **more: Any) -> Survey:
    """Two pools, one list price, one score."""
    scores = more.pop("scores", {"us-east-1a": 7})
    return Survey("demo", Requirements(), at, (POOL, OTHER), {"g5.xlarge": 1.0}, {POOL: 0.3}, scores)


def memory(at: datetime = NOON, *cooldowns: Cooldown, **more: Any) -> PoolMemory:
    """What is known of pools."""
    return PoolMemory(tuple(cooldowns), survey(at, **more))


def day_of(*rows: Replica, known: PoolMemory | None = None, now: datetime = NOON + 6 * HOUR) -> Day:
    """The day of `NOON`."""
    spot = {POOL: [(NOON - 24 * HOUR, 0.3)]}
    return days.of("demo", NOON.date(), rows, known or memory(), spot, {"g5.xlarge": 1.0}, now, 0.01)


def test_a_day_tells_what_each_pool_gave() -> None:
    """Launches, losses, hours and refusals are those of the pool, and the price is its last one."""
    refusal = Cooldown(
        Scope.of(Offering(OTHER, PurchaseOption.SPOT)),
        Cause.REFUSAL,
        NOON,
        NOON + HOUR,
        "no capacity",
        3,
    )
    found = day_of(ran(0, 2, 1, warned_at=NOON + HOUR), ran(1, 3, 2), known=memory(NOON, refusal))
    assert found.pools == {
        str(POOL): PoolDay(usd_per_hour=0.3, launched=2, lost=1, refused=0, hours=4.0),
        str(OTHER): PoolDay(refused=3),
    }
    assert found.spent.spot_usd == pytest.approx(4 * 0.3)
    assert found.spent.disk_usd == pytest.approx(0.04)
    assert found.until == NOON + 6 * HOUR
    assert found.scores == {"us-east-1a": {12: 7}}


def test_a_day_ends_at_midnight() -> None:
    """What runs on belongs to the next day."""
    alive = replace(ran(0, 30), warned_at=None)
    found = day_of(alive, now=NOON + 40 * HOUR)
    assert found.spent.spot_hours == pytest.approx(12)
    assert found.until == datetime(2026, 11, 2, tzinfo=UTC)


def test_yesterday_is_written_until_it_is_closed() -> None:
    """The last survey of a day misses its last minutes; two hours later it has had another."""
    midnight = datetime(2026, 11, 2, tzinfo=UTC)
    assert days.open_days(midnight + timedelta(minutes=40)) == [date(2026, 11, 1), date(2026, 11, 2)]
    assert days.open_days(midnight + timedelta(hours=3)) == [date(2026, 11, 2)]


def test_scores_of_earlier_hours_stay() -> None:
    """Each survey knows its own; the day has all."""
    first = day_of(known=memory(NOON))
    second = day_of(known=memory(NOON + 2 * HOUR, scores={"us-east-1a": 3, "us-east-1b": 9}))
    both = second.with_scores_of(first)
    assert both.scores == {"us-east-1a": {12: 7, 14: 3}, "us-east-1b": {14: 9}}


@pytest.fixture
def kept() -> Iterator[DynamoDays]:
    """Days in DynamoDB."""
    with mock_aws():
        clients = Clients(boto3.Session("testing", "testing", region_name="us-east-1"))
        make_table(clients)
        yield DynamoDays(Table(clients, TABLE))


def test_a_day_is_kept_as_it_was(kept: DynamoDays) -> None:
    """All of it comes back, under its date, and a later one takes its place."""
    day = day_of(ran(0, 2, warned_at=NOON + HOUR))
    kept.note(day)
    found = kept.get("demo", day.date)
    assert found
    assert found.to_dict() == day.to_dict()
    assert kept.get("demo", day.date + timedelta(days=1)) is None
    later = replace(day, spent=Spending(spot_usd=9.0))
    kept.note(later)
    assert [one.spent.spot_usd for one in kept.since("demo", day.date)] == [9.0]


def test_days_of_before_are_not_read(kept: DynamoDays, monkeypatch: pytest.MonkeyPatch) -> None:
    """A year of days is megabytes, and who looks at two days waits for two."""
    for number in (1, 2, 3):
        kept.note(Day("chat", date(2026, 3, number), NOON))
    read: list[int] = []
    query = Table.query

    def counted(table: Table, partition: str, **facts: Any) -> list[tuple[Key, Values]]:
        found = query(table, partition, **facts)
        read.append(len(found))
        return found

    monkeypatch.setattr(Table, "query", counted)
    assert [day.date.day for day in kept.since("chat", date(2026, 3, 2))] == [2, 3]
    assert read == [2]


def test_days_come_in_order_and_from_the_first_on(kept: DynamoDays) -> None:
    """Other services' and earlier ones don't come."""
    first = day_of()
    for service, distance in (("demo", 2), ("demo", 0), ("demo", 1), ("other", 1)):
        kept.note(replace(first, service=service, date=first.date + timedelta(days=distance)))
    found = kept.since("demo", first.date + timedelta(days=1))
    assert [(day.service, (day.date - first.date).days) for day in found] == [("demo", 1), ("demo", 2)]


@dataclass
class Books:
    """What a ledger reads and writes, in memory."""

    rows: Sequence[Replica] = ()
    written: dict[tuple[str, date], Day] = field(default_factory=dict)
    broken: str = ""
    asked: list[date] = field(default_factory=list)

    def load(self, service: str) -> Rows:
        """No rows; one service can't be read."""
        if service == self.broken:
            raise Unavailable("no answer")
        return Rows()

    def history(self, service: str, limit: int) -> Sequence[Replica]:
        """The rows that were given."""
        return self.rows[:limit]

    def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
        """What was surveyed a minute ago."""
        return memory(now - timedelta(minutes=1))

    def note(self, day: Day) -> None:
        """Keep the day."""
        self.written[day.service, day.date] = day

    def get(self, service: str, day: date) -> Day | None:
        """The day that was kept."""
        return self.written.get((service, day))

    def since(self, service: str, first: date) -> Sequence[Day]:
        """Nobody reads many days here."""
        raise AssertionError("nothing here reads many")

    def spot_since(
        self, region: str, types: Collection[str], start: datetime
    ) -> Mapping[CapacityPool, Sequence[tuple[datetime, float]]]:
        """As EC2 tells prices: the newest first."""
        assert "g5.xlarge" in types
        self.asked.append(start.date())
        return {POOL: [(NOON + HOUR, 0.5), (start, 0.3)]}

    def on_demand(self, region: str, instance_type: str) -> float | None:
        """The price of one type; asking for another one is denied."""
        if instance_type == "g6.xlarge":
            raise Denied("not authorized")
        return {"g4dn.xlarge": 0.5}.get(instance_type)


class _Services:
    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def names(self) -> Sequence[str]:
        return ("demo", "other")

    def get(self, service: str, *, fresh: bool = False) -> Any:
        return replace(demo_spec(), service=service, **self._settings)


@dataclass
class _At:
    at: datetime

    def now(self) -> datetime:
        return self.at


def ledger(books: Books, now: datetime, **settings: Any) -> Ledger:
    """A ledger of these books."""
    return Ledger(_Services(**settings), books, books, books, MemoryTelemetry(), _At(now))


SCHEDULE = {"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}


def test_every_service_has_its_day_written_with_the_schedule() -> None:
    """Prices come newest first and count in order: an hour at 0.3, one at 0.5."""
    books = Books(rows=[ran(0, 2)])
    ledger(books, NOON + 6 * HOUR).on_event(SCHEDULE)
    assert {service for service, _ in books.written} == {"demo", "other"}
    assert books.written["demo", NOON.date()].spent.spot_usd == pytest.approx(0.8)


def test_a_service_that_fails_costs_the_others_nothing() -> None:
    """It is raised in the end, so that it is tried again."""
    books = Books(broken="demo")
    with pytest.raises(NotAccountedError, match="demo: Unavailable"):
        ledger(books, NOON).on_event(SCHEDULE)
    assert {service for service, _ in books.written} == {"other"}


def test_until_when_days_are_written() -> None:
    """Whoever asks hears it of today's day, or of yesterday's before today has one; of neither, nothing."""
    books = Books(rows=[ran(0, 2)])
    assert ledger(books, NOON).written_until("demo") is None
    ledger(books, NOON).write(["demo"])
    assert ledger(books, NOON + HOUR).written_until("demo") == NOON
    assert ledger(books, NOON + 13 * HOUR).written_until("demo") == NOON
    assert ledger(books, NOON + 48 * HOUR).written_until("demo") is None


def test_an_hour_after_midnight_both_days_are_written() -> None:
    """What ran across midnight is charged to each day for its part."""
    midnight = datetime(2026, 11, 2, tzinfo=UTC)
    books = Books(rows=[ran(11, 13)])
    ledger(books, midnight + HOUR).write(["demo"])
    hours = {day.isoformat(): one.spent.spot_hours for (_, day), one in books.written.items()}
    assert hours == {"2026-11-01": pytest.approx(1), "2026-11-02": pytest.approx(1)}


def test_days_that_nobody_finished_are_written_as_soon_as_somebody_can() -> None:
    """The survey was down for two days: what was told in part, or not at all, is told to its end, once."""
    books = Books(rows=[ran(-1, 60)])
    ledger(books, NOON + 3 * HOUR).write(["demo"])
    assert books.written["demo", NOON.date()].spent.spot_hours == pytest.approx(4)
    for _ in range(2):
        ledger(books, NOON + 63 * HOUR).write(["demo"])
        hours = {day.day: one.spent.spot_hours for (_, day), one in books.written.items()}
        assert hours == {1: pytest.approx(13), 2: pytest.approx(24), 3: pytest.approx(24), 4: 0.0}
        assert all(one.until == days.bounds(day)[1] for (_, day), one in books.written.items() if day.day < 4)
    first_asked, then_asked = books.asked[-2:]
    assert (first_asked.day, then_asked.day) == (1, 4), "a day that was told to its end is closed"


def test_what_is_older_than_rows_are_kept_is_left_as_it_is() -> None:
    """Its rows may be gone: to write it anew would lose what was known."""
    begun = date(2026, 10, 1)
    found = days.unfinished(lambda _: None, begun, NOON)
    assert found[0] == (NOON - days.ROWS_KEPT).date() + timedelta(days=1)
    assert found == sorted(found)
    assert found[-1] == NOON.date() - timedelta(days=1)
    assert days.unfinished(lambda _: None, NOON.date(), NOON) == []


def test_spot_that_was_given_up_today_keeps_its_price() -> None:
    """The service is on-demand by now, and was on Spot this morning."""
    books = Books(rows=[ran(0, 1)])
    ledger(books, NOON + 6 * HOUR, use_spot=False).write(["demo"])
    spent = books.written["demo", NOON.date()].spent
    assert [spent.spot_usd, spent.unpriced_hours] == pytest.approx([0.3, 0.0])


def test_a_type_that_is_no_longer_eligible_keeps_its_list_price() -> None:
    """The survey doesn't name it any more. What nobody tells of is told to have no price."""
    listed = days.list_prices(
        memory().survey,
        ["g5.xlarge", "g4dn.xlarge", "g6.xlarge", "p3.2xlarge"],
        lambda name: Books().on_demand("us-east-1", name),
    )
    assert listed == {"g5.xlarge": 1.0, "g4dn.xlarge": 0.5}
    before = ran(0, 2, option=PurchaseOption.ON_DEMAND)
    before = replace(
        before, offering=Offering(replace(POOL, instance_type="g4dn.xlarge"), PurchaseOption.ON_DEMAND)
    )
    books = Books(rows=[before])
    ledger(books, NOON + 6 * HOUR).write(["demo"])
    assert books.written["demo", NOON.date()].spent.on_demand_usd == pytest.approx(1.0)


def test_instances_are_counted_and_not_the_replicas_that_share_them() -> None:
    """Their rate of losses is by the hours of instances; one that was gone without a warning counts."""
    shared = {"slots": 2, "warned_at": NOON + HOUR}
    rows = [ran(0, 2, 1, **shared), ran(0, 2, 2, instance="i-1:8082", **shared)]
    gone = replace(ran(0, 2, 3), lost_at=NOON + HOUR)
    pool = day_of(*rows, gone).pools[str(POOL)]
    assert [pool.launched, pool.lost, pool.hours] == pytest.approx([2, 2, 4])
