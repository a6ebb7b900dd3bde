"""Names that nobody knows, with the nearest that there is."""

from __future__ import annotations

from collections.abc import Iterable

from spotrelay.messages import did_you_mean


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`no accelerator is called 'L40' (did you mean L40S?): there are …`."""
    known = list(known)
    return f"no {what} is called {name!r}{did_you_mean(name, known)}: there are {', '.join(known)}"
