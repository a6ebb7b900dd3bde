"""`python -m lab.benchmarks [ROW …]`: measure rows, print their tables, keep their figures in out/bench."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from lab.benchmarks import baseline, machine, report
from lab.benchmarks.figures import Row
from lab.benchmarks.registry import ROWS
from lab.benchmarks.running import ROOT, Outcome, run

OUT = ROOT / "out" / "bench"

EXIT_WORSE = 1
"""A target is missed, or a figure is worse than the baseline allows."""
EXIT_USAGE = 2


def main() -> int:
    """Run what the command line asks for."""
    asked = _arguments()
    unknown = [name for name in asked.rows if name not in ROWS]
    console = Console()
    if unknown:
        sys.stderr.write(f"benchmarks: no row is called {unknown[0]!r}: there are {', '.join(ROWS)}\n")
        return EXIT_USAGE
    facts = machine.described()
    outcomes = _measure(console, [ROWS[name] for name in asked.rows or ROWS])
    for outcome in outcomes:
        report.keep(OUT, outcome, facts)
    console.print(f"figures: {OUT.relative_to(ROOT)}/*.json", highlight=False)
    try:
        if asked.record:
            return _record(console, outcomes, facts)
        return check(console, outcomes) if asked.check else _judge(console, outcomes)
    except baseline.BaselineError as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return EXIT_USAGE


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"which (all): {', '.join(ROWS)}")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check", action="store_true", help="fail if a count or a ratio is worse than the baseline"
    )
    what.add_argument("--record", action="store_true", help="make these figures the baseline")
    return parser.parse_args()


def _measure(console: Console, rows: Sequence[Row]) -> list[Outcome]:
    outcomes = []
    columns = (
        TextColumn("{task.fields[row]}"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    left_s = sum(row.takes_s for row in rows)
    for row in rows:
        # The bar is drawn anew twice a second: drawing takes time from what is measured.
        with Progress(*columns, console=console, transient=True, refresh_per_second=2) as bar:
            about = f"about {left_s / 60:.0f} min to go" if left_s >= 90 else f"about {left_s:.0f} s to go"
            task = bar.add_task(about, total=None, row=row.name)

            def tell(done: float, of: float, doing: str) -> None:
                bar.update(task, completed=done, total=of, description=f"{doing} ({about})")  # noqa: B023 - used in here

            outcome = run(row, tell)
        report.show(console, outcome)
        outcomes.append(outcome)
        left_s -= row.takes_s
    return outcomes


def _judge(console: Console, outcomes: Sequence[Outcome]) -> int:
    lines = [f"{o.row.name}: {o.error}" for o in outcomes if o.error]
    lines += [
        f"{o.row.name}: {figure.name} is {report.in_words(figure)}, the target is {figure.target}"
        for o in outcomes
        for figure in o.missed
    ]
    return _verdict(console, lines, "every target is met")


def check(console: Console, outcomes: Sequence[Outcome], path: Path = baseline.BASELINE) -> int:
    """Say what is worse than the baseline; the exit code."""
    return _verdict(console, baseline.regressions(outcomes, path), "nothing is worse than the baseline")


def _verdict(console: Console, lines: Sequence[str], well: str) -> int:
    for line in lines:
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    if not lines:
        console.print(well, style="green")
    return EXIT_WORSE if lines else 0


def _record(console: Console, outcomes: Sequence[Outcome], facts: dict[str, object]) -> int:
    failed = [f"{o.row.name}: {o.error}" for o in outcomes if o.error]
    if failed:
        return _verdict(console, failed, "")
    baseline.record(outcomes, facts)
    console.print(f"baseline: {baseline.BASELINE.relative_to(ROOT)}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
