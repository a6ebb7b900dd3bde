"""Spot prices that differ: where they are from, who gets which, and what follows from them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from pathlib import Path

import pytest

from lab.replay.baselines import BASELINES
from lab.replay.baselines.optimal import optimal_cost
from lab.replay.cloud import ReplayCloud
from lab.replay.prices import SPREAD, STEP_S, made_up, recorded
from lab.replay.readers.recording import pool_in
from lab.replay.readers.spot_prices import PriceHistory, read_all
from lab.replay.run import drive, run
from lab.replay.settings import ReplaySettings, ReplaySettingsError
from lab.replay.synthetic import generate
from lab.replay.traces import Trace, TraceError
from lab.replay.wording import DAY_S

from .markets import SPOT, ZONES, market, pool
from .recordings import lines, price, price_history

ONE = ReplaySettings(replicas=1, cold_start_s=100.0)
"""Measured from 300 s on."""

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)

Prices = list[tuple[float, float]]


def priced(trace: Trace, *prices: Prices) -> Trace:
    """The market with such prices in its pools."""
    pools = (replace(p, prices=tuple(own)) for p, own in zip(trace.pools, prices, strict=True))
    return replace(trace, pools=tuple(pools), prices="recorded")


def history(zone: str, *points: tuple[float, float], type_: str = "p3.2xlarge") -> PriceHistory:
    """USD per hour, from so many seconds after `BEGIN` on."""
    return PriceHistory(pool_in(zone, type_), [(BEGIN + timedelta(seconds=at), usd) for at, usd in points])


def usual(zone: str, usd: float) -> PriceHistory:
    """A price that stands for ten days."""
    return history(zone, (0, usd), (10 * DAY_S, usd))


def in_zones(*zones: str, duration_s: float = 1000.0) -> Trace:
    """A market with a pool in each zone."""
    whole = market(*([(0.0, 1)] for _ in zones), duration_s=duration_s)
    pools = (replace(p, pool=pool(zone)) for p, zone in zip(whole.pools, zones, strict=True))
    return replace(whole, pools=tuple(pools))


def firsts(trace: Trace) -> list[float]:
    """The pools' prices at the beginning."""
    return [p.prices[0][1] for p in trace.pools]


# --- reading


def test_answers_are_read_as_aws_gives_them(tmp_path: Path) -> None:
    """Newest first, in pages, in folders of folders; what has a licence in it or isn't JSON is left alone."""
    a, b = "us-east-1a", "us-east-1b"
    price_history(
        tmp_path / "us-east-1" / "2.json",
        price(a, "2020-02-20T22:06:16.000Z", "1.0671"),
        price(a, "2020-02-20T22:06:16.000Z", "9", product="Windows"),
        price(a, "2020-02-20T17:00:00.000Z", "1.06"),
    )
    page = price(b, "2020-02-20T21:00:00+00:00", "0.95", product="Linux/UNIX (Amazon VPC)")
    price_history(tmp_path / "us-east-1" / "1.json", page)
    lines(tmp_path / "LICENSE", "free")
    first, second = read_all([tmp_path])
    assert (first.pool, second.pool) == (pool_in(a, "p3.2xlarge"), pool_in(b, "p3.2xlarge"))
    assert first.points == [
        (datetime(2020, 2, 20, 17, tzinfo=UTC), 1.06),
        (datetime(2020, 2, 20, 22, 6, 16, tzinfo=UTC), 1.0671),
    ]
    assert second.points == [(datetime(2020, 2, 20, 21, tzinfo=UTC), 0.95)]


GOOD = price("us-east-1a", "2020-01-01T00:00:00Z", "1")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "prices.json: is not JSON"),
        ("[]", "prices.json: has no list SpotPriceHistory: give what `aws ec2 describe-spot-price-history`"),
        ('{"SpotPriceHistory": {}}', "prices.json: has no list SpotPriceHistory"),
        ('{"SpotPriceHistory": [1]}', "prices.json: SpotPriceHistory[0] must be an object with a price"),
        (
            {"AvailabilityZone": ""},
            "prices.json: SpotPriceHistory[1].AvailabilityZone must be a text, not ''",
        ),
        ({"InstanceType": None}, "prices.json: SpotPriceHistory[1].InstanceType must be a text, not None"),
        (
            {"SpotPrice": "cheap"},
            "SpotPriceHistory[1].SpotPrice must be USD per hour, more than 0, not 'cheap'",
        ),
        ({"SpotPrice": "0"}, "SpotPriceHistory[1].SpotPrice must be USD per hour"),
        ({"SpotPrice": "inf"}, "SpotPriceHistory[1].SpotPrice must be USD per hour"),
        ({"Timestamp": "today"}, "SpotPriceHistory[1].Timestamp must be a time with its zone"),
        ({"Timestamp": "2020-01-01T00:00:00"}, "SpotPriceHistory[1].Timestamp must be a time with its zone"),
        ('{"SpotPriceHistory": []}', "has no price of Linux/UNIX or Linux/UNIX (Amazon VPC): ask with"),
    ],
)
def test_what_is_no_answer_is_refused(tmp_path: Path, text: str | dict[str, object], line: str) -> None:
    """The line names the file, the entry and what to do."""
    file = tmp_path / "prices.json"
    if isinstance(text, str):
        lines(file, text)
    else:
        price_history(file, GOOD, {**json.loads(json.dumps(GOOD)), **text})
    with pytest.raises(TraceError, match=re.escape(line)):
        read_all([file])


