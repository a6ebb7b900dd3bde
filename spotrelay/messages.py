"""How messages to people show a value, and what was probably meant by a name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def shown(value: object) -> str:
    """A value as it would stand in a service file, shortened, for an error message."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            text = value if len(value) <= 60 else value[:57] + "…"
            return repr(text)
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case _:
            return str(value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean …?)` where one of the known names is close, or nothing."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return f" (did you mean {by_folded[close[0]]}?)" if close else ""
