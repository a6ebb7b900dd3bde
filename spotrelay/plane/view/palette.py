"""What colours mean, the same in boards, pictures and on the page."""

from __future__ import annotations

from collections.abc import Mapping

SERVING = "#0a9069"
"""Serves, on Spot where that matters: as it should be."""
ON_DEMAND = "#0072b2"
"""Serves, bought on-demand."""
WARNED = "#eba70b"
"""Leaves, was refused or is held back: it mends itself."""
BAD = "#c4320a"
"""Missing, lost without a warning, failed, refused for good: it shouldn't be."""
FAILED = "#7a1f1f"
"""A start or a server that fails."""
MONEY = "#8f5aa8"
"""What is paid."""
CONTEXT = "#7f7f7f"
"""What the rest is compared with."""

TONES: Mapping[str, str] = {"good": "#1d8102", "bad": "#d13212", "leaving": "#b7791f", "unknown": "#b7791f"}
"""How a judgement is written: dark enough to be read on white, and light enough on CloudWatch's dark page."""

PAGE: Mapping[str, tuple[str, str]] = {
    "good": ("#0a6b4e", "#5fe0b0"),
    "good-ground": ("#dff5ec", "#0d3326"),
    "bad": ("#b3240a", "#ff9d85"),
    "bad-ground": ("#ffe9e3", "#4a170c"),
    "warn": ("#7a5200", "#f5cd66"),
    "warn-ground": ("#fff3d1", "#3d2c00"),
}
"""The same on the page, for text and for what is below it: in the light, and in the dark."""


def style_sheet() -> str:
    """`PAGE` as CSS's variables."""
    light, dark = (
        " ".join(f"--{name}: {colors[which]};" for name, colors in PAGE.items()) for which in (0, 1)
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
