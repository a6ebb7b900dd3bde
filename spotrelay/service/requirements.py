"""Values in `resources` that are written in several ways, or have a form: accelerators, `8+`, `70%`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError

from spotrelay import catalog
from spotrelay.core.requirements import Accelerators, Amount
from spotrelay.service.document import Location, shown

FINDINGS = "findings"
"""Type of the pydantic errors that carry `Finding`s."""


class Finding(NamedTuple):
    """Something wrong, at a place relative to the value that was validated."""

    at: Location
    message: str


def rejected(*findings: Finding) -> PydanticCustomError:
    """The error by which a validator of ours reports several findings at once."""
    return PydanticCustomError(FINDINGS, "see findings", {FINDINGS: findings})


def did_you_mean(name: str, known: list[str]) -> str:
    """` (did you mean …?)` where one of the known names is close, or nothing."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return f" (did you mean {by_folded[close[0]]}?)" if close else ""


def parse_amount(value: Any) -> Amount:
    """`8` or `"8+"`.

    Raises:
        PydanticCustomError: it is neither.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return Amount(value, at_least=False)
    try:
        return Amount.parse(value if isinstance(value, str) else "")
    except ValueError:
        message = f"expected a whole number (8: exactly) or 8+ (at least), got {shown(value)}"
        raise rejected(Finding((), message)) from None


def parse_share(least: int, most: int, expected: str) -> Callable[[Any], float]:
    """A validator that reads `70%` as 0.7. It takes no bare number, which might be meant as dollars."""

    def parse(value: Any) -> float:
        written = re.fullmatch(r"([1-9][0-9]{0,2}) ?%", value) if isinstance(value, str) else None
        if written is None or not least <= int(written[1]) <= most:
            raise rejected(Finding((), f"expected {expected}, got {shown(value)}"))
        return int(written[1]) / 100

    return parse


REGION = r"[a-z]{2}(-[a-z]+)+-\d"
ZONE = REGION + "[a-z]"
TYPE_OR_FAMILY = r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)?"


def parse_names(pattern: str, expected: str) -> Callable[[Any], Any]:
    """A validator of lists of names of this form, each once. What is no list it leaves to the schema."""

    def parse(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        findings = []
        for index, name in enumerate(value):
            if not isinstance(name, str) or not re.fullmatch(pattern, name):
                findings.append(Finding((index,), f"expected {expected}, got {shown(name)}"))
            elif name in value[:index]:
                findings.append(Finding((index,), f"{name} stands in the list twice: remove one"))
        if findings:
            raise rejected(*findings)
        return value

    return parse


def parse_accelerators(value: Any) -> tuple[Accelerators, ...]:
    """Any of `A10G`, `A10G:1`, `[A10G, L4:1]`, `{A10G: 1, L4: 1}`, `{A10G, L4:1}`: all mean *any of these*.

    Raises:
        PydanticCustomError: another form, an unknown name, or a count that no instance type has.
    """
    match value:
        case str():
            written: list[tuple[Location, Any, Any]] = [((), value, None)]
        case list() if value:
            written = [((index,), item, None) for index, item in enumerate(value)]
        case dict() if value:
            written = [((name,), name, count) for name, count in value.items()]
        case _:
            message = f"expected accelerators such as A10G:1, or [A10G:1, L4:1], got {shown(value)}"
            raise rejected(Finding((), message))
    parsed = [_one(at, name, count) for at, name, count in written]
    if findings := [item for item in parsed if isinstance(item, Finding)]:
        raise rejected(*findings)
    return tuple(dict.fromkeys(item for item in parsed if isinstance(item, Accelerators)))


def _one(at: Location, name: Any, count: Any) -> Accelerators | Finding:
    if isinstance(name, str) and count is None:
        name, colon, number = name.partition(":")
        count = (int(number) if number.isascii() and number.isdigit() else number) if colon else 1
    if not isinstance(name, str):
        return Finding(at, f"expected an accelerator such as A10G:1, got {shown(name)}")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return Finding(at, f"expected a whole number of accelerators, as in {name}:1, got {shown(count)}")
    known = catalog.find_accelerator(name)
    if known is None:
        names = list(catalog.accelerator_names())
        return Finding(
            at, f"no instance type has {name!r}{did_you_mean(name, names)}: there are {', '.join(names)}"
        )
    counts = sorted({t.accelerator_count for t in catalog.all_types() if t.accelerator == known} - {0})
    if count not in counts:
        offered = ", ".join(f"{known}:{offered}" for offered in counts)
        return Finding(at, f"no instance type has exactly {count} {known}: there are {offered}")
    return Accelerators(known, count)
