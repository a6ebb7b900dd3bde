"""Two dialects, and the one form in which the rest of the code reads a service file.

A file is in SpotRelay's words or in SkyServe's. `canonical` turns either into the form that
`spotrelay.service.schema` describes, and remembers for each place of that form where the file has it, so that
every message names the user's own field, line and column.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from spotrelay.service.document import Document, Location, field_name
from spotrelay.service.errors import Problem

SECTION = "spotrelay"
"""The key under which everything stands that SkyServe's format doesn't have."""

SERVICE_ADDITIONS = (
    "health_check",
    "drain_seconds",
    "on_warning",
    "base_on_demand",
    "on_demand_fallback",
    "on_rebalance",
    "surge",
    "max_launches_per_minute",
    "idle_timeout_seconds",
)
"""Fields under `spotrelay` whose older place, still valid, is `service`."""

RESOURCES_ADDITIONS = (
    "accelerator_memory",
    "instance_types",
    "exclude",
    "zones",
    "regions",
    "max_price",
    "disk_initialization_rate",
    "image",
    "root_device",
)
"""Fields under `spotrelay` whose older place, still valid, is `resources`. In the canonical form they stand
there, because everything that an instance must have is one model."""

_PARAMETER = re.compile(r"/[^/\s]+/\S+")
"""What a secret that names an SSM parameter looks like."""


class Dialect(StrEnum):
    """Whose words a file is in, which decides what it means by what it doesn't say."""

    SPOTRELAY = "spotrelay"
    """Spot with on-demand as its fallback, `/health` promised."""
    SKYSERVE = "skyserve"
    """On-demand unless it says `use_spot`, then Spot only; nothing promised but the probe."""


@dataclass(frozen=True, slots=True)
class Canonical:
    """A file in the one form."""

    document: Document
    dialect: Dialect
    problems: tuple[Problem, ...] = ()
    """What is at odds with itself between the two."""
    notices: tuple[Problem, ...] = ()
    """What is meant otherwise here than in SkyServe, or is done in another way."""


def dialect_of(values: Mapping[str, Any]) -> Dialect:
    """The dialect of a file with these values."""
    own = (
        SECTION in values
        or any(name in _section(values, "service") for name in SERVICE_ADDITIONS)
        or any(name in _section(values, "resources") for name in RESOURCES_ADDITIONS)
        or any(
            isinstance(secret, str) and _PARAMETER.fullmatch(secret)
            for secret in _section(values, "secrets").values()
        )
    )
    return Dialect.SPOTRELAY if own else Dialect.SKYSERVE


def canonical(document: Document) -> Canonical:
    """The file in the form that the schema describes."""
    draft = Draft(document, copy.deepcopy(document.values))
    for canonical_place, other in _moved():
        draft.move(other, canonical_place)
    return Canonical(
        replace(document, values=draft.values, origins=draft.origins),
        dialect_of(document.values),
        tuple(draft.problems),
        tuple(draft.notices),
    )


def places_of(name: str) -> tuple[Location, ...]:
    """Every place at which a file may have one of our additions, the preferred one first."""
    older = [(section, name) for section, names in _ADDITIONS.items() if name in names]
    return ((SECTION, name), *older)


@dataclass(slots=True)
class Draft:
    """A canonical form in the making."""

    document: Document
    """As it was read."""
    values: dict[str, Any]
    origins: dict[Location, Location] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notices: list[Problem] = field(default_factory=list)

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

    def move(self, origin: Location, to: Location) -> None:
        """Put what the file has at `origin` where the canonical form has it; both at once are a problem."""
        if not self.has(origin):
            # A message about the field still names it as a file should have it, wherever it isn't written.
            if to[0] != SECTION and not self.has(to):
                self.origins.setdefault(to, origin)
            return
        if self.has(to):
            there = self.origins.get(to, to)
            message = f"says the same as {field_name(there)}, which is here, too: remove one of the two"
            self.problems.append(self.document.problem_in_file(origin, message))
            del self.get(origin[:-1])[origin[-1]]
            return
        self.put(to, self.get(origin[:-1]).pop(origin[-1]), origin)

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

    def note(self, at: Location, message: str) -> None:
        """Say what is meant otherwise, or done in another way, at a place in the file."""
        self.notices.append(self.document.problem_in_file(at, message))


_ADDITIONS = {"service": SERVICE_ADDITIONS, "resources": RESOURCES_ADDITIONS}


def _moved() -> Iterator[tuple[Location, Location]]:
    """Canonical place, and the other one at which a file may have it."""
    yield from (((SECTION, name), ("service", name)) for name in SERVICE_ADDITIONS)
    yield from ((("resources", name), (SECTION, name)) for name in RESOURCES_ADDITIONS)


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name)
    return section if isinstance(section, dict) else {}
