"""`spotrelay recommend`, as an operator meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from spotrelay.file.catalog import list_prices
from spotrelay.file.service import load
from spotrelay.operator.advice.interruptions import Band
from spotrelay.operator.cli import spot_advisor
from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.spot_advisor import FILE, Advisor, advisor
from spotrelay.plane.aws.prices import Prices
from spotrelay.plane.aws.scores import Scores
from spotrelay.plane.core.pools import CapacityPool
from spotrelay.plane.core.ports import Denied

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)

ADVISED = b'{"spot_advisor": {"us-east-1": {"Linux": {"g5.2xlarge": {"s": 61, "r": 4}}}}}'


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cache, no configuration and no credentials but what a test makes, and no network."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("urllib.request.urlopen", unreachable)


def unreachable(*_: Any, **__: Any) -> Any:
    """What a machine without a network does."""
    raise urllib.error.URLError("no route to host")


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ("recommend", *arguments), catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


OFFLINE = ("--offline", "--region", "us-east-1")


def test_offline_it_answers_with_reasons() -> None:
    """What is needed, the order, why, why not, pools, and what isn't known."""
    code, out, err = run("--model", "llama3-8b", *OFFLINE)
    assert (code, err) == (0, "")
    assert out.startswith("It needs 18.9 GiB of GPU memory, and 17+ GiB of the host's:\n  weights 15.0 GiB")
    assert " 1  g5.2xlarge " in out
    date = list_prices().origin.date
    assert f"of tokens: at on-demand's list price in us-east-1 on {date}." in out
    assert "ON-DEMAND  M TOKENS/USD <=" in out
    assert "SPOT USD/h" not in out
    assert "2, 4 or 8 GPUs, of which 1 would be used." in out
    assert "62 capacity pools in us-east-1" in out
    assert f"Prices: not asked. On-demand's come with SpotRelay: those of us-east-1 on {date}" in out
    assert "they only give an order" not in out
    assert "Spot Instance Advisor: not asked, and there is no kept copy." in out


