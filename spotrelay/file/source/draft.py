"""A service file on its way to the canonical form."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NoReturn

from spotrelay.file.source.document import Document, Location, field_name
from spotrelay.file.source.errors import InvalidServiceFileError, Problem

SECTION = "spotrelay"
"""The key under which everything stands that SkyServe's format doesn't have."""


class Dialect(StrEnum):
    """Whose words a file is in, which decides what it means by what it doesn't say."""

    SPOTRELAY = "spotrelay"
    """Spot with on-demand as its fallback, `/health` promised."""
    SKYSERVE = "skyserve"
    """On-demand unless it says `use_spot`, then Spot only; nothing promised but the probe."""


@dataclass(slots=True)
class Draft:
    """A canonical form in the making. Locations `at` and `to` are canonical, `origin` is the file's own."""

    document: Document
    """As it was read."""
    dialect: Dialect
    values: dict[str, Any]
    origins: dict[Location, Location] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notices: list[Problem] = field(default_factory=list)
    secret_values: dict[str, str] = field(default_factory=dict, repr=False)

    def get(self, at: Location) -> Any:
        """What is at this place, None if there is nothing."""
        value: Any = self.values
        for step in at:
            value = value.get(step) if isinstance(value, dict) else None
        return value

    def has(self, at: Location) -> bool:
        """Whether the place is there, even if it holds nothing."""
        section = self.get(at[:-1])
        return isinstance(section, dict) and at[-1] in section

    def section(self, name: str) -> dict[str, Any]:
        """A section's fields; none if it isn't there, or isn't a section, which the schema refuses."""
        section = self.values.get(name)
        return section if isinstance(section, dict) else {}

    def pop(self, at: Location) -> Any:
        """Take out what is at this place; None if there is nothing."""
        return self.get(at[:-1]).pop(at[-1]) if self.has(at) else None

    def move(self, origin: Location, to: Location) -> None:
        """Put what the file has at `origin` where the canonical form has it; both at once are a problem."""
        if not self.has(origin):
            return
        if self.has(to):
            there = self.origins.get(to, to)
            self.problem(
                origin, f"says the same as {field_name(there)}, which is here, too: remove one of the two"
            )
            self.pop(origin)
            return
        self.put(to, self.pop(origin), origin)

    def put(self, at: Location, value: Any, origin: Location) -> None:
        """Put a value at a place in the canonical form that comes from `origin` in the file."""
        section = self.values
        for step in at[:-1]:
            if not isinstance(section.get(str(step)), dict):
                if section.get(str(step)) is not None:
                    return  # the schema refuses what is there
                section[str(step)] = {}
            section = section[str(step)]
        section[str(at[-1])] = value
        self.origins[at] = origin

    def problem(self, origin: Location, message: str) -> None:
        """Say what is wrong at a place in the file."""
        self.problems.append(self.document.problem_in_file(origin, message))

    def refuse(self, origin: Location, message: str) -> NoReturn:
        """Say why the whole file can't be a service here: nothing else that is wrong with it matters.

        Raises:
            InvalidServiceFileError: always, with this problem alone.
        """
        raise InvalidServiceFileError([self.document.problem_in_file(origin, message)])

    def note(self, origin: Location, message: str) -> None:
        """Say what is meant otherwise, or done in another way, at a place in the file."""
        self.notices.append(self.document.problem_in_file(origin, message))
