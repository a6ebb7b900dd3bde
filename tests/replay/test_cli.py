"""`spotrelay replay`, as an operator meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab.replay.run import POLICIES
from spotrelay.operator.cli.app import app

from .recordings import pool_json, price, price_history, three_zones

ROOT = Path(__file__).parents[2]

QUICK = ("--policy", "optimal", "--policy", "asg", "--regions", "all")
"""Policies that take no time, on a recording as a whole."""


def replay(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def said(*arguments: object) -> str:
    """The one line that is said about a wrong command."""
    code, out, err = replay(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("spotrelay replay: ")
    assert err.count("\n") == 1
    return err.removeprefix("spotrelay replay: ").rstrip("\n")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A recording."""
    return three_zones(tmp_path / "traces")


def test_json_is_a_list_of_one_entry_per_policy_and_nothing_else(traces: Path) -> None:
    """The keys that programs rely on; standard error stays silent where it is no terminal."""
    code, out, err = replay(traces, *QUICK, "--json")
    assert (code, err) == (0, "")
    optimal, asg = json.loads(out)
    assert (optimal["policy"], asg["policy"]) == ("optimal", "asg")
    assert set(asg) >= {
        *("trace", "policy", "cold_start_s", "warning_s", "replicas", "on_warning", "drain_s"),
        *("availability", "in_rotation", "zero_s_per_30d", "zero_outages", "zero_longest_s"),
        *("mean_ready", "cost", "optimal_cost", "losses_per_day", "launches", "refusals", "gaps_s"),
        *("simulated_days", "wall_s", "time_at_strength"),
    }
    assert set(asg["gaps_s"]) == {"p50", "p99", "max"}
    assert (asg["trace"], asg["cold_start_s"], asg["warning_s"], asg["replicas"]) == ("traces", 120, 120, 3)
    assert asg["simulated_days"] == 2
    assert optimal["cost"] == pytest.approx(1 / 3)


def test_the_number_of_standbys_may_be_left_to_the_controller(traces: Path) -> None:
    """Then the entry says what it came to, and why; a word that is no number is refused."""
    policy: tuple[object, ...] = ("--policy", "spotrelay", "--regions", "all", "--cold-start", 60)
    code, out, _ = replay(traces, *policy, "--standby", "auto", "--json")
    (entry,) = json.loads(out)
    assert (code, entry["standby"]) == (0, "auto")
    (found,) = entry["standbys_found"]
    assert found["standbys"] == 0
    assert "starts take up to" in found["reason"]
    code, _, err = replay(traces, *policy, "--standby", "many")
    assert (code, err) == (2, "spotrelay replay: --standby must be auto or a whole number, not 'many'\n")
    code, out, _ = replay(traces, *policy, "--standby", "auto")
    assert code == 0
    assert "auto standbys" in out


def test_moves_need_prices_that_differ(traces: Path) -> None:
    """The share reaches the run and its results, and where there is nothing to move for the error says so."""
    moving = ("--policy", "spotrelay", "--regions", "all", "--rebalance-cost", "20%")
    code, out, _ = replay(traces, *moving, "--prices", "made-up:1", "--json")
    assert (code, {entry["rebalance_cost"] for entry in json.loads(out)}) == (0, {0.2})
    _, out, _ = replay(traces, *moving, "--prices", "made-up:1")
    assert "moving for 20% less" in out
    code, _, err = replay(traces, *moving)
    wrong = "--rebalance-cost 20% moves nothing where prices are equal: give --prices, too"
    assert (code, err) == (2, f"spotrelay replay: {wrong}\n")
    code, _, err = replay(traces, "--rebalance-cost", "0.2", "--prices", "made-up:1")
    assert (code, err) == (2, "spotrelay replay: --rebalance-cost must be a share such as 20%, not '0.2'\n")
    code, _, err = replay(traces, "--rebalance-cost", "95%", "--prices", "made-up:1")
    assert (code, err) == (2, "spotrelay replay: rebalance cost is 0.95: give a share from 0.05 to 0.9\n")


