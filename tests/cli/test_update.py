"""What `spotrelay update` says at its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import typer

from spotrelay.operator.cli import deploying, update
from spotrelay.operator.cli.errors import EXIT_FAILED
from spotrelay.operator.look.progress import Progress
from tests.examples import demo_spec


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        (8, ""),
        (9, "v8 isn't what runs. v9 was deployed meanwhile"),
        (7, "v8 isn't what runs. v7 runs: an operator went back to it"),
    ],
)
def test_it_fails_if_another_version_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: int, told: str
) -> None:
    """All are there and of one version, and not of the one that it has deployed."""
    made = Progress("demo", runs, (), 3, 3, 3, 0, 0, is_done=True, stopped="", waits_for="")
    following = SimpleNamespace(until_done=lambda _: [deploying.Reached(made, 9.0, "")])
    monkeypatch.setattr(deploying, "Following", lambda *_: following)
    ends: list[tuple[str, dict[str, Any]]] = []
    teller: Any = SimpleNamespace(end=lambda text, facts: ends.append((text, facts)))
    anything: Any = None
    code = 0
    try:
        update.follow(anything, demo_spec(), teller, anything, anything, 8)
    except typer.Exit as left:
        code = left.exit_code
    assert code == (EXIT_FAILED if told else 0)
    assert told in capsys.readouterr().err
    ((text, facts),) = ends
    assert (bool(text), facts["why_not"]) == (not told, told or None)
