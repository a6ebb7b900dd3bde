"""Tables for a terminal, or for a file in which a line stays a line."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

UNBOUNDED = 10_000
"""Wider than any line: what a line that nobody wraps is measured in."""

GAP = 2
"""Columns between two cells."""

FEWEST_BLOCKS = 24
"""Of a curve, however narrow the terminal: fewer show no more than the least and the most."""

READABLE = 30
"""A sentence in fewer columns is a pile of words: it rather stands below, beside its row's name."""


def console() -> Console:
    """Standard output; colours and a width only on terminals."""
    out = Console()
    return out if out.is_terminal else Console(width=UNBOUNDED)


def draw(out: Console, shown: RenderableType) -> None:
    """Print it without cutting a cell or a word: what is wider than the terminal goes on on its next line.

    Half an instance ID can't be copied. Text is taken as it is, and never for Rich's markup.
    """
    if isinstance(shown, str):
        shown = Text(shown)
    needed = Measurement.get(out, out.options.update_width(UNBOUNDED), shown).minimum
    wide_enough = out if needed <= out.width else Console(width=needed)
    with wide_enough.capture() as drawn:
        wide_enough.print(shown, highlight=False)
    # Rich fills each line up to the widest, which may be a reason of hundreds of letters.
    out.file.write(re.sub(" +$", "", drawn.get(), flags=re.MULTILINE))


def room(out: Console, beside: int, wished: int) -> int:
    """How many blocks of a curve fit beside so many columns: as many as wished, or as there is room for."""
    return min(wished, max(out.width - beside, FEWEST_BLOCKS))


class Columns:
    """A table. Where it is too wide, its columns stand in parts below each other, each with the row's names.

    As pandas prints a wide frame: no cell is cut, and a number stays on its line.
    """

    def __init__(
        self, titles: Sequence[str], left: Collection[str], wraps: Collection[str], names: int
    ) -> None:
        self._titles, self._left, self._wraps, self._names = tuple(titles), left, wraps, names
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """One more, with a cell for each title. What stands in it isn't taken for Rich's markup."""
        self._rows.append(tuple(cell if isinstance(cell, Text) else Text(cell) for cell in cells))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        names, others = self._split()
        least = max((self._width([*names, column]) for column in others), default=self._width(names))
        return Measurement(least, max(self._width([*names, *others]), least))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names, others = self._split()
        parts = [names]
        for column in others:
            if parts[-1] != names and self._width([*parts[-1], column]) > options.max_width:
                parts.append(names)
            parts[-1] = [*parts[-1], column]
        for at, part in enumerate(parts):
            if at:
                yield ""
            yield self._part(part, is_first=not at)

    def _split(self) -> tuple[list[int], list[int]]:
        """The columns that name a row, and the others; not those with nothing in them."""
        shown = [at for at, title in enumerate(self._titles) if title or any(row[at] for row in self._rows)]
        return [at for at in shown if at < self._names], [at for at in shown if at >= self._names]

    def _width(self, columns: Sequence[int]) -> int:
        return sum(self._least(column) + GAP for column in columns) - GAP

    def _least(self, column: int) -> int:
        cells = [self._titles[column], *(row[column].plain for row in self._rows)]
        whole = max(map(cell_len, cells))
        if self._titles[column] not in self._wraps:
            return whole
        word = max(cell_len(word) for cell in cells for word in cell.split() or [""])
        return max(min(whole, READABLE), word)

    def _part(self, columns: Sequence[int], *, is_first: bool) -> Table:
        """Some columns of all rows; further ones only of the rows that have something in them."""
        made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        made.show_header = any(self._titles)
        for column in columns:
            title = self._titles[column]
            justify, no_wrap = "left" if title in self._left else "right", title not in self._wraps
            width = self._least(column) if no_wrap else None  # or Rich measures each cell once more
            made.add_column(title, justify=justify, no_wrap=no_wrap, overflow="fold", width=width)  # type: ignore[arg-type]
        for row in self._rows:
            if is_first or any(row[column] for column in columns if column >= self._names):
                made.add_row(*(row[column] for column in columns))
        return made


def table(
    titles: Sequence[str], left: Collection[str], wraps: Collection[str] = (), names: int = 1
) -> Columns:
    """One without rows. What isn't `left` is numbers, aligned to the right; what `wraps` may take lines.

    The first columns, so many `names`, say which row it is.
    """
    return Columns(titles, left, wraps, names)
