"""A recorded load, and how many replicas each rule gives it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab.replay.load import LoadError, compare, read, replay
from spotrelay.operator.cli.app import app
from spotrelay.plane.core.scaling import Scaling

SCALING = Scaling(min_replicas=1, max_replicas=4, target_qps_per_replica=2.0)


def written(directory: Path, text: str) -> Path:
    """A file with this content."""
    path = directory / "load.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_second_by_second(tmp_path: Path) -> None:
    """With or without a heading; the last row says when it ends."""
    expected = [1.0, 1.0, 0.5, 0.5, 0.5]
    assert read(written(tmp_path, "seconds,requests\n10,1\n12,0.5\n15,0\n")) == expected
    assert read(written(tmp_path, "# a comment\n0,1\n\n2,0.5\n5,9\n")) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least two rows"),
        ("0,1\n", "at least two rows"),
        ("0,1\n5,x\n", "expected two numbers"),
        ("0,1\n5,1,2\n", "expected two numbers"),
        ("5,1\n5,1\n", "seconds that rise"),
        ("0,1\n5,-1\n", "seconds that rise"),
        ("0,1\n5,nan\n", "seconds that rise"),
        ("0,1\ninf,1\n", "seconds that rise"),
        ("0,1\n1e12,1\n", "seconds that rise"),
    ],
)
def test_what_is_no_load(tmp_path: Path, text: str, said: str) -> None:
    """The file, and what is wrong with it."""
    with pytest.raises(LoadError, match=said):
        read(written(tmp_path, text))


def test_a_fixed_number_that_is_enough_lets_nobody_wait() -> None:
    """Nor does it reject anybody; its cost is the number."""
    outcome = replay("fixed", lambda *_: 2, [4.0] * 600, 2.0, 60)
    assert (outcome.rejected, outcome.waited_s, outcome.cost, outcome.changes) == (0, 0, 2, 0)


def test_too_few_let_requests_wait() -> None:
    """One of two that are needed: after 100 s with twice its rate, 200 requests wait for another 100 s."""
    outcome = replay("fixed", lambda *_: 1, [4.0] * 100 + [0.0] * 100, 2.0, 60)
    assert outcome.waited_most_s == 100
    assert outcome.waited_s == pytest.approx(50, rel=0.02)


def test_none_reject_all_until_one_is_up() -> None:
    """From none at 100 s, up after a minute more: 160 of 400 requests found nobody."""
    outcome = replay("late", lambda at, _: int(at >= 100), [1.0] * 400, 2.0, 60)
    assert outcome.rejected == pytest.approx(0.4)


def test_both_rules_follow_a_step_after_their_delays() -> None:
    """Up to four and back to one once each; CloudWatch's delay makes ours later by two minutes at most."""
    load = [1.0] * 1800 + [7.9] * 3600 + [1.0] * 3600
    outcomes = {outcome.rule: outcome for outcome in compare(load, SCALING, 60)}
    for rule in ("spotrelay", "skyserve"):
        assert (outcomes[rule].most, outcomes[rule].changes) == (4, 2)
    added_s = abs(outcomes["spotrelay"].cost - outcomes["skyserve"].cost) * len(load)
    assert added_s <= 3 * 180
    assert outcomes["fixed 4"].waited_s == 0
    assert outcomes["fixed 2"].waited_s > outcomes["spotrelay"].waited_s


def test_skyserve_counts_decisions_in_a_row() -> None:
    """A minute without load in between, and it begins anew: then it is never scaled up."""
    load = ([8.0] * 200 + [0.0] * 200) * 10
    outcomes = {outcome.rule: outcome for outcome in compare(load, SCALING, 60)}
    assert outcomes["skyserve"].changes == 0
    assert outcomes["spotrelay"].changes == 0


def test_the_command(tmp_path: Path) -> None:
    """It needs no market; as a table and as JSON."""
    path = written(tmp_path, "0,1\n600,9\n4000,0\n")
    arguments = ["replay", "--load", str(path), "--scaling", "0,4,2"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "skyserve" in done.output
    done = CliRunner().invoke(app, [*arguments, "--json", "--cold-start", "30", "--cold-start", "90"])
    assert [(row["rule"], row["cold_start_s"]) for row in json.loads(done.stdout)] == [
        (rule, cold) for cold in (30, 90) for rule in ("spotrelay", "skyserve", "fixed 4")
    ]


@pytest.mark.parametrize("scaling", ["1,2", "2,1,1", "1,2,0", "1,2,x", "1,2,3,4", "1,2,3,4,-5", "1,2000,3"])
def test_a_scaling_that_makes_no_sense(tmp_path: Path, scaling: str) -> None:
    """One line, and what to give instead."""
    path = written(tmp_path, "0,1\n60,0\n")
    done = CliRunner().invoke(app, ["replay", "--load", str(path), "--scaling", scaling])
    assert done.exit_code == 2
    assert "--scaling must be MIN,MAX,QPS" in done.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Its name, in one line."""
    done = CliRunner().invoke(app, ["replay", "--load", str(tmp_path / "none.csv")])
    assert done.exit_code == 2
    assert "can't be read" in done.output
