"""`spotrelay replay`: policies on a recorded Spot market, in simulated time."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from lab.replay import load as loads
from lab.replay.baselines.optimal import NAME as OPTIMAL
from lab.replay.prices import MADE_UP, made_up, recorded
from lab.replay.readers.spot_prices import read_all
from lab.replay.report import WIDTH, tables
from lab.replay.result import Result
from lab.replay.run import POLICIES, PRODUCTION, run
from lab.replay.settings import ReplaySettings, ReplaySettingsError
from lab.replay.synthetic import generate
from lab.replay.traces import Regions, Trace, TraceError, by_region, load
from spotrelay.plane.core.scaling import MAX_REPLICAS, Scaling
from spotrelay.plane.core.spec import OnRebalance, OnWarning

EXIT_USAGE = 2

PLOTS = (".png", ".svg")

DEFAULTS = ReplaySettings()


class UsageError(Exception):
    """An option that makes no sense: one line that names it, its value, and what to give instead."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go."""

    as_json: bool
    plot: Path | None
    folder: Path | None
    is_progress_shown: bool | None
    """None: on a terminal."""


def replay(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(metavar="TRACES_DIR", help="Recordings: folders or files.", show_default=False),
    ] = None,
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="A market that is made up of --seed.")
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Any of {', '.join(POLICIES)}; default: all.", show_default=False),
    ] = None,
    replicas: Annotated[
        str, typer.Option(metavar="N", help="Replicas of the service.")
    ] = f"{DEFAULTS.replicas}",
    cold_start: Annotated[
        list[str] | None,
        typer.Option(
            metavar="S",
            help=f"Seconds from launch to ready; may be repeated. [default: {DEFAULTS.cold_start_s:g}]",
            show_default=False,
        ),
    ] = None,
    warning: Annotated[
        str, typer.Option(metavar="S", help="Seconds from EC2's warning to the loss; 0: no warnings.")
    ] = f"{DEFAULTS.warning_s:g}",
    warning_loss: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of warnings that never arrive, 0 to 1.")
    ] = f"{DEFAULTS.warning_loss:g}",
    recommendations: Annotated[
        str,
        typer.Option(
            metavar="SHARE", help="Share of the losses that rebalance recommendations announce, 0 to 1."
        ),
    ] = f"{DEFAULTS.recommendations:g}",
    false_recommendations: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of the recommendations that nothing follows.")
    ] = f"{DEFAULTS.false_recommendations:g}",
    on_rebalance: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help=f"What {PRODUCTION} does about recommendations: {' or '.join(OnRebalance)}. "
            "No other policy hears them.",
        ),
    ] = DEFAULTS.on_rebalance.value,
    on_warning: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help=f"When {PRODUCTION} takes a warned replica out of rotation: {' or '.join(OnWarning)}. "
            "No other policy knows it.",
        ),
    ] = DEFAULTS.on_warning.value,
    drain: Annotated[
        str,
        typer.Option(
            metavar="S", help=f"Seconds that {PRODUCTION} lets a replica finish its requests. The same."
        ),
    ] = f"{DEFAULTS.drain_s:g}",
    standby: Annotated[
        str,
        typer.Option(
            metavar="N",
            help=f"Standbys of {PRODUCTION}: on-demand instances, stopped until it needs them; "
            "auto: as many as pay.",
        ),
    ] = f"{DEFAULTS.standby}",
    standby_start: Annotated[
        str, typer.Option(metavar="S", help="Seconds from resuming a standby to ready.")
    ] = f"{DEFAULTS.standby_start_s:g}",
    standby_refusal: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of the resumes that EC2 refuses, 0 to 1.")
    ] = f"{DEFAULTS.standby_refusal:g}",
    rebalance_cost: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help=f"{PRODUCTION} moves a replica where Spot is cheaper by this share, such as 20%; needs "
            "--prices. [default: none moves]",
            show_default=False,
        ),
    ] = None,
    od_price_ratio: Annotated[
        str, typer.Option(metavar="R", help="On-demand price / mean Spot price.")
    ] = f"{DEFAULTS.od_price_ratio:g}",
    prices: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHICH",
            help="Each pool's own Spot price: a folder or file of DescribeSpotPriceHistory answers, may be "
            f"repeated; or {MADE_UP}[:SEED], by default of --seed. [default: all equal]",
            show_default=False,
        ),
    ] = None,
    on_demand_dry: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Share of the spells without any Spot in which on-demand is refused as well, 0 to 1.",
        ),
    ] = f"{DEFAULTS.on_demand_dry:g}",
    regions: Annotated[
        str,
        typer.Option(
            metavar="WHICH",
            help=f"A recording of several regions: each by itself, as one market, or both: "
            f"{', '.join(Regions)}.",
        ),
    ] = Regions.BOTH.value,
    seed: Annotated[str, typer.Option(metavar="S", help="Decides all that is random.")] = f"{DEFAULTS.seed}",
    load_file: Annotated[
        Path | None,
        typer.Option(
            "--load",
            metavar="FILE",
            help="Replay a load, not a market: a CSV file of seconds, and requests a second from then on.",
            show_default=False,
        ),
    ] = None,
    scaling: Annotated[
        str,
        typer.Option(
            metavar="MIN,MAX,QPS[,UP,DOWN]",
            help="Of --load: the fewest and the most replicas, requests a second of each, delays (s).",
        ),
    ] = "1,10,1,300,1200",
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw them: .png or .svg.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write replay.json, replay.txt and replay.png there.", show_default=False
        ),
    ] = None,
    progress: Annotated[
        bool | None,
        typer.Option("--progress/--no-progress", help="Show it on standard error; default: on a terminal."),
    ] = None,
) -> None:
    """Run policies through a recorded Spot market: availability, cost, losses, gaps.

    The policy called spotrelay is the production controller itself; the others are what it is compared with.

    Example: spotrelay replay --synthetic --policy spotrelay --policy asg
    """
    err = Console(stderr=True)
    outputs = Outputs(as_json, plot, out, progress)
    try:
        policies = _policies(policy or POLICIES)
        base = ReplaySettings(
            replicas=_whole("--replicas", replicas, 1, MAX_REPLICAS),
            warning_s=_number("--warning", warning),
            warning_loss=_number("--warning-loss", warning_loss),
            recommendations=_number("--recommendations", recommendations),
            false_recommendations=_number("--false-recommendations", false_recommendations),
            on_rebalance=OnRebalance(
                _one_of("--on-rebalance", on_rebalance, [what.value for what in OnRebalance])
            ),
            od_price_ratio=_number("--od-price-ratio", od_price_ratio),
            on_demand_dry=_number("--on-demand-dry", on_demand_dry),
            seed=_whole("--seed", seed, 0),
            on_warning=_on_warning(on_warning),
            drain_s=_number("--drain", drain),
            standby=_standbys(standby),
            standby_start_s=_number("--standby-start", standby_start),
            standby_refusal=_number("--standby-refusal", standby_refusal),
            rebalance_cost=_rebalance_cost(rebalance_cost, prices or []),
        )
        cold_starts = dict.fromkeys(
            _number("--cold-start", s) for s in cold_start or [f"{DEFAULTS.cold_start_s}"]
        )
        if load_file is not None:
            _replay_load(load_file, _scaling(scaling), list(cold_starts), as_json=as_json)
            return
        settings = [replace(base, cold_start_s=cold_start_s) for cold_start_s in cold_starts]
        _check_outputs(outputs)
        which = Regions(_one_of("--regions", regions, [each.value for each in Regions]))
        markets = [
            market
            for whole in _priced(_markets(traces or [], synthetic, base), prices or [], base.seed)
            for market in by_region(whole, which, base.replicas)
        ]
        _replay(markets, policies, settings, outputs)
    except (UsageError, TraceError, ReplaySettingsError, loads.LoadError) as error:
        err.print(f"spotrelay replay: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(EXIT_USAGE) from None


def _replay_load(path: Path, scaling: Scaling, cold_starts: Sequence[float], *, as_json: bool) -> None:
    load = loads.read(path)
    found = {cold_start_s: loads.compare(load, scaling, cold_start_s) for cold_start_s in cold_starts}
    if as_json:
        rows = [{"cold_start_s": s, **loads.to_dict(o)} for s, group in found.items() for o in group]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    console = Console(soft_wrap=True)
    for cold_start_s, group in found.items():
        console.print(f"{path.name}: {len(load):,} s, cold start {cold_start_s:g} s", highlight=False)
        console.print(loads.table(group), soft_wrap=False)


def _scaling(text: str) -> Scaling:
    try:
        least, most, qps, up, down = [float(part) for part in f"{text},300,1200".split(",")[:5]]
        is_fine = 0 <= least <= most <= MAX_REPLICAS and 0 < qps < math.inf and min(up, down) >= 0
    except ValueError:
        is_fine = False
    if not is_fine or text.count(",") not in (2, 4):
        raise UsageError(f"--scaling must be MIN,MAX,QPS or MIN,MAX,QPS,UP,DOWN, as in 1,10,2, not {text!r}")
    return Scaling(
        min_replicas=int(least),
        max_replicas=int(most),
        target_qps_per_replica=qps,
        upscale_delay_s=up,
        downscale_delay_s=down,
    )


def _replay(
    markets: Sequence[Trace],
    policies: Sequence[str],
    settings: Sequence[ReplaySettings],
    outputs: Outputs,
) -> None:
    for market, setting in product(markets, settings):
        run(market, OPTIMAL, setting)  # takes no time, and fails now rather than after minutes of others
    results: list[list[Result]] = []
    whole = len(markets) * len(settings) * len(policies)
    with _progress(whole, outputs.is_progress_shown) as show:
        for market in markets:
            results.append([])
            for setting, policy in product(settings, policies):
                done = show(f"{market.name}, {setting.cold_start_s:g} s: {policy}")
                results[-1].append(run(market, policy, setting, done))
    _write(list(zip(markets, results, strict=True)), outputs)


@contextmanager
def _progress(whole: int, is_shown: bool | None) -> Iterator[Callable[[str], Callable[[float], None]]]:
    """A bar over all runs; whoever begins one says what it is, and gets where to tell how far it is."""
    console = Console(stderr=True, force_terminal=is_shown or None)
    is_hidden = is_shown is False or not console.is_terminal
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as bar:
        task = bar.add_task("replay", total=whole)
        begun = 0

        def begin(what: str) -> Callable[[float], None]:
            nonlocal begun
            before = begun
            begun += 1
            bar.update(task, completed=before, description=what)
            return lambda share: bar.update(task, completed=before + share)

        yield begin


def _write(results: Sequence[tuple[Trace, Sequence[Result]]], outputs: Outputs) -> None:
    document = json.dumps([r.to_dict() for _, group in results for r in group], indent=2) + "\n"
    try:
        written = _write_files(results, document, outputs)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}: give another place to write to") from None
    if outputs.as_json:
        sys.stdout.write(document)
    else:
        console = Console(soft_wrap=True)
        console.width = max(console.width, WIDTH)
        _print(console, results)
    if written:  # on standard error, and last: it is no result, and tables are long
        sys.stdout.flush()
        sys.stderr.write(f"Written: {', '.join(map(str, written))}\n")


