"""`spotrelay recommend`: which instance types suit a model, in which order, and why not the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import CommandError, bad_input_shown
from spotrelay.operator.cli.market import PriceFile, Regions
from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Where
from spotrelay.operator.cli.telling import echo_json
from spotrelay.plane.core.pools import RECOMMENDED_TYPES

if TYPE_CHECKING:
    from spotrelay.operator.advice.advising import Advice
    from spotrelay.operator.advice.own_history import OwnHistory
    from spotrelay.operator.advice.ranking import Choice
    from spotrelay.operator.cli.asked import Asked
    from spotrelay.operator.cli.tables import Columns

EXIT_NOTHING_FITS = 1
"""The question was understood, and no instance type is the answer."""

UNKNOWN = "?"


def _text(help_: str, metavar: str, default: bool | str = False) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(help=help_, metavar=metavar, show_default=default)
    return option


def recommend(
    model: Annotated[str | None, _text("A well-known model, such as llama3-8b.", "NAME")] = None,
    params: Annotated[str | None, _text("Parameters: 8B, 350M.", "N")] = None,
    model_memory: Annotated[
        str | None, _text("Instead, the GPU memory that it takes with everything: 24GiB, or 24GB.", "SIZE")
    ] = None,
    precision: Annotated[
        str | None, _text("Of the weights: bf16, fp16, fp8, int8, int4, fp4, tf32 or fp32.", "P", "bf16")
    ] = None,
    phase: Annotated[str | None, _text("decode, prefill, training or image.", "PHASE", "decode")] = None,
    context: Annotated[
        int | None,
        typer.Option(
            help="Tokens of a request, prompt and answer together; 0: no cache.",
            metavar="N",
            min=0,
            max=10_000_000,
            show_default="8192",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(help="Requests of that length at once.", metavar="N", min=1, max=100_000)
    ] = 1,
    active_params: Annotated[
        str | None, _text("Parameters that a token uses, of a mixture of experts.", "N")
    ] = None,
    attention: Annotated[
        str | None, _text("What keeps a cache: LAYERSxKV_HEADSxHEAD_DIM.", "LxHxD", "a similar model's")
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(help="On each instance.", metavar="N", min=1, max=16, show_default="as few as will do"),
    ] = None,
    interconnect: Annotated[str, typer.Option(help="any or nvlink.", metavar="LINK")] = "any",
    vcpus: Annotated[str | None, _text("8, or 8+ for at least 8.", "N")] = None,
    memory: Annotated[
        str | None, _text("Host memory in GiB: 32+.", "N", "what loading the weights takes")
    ] = None,
    arch: Annotated[str, typer.Option(help="x86_64 or arm64.", metavar="ARCH")] = "x86_64",
    budget: Annotated[str | None, _text("USD an hour for each instance: 1.5/h.", "USD")] = None,
    rank: Annotated[str | None, _text("price or speed: what comes first.", "BY", "price")] = None,
    region: Regions = None,
    prices: PriceFile = None,
    is_offline: Annotated[
        bool, typer.Option("--offline", help="Ask no server: given prices or a dated copy, no scores.")
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(
            help="Put accelerators, cpus and memory into this service file, or into a new one.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    service: Annotated[
        str | None,
        _text("Instead, a deployed service: what its own days say of its types.", "NAME"),
    ] = None,
    since: Annotated[
        str | None, _text("With --service: how far to look back, 30d or 12w.", "TIME", "30d")
    ] = None,
    is_json: AsJson = False,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Say which instance types suit a model, in which order, and why not the others.

    With --service NAME: which types of a running service earned their place, which to drop and what to add.

    Prices, placement scores and how often EC2 takes Spot instances back are AWS's. Without credentials, or
    with --offline, it uses a dated copy of on-demand's list prices, and says what is missing. Bounds are
    what no program exceeds on this hardware: limits to compare by, no forecasts. The exit code is 1 if
    nothing fits, 2 for wrong input, 3 if AWS can't be asked.

    Example: spotrelay recommend --model llama3-8b --batch 8
    """
    from spotrelay.operator.cli.asked import Asked

    asked = Asked(
        model=model,
        params=params,
        model_memory=model_memory,
        precision=precision,
        phase=phase,
        context=context,
        batch=batch,
        active_params=active_params,
        attention=attention,
        gpus=gpus,
        interconnect=interconnect,
        vcpus=vcpus,
        memory=memory,
        arch=arch,
        budget=budget,
    )
    with bad_input_shown("recommend"):
        if service is not None or since is not None:
            _only_of_service(
                service, asked, regions=region, others=(rank, prices, write), is_offline=is_offline
            )
            where = Where(region[0] if region else None, profile, endpoint_url)
            _answer_for(service or "", since or "30d", where, is_json=is_json)
            return
        exit_code = _answer(
            asked,
            rank or "price",
            region,
            prices,
            Where(None, profile, endpoint_url),
            write,
            is_offline=is_offline,
            is_json=is_json,
        )
    if exit_code:
        raise typer.Exit(exit_code)