def test_options_reach_the_run(traces: Path) -> None:
    """Each number is what was asked for; a repeated cold start is run once."""
    options: tuple[object, ...] = ("--replicas", 2, "--warning", 60, "--warning-loss", 0.5, "--seed", 9)
    options += ("--od-price-ratio", 4, "--on-warning", "serve_on", "--drain", 45)
    options += ("--regions", "all", "--on-demand-dry", 0.25)
    options += ("--recommendations", 0.5, "--false-recommendations", 0.75, "--on-rebalance", "replace")
    cold_starts = ("--cold-start", 90, "--cold-start", 300, "--cold-start", 90.0)
    code, out, _ = replay(traces, "--policy", "asg", *options, *cold_starts, "--json")
    entries = json.loads(out)
    assert code == 0
    assert [entry["cold_start_s"] for entry in entries] == [90, 300]
    assert all(
        (e["replicas"], e["warning_s"], e["warning_loss"], e["od_price_ratio"], e["seed"])
        == (2, 60, 0.5, 4, 9)
        and (e["on_warning"], e["drain_s"], e["on_demand_dry"]) == ("serve_on", 45, 0.25)
        and (e["recommendations"], e["false_recommendations"], e["on_rebalance"]) == (0.5, 0.75, "replace")
        for e in entries
    )


def test_several_recordings_are_replayed_one_after_the_other(traces: Path, tmp_path: Path) -> None:
    """Folders of the same name are told apart by their path; a made-up market comes last."""
    other = three_zones(tmp_path / "other" / "traces")
    code, out, _ = replay(
        *(traces, other, "--synthetic", "--policy", "optimal", "--regions", "all", "--json")
    )
    assert code == 0
    assert [entry["trace"] for entry in json.loads(out)] == [str(traces), str(other), "synthetic-0"]


@pytest.mark.parametrize(
    ("regions", "names"),
    [
        ((), ["traces", "traces/us-east-1", "traces/us-west-2"]),
        (("--regions", "both"), ["traces", "traces/us-east-1", "traces/us-west-2"]),
        (("--regions", "one"), ["traces/us-east-1", "traces/us-west-2"]),
        (("--regions", "all"), ["traces"]),
    ],
)
def test_a_recording_of_several_regions_is_shown_as_a_whole_and_by_region(
    traces: Path, regions: tuple[str, ...], names: list[str]
) -> None:
    """A deployment has one region: unless told otherwise, each has a row of its own beside the whole."""
    code, out, _ = replay(traces, "--policy", "optimal", *regions, "--json")
    assert code == 0
    assert [entry["trace"] for entry in json.loads(out)] == names


def test_a_recording_of_one_region_is_the_same_either_way(tmp_path: Path) -> None:
    """There is nothing to take apart: same name, same figures, whatever is asked."""
    traces = pool_json(tmp_path / "mine", "us-east-1a_v100_1.json", [4] * 50 + [0] * 50).parent
    shown = []
    for regions in ("one", "all", "both"):
        _, out, _ = replay(traces, "--policy", "asg", "--regions", regions, "--json")
        shown.append([{**entry, "wall_s": 0} for entry in json.loads(out)])
    assert shown[0] == shown[1] == shown[2]
    assert [entry["trace"] for entry in shown[0]] == ["mine"]


def test_tables_show_what_happened_and_notes(tmp_path: Path) -> None:
    """Without --json a table of policies, one of strengths, and what must be known of the trace."""
    traces = three_zones(tmp_path / "traces")
    pool_json(traces, "us-west-2b_v100_1.json", [4] * 500)
    code, out, _ = replay(traces, *QUICK)
    assert code == 0
    assert "files of unequal length: the common prefix of 41.7 h is replayed" in out
    assert "optimal" in out
    assert "Share of time by number of ready replicas" in out


