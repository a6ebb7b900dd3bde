"""All problems of a file at once: what is wrong is set aside, and the rest is looked at again.

Whether fields suit one another can be asked only once each of them can be read. So one field that can't be
read would hide everything that is wrong with the others' combination.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spotrelay.file.compile import wording
from spotrelay.file.dialects.dialect import Canonical
from spotrelay.file.fields.schema import ServiceFile
from spotrelay.file.source.document import Location
from spotrelay.file.source.errors import Problem

MAX_ROUNDS = 10
"""Each sets something aside; a file that needs more is wrong enough."""

_STAND_INS: dict[Location, Any] = {
    ("run",): "true",
    ("service",): {},
    ("resources",): {"accelerators": "A10G", "ports": 8080},
    ("resources", "accelerators"): "A10G",
    ("resources", "ports"): 8080,
    ("service", "replica_policy", "min_replicas"): 1,
    ("service", "replica_policy", "target_qps_per_replica"): 1,
}
"""What takes the place of a required field that is missing or wrong."""

_CHOICE: tuple[Location, ...] = (
    ("resources", "accelerators"),
    ("resources", "gpus"),
    ("resources", "accelerator_memory"),
    ("resources", "instance_types"),
    ("resources", "instance_type"),
    ("resources", "any_of"),
    ("resources", "ordered"),
    ("resources", "cpus"),
    ("resources", "memory"),
    ("resources", "infra"),
    ("resources", "image_id"),
)
"""What decides on the instance types."""

_DEPENDS: dict[Location, tuple[Location, ...]] = {
    ("resources",): _CHOICE,
    ("spotrelay", "standby"): (
        ("service",),
        ("resources", "use_spot"),
        ("spotrelay", "on_demand_fallback"),
        ("spotrelay", "base_on_demand"),
    ),
    ("spotrelay", "base_on_demand"): (("service",),),
    ("spotrelay", "rebalance_cost"): (
        ("service",),
        ("resources", "use_spot"),
        ("spotrelay", "base_on_demand"),
    ),
    ("spotrelay", "move_on_score"): (
        *_CHOICE,
        ("service",),
        ("resources", "use_spot"),
        ("resources", "zones"),
        ("spotrelay", "base_on_demand"),
    ),
    ("spotrelay", "health_check"): (("service", "readiness_probe"),),
    ("spotrelay", "standby_instance_types"): _CHOICE,
    ("spotrelay", "standby_zones"): (("resources", "zones"), ("resources", "regions")),
    ("setup",): (("spotrelay", "standby"),),
}
"""Where a later round finds something → what it may come of, if that was set aside."""


def validated(found: Canonical, places: Sequence[Path]) -> tuple[ServiceFile | None, list[Problem]]:
    """The file, or every problem that it has. `places`: where relative paths are looked for, in order."""
    values = copy.deepcopy(found.document.values)
    problems: list[Problem] = []
    told: list[Location] = []
    for _ in range(MAX_ROUNDS):
        try:
            file = ServiceFile.model_validate(values, context={"dialect": found.dialect, "places": places})
        except ValidationError as error:
            new = list(wording.placed(error))
            fresh = [(at, message) for at, message in new if not _comes_of(at, told)]
            problems += (found.document.problem(at, message) for at, message in fresh)
            told += (at for at, _ in fresh)
            done = [_set_aside(values, at) for at, _ in new]
            if not all(done):
                break
        else:
            return (None if problems else file), problems
    return None, problems


def _comes_of(at: Location, told: list[Location]) -> bool:
    """Whether a problem is one that was told, or may be there only because of it."""
    if any(_is_within(at, other) or _is_within(other, at) for other in told):
        return True
    causes = [cause for place, places in _DEPENDS.items() if _is_within(at, place) for cause in places]
    return any(_is_within(other, cause) for other in told for cause in causes)


def _is_within(at: Location, place: Location) -> bool:
    return at[: len(place)] == place


def _set_aside(values: dict[str, Any], at: Location) -> bool:
    """Take the field out, or put something in its place that is right. False if nothing can be done."""
    for length in range(len(at), 0, -1):
        place = at[:length]
        section: Any = values
        for step in place[:-1]:
            section = section.get(step) if isinstance(section, dict) else None
        if not isinstance(section, dict):
            continue
        name = str(place[-1])
        if place in _STAND_INS and section.get(name) != _STAND_INS[place]:
            section[name] = copy.deepcopy(_STAND_INS[place])
            return True
        if name in section:
            del section[name]
            return True
    return False
