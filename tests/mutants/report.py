"""What came of a campaign, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.mutants.campaign import Result, Score, Verdict
from tests.mutants.mutant import Mutant
from tests.mutants.trial import Stage


def show(console: Console, result: Result, stages: Sequence[Stage]) -> None:
    """The shares by module, and who got through the stages."""
    table = Table(title="Mutants caught, by module", title_justify="left")
    table.add_column("module", no_wrap=True)
    for heading in ("mutants", "by simulation", "with tests")[: 1 + len(stages)]:
        table.add_column(heading, justify="right", no_wrap=True)
    by_module: dict[str, list[Verdict]] = {}
    for verdict in result.counted:
        by_module.setdefault(verdict.mutant.module, []).append(verdict)
    for module, verdicts in sorted(by_module.items()):
        _add_row(table, module, verdicts)
    table.add_section()
    _add_row(table, "all", result.counted)
    console.print(table)
    for verdict in result.survivors:
        _print(console, [f"survived: {verdict.mutant.id}", *_about(verdict.mutant)])
    for verdict in result.refuted:
        _print(console, [f"not equivalent: {verdict.mutant.id}", *_about(verdict.mutant), *_said(verdict)])


def show_verdict(console: Console, verdict: Verdict) -> None:
    """What each stage says about a mutant."""
    for line in _said(verdict):
        _print(console, [line])


def show_list(console: Console, mutants: Sequence[Mutant]) -> None:
    """What mutants there are."""
    for mutant in mutants:
        _print(console, [mutant.id, *_about(mutant)])


def as_json(result: Result, code: str, elapsed_s: float) -> dict[str, object]:
    """The same, and every verdict; `code` says of which code they are."""
    score = Score.of(result.counted)
    return {
        "code": code,
        "mutants": score.mutants,
        "equivalent": len(result.verdicts) - score.mutants,
        "simulation_percent": round(score.simulation_percent, 1),
        "percent": round(score.percent, 1),
        "elapsed_s": round(elapsed_s, 1),
        "verdicts": [
            {
                "id": v.mutant.id,
                "place": v.mutant.place,
                "change": v.mutant.change,
                "said": v.said,
                "equivalent": result.equivalent.get(v.mutant.id),
                "spent_s": round(v.spent_s, 2),
            }
            for v in result.verdicts
        ],
    }


def known(text: str, code: str, mutants: Sequence[Mutant]) -> tuple[dict[str, Verdict], float]:
    """The verdicts in what `as_json` made, and how long they took, s; none if they are of other code."""
    kept = json.loads(text)
    if kept.get("code") != code:
        return {}, 0.0
    by_id = {mutant.id: mutant for mutant in mutants}
    verdicts = {
        one["id"]: Verdict(
            by_id[one["id"]], {Stage(stage): said for stage, said in one["said"].items()}, one["spent_s"]
        )
        for one in kept["verdicts"]
        if one["id"] in by_id
    }
    return verdicts, kept["elapsed_s"]


def _add_row(table: Table, name: str, verdicts: Sequence[Verdict]) -> None:
    score = Score.of(verdicts)
    cells = [str(score.mutants), f"{score.simulation_percent:.0f} %", f"{score.percent:.0f} %"]
    table.add_row(name, *cells[: len(table.columns) - 1])


def _about(mutant: Mutant) -> list[str]:
    return [mutant.place, mutant.change]


def _said(verdict: Verdict) -> list[str]:
    return [f"{stage}: {said or 'nothing noticed'}" for stage, said in verdict.said.items()]


def _print(console: Console, lines: Sequence[str]) -> None:
    console.print("\n    ".join(lines), markup=False, highlight=False, soft_wrap=True)
