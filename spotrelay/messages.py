"""How messages to people show a value, and what was probably meant by a name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What moves a terminal's cursor, changes its title or answers for who sits there, and what has text run the
other way (Unicode's bidirectional controls, https://www.unicode.org/reports/tr9/). Not tab and newline."""


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


def in_gb(size: float) -> str:
    """Bytes as people say them: `16 GB`, `4.2 GB`, `17.3 MB`."""
    if size < 1e8:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e9:.{0 if size >= 1e10 else 1}f} GB"


def few(things: Sequence[object], most: int) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return ", ".join(map(str, things[:most])) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean …?)` where one of the known names is close, or nothing."""
    close = nearest(name, known)
    return f" (did you mean {close}?)" if close else ""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Which of the known names was probably meant, whatever its case; None: none is close."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[close[0]] if close else None


def harmless(text: str) -> str:
    """What somebody else wrote, for a terminal: without colours, and with every other control spelt out."""
    plain = _COLOUR.sub("", text.replace("\r\n", "\n"))
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], plain)
