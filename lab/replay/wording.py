"""How the replay puts numbers into words."""

from __future__ import annotations

DAY_S = 86_400.0


def span(duration_s: float) -> str:
    """A duration in the unit that suits it."""
    for unit, length_s in (("days", DAY_S), ("h", 3600.0), ("min", 60.0)):
        if duration_s >= 2 * length_s:
            return f"{duration_s / length_s:.1f} {unit}"
    return f"{duration_s:.0f} s"
