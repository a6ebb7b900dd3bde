"""Periods of time, as options say them."""

from __future__ import annotations

import re
from datetime import timedelta

from spotrelay.operator.cli.errors import CommandError

_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


def period(text: str, option: str, longest: timedelta) -> timedelta:
    """A period such as `90m`, `2h` or `1d`.

    Raises:
        CommandError: it isn't one, or too long.
    """
    match = re.fullmatch("([1-9][0-9]{0,5})([mhd])", text)
    found = int(match[1]) * _UNITS[match[2]] if match else timedelta()
    if not timedelta() < found <= longest:
        raise CommandError(
            f"{option}: expected a period such as 90m, 2h or 1d, {longest.days}d at most, got {text!r}"
        )
    return found
