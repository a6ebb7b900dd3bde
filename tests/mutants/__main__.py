"""`python -m tests.mutants`: put mistakes into the core, one at a time, and see whether anything notices.

Each mutant is first run through the simulation; what no seed catches then meets the unit and contract tests.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.mutants import report
from tests.mutants.campaign import ObjectionError, Result, Score, Verdict, campaign, known_equivalent
from tests.mutants.handmade import HAND_MADE, StaleMutantError, handmade
from tests.mutants.mutant import Mutant, drawn, possible
from tests.mutants.sites import PREFIX, digest, modules
from tests.mutants.trial import FEW_SEEDS, SEEDS, Seeds, Stage

DRAWN = 250
"""Of some two thousand that can be made: enough to know the share to within three in a hundred, and ten
minutes on two processors."""

SEED = 1
"""Of the draw. Another one gives another sample, to see whether what holds for this one holds at all."""

LEAST_BY_SIMULATION_PERCENT = 75.0
"""What it can't see makes no difference to anybody within minutes, or is a race too narrow for a few hundred
seeds: a quarter at most."""

LEAST_PERCENT = 95.0
"""Of mutants that nobody has called equivalent. Some always will be without anybody having looked."""

SHARED = {Stage.SIMULATION: ("greenlet",), Stage.TESTS: ("boto3", "hypothesis", "moto")}
"""What takes long to import, by stage: imported once, and forked into every trial. None of it imports the
package that is to be mutated."""

LINE_EVERY = 25
"""Mutants, where no bar can be drawn: a line every minute or two."""

EXIT_MISSED = 1
"""Too few are caught, or the list of equivalent ones is wrong."""
EXIT_USAGE = 2


class UsageError(Exception):
    """The command line asks for what there isn't."""


def main() -> int:
    """Run what the command line asks for."""
    try:
        return _run(_arguments())
    except (UsageError, StaleMutantError, ObjectionError) as error:
        sys.stderr.write(f"mutants: {error}\n")
        return EXIT_USAGE


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--draw", type=int, default=DRAWN, metavar="N", help=f"how many to draw ({DRAWN})")
    parser.add_argument("--seed", type=int, default=SEED, metavar="S", help="another draw")
    parser.add_argument("--only", metavar="MODULE", help="of one module, such as serving.strength")
    parser.add_argument("--sample", type=int, metavar="N", help="so many quick ones, by simulation alone")
    parser.add_argument("--id", metavar="ID", help="show what this one changes, and try it by every stage")
    parser.add_argument("--list", action="store_true", help="only say which would be tried")
    parser.add_argument("--every-stage", action="store_true", help="test also what the simulation caught")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep verdicts there, and go on from them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="at a time")
    return parser.parse_args()


def _run(asked: argparse.Namespace) -> int:
    console = Console()
    by_hand = handmade()
    candidates = [mutant for module in modules() for mutant in possible(module)]
    equivalent = known_equivalent()
    every = {m.id: m for m in (*by_hand, *candidates)}
    for id_ in equivalent.keys() - every.keys():
        raise UsageError(
            f"stale entry {id_!r} in equivalent.toml: there is no such mutant any more, take it out"
        )
    if asked.id:
        return _try_one(console, every, asked)
    if asked.sample:
        return _try_sample(console, by_hand, asked)
    if asked.only:
        by_hand, candidates = _of(asked.only, by_hand), _of(asked.only, candidates)
    chosen = [*by_hand, *drawn(candidates, asked.draw, asked.seed)]
    if asked.list:
        report.show_list(console, chosen)
        return 0
    kept = Kept(asked.json, equivalent, chosen)
    result = Result(_tried(chosen, list(Stage), asked, kept=kept), equivalent)
    report.show(console, result, list(Stage))
    elapsed_s = kept.write(result.verdicts)
    return _judge(console, result, elapsed_s, is_part=bool(asked.only))


@dataclass(slots=True)
class Kept:
    """The file that has every verdict so far, if one was asked for."""

    path: Path | None
    equivalent: Mapping[str, str]
    mutants: Sequence[Mutant]
    known: dict[str, Verdict] = field(default_factory=dict)
    before_s: float = 0.0
    """How long it took before this time."""
    began: float = field(default_factory=time.monotonic)
    code: str = field(default_factory=digest)

    def __post_init__(self) -> None:
        """Take what is there already."""
        if self.path is not None and self.path.exists():
            text = self.path.read_text(encoding="utf-8")
            self.known, self.before_s = report.known(text, self.code, self.mutants)

    def write(self, verdicts: Sequence[Verdict]) -> float:
        """Keep these, and nothing else; how long all of it took, s."""
        elapsed_s = self.before_s + time.monotonic() - self.began
        if self.path is not None:
            made = report.as_json(Result(verdicts, self.equivalent), self.code, elapsed_s)
            # Replaced as a whole: whoever is ended in the middle of it leaves the one before.
            beside = self.path.with_name(f"{self.path.name}.new")
            beside.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
            beside.replace(self.path)
        return elapsed_s