def test_folders_without_answers_are_refused(tmp_path: Path) -> None:
    """A path that isn't there, and one where nothing is."""
    with pytest.raises(TraceError, match="no such file or folder"):
        read_all([tmp_path / "none"])
    with pytest.raises(TraceError, match=r"has no \.json files: give a folder that has answers"):
        read_all([tmp_path])


# --- recorded prices


def test_recorded_prices_begin_when_all_are_known_and_are_relative_to_their_mean() -> None:
    """The price that stands then is the first; a price that is said again is no change."""
    days = 20 * DAY_S
    trace = recorded(
        market([(0, 1)], [(0, 1)], duration_s=1000.0),
        [
            history(ZONES[0], (0, 8.0), (400, 1.0), (600, 1.0), (1000, 2.0), (1500, 5.0), (days, 9.0)),
            history(ZONES[1], (500, 2.5), (days, 2.5)),
        ],
    )
    # The first costs 1 for 500 s and 2 for 500 s, the second 2.5: 2 in the mean.
    assert trace.pools[0].prices == ((0.0, 0.5), (500.0, 1.0))
    assert trace.pools[1].prices == ((0.0, 1.25),)
    assert trace.prices == "recorded"
    (note,) = trace.notes
    assert note == (
        "Spot prices are a model: those of p3.2xlarge from 2020-01-01 on, of another time than this "
        "capacity; pools are up to 1.67 times apart"
    )


def test_a_zone_without_prices_borrows_another_zones() -> None:
    """Of its own region if there is one; whose prices fewer have; and the note says so."""
    own = [usual("us-east-1a", 1.0), usual("us-east-1b", 2.0), usual("us-west-2a", 3.0)]
    trace = recorded(in_zones("us-east-1c", "us-east-1a", "us-east-2a", "us-west-2b"), own)
    mean = (2 + 1 + 1 + 3) / 4
    assert firsts(trace) == pytest.approx([2 / mean, 1 / mean, 1 / mean, 3 / mean])
    assert (
        "us-east-1c with us-east-1b's, us-west-2b with us-west-2a's, us-east-2a with us-east-1a's"
        in trace.notes[-1]
    )
    near = recorded(in_zones("us-east-1a", "us-east-1c"), [own[0], own[2]])
    assert firsts(near) == [1.0, 1.0], "the region counts for more"


def test_instance_types_have_their_own_prices() -> None:
    """A recording that names types gets theirs; one that names accelerators can't tell several apart."""
    prices = [
        usual("us-east-1a", 1.0),
        replace(usual("us-east-1a", 3.0), pool=pool_in("us-east-1a", "v100:1")),
    ]
    assert len(recorded(in_zones("us-east-1a"), prices).pools[0].prices) == 1
    two = in_zones("us-east-1a", "us-east-1a")
    first = replace(two.pools[0], pool=pool_in("us-east-1a", "p3.2xlarge"))
    assert firsts(recorded(replace(two, pools=(first, two.pools[1])), prices)) == [0.5, 1.5]
    other = replace(prices[1], pool=pool_in("us-east-1a", "p2.xlarge"))
    with pytest.raises(
        TraceError,
        match=r"by hand has us-east-1a/v100:1, and the answers are of p2\.xlarge, p3\.2xlarge: give",
    ):
        recorded(in_zones("us-east-1a"), [prices[0], other])


def test_prices_must_last_as_long_as_the_recording() -> None:
    """What nobody knows isn't made up."""
    short = [history(ZONES[0], (0, 1.0), (5000, 1.0)), history(ZONES[1], (4500, 1.0))]
    trace = market([(0, 1)], [(0, 1)], duration_s=1000.0)
    with pytest.raises(
        TraceError,
        match=r"have one for 8\.3 min, from 2020-01-01 01:15 on, and by hand lasts 16\.7 min",
    ):
        recorded(trace, short)


# --- made-up prices


def test_made_up_prices_differ_from_pool_to_pool_and_move_slowly() -> None:
    """Never more than three times apart, a few per cent at a step, each pool at its own time; mean 1."""
    trace = made_up(generate(0), 5)
    steps = [dict(p.prices) for p in trace.pools]
    assert max(map(max, (s.values() for s in steps))) <= SPREAD * min(map(min, (s.values() for s in steps)))
    assert max(firsts(trace)) > 1.5 * min(firsts(trace))
    for own in steps:
        values = list(own.values())
        assert len(values) > trace.duration_s / STEP_S / 2
        assert all(abs(b / a - 1) < 0.2 for a, b in pairwise(values))
        assert max(values) < 2 * min(values), "it strays around a level of its own"
    assert len(set.union(*(set(own) for own in steps))) > sum(map(len, steps)) - len(steps)
    assert sum(map(_mean, (p.prices for p in trace.pools))) / len(steps) == pytest.approx(1, abs=0.01)
    assert trace.prices == "made-up:5"
    assert "made up (seed 5)" in trace.notes[-1]


