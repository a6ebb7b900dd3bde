"""Tables for a terminal, or for a file in which a line stays a line."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table

WIDTH = 240
"""Where there is no terminal that has one: no table is as wide."""


UNBOUNDED = 10_000
"""Wider than any table: what one is measured in."""


def console() -> Console:
    """Standard output; colours only on terminals."""
    out = Console()
    return out if out.is_terminal else Console(width=WIDTH)


def draw(out: Console, shown: RenderableType) -> None:
    """Print it without cutting a cell: what needs more than the terminal's width continues on its next line.

    Half an instance ID can't be copied.
    """
    needed = Measurement.get(out, out.options.update_width(UNBOUNDED), shown).minimum
    wide_enough = out if needed <= out.width else Console(width=needed)
    wide_enough.print(shown, highlight=False)


def table(titles: Iterable[str], left: Collection[str], wraps: Collection[str] = ()) -> Table:
    """One without rows. What isn't `left` is numbers, aligned to the right; what `wraps` may take lines."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        made.add_column(title, justify="left" if title in left else "right", no_wrap=title not in wraps)
    return made
