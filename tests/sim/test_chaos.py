"""`spotrelay chaos`."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from spotrelay.cli.app import app
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


def test_one_seed_is_replayed_with_its_timeline() -> None:
    """`--seed` prints what happened when, line by line."""
    code, out, _ = chaos("--seed", "3")
    assert code == 0
    assert "store.load" in out
    assert json.loads(chaos("--seed", "3", "--json")[1])["timeline"]


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
