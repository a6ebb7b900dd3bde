"""Two dialects, and the one form in which the rest of the code reads a service file.

A file is in SpotRelay's format or in SkyServe's. `canonical` turns either into the form that
`spotrelay.file.fields.schema` describes, and remembers for each place of that form where the file has it, so
that every message names the user's own field, line and column.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spotrelay.file.dialects import skyserve, substitution
from spotrelay.file.source import environment
from spotrelay.file.source.document import Document, Location
from spotrelay.file.source.draft import SECTION as SECTION
from spotrelay.file.source.draft import Dialect as Dialect
from spotrelay.file.source.draft import Draft
from spotrelay.file.source.errors import Problem
from spotrelay.file.source.inputs import NOTHING, Inputs

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


@dataclass(frozen=True, slots=True)
class Canonical:
    """A file in the one form."""

    document: Document
    dialect: Dialect
    problems: tuple[Problem, ...] = ()
    """What is at odds with itself between the two."""
    notices: tuple[Problem, ...] = ()
    """What is meant otherwise here than in SkyServe, or is done in another way."""
    secret_values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of the secrets that stand in the file in the clear."""


def dialect_of(values: Mapping[str, Any]) -> Dialect:
    """The dialect of a file with these values."""
    own = (
        SECTION in values
        or any(name in _section(values, "service") for name in SERVICE_ADDITIONS)
        or any(name in _section(values, "resources") for name in RESOURCES_ADDITIONS)
        or any(
            isinstance(secret, str) and re.fullmatch(environment.PARAMETER_NAME, secret)
            for secret in _section(values, "secrets").values()
        )
    )
    return Dialect.SPOTRELAY if own else Dialect.SKYSERVE


def canonical(document: Document, inputs: Inputs = NOTHING) -> Canonical:
    """The file in the form that the schema describes.

    Raises:
        InvalidServiceFileError: it can't be a service at all.
    """
    draft = Draft(document, dialect_of(document.values), copy.deepcopy(document.values))
    for place, other in moved():
        draft.move(other, place)
    for name in RESOURCES_ADDITIONS:
        # A message about a field that isn't written names the place where it should be.
        if not draft.has(("resources", name)):
            draft.origins[("resources", name)] = (SECTION, name)
    skyserve.translate(draft)
    environment.fill(draft, inputs)
    substitution.substitute(draft)
    return Canonical(
        replace(document, values=draft.values, origins=draft.origins),
        draft.dialect,
        tuple(draft.problems),
        tuple(draft.notices),
        draft.secret_values,
    )


def moved() -> Iterator[tuple[Location, Location]]:
    """Canonical place, and another one at which a file may have it."""
    yield from (((SECTION, name), ("service", name)) for name in SERVICE_ADDITIONS)
    yield from ((("resources", name), (SECTION, name)) for name in RESOURCES_ADDITIONS)
    yield from skyserve.SAME.items()


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name)
    return section if isinstance(section, dict) else {}
