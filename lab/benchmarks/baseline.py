"""The committed baseline, and what counts as a regression against it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.benchmarks.figures import Figure
from lab.benchmarks.running import Outcome

BASELINE = Path(__file__).with_name("baseline.json")


class BaselineError(Exception):
    """There is nothing to compare with; the message says what to do."""


def record(outcomes: Iterable[Outcome], facts: Mapping[str, Any], path: Path = BASELINE) -> None:
    """Make the guarded figures the baseline of their rows; other rows keep theirs."""
    rows = _read(path)["rows"] if path.is_file() else {}
    for outcome in outcomes:
        rows[outcome.row.name] = {
            figure.name: {
                "value": round(figure.value, 4),
                "unit": figure.unit,
                "tolerance": figure.tolerance,
                "better": "higher" if figure.higher_is_better else "lower",
            }
            for figure in outcome.figures
            if figure.tolerance is not None
        }
    document = {**facts, "rows": dict(sorted(rows.items()))}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def regressions(
    outcomes: Iterable[Outcome], path: Path = BASELINE, *, only_counts: bool = False
) -> list[str]:
    """One line for each figure that is worse than the baseline allows, or that one of the two lacks.

    With `only_counts` the outcomes have no more than that, and nothing that they lack is told.

    Raises:
        BaselineError: there is no baseline, or it can't be read.
    """
    rows = _read(path)["rows"]
    return [
        line
        for outcome in outcomes
        for line in _of_row(outcome, rows.get(outcome.row.name, {}), only_counts=only_counts)
    ]


def _of_row(outcome: Outcome, known: Mapping[str, Mapping[str, Any]], *, only_counts: bool) -> Iterator[str]:
    name = outcome.row.name
    if outcome.error:
        yield f"{name}: {outcome.error}"
        return
    guarded = {figure.name: figure for figure in outcome.figures if figure.tolerance is not None}
    for missing in [] if only_counts else sorted(known.keys() - guarded.keys()):
        yield f"{name}: {missing} is in the baseline and isn't measured any more: {_record_anew(name)}"
    for figure in guarded.values():
        if figure.name not in known:
            yield f"{name}: {figure.name} is not in the baseline: {_record_anew(name)}"
        elif line := _worse(name, figure, known[figure.name]):
            yield line


def _record_anew(row: str) -> str:
    return f"record it with `make bench-baseline ROW={row}`"


def _worse(row: str, figure: Figure, known: Mapping[str, Any]) -> str | None:
    before, tolerance = float(known["value"]), float(known["tolerance"])
    limit = before * (1 - tolerance) if figure.higher_is_better else before * (1 + tolerance)
    is_worse = figure.value < limit if figure.higher_is_better else figure.value > limit
    if not is_worse:
        return None
    allowed = f", {tolerance:.0%} worse is allowed" if tolerance else ", no more is allowed"
    return (
        f"{row}: {figure.name} is {figure.value:.4g} {figure.unit}, the baseline has {before:.4g}{allowed}."
        f" Look at what changed, or, if it is worth it, {_record_anew(row)}"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        dict(document["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BaselineError(
            f"{path}: no baseline can be read ({error!r}): run `make bench-baseline`"
        ) from error
    return document