def test_offline_nothing_is_asked_and_boto3_is_not_loaded(tmp_path: Path) -> None:
    """An answer needs neither AWS nor the second that its client takes to load."""
    program = (
        "import sys, socket, typer; socket.socket.connect = None\n"
        "from spotrelay.operator.cli.recommend import recommend\n"
        "app = typer.Typer(); app.command()(recommend)\n"
        "app(['--model', 'llama3-8b', '--offline'], standalone_mode=False)\n"
        "print(sorted({'boto3', 'botocore', 'moto'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_json_is_one_document() -> None:
    """With the notes."""
    code, out, err = run("--params", "8B", "--json", *OFFLINE)
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert told["recommended"][0]["instance_type"] == "g5.2xlarge"
    assert told["notes"][0].startswith("Prices: not asked")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "how large is the model? Say --model NAME, --params N or --model-memory SIZE"),
        (["--model", "llama3-8b", "--params", "8B"], "--model and --params say the same: leave one"),
        (["--model", "lama3-8b"], "--model: no model is called 'lama3-8b' (did you mean llama3-8b?)"),
        (["--params", "8B", "--precision", "bf61"], "no precision is called 'bf61' (did you mean bf16?)"),
        (["--params", "8B", "--phase", "decoding"], "no phase is called 'decoding' (did you mean decode?)"),
        (["--params", "8B", "--interconnect", "nvlnk"], "(did you mean nvlink?)"),
        (["--params", "8B", "--rank", "cost"], "--rank: no ranking is called 'cost': there are price, speed"),
        (["--params", "8B", "--arch", "arm"], "no architecture is called 'arm' (did you mean arm64?)"),
        (["--params", "8 billion"], "--params: expected a number of parameters such as 8B or 350M"),
        (["--params", "0"], "--params: expected a number"),
        (["--params", "-8B"], "--params: expected a number"),
        (["--params", "9" * 400 + "B"], "--params: expected a number"),
        (["--params", "8B", "--active-params", "9B"], "--active-params: 9B is more than the model has"),
        (["--model-memory", "24"], "--model-memory: expected a size such as 24GiB or 24GB, got '24'"),
        (["--model-memory", "0GiB"], "--model-memory: expected a size"),
        (["--model-memory", "24GiB", "--attention", "1x1x1"], "leave out --attention"),
        (["--params", "8B", "--attention", "32x8"], "--attention: expected LAYERSxKV_HEADSxHEAD_DIM"),
        (["--params", "8B", "--vcpus", "many"], "--vcpus: expected a number (8: exactly) or 8+ (at least)"),
        (["--params", "8B", "--memory", "0"], "--memory: expected GiB"),
        (
            ["--params", "8B", "--budget", "cheap"],
            "--budget: expected USD an hour such as 1.5/h, got 'cheap'",
        ),
        (["--params", "8B", "--budget", "0"], "--budget: expected USD"),
        (["--params", "8B", "--region", "us-east1"], "(did you mean us-east-1?)"),
        (["--params", "8B", "--prices", "/nowhere.json"], "--prices: /nowhere.json: "),
    ],
)
def test_bad_input_is_one_line_with_the_remedy(arguments: list[str], expected: str) -> None:
    """Exit code 2, nothing on standard output, and the nearest name where there is one."""
    code, out, err = run(*arguments, "--offline")
    assert (code, out) == (2, "")
    assert err.startswith("spotrelay recommend: ")
    assert expected in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "no object"),
        ("{", "Expecting property name"),
        ('{"g5.2xlarg": {}}', "no instance type is called 'g5.2xlarg' (did you mean g5.2xlarge?)"),
        ('{"g5.2xlarge": 1.2}', "g5.2xlarge: expected on_demand_usd and spot_usd in USD an hour, got 1.2"),
        ('{"g5.2xlarge": {"usd": 1.2}}', "g5.2xlarge: expected on_demand_usd and spot_usd"),
        ('{"g5.2xlarge": {"spot_usd": -1}}', "g5.2xlarge: expected on_demand_usd and spot_usd"),
        ('{"g5.2xlarge": {"spot_usd": true}}', "g5.2xlarge: expected on_demand_usd and spot_usd"),
        ('{"g5.2xlarge": {"spot_usd": NaN}}', "g5.2xlarge: expected on_demand_usd and spot_usd"),
    ],
)
def test_a_price_file_that_says_something_else_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    """With the type that it is about."""
    file = tmp_path / "prices.json"
    file.write_text(text, encoding="utf-8")
    code, _, err = run("--params", "8B", "--prices", str(file), *OFFLINE)
    assert code == 2
    assert f"--prices: {file}: " in err
    assert expected in err


def test_given_prices_are_shown_and_rank(tmp_path: Path) -> None:
    """Offline, too."""
    file = tmp_path / "prices.json"
    file.write_text('{"g6.2xlarge": {"on_demand_usd": 0.98, "spot_usd": 0.1}}', encoding="utf-8")
    code, out, _ = run("--model", "llama3-8b", "--prices", str(file), *OFFLINE)
    assert code == 0
    assert "Ranked by what a USD buys at most" in out
    assert "M TOKENS/USD <=" in out
    assert out.split("\n 1  ")[1].startswith("g6.2xlarge")
    assert "Prices: given with --prices." in out


def test_where_nothing_fits_it_says_what_would() -> None:
    """Exit code 1; with a smaller precision it fits, and so it says."""
    code, out, err = run("--params", "2000B", *OFFLINE)
    assert (code, err) == (1, "")
    assert "Nothing fits in us-east-1." in out
    assert "What would: with --precision int4: B200:8, B300:8." in out
    assert "even 8 H100 have 640.0 GiB." in out
    code, out, _ = run("--params", "2000B", "--json", *OFFLINE)
    told = json.loads(out)
    assert code == 1
    assert told["recommended"] == []
    assert told["what_would_fit"] == ["with --precision int4: B200:8, B300:8"]


def test_where_not_even_less_would_fit_it_says_so() -> None:
    """100 T are too much for any instance."""
    code, out, _ = run("--params", "100T", *OFFLINE)
    assert code == 1
    assert "this takes more than one instance" in out


def test_without_a_region_it_says_which_one_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's, or the one that has most types."""
    assert "no region is named: this is about us-east-1" in run("--params", "8B", "--offline")[1]
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert "capacity pools in eu-central-1" in run("--params", "8B", "--offline")[1]
    monkeypatch.setenv("AWS_DEFAULT_REGION", "mars-1")
    assert "mars-1 has no type with a GPU in the catalog" in run("--params", "8B", "--offline")[1]


