"""A table as plain text: the same in a terminal, a pipe and a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Lines with columns as wide as they must be; those named by number are aligned to the right."""
    every = [list(head), *map(list, rows)]
    widths = [max(len(row[column]) for row in every) for column in range(len(head))]
    numbers = set(right)
    return [
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in every
    ]