def _write_files(
    results: Sequence[tuple[Trace, Sequence[Result]]], document: str, outputs: Outputs
) -> list[Path]:
    """Write what was asked for; return which files that made."""
    plots = [outputs.plot] if outputs.plot else []
    written = list(plots)
    if outputs.folder:
        (outputs.folder / "replay.json").write_text(document, encoding="utf-8")
        with (outputs.folder / "replay.txt").open("w", encoding="utf-8") as file:
            _print(Console(file=file, width=WIDTH, soft_wrap=True), results)
        plots.append(outputs.folder / "replay.png")
        written += [outputs.folder / f"replay.{kind}" for kind in ("json", "txt", "png")]
    if plots:
        from lab.replay.plot import draw, save

        figure = draw(results)
        for plot in plots:
            save(figure, plot)
    return written


def _print(console: Console, results: Sequence[tuple[Trace, Sequence[Result]]]) -> None:
    for market, group in results:
        for part in tables(market, group):
            console.print(part, soft_wrap=False)


def _policies(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(_one_of("--policy", name, POLICIES) for name in names))


def _on_warning(name: str) -> OnWarning:
    return OnWarning(_one_of("--on-warning", name, [when.value for when in OnWarning]))


def _one_of(option: str, name: str, known: Sequence[str]) -> str:
    if name not in known:
        near = get_close_matches(name, known, n=1)
        guess = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"{option} {name!r} is unknown{guess}: give one of {', '.join(known)}")
    return name


