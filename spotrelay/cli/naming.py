"""What can't be asked for, and names that nobody knows, with the nearest that there are."""

from __future__ import annotations

from collections.abc import Iterable

EXIT_INVALID = 2
"""The same code as for wrong arguments: nothing was done, the input must change."""


class BadInputError(Exception):
    """What was asked for can't be: one line, with the option and the remedy."""


def unknown_accelerator(name: str) -> str:
    """Why a name of an accelerator leads nowhere."""
    from spotrelay.catalog import accelerator_names

    return unknown("accelerator", name, accelerator_names())


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`no accelerator is called 'L40' (did you mean L40S?): there are …`."""
    from spotrelay.service.requirements import did_you_mean

    known = list(known)
    return f"no {what} is called {name!r}{did_you_mean(name, known)}: there are {', '.join(known)}"
