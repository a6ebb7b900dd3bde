"""The questions of one service's survey: what AWS doesn't answer is missing, and doesn't go unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from spotrelay.plane.core.mending import Finding, FindingKind
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import Denied, PortError, Telemetry

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks, and keeps what a person must mend."""

    service: str
    telemetry: Telemetry
    findings: list[Finding] = field(default_factory=list)

    def ask(self, what: str, question: Callable[[], T]) -> T | None:
        """The answer; None where AWS refuses one or gives none, which is counted and on record."""
        try:
            return question()
        except Denied as error:
            self.telemetry.count(Metric.SURVEY_REFUSED)
            self.found(FindingKind.SURVEY_REFUSED, f"{what}: {error}", asked_for=what, error=str(error))
        except PortError as error:
            self.unanswered(what, repr(error))
        return None

    def unanswered(self, what: str, error: str) -> None:
        """AWS gave no answer, or one that says nothing: the next survey asks again."""
        self.telemetry.count(Metric.SURVEY_UNANSWERED)
        self.telemetry.record("survey_unanswered", service=self.service, asked_for=what, error=error)

    def found(self, finding: FindingKind, words: str, **facts: object) -> None:
        """Something that a person must mend; `facts` are for this survey's log, `words` for each tick's."""
        self.telemetry.record(str(finding), service=self.service, **facts)
        self.findings.append(Finding(finding, words))
