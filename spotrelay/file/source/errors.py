"""What can be wrong with a service file.

ServiceFileError                 every problem found, in `problems`
├── UnreadableServiceFileError   no such file, a directory, no permission, not UTF-8, empty
├── MalformedServiceFileError    not YAML, or YAML of a kind that has no place in a service file
└── InvalidServiceFileError      YAML, but not a service
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LONGEST_WORD = 200
"""Characters in a row that a message shows: more than any field, instance type or address of a page has."""

LONGEST_PATH = 4096
"""Linux opens no longer one, so whoever reads the message can't do so either."""

_SHOWN = 60
"""Characters that are left of what is longer: enough to recognize it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what was expected there, what stands there, and what to do."""

    file: str
    line: int | None
    """Counted from 1; None where the file as a whole is meant."""
    field: str
    """Such as `resources.cpus`; empty where no field is meant."""
    message: str
    column: int | None = None

    def __str__(self) -> str:
        """For a terminal, in one line of which no name takes all: the fields have them in full."""
        file = shortened(self.file, LONGEST_PATH)
        place = ":".join(str(part) for part in (file, self.line, self.column) if part is not None)
        message = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: shortened(word[0]), self.message)
        return ": ".join(part for part in (place, shortened(self.field), message) if part)


def shortened(text: str, longest: int = LONGEST_WORD) -> str:
    """The text, or how it begins."""
    return text if len(text) <= longest else f"{text[:_SHOWN]}…"


class ServiceFileError(Exception):
    """A service file can't be used. Its text is one line per problem, fit to be shown to the user."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UnreadableServiceFileError(ServiceFileError):
    """There is no text to look at."""


class MalformedServiceFileError(ServiceFileError):
    """There is text, but its structure can't be told."""


class InvalidServiceFileError(ServiceFileError):
    """The structure is clear, and fields are unknown, missing, wrong or at odds with each other."""
