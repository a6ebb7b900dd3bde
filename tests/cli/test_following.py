"""How a deployment is followed: each service is told how far it got, however slowly they are read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from spotrelay.operator.cli import deploying
from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.telling import Teller
from spotrelay.operator.look.progress import Progress
from spotrelay.plane.core.ports import Throttled

NOW = datetime(2026, 11, 28, 8, tzinfo=UTC)

READ_S = 9.0
"""What one reading takes: a machine that is as busy as this was seen in CI."""


class Reader:
    """Rows that take a while to read, and can't be read at times."""

    def __init__(self, fails: Iterator[bool]) -> None:
        self.now_s = 0.0
        self._fails = fails

    def rows(self, plane: object, service: str, *_: object, **__: object) -> str:
        """The service's name, in the place of its rows."""
        self.now_s += READ_S
        if next(self._fails):
            raise Throttled("the table is busy")
        return service

    def sleep(self, seconds: float) -> None:
        """No time passes but on this clock."""
        self.now_s += seconds


def _follow(monkeypatch: pytest.MonkeyPatch, reader: Reader, lasts_s: float) -> list[deploying.Reached]:
    monkeypatch.setattr(deploying, "rows", reader.rows)
    monkeypatch.setattr(
        deploying,
        "progress",
        lambda service, _: Progress(
            service, 1, (), 0, 1, 0, 0, 0, is_done=False, stopped="", waits_for=f"{service} starts"
        ),
    )
    monkeypatch.setattr("time.sleep", reader.sleep)
    monkeypatch.setattr("time.monotonic", lambda: reader.now_s)
    anything: Any = None
    teller = Teller()
    limit = deploying.Limit.of(lasts_s)
    following = deploying.Following(anything, teller, limit, NOW, lambda found: found.service)
    return following.until_done(["a", "b"])


def _always(fails: bool) -> Iterator[bool]:
    while True:
        yield fails


def test_time_that_runs_out_between_two_readings_hides_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first was read in time, the second wasn't: both are told what they wait for."""
    reached = _follow(monkeypatch, Reader(_always(fails=False)), lasts_s=1.5 * READ_S)
    assert [one.progress.service for one in reached] == ["a", "b"]
    assert all(f"{one.progress.service} starts" in one.why_not for one in reached)


def test_what_was_read_before_is_told_if_the_last_reading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is busy at the end doesn't undo what was seen."""

    def fails() -> Iterator[bool]:
        yield from (False, False)
        yield from _always(fails=True)

    reached = _follow(monkeypatch, Reader(fails()), lasts_s=2.5 * READ_S)
    assert [one.progress.service for one in reached] == ["a", "b"]


def test_what_could_never_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names of those services, and the time that was given."""
    with pytest.raises(CommandError, match="a, b: nothing could be read within") as failure:
        _follow(monkeypatch, Reader(_always(fails=True)), lasts_s=2.5 * READ_S)
    assert failure.value.exit_code == EXIT_FAILED
