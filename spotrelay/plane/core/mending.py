"""What a person must mend in the account: nothing that is asked again heals it, and nothing is taken away."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingKind(StrEnum):
    """What kind of thing it is, by the word that the log has for it. The runbook has a part for each."""

    DENIED = "denied"
    """A call that AWS refuses whenever it is repeated."""
    SURVEY_REFUSED = "survey_refused"
    """A question of a survey that AWS refuses to answer."""
    QUOTA_SHORT = "quota_short"
    """A quota that is too small for a service's replicas."""
    IMAGE_GONE = "image_gone"
    """An image that nothing can be launched from any more."""
    SURVEY_SILENT = "survey_silent"
    """A service that no survey has seen for hours, or whose days nobody has written."""
    LATE_LEAVE = "late_leave"
    """A warned replica that no look at who must leave took out of rotation in time."""


WORDS = (*FindingKind, "Denied")
"""What the log is searched for: each kind, and what a refusal is called where a step does without it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to mend, and what a person needs to know of it."""

    kind: FindingKind
    words: str
