"""`spotrelay chaos`."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from spotrelay.operator.cli.app import app
from tests.sim.broken import MISTAKES


def chaos(*arguments: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of the command."""
    result = CliRunner().invoke(app, ["chaos", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_it_says_how_fast_and_what_went_wrong() -> None:
    """Runs per second, and a table of faults by call."""
    code, out, _ = chaos("--seeds", "60")
    assert code == 0
    assert "runs/s" in out
    assert "store.claim_tick" in out
    assert "every rule holds" in out


def test_its_json_has_the_same() -> None:
    """Numbers for programs, and nothing else on standard output."""
    code, out, _ = chaos("--seeds", "60", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["seeds"] == 60
    assert answer["violations"] == []
    assert sum(answer["faults"]["store.services"].values()) > 0


def test_one_seed_is_told_in_words() -> None:
    """`--seed` prints what happened when, a line each, for who hasn't seen the code: no call, no object."""
    code, out, _ = chaos("--seed", "3")
    assert code == 0
    lines = out.splitlines()
    assert "  0:57  EC2 warns of an interruption" in lines
    assert any("replica 1: leaves the rotation and finishes its requests" in line for line in lines)
    assert any(" is ready" in line for line in lines)
    told = lines[:-2]
    assert all(re.match(r" *\d+:\d\d  \w", line) for line in told), told
    assert not [line for line in told if re.search(r"store\.|fleet\.|\w\(\w+=|datetime|<\w", line)]
    assert len(told) < 150


def test_the_calls_are_for_who_asks() -> None:
    """`--verbose` has each, and JSON has both."""
    assert "store.load" in chaos("--seed", "3", "--verbose")[1]
    told = json.loads(chaos("--seed", "3", "--json")[1])
    assert len(told["timeline"]) > len(told["story"]) > 10


def test_a_violation_comes_with_its_seed_and_timeline() -> None:
    """Exit 1, the timeline of the first, how to replay it."""
    broken = next(b for b in MISTAKES if b.name == "deregisters_first")
    with broken.patched():
        code, out, _ = chaos("--seeds", "20")
        assert code == 1
        assert "VIOLATION" in out
        named = re.search(r"spotrelay chaos --seed (\d+)", out)
        assert named
        assert chaos("--seed", named[1])[0] == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--seeds", "0"), "--seeds"), (("--seed", "-1"), "--seed"), (("--replicas", "999"), "--replicas")],
)
def test_wrong_arguments_are_one_line(arguments: tuple[str, ...], named: str) -> None:
    """Exit 2, one line that names the option."""
    code, _, err = chaos(*arguments)
    assert code == 2
    assert named in err
    assert len(err.strip().splitlines()) == 1
