"""Recorded prices: how files are read, and that every command sees them as AWS's own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner

from lab.local.recordings import RecordingError, Recordings, read
from lab.market import Market, PoolState
from spotrelay.operator.cli.app import app
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.surveyor import AwsSurveyor
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.requirements import Accelerators, Requirements
from spotrelay.plane.memory import MemoryTelemetry
from tests.examples import demo_spec
from tests.local.conftest import PATIENCE_S, Aws, endpoint_of, start

pytestmark = pytest.mark.xdist_group("local")

RECORDED = datetime(2020, 2, 20, 12, tzinfo=UTC)
"""When the newest price of these recordings began."""


def row(
    hours: int, usd: str, name: str = "g5.2xlarge", zone: str = "us-east-1a", **other: str
) -> dict[str, str]:
    """A price as EC2 answers, of so many hours before `RECORDED`. Made up, as all of this file's."""
    at = (RECORDED - timedelta(hours=hours)).isoformat().replace("+00:00", "Z")
    told = {"AvailabilityZone": zone, "InstanceType": name, "ProductDescription": "Linux/UNIX"}
    return {**told, "SpotPrice": usd, "Timestamp": at, **other}


def product(usd: str, name: str = "g5.2xlarge", **other: str) -> dict[str, Any]:
    """A product as the price list has it."""
    attributes = {
        "instanceType": name,
        "regionCode": "us-east-1",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        **other,
    }
    rate = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    return {
        "product": {"attributes": attributes, "sku": "X"},
        "terms": {"OnDemand": {"X.Y": {"priceDimensions": {"X.Y.Z": rate}}}},
    }


HISTORY = {
    "SpotPriceHistory": [
        row(0, "0.70"),
        row(30, "0.50"),
        row(100, "0.60"),
        row(2, "0.40", "g6.2xlarge", "us-east-1b"),
        row(3, "9.99", zone="us-east-1f"),
        row(4, "9.99", ProductDescription="Windows"),
    ]
}
LIST = {
    "PriceList": [
        json.dumps(product("2.5")),
        product("9.9", tenancy="Dedicated"),
        product("9.9", regionCode="eu-west-1"),
        product("2.0", "g6.2xlarge"),
    ]
}
ADVISED = {"spot_advisor": {"us-east-1": {"Linux": {"g5.2xlarge": {"s": 44, "r": 3}}}}}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """One file of each kind, one of them in a folder."""
    (tmp_path / "us-east-1").mkdir()
    for name, content in {"us-east-1/spot": HISTORY, "listed": LIST, "advisor": ADVISED}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


def pool(name: str = "g5.2xlarge", zone: str = "us-east-1a") -> CapacityPool:
    """A pool of this region."""
    return CapacityPool("us-east-1", zone, name)


def test_files_of_each_kind_are_read(directory: Path) -> None:
    """Pools of this region's zones with their changes, the oldest first; the rest is counted."""
    found = read(directory)
    assert [usd for _, usd in found.spot[pool()]] == [0.6, 0.5, 0.7]
    assert found.spot[pool()][-1][0] == RECORDED
    assert found.spot.keys() == {pool(), pool("g6.2xlarge", "us-east-1b")}
    assert found.left_out == 2
    assert found.on_demand == {"g5.2xlarge": 2.5, "g6.2xlarge": 2.0}
    assert json.loads(found.advisor) == ADVISED
    assert [line.split(":")[1].split(",")[0].strip() for line in found.described()] == [
        "recorded",
        "recorded",
        "recorded. Capacity",
    ]


def test_prices_are_moved_to_today_by_whole_days(directory: Path) -> None:
    """So that the hours stay; what the start says has the days on which they really stood."""
    now = datetime(2026, 11, 23, 11, tzinfo=UTC)
    found = read(directory).as_of(now)
    assert found.spot[pool()][-1] == (datetime(2026, 11, 22, 12, tzinfo=UTC), 0.7)
    (spot, *_) = found.described()
    assert spot.startswith(
        "Spot prices: recorded, of 2 pools from 2020-02-16 to 2020-02-20, shown 2467 days later"
    )
    assert "; 2 of other products or zones are left out." in spot


def test_without_recordings_the_start_says_what_is_made_up() -> None:
    """Spot prices and capacity, and where on-demand's prices are from."""
    said = " ".join(Recordings().described())
    assert "Spot prices: made up. --prices DIR shows recorded ones." in said
    assert "Capacity: made up." in said


BAD = [
    ("{", "Expecting property name enclosed in double quotes: line 1 column 2"),
    ("[]", "expected an object, got []"),
    (
        '{"Spot": []}',
        "expected an object with SpotPriceHistory, PriceList, spot_advisor; that is what `aws ec2",
    ),
    ('{"SpotPriceHistory": {}}', "SpotPriceHistory: expected a list, got {}"),
    ('{"SpotPriceHistory": [1]}', "SpotPriceHistory[0]: expected an object, got 1"),
    (json.dumps({"SpotPriceHistory": [row(0, "1"), {}]}), "SpotPriceHistory[1]: has no AvailabilityZone"),
    (
        json.dumps({"SpotPriceHistory": [row(0, "cheap")]}),
        "SpotPriceHistory[0].SpotPrice: expected USD an hour such as \"0.4512\", got 'cheap'",
    ),
    (json.dumps({"SpotPriceHistory": [row(0, "-1")]}), "SpotPriceHistory[0].SpotPrice: expected USD"),
    (json.dumps({"SpotPriceHistory": [row(0, "NaN")]}), "SpotPriceHistory[0].SpotPrice: expected USD"),
    (
        json.dumps({"SpotPriceHistory": [row(0, "1", Timestamp="yesterday")]}),
        "SpotPriceHistory[0].Timestamp: expected a time such as",
    ),
    (
        json.dumps({"SpotPriceHistory": [row(0, "1", InstanceType="")]}),
        "[0].InstanceType: expected a text, got ''",
    ),
    (json.dumps({"PriceList": [product("1"), "{"]}), "PriceList[1]: not a product as GetProducts gives it"),
    (json.dumps({"PriceList": [{"product": {}}]}), "PriceList[0]: not a product as GetProducts gives it"),
    (json.dumps({"PriceList": [product("a lot")]}), "PriceList[0]: not a product as GetProducts gives it"),
    ('{"spot_advisor": {"us-east-1": {"Linux": {"g5.xlarge": {}}}}}', "not the Spot Instance Advisor's data"),
]


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_a_bad_file_is_named_with_the_place(tmp_path: Path, text: str, expected: str) -> None:
    """And with what was expected there."""
    file = tmp_path / "bad.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RecordingError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(f"{file}: ")
    assert expected in str(caught.value)


