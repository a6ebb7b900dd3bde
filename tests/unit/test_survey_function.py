"""The survey's entry point: what it does with each event, and that neither of its halves needs the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import pytest

from lambdas import survey
from spotrelay.plane.aws.dead_letters import MeasuredQueue
from tests.unit.invocations import Context

EVENT = {"source": "aws.events", "detail-type": "Scheduled Event"}


@dataclass
class Half:
    """Surveying, or the ledger."""

    problem: str = ""
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Note it, and fail if this half should."""
        self.events.append(event)
        if self.problem:
            raise ValueError(self.problem)


def halves(monkeypatch: pytest.MonkeyPatch, surveying: Half, ledger: Half) -> None:
    """Put them in place of the function's own."""
    monkeypatch.setattr(survey, "surveying", lambda: surveying)
    monkeypatch.setattr(survey, "ledger", lambda: ledger)
    monkeypatch.setattr(survey, "dead_letters", lambda: Mock(MeasuredQueue))


def test_days_are_written_though_a_survey_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One service that can't be surveyed costs no other its days, and the failure is told all the same."""
    surveying, ledger = Half("no price for chat"), Half()
    halves(monkeypatch, surveying, ledger)
    with pytest.raises(ValueError, match="no price for chat"):
        survey.handler(EVENT, Context())  # type: ignore[arg-type]
    assert surveying.events == ledger.events == [EVENT]


def test_both_are_done_and_failures_of_days_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambda tries again what fails."""
    halves(monkeypatch, Half(), Half())
    survey.handler(EVENT, Context())  # type: ignore[arg-type]
    halves(monkeypatch, Half(), Half("no row"))
    with pytest.raises(ValueError, match="no row"):
        survey.handler(EVENT, Context())  # type: ignore[arg-type]
