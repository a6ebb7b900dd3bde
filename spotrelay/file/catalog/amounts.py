"""Amounts as people write them, in a service file or as an option: `8+` vCPUs, `32GB` of memory."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Any

from spotrelay.messages import shown
from spotrelay.plane.core.requirements import Amount


class AmountError(ValueError):
    """Why a value is no amount, for people."""

    def __init__(self, message: str, *, is_lack: bool = False) -> None:
        super().__init__(message)
        self.is_lack = is_lack
        """It means something, which no instance type has."""


_GIB = {
    "": Decimal(1),
    **dict.fromkeys(("m", "mb", "mi", "mib"), Decimal(1) / 1024),
    **dict.fromkeys(("g", "gb", "gi", "gib"), Decimal(1)),
    **dict.fromkeys(("t", "tb", "ti", "tib"), Decimal(1024)),
}
"""GiB in each unit. As in SkyServe, GB is a name of the GiB: memory comes in those."""

_UNITS = f"(?i:{'|'.join(_GIB)})"
_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"

MOST_GIB = 9_999_999
"""Far more than there is; a limit, so that numbers stay such as one can print."""


def cpus(value: Any) -> Amount:
    """`8`, `"8+"`, or `"0.5+"`, which every instance type has.

    Raises:
        AmountError: it is none of these.
    """
    return _amount(value, "", "a number (8: exactly) or 8+ (at least)", "vCPU")


def memory(value: Any) -> Amount:
    """`32` or `"32+"`, in GiB, with a unit or without: `32GB`, `32GiB+`, `0.5TB`.

    Raises:
        AmountError: it is none of these.
    """
    return _amount(value, _UNITS, "GiB (32, or 32GB: exactly) or 32+ (at least)", "GiB")


def size(value: Any) -> int | None:
    """Whole GiB of `256`, `256GB` or `1.5TB`, rounded down as SkyServe does; None if it is something else."""
    found = _number(value, _UNITS)
    return None if found is None or found[1] else int(found[0])


def _number(value: Any, units: str) -> tuple[Decimal, bool] | None:
    """A number with a unit as GiB, and whether a plus follows; None if it is something else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    written = re.fullmatch(rf"{_NUMBER} ?({units})(\+?)", value) if isinstance(value, str) else None
    if written is None:
        return None
    number = Decimal(written[1]) * _GIB[written[2].lower()]
    return (number, bool(written[3])) if 0 < number <= MOST_GIB else None


def _amount(value: Any, units: str, expected: str, unit: str) -> Amount:
    found = _number(value, units)
    if found is None:
        raise AmountError(f"expected {expected}, got {shown(value)}")
    number, at_least = found
    # All types have whole numbers of both: at least 1.5 is at least 2.
    whole = int(number.to_integral_value(ROUND_CEILING))
    if not at_least and whole != number:
        raise AmountError(
            f"no instance type has exactly {number.normalize():f} {unit}: write {whole}, or {whole}+",
            is_lack=True,
        )
    return Amount(whole, at_least)
