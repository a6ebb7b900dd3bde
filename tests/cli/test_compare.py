"""`spotrelay compare`, as an operator meets it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotrelay.operator.cli.app import app


@pytest.fixture(autouse=True)
def prices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Made-up prices, and a made-up copy of the advisor's file."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    advised = {"g6e.xlarge": {"s": 60, "r": 2}, "g5.2xlarge": {"s": 60, "r": 4}}
    (tmp_path / "spotrelay").mkdir()
    (tmp_path / "spotrelay" / "spot-advisor-data.json").write_text(
        json.dumps({"spot_advisor": {"us-east-1": {"Linux": advised}}}), encoding="utf-8"
    )
    file = tmp_path / "prices.json"
    known = {
        "p4d.24xlarge": {"on_demand_usd": 20.0},
        "g6e.xlarge": {"on_demand_usd": 1.9, "spot_usd": 0.75},
        "g5.2xlarge": {"spot_usd": 3.0},
    }
    file.write_text(json.dumps(known), encoding="utf-8")
    return file


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ("compare", *arguments, "--offline"), catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


PAIR = ("--on-demand", "p4d.24xlarge", "--spot", "g6e.xlarge*8", "--region", "us-east-1")


def test_both_are_shown_side_by_side(prices: Path) -> None:
    """8 x 0.75 = 6 USD an hour beside 20: 70 % less. 8 x 72/720 x 10 to 15 % are 0.08 to 0.12
    interruptions."""
    code, out, err = run(*PAIR, "--prices", str(prices), "--hours", "72")
    assert (code, err) == (0, "")
    rows = {line[:24].strip(): line[24:].split() for line in out.splitlines()}
    assert rows["GPU memory, GiB"] == ["320", "358"]
    assert rows["BF16, dense TFLOP/s"] == ["2,496", "2,896"]
    assert rows["memory bandwidth, GB/s"] == ["12,440", "6,912"]
    assert rows["USD an hour"] == ["20.00", "6.00"]
    assert rows["USD a month"] == ["14,600.00", "4,380.00"]
    assert rows["USD for 72 hours"] == ["1,440.00", "432.00"]
    assert "The group costs 70% less." in out
    assert "600 GB/s between any two GPUs become 0.312 GB/s" in out
    assert "Interrupted: 10-15% of such instances in 30 days: 0.08 to 0.12 times in 72 hours." in out
    # Half of 30 minutes and 10 more, 0.12 times.
    assert "Lost to that: 0.05 hours of the whole group at most." in out


def test_a_group_that_costs_more_is_told_so(prices: Path) -> None:
    """And that the advisor's top range has no end."""
    code, out, _ = run("--on-demand", "p4d.24xlarge", "--spot", "g5.2xlarge*8", "--prices", str(prices))
    assert code == 0
    assert "The group costs 20% more." in out
    assert ">20% of such instances in 30 days, and AWS doesn't say how many more" in out
    assert "Lost to that" not in out


def test_what_is_unknown_is_not_made_up() -> None:
    """Neither a price nor a rate nor a range."""
    code, out, _ = run("--on-demand", "g7.24xlarge", "--spot", "g7.2xlarge*4", "--region", "eu-west-1")
    assert code == 0
    rows = {line[:24].strip(): line[24:].split() for line in out.splitlines()}
    assert rows["memory bandwidth, GB/s"] == ["?", "?"]
    assert rows["USD an hour"] == ["?", "?"]
    assert "How often the group would be interrupted is unknown." in out
    assert "g7.24xlarge isn't offered in eu-west-1, but in " in out


def test_as_json(prices: Path) -> None:
    """The same figures."""
    told = json.loads(run(*PAIR, "--prices", str(prices), "--json")[1])
    assert (told["on_demand"]["usd_per_hour"], told["spot"]["usd_per_hour"]) == (20.0, 6.0)
    assert told["spot"]["gpus"] == 8
    assert told["interrupted"] == "10-15%"
    assert told["hours_lost_at_most"] > 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--on-demand", "p4d.24xlarg", "--spot", "g5.xlarge"), "(did you mean p4d.24xlarge?)"),
        (("--on-demand", "p4d.24xlarge", "--spot", "g5.xlarge*0"), "--spot: expected a type such as"),
        (("--on-demand", "p4d.24xlarge", "--spot", "g5.xlarge*9999"), "at most 1000"),
        (("--on-demand", "p4d.24xlarge", "--spot", "eight"), "--spot: no instance type is called 'eight'"),
        (("--on-demand", "m7i.large", "--spot", "g5.xlarge"), "--on-demand: m7i.large has no whole GPU"),
        (("--on-demand", "g6f.xlarge", "--spot", "g5.xlarge"), "--on-demand: g6f.xlarge has no whole GPU"),
        ((*PAIR, "--precision", "bf61"), "(did you mean bf16?)"),
        (
            ("--on-demand", "g5.xlarge", "--spot", "g5.xlarge", "--region", "us-east"),
            "(did you mean us-east-",
        ),
    ],
)
def test_bad_input_is_one_line_with_the_remedy(arguments: tuple[str, ...], expected: str) -> None:
    """Exit code 2."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


def test_a_list_price_stands_in_in_its_own_region_only(prices: Path) -> None:
    """On-demand's of the copy; nothing elsewhere, where prices differ."""
    own = json.loads(run(*PAIR, "--json")[1])
    assert own["on_demand"]["usd_per_hour"] == pytest.approx(21.957642)
    assert own["spot"]["usd_per_hour"] is None
    elsewhere = json.loads(run(*PAIR[:-1], "us-west-2", "--json")[1])
    assert elsewhere["on_demand"]["usd_per_hour"] is None