def _markets(paths: Sequence[Path], is_synthetic: bool, settings: ReplaySettings) -> list[Trace]:
    if not paths and not is_synthetic:
        raise UsageError("there is nothing to replay: give a folder of traces, or --synthetic")
    markets = [load(path, settings.replicas) for path in paths]
    names = [market.name for market in markets]
    for n, path in enumerate(paths):
        if names.count(names[n]) > 1:  # two folders that end alike
            markets[n] = replace(markets[n], name=str(path))
    return [*markets, generate(settings.seed)] if is_synthetic else markets


def _priced(markets: Sequence[Trace], prices: Sequence[str], seed: int) -> list[Trace]:
    """The markets with the Spot prices that --prices asks for."""
    if not prices:
        return list(markets)
    name, _, given = prices[0].partition(":")
    if name == MADE_UP and len(prices) == 1:
        chosen = _whole(f"--prices {MADE_UP}:SEED", given, 0) if given else seed
        return [made_up(market, chosen) for market in markets]
    if any(each.partition(":")[0] == MADE_UP for each in prices):
        raise UsageError(f"--prices {MADE_UP} can't be combined with other prices: give either")
    histories = read_all([Path(each) for each in prices])
    return [recorded(market, histories) for market in markets]


def _check_outputs(outputs: Outputs) -> None:
    """What can't be written is said before anything has been run."""
    plot = outputs.plot
    if plot and plot.suffix not in PLOTS:
        raise UsageError(
            f"--plot {plot}: the name must end in {' or '.join(PLOTS)}, which decides the format"
        )
    if plot and (plot.is_dir() or not plot.parent.is_dir()):
        remedy = "give a file's name" if plot.is_dir() else "make that folder first"
        raise UsageError(f"--plot {plot}: can't be written: {remedy}")
    if outputs.folder:
        try:
            outputs.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--out {outputs.folder}: {error.strerror}: give another folder") from None
    if plot or outputs.folder:
        try:
            import_module("matplotlib")
        except ModuleNotFoundError:
            raise UsageError("matplotlib is not installed: run make setup") from None


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option} must be a number, not {text!r}") from None


def _standbys(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if not text.isdecimal():
        raise UsageError(f"--standby must be auto or a whole number, not {text!r}")
    return _whole("--standby", text, 0, MAX_REPLICAS)


def _rebalance_cost(text: str | None, prices: Sequence[str]) -> float | None:
    if text is None:
        return None
    if not text.removesuffix("%").isdecimal() or not text.endswith("%"):
        raise UsageError(f"--rebalance-cost must be a share such as 20%, not {text!r}")
    if not prices:
        raise UsageError(f"--rebalance-cost {text} moves nothing where prices are equal: give --prices, too")
    return int(text.removesuffix("%")) / 100


def _whole(option: str, text: str, least: int, most: int | None = None) -> int:
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{option} must be a whole number, not {text!r}") from None
    if number < least or (most is not None and number > most):
        bounds = f"from {least} to {most}" if most is not None else f"{least} or more"
        raise UsageError(f"{option} must be {bounds}, not {number}")
    return number
