"""From pydantic's errors to sentences about the service file."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from spotrelay.file.dialects.dialect import RESOURCES_ADDITIONS, SECTION
from spotrelay.file.dialects.skyserve import SAME
from spotrelay.file.fields.schema import ServiceFile
from spotrelay.file.source.document import Location, field_name
from spotrelay.file.values.candidate import ALTERNATIVES
from spotrelay.file.values.parsing import FINDINGS, Finding
from spotrelay.messages import did_you_mean, shown

_NOT_HERE = {
    "standby_hibernate": "EC2 hibernates no instance type that has an accelerator: a standby is stopped, and"
    " keeps its disk; remove it",
    "launch_template": "a launch template can't be made from another one, and SpotRelay's says all that an"
    " instance is: name what yours says in resources.image_id, resources.disk_size, resources.labels,"
    " spotrelay.security_groups and spotrelay.instance_profile",
    "vpc": "one VPC is for all services: -c vpc_id=vpc-… -c subnets=subnet-…=ZONE,…",
    "subnets": "one VPC is for all services: -c vpc_id=vpc-… -c subnets=subnet-…=ZONE,…",
    "kms_key": "one key is for all services: -c kms_key_arn=arn:aws:kms:…",
}
"""Fields that SpotRelay lacks, with what to do instead."""


def placed(error: ValidationError) -> Iterator[tuple[Location, str]]:
    """Every problem that pydantic found: where in the canonical form, and a sentence."""
    for detail in error.errors(include_url=False):
        yield from _placed(detail)


def _placed(detail: ErrorDetails) -> Iterator[tuple[Location, str]]:
    at: Location = detail["loc"]
    match detail["type"]:
        case "findings":
            findings: tuple[Finding, ...] = detail["ctx"][FINDINGS]
            for finding in findings:
                yield (*at, *finding.at), finding.message
        case "extra_forbidden":
            yield at, _unknown(at)
        case "missing":
            yield at, f"missing: expected {_expected(at)}"
        case _:
            yield at, f"expected {_expected(at)}, got {shown(detail['input'])}"


def _unknown(at: Location) -> str:
    name = str(at[-1])
    section = _model_at(at[:-1])
    known = list(section.model_fields) if section else []
    known += [str(other[len(at) - 1]) for other in SAME.values() if other[: len(at) - 1] == at[:-1]]
    known = list(dict.fromkeys(known))
    if name in _NOT_HERE:
        return f"unknown field: {_NOT_HERE[name]}"
    if hint := did_you_mean(name, known):
        return f"unknown field{hint}"
    public = fields()
    elsewhere = [field_name(place) for place in public if place[-1] == name]
    if elsewhere:
        return f"unknown field here: it belongs at {elsewhere[0]}"
    # An addition of ours, by its older place.
    additions = [str(place[-1]) for place in public if place[0] == SECTION]
    if hint := did_you_mean(name, additions):
        return "unknown field" + hint.replace("mean ", f"mean {SECTION}.")
    return f"unknown field: there are {', '.join(known)}"


def _expected(at: Location) -> str:
    """The description of the field at a location, or of the nearest enclosing one."""
    described = "something else"
    model: type[BaseModel] | None = ServiceFile
    for step in at:
        if isinstance(step, int):
            continue  # one of a list, which the field of the list describes
        field = model.model_fields.get(step) if model else None
        if field is None:
            break
        described = field.description or described
        model = model_of(field)
    return described


def _model_at(at: Location) -> type[BaseModel] | None:
    model: type[BaseModel] | None = ServiceFile
    for step in at:
        if isinstance(step, int):
            continue
        field = model.model_fields.get(step) if model else None
        model = model_of(field) if field else None
    return model


def model_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a section, `X` or `X | None`, or of each in a list of them; None for a plain value."""
    return _model_in(field.annotation)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(part) for part in typing.get_args(annotation))
    return next((model for model in found if model), None)


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """Every section of the canonical form with the way to it. Alternatives repeat one."""
    todo: list[tuple[str, type[BaseModel]]] = [("", ServiceFile)]
    while todo:
        way, model = todo.pop(0)
        yield way, model
        for name, field in model.model_fields.items():
            section = None if name in ALTERNATIVES else model_of(field)
            if section:
                todo.append((f"{way}.{name}".lstrip("."), section))


def fields() -> dict[Location, FieldInfo]:
    """Every field at the place where a file should have it."""
    found: dict[Location, FieldInfo] = {}
    for way, model in sections():
        for name, field in model.model_fields.items():
            section: Location = tuple(way.split(".")) if way else ()
            is_ours = section == ("resources",) and name in RESOURCES_ADDITIONS
            found[(SECTION, name) if is_ours else (*section, name)] = field
    return found