def test_a_directory_without_prices_of_this_region_is_refused(tmp_path: Path) -> None:
    """None at all, no file, or only those of other zones."""
    with pytest.raises(RecordingError, match="expected a directory"):
        read(tmp_path / "nowhere")
    with pytest.raises(RecordingError, match=r"expected recorded prices in \.json files"):
        read(tmp_path)
    (tmp_path / "west.json").write_text(
        json.dumps({"SpotPriceHistory": [row(0, "1", zone="us-west-2a")]}), encoding="utf-8"
    )
    with pytest.raises(
        RecordingError, match="none of its 1 Spot prices is of Linux/UNIX in us-east-1a, us-east"
    ):
        read(tmp_path)


def test_a_market_with_recorded_prices_has_them_at_their_time(directory: Path) -> None:
    """What stands at the start of a span comes with it; before the first change that one's price stands."""
    shop = Market([PoolState(pool(), 2.5, 5, 5)], recorded=read(directory).spot)
    hour = timedelta(hours=1)

    def price(hours_before: int) -> float:
        return shop.price(Offering(pool(), PurchaseOption.SPOT), RECORDED - hours_before * hour)

    assert [price(hours) for hours in (0, 1, 30, 31, 100, 500)] == [0.7, 0.5, 0.5, 0.6, 0.6, 0.6]
    assert shop.price(Offering(pool(), PurchaseOption.ON_DEMAND), RECORDED) == 2.5
    history = shop.price_history(pool(), RECORDED - 20 * hour, RECORDED - hour)
    assert history == [(RECORDED - 30 * hour, 0.5)]
    assert [usd for _, usd in shop.price_history(pool(), RECORDED - 30 * hour, RECORDED)] == [0.7, 0.5]


@pytest.fixture
def cloud(directory: Path, tmp_path: Path) -> Iterator[tuple[Aws, subprocess.Popen[str]]]:
    """A local cloud that serves the recordings."""
    ready = tmp_path / "ready.json"
    process = start(ready, "--prices", str(directory))
    try:
        yield Aws(endpoint_of(process, ready)), process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def test_commands_and_the_survey_see_recorded_prices_as_awss_own(
    cloud: tuple[Aws, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spot and on-demand prices and the Advisor's ranges, by the usual calls; all else is unknown."""
    aws, process = cloud
    assert process.stdout is not None
    greeting = [process.stdout.readline() for _ in range(6)]
    assert any(line.startswith("Spot prices: recorded, of 2 pools from 2020-02-16") for line in greeting)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "",  # which the command sets, and the test must forget
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    arguments = ("recommend", "--model", "llama3-8b", "--json", "--endpoint-url", aws.endpoint)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = {one["instance_type"]: one for one in json.loads(result.stdout)["recommended"]}
    g5, g6, g6e = told["g5.2xlarge"], told["g6.2xlarge"], told["g6e.2xlarge"]
    assert (g5["spot_usd"], g5["on_demand_usd"], g5["interrupted"]) == (0.7, 2.5, "15-20%")
    assert (g6["spot_usd"], g6["on_demand_usd"], g6["interrupted"]) == (0.4, 2.0, None)
    assert (g6e["spot_usd"], g6e["on_demand_usd"]) == (None, None)
    notes = json.loads(result.stdout)["notes"]
    assert f"Prices in us-east-1: {aws.endpoint}, which stands in for AWS." in notes
    assert not (tmp_path / "cache" / "spotrelay").exists(), "it isn't kept as if AWS had said it"

    rows = aws.ec2.describe_spot_price_history(
        ProductDescriptions=["Linux/UNIX"], StartTime=datetime.now(UTC) - timedelta(days=90)
    )["SpotPriceHistory"]
    assert [(r["InstanceType"], float(r["SpotPrice"])) for r in rows] == [
        ("g5.2xlarge", 0.7),
        ("g6.2xlarge", 0.4),
        ("g5.2xlarge", 0.5),
        ("g5.2xlarge", 0.6),
    ]

    wanted = Requirements(accelerators=(Accelerators("A10G", 1), Accelerators("L4", 1)), arch="x86_64")
    spec = replace(demo_spec(), subnets={"subnet-a": "us-east-1a"}, requirements=wanted)
    clients = Clients(boto3.Session(region_name="us-east-1"))
    survey = AwsSurveyor(clients, MemoryTelemetry()).survey(spec, datetime.now(UTC))
    assert survey.spot_prices == {pool(): 0.7}
    assert survey.on_demand_prices == {"g5.2xlarge": 2.5, "g6.2xlarge": 2.0}
