"""`spotrelay validate --prices` at the local cloud's prices."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotrelay.file.compile.costs import LOOK_BACK, usual
from spotrelay.operator.cli.app import app
from tests.local.conftest import Aws

pytestmark = pytest.mark.xdist_group("local")

FILE = Path(__file__).parents[2] / "services" / "llama3.yaml"


def run(monkeypatch: pytest.MonkeyPatch, aws: Aws, *options: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command, with its user's credentials."""
    key, secret, token = aws.credentials
    for name, value in {
        "AWS_ENDPOINT_URL": aws.endpoint,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_SESSION_TOKEN": token or "",
    }.items():
        monkeypatch.setenv(name, value)
    arguments = ["validate", str(FILE), "--prices", "--region", "us-east-1", *options]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_an_account_whose_quotas_nobody_changed_is_asked_all_the_same(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS's defaults are taken, and Lambda's own word for its concurrency."""
    assert run(monkeypatch, aws, "--account", "--json")[0] == 0


def test_the_costs_are_at_the_accounts_prices(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """List prices and a week of Spot's, for every type and zone; the table says the sums."""
    code, out, err = run(monkeypatch, aws, "--json")
    assert (code, err) == (0, "")
    (service,) = json.loads(out)["services"]
    costs = service["costs"]
    (month,) = costs["months"]
    assert month["on_demand_usd"] == round(2 * 730 * 0.9776, 2)  # g6.2xlarge
    assert 0.2 < month["spot_usd"] / month["on_demand_usd"] < 0.7
    assert month["spot_usd"] < month["spot_dearest_usd"]
    assert costs["pools"] == 33
    assert list(costs["instance_types"]) == [type_["name"] for type_ in service["instance_types"]]
    code, out, err = run(monkeypatch, aws)
    assert (code, err) == (0, "")
    told = " ".join(out.replace("│", " ").split())  # unwrapped
    sums = re.search(r"2 replicas: on-demand 1,427 USD, with Spot usually ([\d,]+) USD", told)
    assert sums is not None, told
    # The week goes on between two commands, and with it the median.
    assert float(sums[1].replace(",", "")) == pytest.approx(month["spot_usd"], rel=0.1)
    assert "11 in each zone; 33 with a Spot price in us-east-1" in told


def test_a_price_is_of_the_last_week_and_of_types_that_run_there(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is the median of the changes that EC2 tells; an alternative for another region isn't asked about."""
    file = tmp_path / "chat.yaml"
    ways = "any_of: [{accelerators: L4, region: us-east-1}, {accelerators: T4, region: us-west-2}]"
    resources = f"resources: {{{ways}, cpus: 4, ports: 80}}"
    text = f"{{service: {{replicas: 1}}, {resources}, spotrelay: {{}}, run: serve}}"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr("tests.local.test_validate.FILE", file)
    code, out, err = run(monkeypatch, aws, "--json")
    assert code == 0, err
    costs = json.loads(out)["services"][0]["costs"]
    assert list(costs["instance_types"]) == ["g6.xlarge"]
    now = datetime.fromisoformat(costs["at"])
    rows = aws.ec2.describe_spot_price_history(
        InstanceTypes=["g6.xlarge"],
        AvailabilityZone="us-east-1a",
        ProductDescriptions=["Linux/UNIX"],
        StartTime=now - LOOK_BACK,
    )["SpotPriceHistory"]
    assert len(rows) > 10
    changes = [(row["Timestamp"], float(row["SpotPrice"])) for row in rows]
    assert costs["instance_types"]["g6.xlarge"]["spot_usd"]["us-east-1a"] == usual(changes, now)


def test_who_may_not_ask_for_prices_sees_the_rest(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names the permissions, and the exit code is 3: nothing is wrong with the file."""
    code, out, err = run(monkeypatch, aws.assume(), "--json")
    assert code == 3
    assert len(err.splitlines()) == 1
    assert "needs the permissions pricing:GetProducts and ec2:DescribeSpotPriceHistory" in err
    (service,) = json.loads(out)["services"]
    assert service["costs"] is None
    assert service["quotas"]
