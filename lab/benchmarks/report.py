"""What is printed and kept of a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lab.benchmarks.figures import Figure
from lab.benchmarks.running import Outcome


def show(console: Console, outcome: Outcome) -> None:
    """The row's table."""
    title = f"{outcome.row.title} ({outcome.row.name}, {outcome.took_s:.0f} s)"
    if outcome.error:
        console.print(f"{title}: {outcome.error}", style="red", markup=False, highlight=False)
        return
    if outcome.skipped:
        console.print(f"{title}: skipped: {outcome.skipped}", style="yellow", markup=False, highlight=False)
        return
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("target", justify="right", no_wrap=True)
    table.add_column("")
    for figure in outcome.figures:
        style = "" if not figure.target else "green" if figure.is_met else "red"
        value = f"[{style}]{in_words(figure)}[/]" if style else in_words(figure)
        table.add_row(figure.name, value, figure.target, figure.what)
    console.print(table)


def in_words(figure: Figure) -> str:
    """The value, to three digits or the whole number, with its unit."""
    value = figure.value
    number = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return f"{number} {figure.unit}".strip()


def keep(directory: Path, outcome: Outcome, facts: Mapping[str, Any]) -> Path:
    """Write the row's JSON file; where it is."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{outcome.row.name}.json"
    document = {
        "row": outcome.row.name,
        "title": outcome.row.title,
        **facts,
        "took_s": round(outcome.took_s, 1),
        "error": outcome.error or None,
        "skipped": outcome.skipped or None,
        "figures": [
            {**asdict(figure), "target": figure.target or None, "met": figure.is_met}
            for figure in outcome.figures
        ],
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
