"""Values against all that botocore's models say of them; botocore itself doesn't look at most of that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, Any] = {"structure": dict, "map": dict, "list": list, "string": str, "boolean": bool}


def problem(shape: Any, value: Any, where: str = "the request") -> str | None:
    """What is wrong with a value, and where; None if the model allows it."""
    own = _own_problem(shape, value)
    if own:
        return f"{where} {own}"
    parts = (problem(inner, part, f"{where}, {name}") for inner, part, name in _parts(shape, value))
    return next((found for found in parts if found), None)


def _parts(shape: Any, value: Any) -> Iterator[tuple[Any, Any, str]]:
    match shape.type_name:
        case "structure":
            # A member that no model has is ignored, as AWS does.
            yield from ((inner, value[name], name) for name, inner in shape.members.items() if name in value)
        case "map":
            yield from ((shape.key, name, "a key") for name in value)
            yield from ((shape.value, part, name) for name, part in value.items())
        case "list":
            yield from ((shape.member, part, str(position)) for position, part in enumerate(value))


def _own_problem(shape: Any, value: Any) -> str | None:
    limits = shape.metadata
    if not isinstance(value, _TYPES.get(shape.type_name, int | float)):
        return f"must be of type {shape.type_name}"
    if shape.type_name == "structure":
        missing = [name for name in shape.required_members if name not in value]
        return f"lacks {missing[0]}" if missing else None
    if not isinstance(value, str | list | dict):
        return None
    if isinstance(value, str) and "enum" in limits and value not in limits["enum"]:
        return f"must be one of {', '.join(limits['enum'])}"
    pattern = limits.get("pattern", "")
    # The models' patterns are Java's, which has classes of its own.
    if isinstance(value, str) and "\\p{" not in pattern and not re.search(pattern, value):
        return f"must match {pattern}"
    if not limits.get("min", 0) <= len(value) <= limits.get("max", len(value)):
        return (
            f"has a length of {len(value)}: {limits.get('min', 0)} to {limits.get('max', 'any')} are allowed"
        )
    return None