def _only_of_service(
    service: str | None,
    asked: Asked,
    *,
    regions: Sequence[str] | None,
    others: Sequence[object],
    is_offline: bool,
) -> None:
    """Whether the options go together.

    Raises:
        CommandError: they don't.
    """
    from spotrelay.operator.cli.asked import Asked

    if service is None:
        raise CommandError("--since goes with --service: name one, or remove it")
    if asked != Asked() or any(other is not None for other in others) or is_offline:
        raise CommandError(
            f"--service says what the days of {service} say, and takes only --since, --region, --profile,"
            " --endpoint-url and --json with it: remove the others, or --service"
        )
    if regions and len(regions) > 1:
        raise CommandError(f"a service runs in one region, and --region names {' and '.join(regions)}")


def _answer_for(service: str, since: str, where: Where, *, is_json: bool) -> None:
    """What a deployed service's own days say of its types."""
    from datetime import UTC, datetime

    from spotrelay.file import catalog
    from spotrelay.operator.advice.own_history import own_history
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.cli.scores import LONGEST
    from spotrelay.operator.cli.times import period

    with control_plane.errors_shown("recommend"):
        look_back = period(since, "--since", LONGEST)
        plane = control_plane.find(service, where)
        spec = control_plane.deployed(plane, service)
        now = datetime.now(UTC)
        days = plane.days.since(service, (now - look_back).date())
        survey = plane.store.recall(service, spec.region, now).survey
        if survey is not None and survey.asked != spec.asked:
            survey = None
        found = own_history(service, days, survey, spec.asked, catalog.all_types(), RECOMMENDED_TYPES)
        if is_json:
            echo_json(found.to_json())
        elif not days:
            typer.echo(
                f"no day of {service} is kept since {(now - look_back):%Y-%m-%d}: the hourly survey writes"
                " them, the first one within the hour"
            )
        else:
            _show_history(found)


def _show_history(found: OwnHistory) -> None:
    from spotrelay.operator.cli.tables import console, draw, table

    head = ["POOL", "HOURS", "LAUNCHED", "LOST", "REFUSED", "SPOT USD/h", "SCORE"]
    shown = table(head, left=("POOL",))
    for pool in found.pools:
        shown.add_row(
            f"{pool.zone}/{pool.instance_type}",
            f"{pool.hours:.1f}",
            f"{pool.launched}",
            f"{pool.lost}",
            f"{pool.refused}",
            _usd(pool.usd_per_hour),
            UNKNOWN if pool.score is None else f"{pool.score:.1f}",
        )
    draw(console(), shown)
    for verdict in dict.fromkeys(one.verdict for one in found.types):
        _section(
            str(verdict).capitalize(),
            (f"{one.instance_type}: {one.why}." for one in found.types if one.verdict is verdict),
        )
    _section("Add", (f"{line}." for line in found.add))
    _section("", found.notes)


def _answer(
    asked: Asked,
    rank: str,
    regions: Sequence[str] | None,
    prices: Path | None,
    where: Where,
    write: Path | None,
    *,
    is_offline: bool,
    is_json: bool,
) -> int:
    from spotrelay.operator.advice.advising import advise, in_regions, suitable
    from spotrelay.operator.advice.ranking import Rank
    from spotrelay.operator.cli.asked import one_of, question
    from spotrelay.operator.cli.market import learned, regions_of, scores, told

    by = one_of(Rank, "--rank", "ranking", rank)
    wanted = question(asked)
    named = regions_of(regions, where, is_offline=is_offline)
    wanted = in_regions(wanted, named.names)
    given = told(prices, named.names)
    types = [fit.type.name for fit in suitable(wanted)]
    found = learned(types, named.names, where, given, is_offline=is_offline or not types)
    advice = advise(wanted, found.market, by)
    notes = [*named.notes, *found.notes]
    if not advice.choices:
        _say_nothing_fits(advice, asked, notes, is_json=is_json)
        return EXIT_NOTHING_FITS
    if not is_offline and not found.exit_code:
        told_scores, note = scores([choice.name for choice in advice.choices], named.names, where)
        advice = replace(advice, market=replace(found.market, scores=told_scores))
        notes.append(note)
    if wanted.budget_usd is not None and not advice.is_affordability_known:
        notes.append(f"The budget couldn't be applied: no price in {' or '.join(named.names)} is known.")
    if write is not None:
        from spotrelay.operator.cli.written import write_into

        notes.append(f"Written to {write_into(write, advice)}.")
    if is_json:
        _echo_json(advice, notes)
    else:
        _show(advice, notes)
    return found.exit_code