def test_in_another_region_the_copys_prices_only_give_an_order() -> None:
    """They aren't shown as its own, and no budget is held against them; in their own region one is."""
    asked = ("--model", "llama3-8b", "--budget", "1/h", "--offline")
    out = run(*asked, "--region", "eu-central-1")[1]
    assert "IN us-east-1  M TOKENS/USD <=" in out
    assert "ON-DEMAND" not in out
    assert "Those of eu-central-1 differ: here they only give an order." in out
    assert "The budget couldn't be applied: no price in eu-central-1 is known." in out
    assert " 1  g5.2xlarge " in out
    own = run(*asked, *OFFLINE)[1]
    assert "The budget couldn't be applied" not in own
    assert "1.212 USD an hour, where the budget is 1." in own
    both = run(*asked, "--region", "eu-central-1", "--region", "us-east-1")[1]
    assert "1.212 USD an hour, where the budget is 1." in both, "a type counts where its price is known"
    assert "CHEAPEST IN" not in both


def test_a_budget_without_prices_is_told(tmp_path: Path) -> None:
    """It can't be applied."""
    file = tmp_path / "prices.json"
    file.write_text('{"p5.48xlarge": {"spot_usd": 1}}', encoding="utf-8")
    asked = ("--params", "8B", "--budget", "1/h", "--prices", str(file), *OFFLINE)
    assert "The budget couldn't be applied" in run(*asked)[1]


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """AWS as it answers: prices of three types, a score; what was asked is noted."""
    asked: dict[str, Any] = {"listed": []}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    listed = {"g5.2xlarge": 1.212, "g6.2xlarge": 0.978, "g6e.2xlarge": 2.242}

    def spot(_: Prices, region: str, types: Any, now: datetime) -> dict[CapacityPool, float]:
        asked["spot"] = set(types)
        pools = {("a", 0.6), ("b", 0.5)}
        return {CapacityPool(region, f"{region}{zone}", "g5.2xlarge"): usd for zone, usd in pools}

    def on_demand(_: Prices, region: str, name: str) -> float | None:
        asked["listed"].append(name)
        return listed.get(name)

    def by_region(_: Scores, regions: Any, types: Any) -> dict[str, int]:
        asked["score"] = (list(regions), list(types))
        return {"us-east-1": 7}

    monkeypatch.setattr(Prices, "spot", spot)
    monkeypatch.setattr(Prices, "on_demand", on_demand)
    monkeypatch.setattr(Scores, "by_region", by_region)
    monkeypatch.setattr(spot_advisor, "downloaded", lambda: ADVISED)
    return asked


def test_prices_scores_and_interruptions_are_aws_own(aws: dict[str, Any]) -> None:
    """The cheapest zone's Spot price, the list price, the score of the recommended types together."""
    code, out, err = run("--model", "llama3-8b")
    assert (code, err) == (0, "")
    (best,) = [line for line in out.splitlines() if line.startswith(" 1  ")]
    assert best.split()[1:3] == ["g5.2xlarge", "A10G:1"]
    assert best.split()[8:10] == ["0.500", "1.212"]
    assert best.split()[11:] == [">20%", "61%"]
    assert "Prices in us-east-1: AWS's price list, and EC2's Spot price history of now." in out
    assert "Placement score of these types together, 1 to 10, as of now: us-east-1 7." in out
    assert aws["spot"] == set(aws["listed"])
    assert "g5.2xlarge" in aws["spot"]
    assert "g4dn.2xlarge" not in aws["spot"], "it doesn't fit"
    regions, types = aws["score"]
    assert regions == ["us-east-1"]
    assert types[0] == "g5.2xlarge"


def test_without_credentials_the_rest_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, the answer as offline, and why there are no prices."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    code, out, err = run("--model", "llama3-8b")
    assert (code, err) == (3, "")
    assert " 1  g5.2xlarge" in out
    assert "Prices in us-east-1: unknown; no AWS credentials" in out
    assert "On-demand's come with SpotRelay: those of us-east-1 on " in out
    assert "at on-demand's list price in us-east-1 on " in out
    assert "Placement score" not in out