def _of(name: str, mutants: Sequence[Mutant]) -> list[Mutant]:
    """Those of one module."""
    module = f"{PREFIX}{name.removeprefix(PREFIX)}"
    if module not in modules():
        known = ", ".join(m.removeprefix(PREFIX) for m in modules())
        raise UsageError(f"--only {name}: no such module of the core; there are {known}")
    return [mutant for mutant in mutants if mutant.module == module]


def _try_one(console: Console, every: Mapping[str, Mutant], asked: argparse.Namespace) -> int:
    mutant = every.get(asked.id)
    if mutant is None:
        raise UsageError(f"--id {asked.id}: there is no such mutant; --list --draw 9999 names all")
    report.show_list(console, [mutant])
    console.print(mutant.diff(), markup=False, highlight=False, soft_wrap=True)
    asked.every_stage = True
    (verdict,) = _tried([mutant], list(Stage), asked)
    report.show_verdict(console, verdict)
    return 0 if verdict.is_caught else EXIT_MISSED


def _try_sample(console: Console, by_hand: Sequence[Mutant], asked: argparse.Namespace) -> int:
    quick = [mutant for mutant, made in zip(by_hand, HAND_MADE, strict=True) if made.is_quick]
    result = Result(_tried(quick[: asked.sample], [Stage.SIMULATION], asked, seeds=FEW_SEEDS), {})
    report.show(console, result, [Stage.SIMULATION])
    return EXIT_MISSED if result.survivors else 0


def _tried(
    mutants: Sequence[Mutant],
    stages: Sequence[Stage],
    asked: argparse.Namespace,
    seeds: Seeds = SEEDS,
    kept: Kept | None = None,
) -> list[Verdict]:
    """The campaign, with a bar on the terminal, or a line now and then in a log."""
    columns = (
        TextColumn("mutants"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[caught]} caught"),
        TimeElapsedColumn(),
    )
    for stage in stages:
        for name in SHARED[stage]:
            importlib.import_module(name)
    began, lines, written = time.monotonic(), 0, 0
    # Drawn by hand: a thread that draws by itself would be forked with whatever lock it holds.
    console = Console(stderr=True)
    is_log = not console.is_terminal
    with Progress(*columns, console=console, transient=True, auto_refresh=False, disable=is_log) as bar:
        task = bar.add_task("mutants", total=len(mutants), caught=0)

        def show(done: Sequence[Verdict]) -> None:
            nonlocal lines, written
            caught = sum(v.is_caught for v in done)
            bar.update(task, completed=len(done), caught=caught, refresh=True)
            if is_log and len(done) // LINE_EVERY > lines:
                lines = len(done) // LINE_EVERY
                so_far = f"{len(done)} of {len(mutants)} mutants, {caught} caught"
                sys.stderr.write(f"{so_far}, {time.monotonic() - began:.0f} s\n")
            if kept and len(done) > written:
                written = len(done)
                kept.write(done)

        return campaign(
            mutants,
            stages,
            seeds=seeds,
            every_stage=asked.every_stage,
            known=kept.known if kept else {},
            processes=asked.processes,
            progress=show,
        )


def _judge(console: Console, result: Result, elapsed_s: float, *, is_part: bool) -> int:
    score = Score.of(result.counted)
    console.print(
        f"{score.mutants} mutants, {len(result.verdicts) - score.mutants} more known to be equivalent: "
        f"{score.simulation_percent:.1f} % caught by simulation alone, {score.percent:.1f} % with the tests, "
        f"in {elapsed_s:.0f} s ({sum(v.spent_s for v in result.verdicts):.0f} s of processor time)",
        highlight=False,
        soft_wrap=True,
    )
    wrong = [
        f"stale entry {v.mutant.id!r} in equivalent.toml: it is caught, so take it out"
        for v in result.refuted
    ]
    # The shares are promised of the whole core.
    if not is_part and score.simulation_percent < LEAST_BY_SIMULATION_PERCENT:
        wrong.append(f"simulation alone must catch {LEAST_BY_SIMULATION_PERCENT:.0f} %")
    if not is_part and score.percent < LEAST_PERCENT:
        wrong.append(f"simulation and tests together must catch {LEAST_PERCENT:.0f} %")
    for line in wrong:
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    return EXIT_MISSED if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