def _echo_json(advice: Advice, notes: Sequence[str], would: Sequence[str] = ()) -> None:
    from spotrelay.operator.advice.reasons import document

    told = {**document(advice), "notes": list(notes)}
    echo_json({**told, "what_would_fit": list(would)})


def _say_nothing_fits(advice: Advice, asked: Asked, notes: Sequence[str], *, is_json: bool) -> None:
    from spotrelay.operator.advice.advising import in_regions, what_would
    from spotrelay.operator.advice.reasons import why_out
    from spotrelay.operator.cli.asked import question, smaller

    regions = advice.question.regions
    narrower = {words: in_regions(question(less), regions) for words, less in smaller(asked).items()}
    would = what_would(advice.question, advice.market, narrower)
    if is_json:
        _echo_json(advice, notes, would)
        return
    _show_need(advice)
    typer.echo(f"\nNothing fits in {' or '.join(regions)}.")
    for line in would:
        typer.echo(f"What would: {line}.")
    if not would:
        typer.echo("Nothing smaller to ask for would help: this takes more than one instance.")
    _section("Not", why_out(advice.outs))
    _section("", notes)


def _show_need(advice: Advice) -> None:
    from spotrelay.operator.advice.gpu_memory import gib
    from spotrelay.operator.cli.tables import console, draw

    need = advice.question.need
    typer.echo(f"It needs {gib(need.total)} of GPU memory, and {advice.question.host_gib} GiB of the host's:")
    for line in need.working:
        draw(console(), f"  {line}")


def _show(advice: Advice, notes: Sequence[str]) -> None:
    from spotrelay.operator.advice.reasons import order, why_in, why_out, widening
    from spotrelay.operator.cli.tables import console, draw

    _show_need(advice)
    typer.echo(f"\n{order(advice)}\n")
    draw(console(), _table(advice))
    _section("Why", why_in(advice))
    _section("Why not", why_out(advice.outs))
    _section("Pools", widening(advice, RECOMMENDED_TYPES))
    _section("", notes)


def _section(title: str, lines: Iterable[str]) -> None:
    from spotrelay.operator.cli.tables import console, draw

    found, out = list(lines), console()
    if not found:
        return
    typer.echo(f"\n{title}" if title else "")
    for line in found:
        draw(out, f"  {line}" if title else line)


def _table(advice: Advice) -> Columns:
    """One line for each type; prices and risks where any is known."""
    from spotrelay.operator.cli.tables import table

    unit = next((choice.bound.unit for choice in advice.choices if choice.bound), "tokens/s")
    market, regions = advice.market, advice.question.regions
    several = len(regions) > 1 and market.listed is None
    is_spot_known = any(choice.price.spot is not None for choice in advice.choices)
    head = ["", "TYPE", "GPUS", "vCPU", "HOST GiB", f"{unit.upper()} <=", "LOAD s >=", "ZONES"]
    if advice.is_priced:
        head += ["SPOT USD/h"] * is_spot_known
        # Another region's price isn't this one's: the heading says whose it is.
        is_elsewhere = market.listed and any(choice.price.is_elsewhere for choice in advice.choices)
        head += [f"IN {market.listed.region}" if market.listed and is_elsewhere else "ON-DEMAND"]
        head += [f"M {unit.removesuffix('/s').upper()}/USD <="]
    is_advised = any(choice.band for choice in advice.choices)
    if is_advised:
        head += ["INTERRUPTED IN 30 d", "SAVES"]
    if several:
        head.append("CHEAPEST IN")
    shown = table(head, left=("TYPE", "GPUS", "CHEAPEST IN"), names=2)
    for number, choice in enumerate(advice.choices, 1):
        row = [f"{number}", *_row(choice)]
        if advice.is_priced:
            row += [_usd(choice.price.spot)] * is_spot_known
            row += [_usd(choice.price.on_demand), _millions(choice.per_usd)]
        if is_advised:
            row += [str(choice.band), f"{choice.band.savings}%"] if choice.band else [UNKNOWN, UNKNOWN]
        shown.add_row(*row, *([choice.region] if several else []))
    return shown


def _row(choice: Choice) -> list[str]:
    from spotrelay.operator.advice.reasons import whole_number

    type_ = choice.fit.type
    return [
        choice.name,
        str(choice.fit.accelerators),
        f"{type_.vcpus}",
        f"{type_.memory_gib:g}",
        whole_number(choice.bound.rate) if choice.bound else UNKNOWN,
        whole_number(choice.load_s),
        f"{choice.fit.pools}",
    ]


def _usd(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount:.3f}"


def _millions(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount / 1e6:.3g}"