def test_prices_reach_the_run_and_the_results_say_which(traces: Path, tmp_path: Path) -> None:
    """Equal, recorded, or made up of a seed; an answer may come in several files."""
    east, west = (
        price_history(
            tmp_path / f"{zone}.json",
            price(zone, "2020-01-01T00:00:00Z", usd),
            price(zone, "2020-01-09T00:00:00Z", usd),
        )
        for zone, usd in (("us-east-1a", "1.0"), ("us-west-2a", "3.0"))
    )
    for arguments, kind in (
        ((), "equal"),
        (("--prices", "made-up", "--seed", 3), "made-up:3"),
        (("--prices", "made-up:7"), "made-up:7"),
        (("--prices", east, "--prices", west), "recorded"),
    ):
        code, out, _ = replay(traces, *QUICK, *arguments, "--json")
        assert code == 0
        assert {entry["prices"] for entry in json.loads(out)} == {kind}
    # us-east-1b has us-east-1a's; 1.8 is the mean, and two of three replicas fit into the cheap pools.
    assert json.loads(out)[0]["cost"] == pytest.approx(0.2, abs=0.03)
    _, out, _ = replay(traces, *QUICK, "--prices", "made-up:7")
    assert "3 capacity pools in 2 regions, made-up Spot prices (seed 7)" in out
    assert "  Spot prices are a model: made up (seed 7); pools are up to" in out


def test_files_are_written_where_they_are_wanted(traces: Path, tmp_path: Path) -> None:
    """--out makes its folder and writes JSON, tables and a picture; --plot draws in its suffix's format; both
    are named at the end."""
    out, plot = tmp_path / "a" / "b", tmp_path / "plot.svg"
    code, printed, err = replay(traces, *QUICK, "--out", out, "--plot", plot, "--json")
    assert code == 0
    assert err == f"Written: {plot}, {out / 'replay.json'}, {out / 'replay.txt'}, {out / 'replay.png'}\n"
    assert (out / "replay.json").read_text(encoding="utf-8") == printed
    assert "us-east" not in printed
    assert "losses" in (out / "replay.txt").read_text(encoding="utf-8")
    assert (out / "replay.png").read_bytes().startswith(b"\x89PNG")
    assert plot.read_text(encoding="utf-8").startswith("<?xml")