def test_a_missing_permission_is_named(aws: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Spot prices that came before are shown all the same, beside the copy's on-demand prices."""

    def refuse(*_: Any) -> float:
        answer: Any = {"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}
        raise Denied("not authorized") from ClientError(answer, "GetProducts")

    monkeypatch.setattr(Prices, "on_demand", refuse)
    code, out, _ = run("--model", "llama3-8b")
    assert code == 3
    assert "unknown; you may not do pricing:GetProducts: " in out
    (best,) = [line for line in out.splitlines() if line.startswith(" 1  ")]
    assert best.split()[8:10] == ["0.500", "1.212"]
    assert "at Spot's price where it is known, and on-demand's list price in us-east-1 on " in out


def test_a_score_that_is_denied_is_no_end(aws: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one line of many."""

    def refuse(*_: Any) -> dict[str, int]:
        raise Denied("not authorized to perform: ec2:GetSpotPlacementScores")

    monkeypatch.setattr(Scores, "by_region", refuse)
    code, out, _ = run("--model", "llama3-8b")
    assert code == 0
    assert "Placement score: unknown; " in out


def test_of_two_types_no_score_is_asked_for(aws: dict[str, Any]) -> None:
    """It would always be low: 1100 B in FP8 fit on p6-b200 and p6-b300 only."""
    code, out, _ = run("--params", "1100B", "--precision", "fp8")
    assert code == 0
    assert "score" not in aws
    assert "Placement score: not asked, with fewer than 3 types it is always low." in out


class Told:
    """A download that is counted, and answers with this."""

    def __init__(self, answer: bytes | Exception) -> None:
        self._answer, self.times = answer, 0

    def __call__(self) -> bytes:
        """The file."""
        self.times += 1
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def kept(directory: Path, text: bytes, age: timedelta) -> None:
    """A copy in the cache of that age."""
    file = directory / FILE
    file.write_bytes(text)
    at = (NOW - age).timestamp()
    os.utime(file, (at, at))


BANDS = {("us-east-1", "g5.2xlarge"): Band(4, 61)}


def test_the_advisors_file_is_read_once_a_day(tmp_path: Path) -> None:
    """Then the kept copy does, and its age is told."""
    download = Told(ADVISED)
    first = advisor(NOW, directory=tmp_path / "new", download=download)
    assert first.bands == BANDS
    assert first.note.startswith("Spot Instance Advisor: read now from https://spot-bid-advisor.s3")
    kept(tmp_path / "new", ADVISED, timedelta(hours=5))
    assert "5 h old" in advisor(NOW, directory=tmp_path / "new", download=download).note
    assert download.times == 1
    kept(tmp_path / "new", ADVISED, timedelta(hours=25))
    advisor(NOW, directory=tmp_path / "new", download=download)
    assert download.times == 2


@pytest.mark.parametrize("answer", [urllib.error.URLError("no route"), TimeoutError("too slow"), b"<html>"])
def test_an_advisor_that_cannot_be_read_is_told(answer: bytes | Exception, tmp_path: Path) -> None:
    """A kept copy is shown with its age, however old; without one, nothing is."""
    download = Told(answer)
    nothing = advisor(NOW, directory=tmp_path, download=download)
    assert nothing.bands == {}
    assert "how often EC2 takes instances back isn't shown" in nothing.note
    kept(tmp_path, ADVISED, timedelta(days=12))
    old = advisor(NOW, directory=tmp_path, download=download)
    assert old.bands == BANDS
    assert "can't be read (" in old.note
    assert "shown as it was, 12 days old" in old.note


def test_a_broken_copy_counts_as_none(tmp_path: Path) -> None:
    """It is read anew."""
    kept(tmp_path, b"{", timedelta())
    assert advisor(NOW, directory=tmp_path, download=Told(ADVISED)).bands == BANDS
    kept(tmp_path, b"{", timedelta())
    assert advisor(NOW, is_offline=True, directory=tmp_path).bands == {}


def test_offline_the_advisor_is_not_asked(tmp_path: Path) -> None:
    """An old copy is shown, with its age."""
    download = Told(ADVISED)
    kept(tmp_path, ADVISED, timedelta(days=3))
    found = advisor(NOW, is_offline=True, directory=tmp_path, download=download)
    assert (found.bands, download.times) == (BANDS, 0)
    assert "3 days old" in found.note


def test_a_cache_that_cannot_be_written_is_no_reason_to_say_nothing(tmp_path: Path) -> None:
    """What was read is shown."""
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    found = advisor(NOW, directory=tmp_path / "file" / "cache", download=Told(ADVISED))
    assert found.bands == BANDS
    assert isinstance(found, Advisor)


def written(tmp_path: Path, text: str | None, *arguments: str) -> tuple[Path, int, str, str]:
    """A file after `--write`."""
    file = tmp_path / "chat.yaml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    return (file, *run("--model", "llama3-8b", "--write", str(file), *arguments, *OFFLINE))


def test_a_new_file_validates_and_runs_on_what_was_recommended(tmp_path: Path) -> None:
    """The same types, no more and no less."""
    file, code, out, _ = written(tmp_path, None, "--vcpus", "8+")
    assert code == 0
    assert f"Written to {file}: new, accelerators [A10G:1, L40S:1, L4:1, RTX-PRO-4500:1]" in out
    _, told, _ = run("--model", "llama3-8b", "--vcpus", "8+", "--json", *OFFLINE)
    recommended = {row["instance_type"] for row in json.loads(told)["recommended"]}
    service = load(file)
    assert set(service.instance_type_names) == recommended
    assert service.use_spot
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "cache"] == ["chat.yaml"]


FILE_OF_MINE = """\
# Mine.
service:
  replicas: 3
  readiness_probe: /health

spotrelay:
  exclude: [g5.xlarge]   # too small

resources:
  accelerators: {T4}     # to begin with
  ports: 8081

run: |
  exec python3 server.py
"""


def test_a_file_keeps_what_it_says_besides(tmp_path: Path) -> None:
    """Comments, order and everything else; types excluded by hand stay out."""
    file, code, _, _ = written(tmp_path, FILE_OF_MINE)
    text = file.read_text(encoding="utf-8")
    assert code == 0
    assert text.startswith("# Mine.\nservice:\n  replicas: 3\n")
    assert "accelerators: [A10G:1, L40S:1, L4:1, RTX-PRO-4500:1]" in text
    assert "exclude: [g5.xlarge, " in text
    assert text.endswith("run: |\n  exec python3 server.py\n")
    assert "memory: 17+" in text
    assert load(file).replicas == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FILE_OF_MINE.replace("{T4}", "[T4"), "can't be read"),
        ("- a list\n", "is no service file"),
        (
            FILE_OF_MINE.replace("accelerators: {T4}", "instance_types: [g5.2xlarge]"),
            "resources.instance_types",
        ),
        (
            FILE_OF_MINE.replace("accelerators: {T4}", "any_of: [{accelerators: L4}]"),
            "resources.any_of chooses",
        ),
        (
            FILE_OF_MINE.replace("replicas: 3", "replicas: many"),
            "nothing was written, the file wouldn't validate",
        ),
        (
            FILE_OF_MINE.replace(
                "resources:\n  accelerators: {T4}     # to begin with\n  ports: 8081\n", "resources: 5\n"
            ),
            "no section",
        ),
    ],
)
def test_a_file_that_would_not_validate_is_left_as_it_was(text: str, expected: str, tmp_path: Path) -> None:
    """Exit code 2, the reason in one line, and no other file beside it."""
    file, code, out, err = written(tmp_path, text)
    assert code == 2
    assert expected in err
    assert err.count("\n") == 1
    assert file.read_text(encoding="utf-8") == text
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "cache"] == ["chat.yaml"]
    assert out == ""


def test_a_file_in_skyserves_words_gets_no_section_of_ours(tmp_path: Path) -> None:
    """It would change what the rest of the file means."""
    sky = (
        "service: {replicas: 2, readiness_probe: /health}\n"
        "resources: {ports: 8081, use_spot: true}\n"
        "run: exec true\n"
    )
    file, code, _, _ = written(tmp_path, sky)
    assert code == 0
    assert "spotrelay" not in file.read_text(encoding="utf-8")
    assert load(file).is_skyserve


def test_where_it_cannot_be_written_that_is_told(tmp_path: Path) -> None:
    """A directory that isn't there."""
    code, out, err = run("--model", "llama3-8b", "--write", str(tmp_path / "no" / "chat.yaml"), *OFFLINE)
    assert (code, out) == (2, "")
    assert "chat.yaml can't be written" in err
