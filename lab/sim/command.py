"""`spotrelay chaos`: the controller in simulated time, under every fault."""

from __future__ import annotations

import json
import sys
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lab.sim.campaign import Summary, campaign
from lab.sim.faults import POSSIBLE, Call, Fault
from lab.sim.run import run
from spotrelay.operator.cli.tables import console, draw, table

EXIT_VIOLATION = 1
EXIT_USAGE = 2

STANDARD = 3000
"""With at least so many seeds, each call must have met each fault."""

SHOWN = 10
"""Violations listed; one timeline is enough to begin with."""

MAX_REPLICAS = 200
DEFAULT_REPLICAS = 5

MAX_MINUTES = 600
"""Ten hours of simulated misfortune: some ten seconds of a processor's."""


def chaos(
    seeds: Annotated[int, typer.Option(help="How many seeds to run.", metavar="N")] = STANDARD,
    first_seed: Annotated[int, typer.Option(help="The first of them.", metavar="S")] = 0,
    seed: Annotated[
        int | None,
        typer.Option(help="Replay this one, and tell what happens.", metavar="S", show_default=False),
    ] = None,
    replicas: Annotated[
        int, typer.Option(help="Replicas of the simulated service.", metavar="R")
    ] = DEFAULT_REPLICAS,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="How long faults last; by default half a minute to two and a half, as each seed says.",
            metavar="M",
            show_default=False,
        ),
    ] = None,
    is_verbose: Annotated[
        bool, typer.Option("--verbose", help="With --seed: each call, and what it answered.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run the controller in simulated time under every fault, and check that no rule is ever broken.

    The exit code is 1 if a rule was broken, or if a standard run didn't try every fault everywhere.

    Example: spotrelay chaos --seed 3
    """
    err = Console(stderr=True)
    wrong = _wrong(seeds, first_seed, seed, replicas, minutes)
    if wrong:
        err.print(f"spotrelay chaos: {wrong}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(EXIT_USAGE)
    out = console()
    size = _Size(replicas, minutes)
    if seed is not None:
        _replay(out, seed, size, is_verbose=is_verbose, as_json=as_json)
    else:
        _campaign(out, err, range(first_seed, first_seed + seeds), size, as_json)


class _Size(NamedTuple):
    """How large and how long each run is."""

    replicas: int
    minutes: float | None

    @property
    def options(self) -> str:
        """The command line options that aren't the default."""
        replicas = f" --replicas {self.replicas}" if self.replicas != DEFAULT_REPLICAS else ""
        return replicas + (f" --minutes {self.minutes:g}" if self.minutes is not None else "")


def _wrong(seeds: int, first_seed: int, seed: int | None, replicas: int, minutes: float | None) -> str | None:
    if seeds < 1:
        return f"--seeds must be at least 1, not {seeds}"
    if first_seed < 0:
        return f"--first-seed must be at least 0, not {first_seed}"
    if minutes is not None and not 1 <= minutes <= MAX_MINUTES:
        return f"--minutes must be from 1 to {MAX_MINUTES}, not {minutes:g}"
    if seed is not None and seed < 0:
        return f"--seed must be at least 0, not {seed}"
    if not 1 <= replicas <= MAX_REPLICAS:
        return f"--replicas must be from 1 to {MAX_REPLICAS}, not {replicas}"
    return None


def _replay(out: Console, seed: int, size: _Size, *, is_verbose: bool, as_json: bool) -> None:
    result = run(seed, replicas=size.replicas, minutes=size.minutes, trace=True)
    violation = str(result.violation) if result.violation else None
    if as_json:
        answer = {
            "seed": seed,
            "violation": violation,
            "calls": result.calls,
            "overlaps": result.overlaps,
            "simulated_s": round(result.simulated_s, 3),
            "faults": _faults(result.hits),
            "story": list(result.story),
            "timeline": list(result.timeline),
        }
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    else:
        for line in result.timeline if is_verbose else result.story:
            draw(out, line)
        if not is_verbose:
            words = f"{result.calls} calls, of which {result.hits.total()} went wrong: --verbose has each"
            out.print(words, highlight=False)
        out.print("" if violation else f"seed {seed}: every rule holds", style="green")
    if violation:
        raise typer.Exit(EXIT_VIOLATION)


def _campaign(out: Console, err: Console, seeds: range, size: _Size, as_json: bool) -> None:
    columns = (
        TextColumn("chaos"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("seeds, {task.fields[rate]:.0f}/s, {task.fields[violations]} violations"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=as_json) as bar:
        task = bar.add_task("chaos", total=len(seeds), rate=0, violations=0)

        def show(so_far: Summary) -> None:
            rate = so_far.seeds / so_far.elapsed_s
            bar.update(task, completed=so_far.seeds, rate=rate, violations=len(so_far.violations))

        summary = campaign(seeds, size.replicas, minutes=size.minutes, progress=show)
    untried = summary.never_hit if len(seeds) >= STANDARD else []
    if as_json:
        sys.stdout.write(json.dumps(_as_json(summary, size, seeds.start), indent=2) + "\n")
    else:
        _print(out, summary, size)
        for call, fault in untried:
            out.print(f"never tried: {call}: {fault}", style="red", highlight=False)
        _print_violations(out, summary, size)
    if summary.violations or untried:
        raise typer.Exit(EXIT_VIOLATION)


def _as_json(summary: Summary, size: _Size, first_seed: int) -> dict[str, object]:
    return {
        "seeds": summary.seeds,
        "first_seed": first_seed,
        "replicas": size.replicas,
        "minutes": size.minutes,
        "elapsed_s": round(summary.elapsed_s, 1),
        "processes": summary.processes,
        "runs_per_second": round(summary.seeds / summary.elapsed_s, 1),
        "runs_per_second_per_core": round(summary.per_core, 1),
        "calls": summary.calls,
        "overlaps": summary.overlaps,
        "simulated_hours": round(summary.simulated_s / 3600, 1),
        "faults": _faults(summary.hits),
        "never_tried": [f"{call}: {fault}" for call, fault in summary.never_hit],
        "violations": [{"seed": seed, "what": what} for seed, what in summary.violations],
    }


def _faults(hits: dict[tuple[Call, Fault], int]) -> dict[str, dict[str, int]]:
    return {
        call: {fault: hits.get((call, fault), 0) for fault in faults}
        for call, faults in POSSIBLE.items()
        if any(hits.get((call, fault)) for fault in faults)
    }


def _print(out: Console, summary: Summary, size: _Size) -> None:
    shown = table(("call", *(fault.value for fault in Fault)), left=("call",))
    for call, possible in POSSIBLE.items():
        counts = (str(summary.hits[call, fault]) if fault in possible else "-" for fault in Fault)
        shown.add_row(call.value, *counts)
    draw(out, "Faults injected, by call and kind")
    draw(out, shown)
    out.print(
        f"{summary.seeds:,} seeds with {size.replicas} replicas in {summary.elapsed_s:.1f} s on "
        f"{summary.processes} processors: {summary.seeds / summary.elapsed_s:.0f} runs/s, "
        f"{summary.per_core:.0f} on each",
        highlight=False,
    )
    out.print(
        f"{summary.simulated_s / 3600:,.0f} simulated hours, {summary.calls:,} calls of ports, of which "
        f"{summary.hits.total():,} went wrong, {summary.overlaps:,} times an invocation was overtaken",
        highlight=False,
    )


def _print_violations(out: Console, summary: Summary, size: _Size) -> None:
    if not summary.violations:
        out.print("every rule holds", style="green")
        return
    first, _ = summary.violations[0]
    for line in run(first, replicas=size.replicas, minutes=size.minutes, trace=True).story:
        draw(out, line)
    for seed, what in summary.violations[:SHOWN]:
        out.print(f"seed {seed}: {what}", style="red", markup=False, highlight=False)
    if len(summary.violations) > SHOWN:
        out.print(f"and {len(summary.violations) - SHOWN} more", style="red")
    again = f"spotrelay chaos --seed {first}{size.options} --verbose"
    out.print(f"replay one, with each call: {again}", markup=False, highlight=False)