def _mean(prices: Sequence[tuple[float, float]]) -> float:
    return sum(value for _, value in prices) / len(prices)


def test_a_seed_makes_one_set_of_prices_and_another_seed_another() -> None:
    """Whoever quotes a figure can name the seed."""
    assert made_up(generate(0), 5) == made_up(generate(0), 5)
    assert made_up(generate(0), 5).pools != made_up(generate(0), 6).pools


# --- what follows


def test_a_replica_costs_what_its_pool_costs_at_the_time() -> None:
    """Until it ends, warned or not; other pools' prices, and those of before it began, don't matter."""
    trace = priced(
        market([(0, 2), (1000, 0)], [(0, 0), (900, 1)]),
        [(0, 9.0), (350, 0.5), (950, 2.0)],
        [(0, 7.0), (960, 8.0)],
    )
    cloud = ReplayCloud(trace, ONE)
    cloud.launch(SPOT, 2)
    ledger = cloud.close(1300)
    assert ledger.spot_s == pytest.approx(2 * (50 * 9 + 600 * 0.5 + 50 * 2))
    assert ledger.cost == pytest.approx(ledger.spot_s / 3 / 1000)


def test_of_the_pools_with_the_most_capacity_the_cheapest_is_taken() -> None:
    """As EC2 describes price-capacity-optimized; when prices change, so does the choice."""
    trace = priced(market([(0, 1)], [(0, 8)], [(0, 8)]), [(0, 0.5)], [(0, 1.5), (500, 0.9)], [(0, 1.0)])
    for seed in range(5):
        cloud = ReplayCloud(trace, replace(ONE, seed=seed))
        (first,), _ = cloud.launch(SPOT, 1)
        cloud.advance(600)
        (second,), _ = cloud.launch(SPOT, 1)
        assert [m.offering.pool.zone for m in (first, second)] == [ZONES[2], ZONES[1]]


def test_the_oracle_takes_the_cheapest_pools_at_each_instant() -> None:
    """Exact: what the cheapest has no room for is in the next, and what Spot has none for is on-demand."""
    trace = priced(
        market([(0, 1)], [(0, 5), (750, 0)], duration_s=1000.0),
        [(0, 2.0), (500, 1.0)],
        [(0, 1.5), (250, 0.5)],
    )
    settings = ReplaySettings(replicas=2, od_price_ratio=4)
    spot = (250 * 2 * 1.5 + 250 * 2 * 0.5 + 250 * 2 * 0.5 + 250 * 1.0) / 4
    assert optimal_cost(trace, settings, 0, 1000) == pytest.approx((spot + 250) / 2000)
    assert optimal_cost(trace, settings, 600, 700) == pytest.approx(0.5 / 4)


def test_spothedge_takes_the_cheapest_zones_that_it_isnt_in() -> None:
    """As SkyServe does; once it is in all of them, the cheapest again."""
    trace = priced(market([(0, 9)], [(0, 9)], [(0, 9)]), [(0, 1.2)], [(0, 1.0)], [(0, 0.8)])
    for seed, (replicas, zones) in product(range(5), ((1, [2, 1]), (4, [2, 1, 0, 2, 2]))):
        settings = ReplaySettings(replicas=replicas, seed=seed)
        cloud = ReplayCloud(trace, settings)
        drive(BASELINES["spothedge"](trace, settings), cloud, 500)
        spot = [m.offering.pool.zone for m in cloud.history if m.is_spot]
        assert sorted(spot) == sorted(ZONES[n] for n in zones)


def test_the_controller_has_the_cheapest_pool_where_all_have_capacity() -> None:
    """It leaves the choice to EC2, so it pays what the oracle pays while nothing happens."""
    trace = priced(market([(0, 9)], [(0, 9)], duration_s=5000.0), [(0, 1.25)], [(0, 0.75)])
    result = run(trace, "spotrelay", ReplaySettings())
    assert result.cost == pytest.approx(result.optimal_cost) == pytest.approx(0.25)
    assert result.prices == "recorded"


def test_spot_never_costs_more_than_on_demand() -> None:
    """Prices that no EC2 asks for are refused, with the ratio that would do."""
    trace = priced(market([(0, 1)], [(0, 1)]), [(0, 1.0), (500, 2.25)], [(0, 0.5)])
    with pytest.raises(
        ReplaySettingsError,
        match=r"ratio is 2, but Spot in us-east-1a/v100:1 costs up to 2\.25 times the mean.*: give 3 or more",
    ):
        run(trace, "optimal", replace(ONE, od_price_ratio=2))
    run(trace, "optimal", replace(ONE, od_price_ratio=2.25))
