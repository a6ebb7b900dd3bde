"""Where tables go: a terminal, or a file in which a line stays a line."""

from __future__ import annotations

from rich.console import Console

WIDTH = 240
"""Where there is no terminal that has one: no table is as wide."""


def console() -> Console:
    """Standard output; colours only on terminals."""
    out = Console()
    return out if out.is_terminal else Console(width=WIDTH)
