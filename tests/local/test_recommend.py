"""`spotrelay recommend` and `compare`, with prices and scores from the local cloud."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotrelay.file.catalog import list_prices
from spotrelay.operator.cli import spot_advisor
from spotrelay.operator.cli.app import app
from tests.local.conftest import Aws

pytestmark = pytest.mark.xdist_group("local")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its credentials, and nobody but it is asked."""

    def unreachable(_: str) -> bytes:
        raise OSError("no network in a test")

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")  # which the command sets, and the test must forget
    monkeypatch.setattr(spot_advisor, "downloaded", unreachable)


def test_prices_and_scores_are_asked_for_as_aws_takes_it(aws: Aws) -> None:
    """Every recommended type has both prices, and the types together a score."""
    arguments = ("recommend", "--model", "llama3-8b", "--json", "--endpoint-url", aws.endpoint)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert len(told["recommended"]) >= 3
    for row in told["recommended"]:
        assert 0 < row["spot_usd"] < row["on_demand_usd"]
        if row["instance_type"] in list_prices().usd:
            assert row["on_demand_usd"] == list_prices().usd[row["instance_type"]]
    assert 1 <= told["placement_scores"]["us-east-1"] <= 10
    assert any("(no network in a test)" in note for note in told["notes"])


def test_a_group_is_compared_at_its_prices(aws: Aws) -> None:
    """Four small ones as Spot cost less than one large one."""
    arguments = (
        "--on-demand",
        "g5.12xlarge",
        "--spot",
        "g5.2xlarge*4",
        "--endpoint-url",
        aws.endpoint,
        "--json",
    )
    result = CliRunner().invoke(app, ("compare", *arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert 0 < told["spot"]["usd_per_hour"] < told["on_demand"]["usd_per_hour"] == 5.672
