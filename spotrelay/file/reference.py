"""The table of all fields in docs/service-file.md, and the JSON schema of a service file, from the models.

`python -m spotrelay.file.reference` writes both anew.
"""

from __future__ import annotations

import json
import tomllib
import types
import typing
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import annotated_types
from pydantic.fields import FieldInfo

from spotrelay.file.compile.wording import fields, model_of
from spotrelay.file.dialects.dialect import moved
from spotrelay.file.source.document import Location, field_name
from spotrelay.file.source.draft import SECTION

BEGIN, END = "<!-- fields: generated -->", "<!-- end of the fields -->"

SCHEMA_FILE = "service-file.schema.json"
"""Beside this module, so that a wheel has it."""

_SECTIONS: tuple[Location, ...] = (("service",), ("resources",), (SECTION,))

_ROOT = Path(__file__).parents[2]


class Entry(NamedTuple):
    """One field, for people."""

    default: str
    meaning: str
    skyserve: str
    """What SkyServe does; empty: it has no such field."""


@cache
def entries() -> dict[str, Entry]:
    """Every field at the place where a file should have it.

    Raises:
        KeyError: reference.toml lacks one.
    """
    written = tomllib.loads(files(__package__).joinpath("reference.toml").read_text(encoding="utf-8"))
    found = {}
    for place, field in fields().items():
        if place in _SECTIONS:
            continue
        said = written[field_name(place)]
        found[field_name(place)] = Entry(
            said.get("default", _default(field)), said["meaning"], said.get("skyserve", "")
        )
    return found


def table() -> str:
    """The table of docs/service-file.md."""
    rows = ["| field | default | meaning | in SkyServe |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {entry.default} | {entry.meaning} | {entry.skyserve} |"
        for name, entry in entries().items()
    ]
    return "\n".join(rows)


def json_schema() -> dict[str, Any]:
    """A JSON Schema by which editors complete and check a service file.

    It is a little more permissive than `spotrelay validate`: what depends on several fields isn't in it.
    """
    all_fields = fields()
    required = [str(at[0]) for at, field in all_fields.items() if len(at) == 1 and field.is_required()]
    root: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SpotRelay service file",
        **_object(),
        "required": required,
    }
    for place, field in all_fields.items():
        _section(root, place[:-1])[str(place[-1])] = _of(place, field)
    for canonical, other in moved():
        target = (SECTION, str(canonical[-1]))
        older = next((p for p in (canonical, other) if p != target), other)
        said = _of(target, all_fields[target])
        # SkyServe's own words are as good as ours; a new file should have none of our older places.
        if len(older) == 2:
            said["deprecated"] = True
        said["description"] = f"The same as {field_name(target)}. {said['description']}"
        _section(root, older[:-1])[str(older[-1])] = said
    return root


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default
    return f"`{str(default).lower()}`" if isinstance(default, bool | int | str) and default != "" else "none"


def _object() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _section(root: dict[str, Any], at: Location) -> dict[str, Any]:
    """The properties of the section at this place."""
    schema = root
    for step in at:
        schema = schema["properties"][str(step)]
        schema = schema.get("items", schema)
        # A probe may be a path, too: its fields are in the second of two.
        schema = next((one for one in schema.get("anyOf", ()) if one.get("type") == "object"), schema)
    properties: dict[str, Any] = schema["properties"]
    return properties


def _of(place: Location, field: FieldInfo) -> dict[str, Any]:
    entry = entries().get(field_name(place))
    described = entry.meaning if entry else field.description or ""
    if model_of(field) and typing.get_origin(field.annotation) is list:
        return {"description": described, "type": "array", "items": _object()}
    if model_of(field):
        return {"description": described, "anyOf": [_object(), {"type": _OTHERWISE.get(place, "null")}]}
    schema: dict[str, Any] = {"description": described}
    is_custom = any(type(item).__name__ == "BeforeValidator" for item in field.metadata)
    if not is_custom:
        schema |= _type(field.annotation)
        for item in field.metadata:
            schema |= _limit(item)
    default = field.get_default()
    if isinstance(default, bool | int | str) and default != "" and not field.is_required():
        schema["default"] = str(default) if isinstance(default, StrEnum) else default
    return schema


_OTHERWISE: dict[Location, str] = {
    ("service", "readiness_probe"): "string",
    (SECTION, "instance_profile"): "string",
}
"""What a section may be instead; else nothing, where all that is in it is commented out."""


def _type(annotation: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        kinds = [_type(one) for one in arguments]
        return {} if {} in kinds else {"anyOf": kinds}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return {"enum": [str(member) for member in annotation]}
    if origin is list:
        return {"type": "array", "items": _type(arguments[0])}
    simple = {int: "integer", str: "string", bool: "boolean", float: "number", types.NoneType: "null"}
    return {"type": simple[annotation]} if annotation in simple else {}


def _limit(item: Any) -> dict[str, Any]:
    match item:
        case annotated_types.Ge(ge=value):
            return {"minimum": value}
        case annotated_types.Le(le=value):
            return {"maximum": value}
        case annotated_types.MinLen(min_length=value):
            return {"minItems": value}
        case annotated_types.MaxLen(max_length=value):
            return {"maxItems": value}
        case _:
            return {"pattern": pattern} if (pattern := getattr(item, "pattern", None)) else {}


def schema_text() -> str:
    """The schema as its file has it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def with_table(document: str) -> str:
    """docs/service-file.md with the present table."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    """Write the table and the schema."""
    document = _ROOT / "docs" / "service-file.md"
    document.write_text(with_table(document.read_text(encoding="utf-8")), encoding="utf-8")
    (Path(__file__).parent / SCHEMA_FILE).write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