def test_progress_is_shown_where_it_is_wanted(traces: Path) -> None:
    """On standard error, so that standard output stays what it is."""
    code, out, err = replay(traces, *QUICK, "--json", "--progress")
    assert code == 0
    assert json.loads(out)
    assert "traces, 120 s: asg" in err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--policy", "spothege"), "--policy 'spothege' is unknown (did you mean spothedge?): give one of"),
        (("--policy", "x"), f"--policy 'x' is unknown: give one of {', '.join(POLICIES)}"),
        (("--cold-start", 0), "cold start is 0: give more than 0 seconds"),
        (("--cold-start", -5), "cold start is -5: give more than 0 seconds"),
        (("--cold-start", "soon"), "--cold-start must be a number, not 'soon'"),
        (("--cold-start", "nan"), "cold start is nan"),
        (("--cold-start", 10_000_000), "measuring begins after"),
        (("--replicas", 0), "--replicas must be from 1 to 1000, not 0"),
        (("--replicas", 10**9), "--replicas must be from 1 to 1000, not 1000000000"),
        (("--replicas", 2.5), "--replicas must be a whole number, not '2.5'"),
        (("--od-price-ratio", 0), "on-demand price ratio is 0: give more than 0"),
        (("--od-price-ratio", "inf"), "on-demand price ratio is inf"),
        (("--warning", -1), "warning is -1"),
        (("--warning-loss", 1.5), "warning loss is 1.5: give a share from 0 to 1"),
        (("--on-demand-dry", 1.5), "on-demand dry is 1.5: give a share from 0 to 1"),
        (("--on-demand-dry", -0.1), "on-demand dry is -0.1: give a share from 0 to 1"),
        (("--on-demand-dry", "never"), "--on-demand-dry must be a number, not 'never'"),
        (("--regions", "each"), "--regions 'each' is unknown: give one of one, all, both"),
        (("--warning-loss", -0.1), "warning loss is -0.1: give a share from 0 to 1"),
        (
            ("--on-warning", "serve-on"),
            "--on-warning 'serve-on' is unknown (did you mean serve_on?): give one of needed, ",
        ),
        (("--on-rebalance", "replaced"), "--on-rebalance 'replaced' is unknown (did you mean replace?)"),
        (("--recommendations", "some"), "--recommendations must be a number, not 'some'"),
        (("--on-warning", ""), "--on-warning '' is unknown: give one of needed, serve_on, leave"),
        (("--drain", -1), "drain is -1: give 0 seconds or more"),
        (("--drain", "inf"), "drain is inf: give 0 seconds or more"),
        (("--drain", "short"), "--drain must be a number, not 'short'"),
        (("--seed", -1), "--seed must be 0 or more, not -1"),
        (("--seed", "x"), "--seed must be a whole number, not 'x'"),
        (
            ("--plot", "plot.pdf"),
            "--plot plot.pdf: the name must end in .png or .svg, which decides the format",
        ),
        (("--prices", "none"), "none: no such file or folder: check the path"),
        (("--prices", "made-up:x"), "--prices made-up:SEED must be a whole number, not 'x'"),
        (
            ("--prices", "made-up", "--prices", "none"),
            "--prices made-up can't be combined with other prices: give either",
        ),
        (
            ("--prices", "made-up", "--od-price-ratio", 1),
            "on-demand price ratio is 1, but Spot in ",
        ),
        (("--plot", "plot"), "--plot plot: the name must end in .png or .svg"),
        (("--plot", "none/plot.png"), "--plot none/plot.png: can't be written: make that folder first"),
    ],
)
def test_options_that_make_no_sense(traces: Path, arguments: tuple[object, ...], line: str) -> None:
    """One line that names the option and what to give instead, exit 2, before anything is run."""
    assert line in said(traces, *arguments)


def test_a_folder_in_the_way_of_a_plot_or_a_file_in_that_of_a_folder(traces: Path, tmp_path: Path) -> None:
    """What can't be written is said, before the run where that can be known."""
    (tmp_path / "dir.png").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "can't be written: give a file's name" in said(traces, "--plot", tmp_path / "dir.png")
    assert "give another folder" in said(traces, "--out", tmp_path / "file")
    (tmp_path / "out" / "replay.json").mkdir(parents=True)
    line = said(traces, *QUICK, "--out", tmp_path / "out")
    assert line == f"{tmp_path / 'out' / 'replay.json'}: Is a directory: give another place to write to"


def test_nothing_to_replay() -> None:
    """Neither traces nor --synthetic."""
    assert said() == "there is nothing to replay: give a folder of traces, or --synthetic"


def test_a_trace_that_is_none(tmp_path: Path) -> None:
    """The reader's line, as it is; markup in a name is no markup."""
    folder = tmp_path / "[red]"
    pool_json(folder, "us-east-1a_v100_1.json", [1, -1])
    assert said(folder).startswith(f"{folder}/us-east-1a_v100_1.json: data[1] must be a whole number")


def test_without_matplotlib_a_plot_is_refused_and_all_else_works(traces: Path) -> None:
    """Drawing needs a package that nothing else needs, and only then is it looked for."""
    code = (
        "import sys; sys.modules['matplotlib'] = None; from spotrelay.operator.cli import main; "
        f"sys.argv = ['spotrelay', 'replay', {str(traces)!r}, '--policy', 'optimal', *sys.argv[1:]]; main()"
    )
    for arguments, exit_code, line in (
        (["--json"], 0, ""),
        (
            ["--plot", "x.png"],
            2,
            "spotrelay replay: matplotlib is not installed: run make setup\n",
        ),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={**os.environ, "NO_COLOR": "1"},
        )
        assert (done.returncode, done.stderr) == (exit_code, line)
