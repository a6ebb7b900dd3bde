"""`spotrelay validate`: what is wrong with a service file, or what it amounts to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spotrelay.file.compile.costs import Costs
from spotrelay.file.instance.userdata import MAX_BYTES
from spotrelay.file.service import Description, Problem, Service, describe
from spotrelay.operator.advice.start_plan import Plan, to_json, told, warning
from spotrelay.operator.cli.errors import EXIT_BAD_INPUT
from spotrelay.operator.cli.files import Env, EnvFile, Files, Name, Secret, given, load_all
from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Region, Where
from spotrelay.operator.cli.start_plans import Seen, plan_of
from spotrelay.operator.cli.telling import echo_json


def validate(
    files: Files,
    is_json: AsJson = False,
    env: Env = None,
    env_file: EnvFile = None,
    secret: Secret = None,
    name: Name = None,
    account: Annotated[
        bool,
        typer.Option("--account", help="Ask AWS whether the quotas are large enough, and the models there."),
    ] = False,
    prices: Annotated[
        bool, typer.Option("--prices", help="Ask AWS for prices, and show what the instances cost a month.")
    ] = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Check service files, and show what they would run on.

    Problems go to standard error, one line each (file:line:column: field: problem). Warnings are about
    probable mistakes, notices about differences from SkyServe. The exit code is 2 for a problem or a quota
    that is too small, 1 if AWS can't be asked, and 3 without credentials or a permission.

    Example: spotrelay validate services/demo.yaml
    """
    out, err = Console(), Console(stderr=True)
    where = Where(region, profile, endpoint_url)
    services, problems = load_all(files, given(env, env_file, secret, name))
    advice: Sequence[_Advice] = ()
    seen: Mapping[str, Seen] = {}
    if account and services:
        lacks, advice, seen = _lacks(services, where)
        problems += lacks
    priced = _priced(services, where) if prices and services else _Priced([None] * len(services))
    advice = [*advice, *(_Advice("warning", line) for line in priced.advice)]
    plans = _plans(services, seen)
    advice += [_Advice("warning", line) for line in map(warning, plans.values()) if line]
    described = [describe(service, cost) for service, cost in zip(services, priced.costs, strict=True)]
    if is_json:
        echo_json(_document(described, problems, advice, list(plans.values())))
    else:
        for facts in described:
            out.print(_table(facts, plans.get(facts.name)))
            for kind, told in (("warning", facts.warnings), ("notice", facts.notices)):
                for problem in told:
                    _labelled(err, kind, str(problem))
        for one in advice:
            _labelled(err, one.kind, one.text)
        for problem in problems:
            _line(err, problem)
    if problems:
        raise typer.Exit(EXIT_BAD_INPUT)
    if priced.exit_code:
        raise typer.Exit(priced.exit_code)


def _labelled(console: Console, kind: str, text: str) -> None:
    console.print(f"{kind}: ", style={"warning": "yellow", "notice": "cyan"}[kind], end="")
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _document(
    described: Sequence[Description],
    problems: Sequence[Problem],
    advice: Sequence[_Advice],
    plans: Sequence[Plan],
) -> dict[str, Any]:
    """Everything that the tables and lines say, for scripts."""
    return {
        "services": [asdict(facts) for facts in described],
        "warnings": [one.text for one in advice if one.kind == "warning"],
        "notices": [one.text for one in advice if one.kind == "notice"],
        "problems": [asdict(problem) for problem in problems],
        **({"starts": [to_json(plan) for plan in plans]} if plans else {}),
    }


def _plans(services: Sequence[Service], seen: Mapping[str, Seen]) -> dict[str, Plan]:
    """By service, of those that say how long a start may take."""
    found = {service.name: plan_of(service, seen.get(service.name, Seen())) for service in services}
    return {name: plan for name, plan in found.items() if plan}


def _lacks(services: Sequence[Service], where: Where) -> tuple[list[Problem], list[_Advice], dict[str, Seen]]:
    """What the account lacks for the services, what is well to know, and what it has for their starts."""
    from spotrelay.operator.cli.account import account_in
    from spotrelay.operator.cli.control_plane import errors_shown

    with errors_shown("validate --account"):
        asked = account_in(where)
        lacks = [
            Problem(str(service.path), None, "", lack)
            for service in services
            for lack in asked.lacks(service)
        ]
        models = asked.models(services)
        lacks += models.problems
        barely = [line for service in services for line in asked.barely_has(service)]
        seen, unseen = asked.starts(services, models)
        advice = [
            *(_Advice("warning", line) for line in asked.warnings(len(services))),
            *(_Advice("notice", line) for line in (*barely, *models.notices, *unseen)),
        ]
        return lacks, advice, seen


@dataclass(frozen=True, slots=True)
class _Advice:
    """A line about the account or its prices, and whether it is a warning or a notice."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Priced:
    """What each service costs, as far as AWS tells."""

    costs: Sequence[Costs | None]
    advice: Sequence[str] = ()
    exit_code: int = 0


def _priced(services: Sequence[Service], where: Where) -> _Priced:
    from spotrelay.operator.cli.control_plane import errors_told
    from spotrelay.operator.cli.price_list import prices_in

    found: list[Costs | None] = []
    advice: list[str] = []
    with errors_told("validate --prices") as failed:
        asked = prices_in(where)
        for service in services:
            elsewhere = asked.why_not(service)
            advice += [elsewhere] if elsewhere else []
            found.append(None if elsewhere else asked.costs(service))
    missing = len(services) - len(found)
    return _Priced([*found, *[None] * missing], advice, exit_code=failed[0].exit_code if failed else 0)


def _line(console: Console, problem: Problem) -> None:
    """One problem on one line, unwrapped, so that editors and scripts can read it."""
    console.print(str(problem), markup=False, highlight=False, soft_wrap=True)


def _standbys(facts: Description) -> str:
    if not (facts.standby or facts.standby_auto):
        return "none"
    many = f"as many as pay, {facts.standby} to begin with" if facts.standby_auto else f"{facts.standby}"
    return f"{many}, on-demand, stopped until a replica is missing"


def _types(facts: Description) -> str:
    """Each type below what it satisfies; types that satisfy the same in turn together."""
    lines = []
    for why, types in groupby(facts.instance_types, lambda type_: type_.why):
        lines.append(f"{'; or '.join(why)}:")
        lines += (f"  {type_}{_price(type_.name, facts.costs)}" for type_ in types)
    return "\n".join(lines)


def _price(name: str, costs: Costs | None) -> str:
    found = costs and costs.instance_types.get(name)
    if costs is None:
        return ""
    if not found:
        return f"; no price in {costs.region}"
    listed = "" if found.on_demand_usd is None else f"; {found.on_demand_usd:.3f} USD/h"
    spot = [f"{usd:.3f}" for usd in sorted(found.spot_usd.values())]
    if not spot:
        return listed
    return f"{listed}, Spot {spot[0]}" + (f" to {spot[-1]}" if spot[-1] != spot[0] else "")


def _cost(costs: Costs | None) -> str:
    if costs is None:
        return (
            "unknown here: --prices asks AWS, with your credentials, in the region of --region or of your"
            " configuration"
        )
    lines = []
    for month in costs.months:
        line = f"{month.replicas} replicas: on-demand {_usd(month.on_demand_usd)}"
        if month.spot_usd is not None:
            line += (
                f", with Spot usually {_usd(month.spot_usd)} ({_usd(month.spot_dearest_usd)}"
                " if all were in the dearest pool)"
            )
        lines.append(line)
    return "\n".join([*lines, f"In {costs.region}; {costs.of}. docs/cost.md has the rest."])


def _usd(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:,.0f} USD"


def _pools(facts: Description) -> str:
    costs = facts.costs
    where = f"each of {', '.join(facts.zones)}" if facts.zones else "each zone"
    known = f"; {costs.pools} with a Spot price in {costs.region}" if costs and costs.pools else ""
    return f"{facts.pools_per_zone} in {where}{known}"


def _table(facts: Description, plan: Plan | None) -> Table:
    table = Table(title=facts.name, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rows = {
        "replicas": f"{facts.replicas}, {facts.purchase}",
        "standbys": _standbys(facts),
        "accelerators": "\n".join(facts.accelerators) or "none",
        "instance types": _types(facts),
        "capacity pools": _pools(facts),
        "regions": ", ".join(facts.regions) or "the one that it is deployed to",
        "quotas": "\n".join(map(str, facts.quotas)) or "none is known",
        "cost a month": _cost(facts.costs),
        "port": str(facts.port),
        "health check": facts.health_check,
        "readiness probe": facts.readiness_probe,
        "idle time-out": f"{facts.idle_timeout_s} s",
        "drain": f"{facts.drain_s} s after a warning, {facts.longest_drain_s} s where nothing hurries",
        "new versions": facts.updates,
        "disk": facts.disk,
        "image": facts.image,
        "files": "\n".join(facts.files) or "none of this machine",
        "user data": f"{facts.user_data_bytes} of {MAX_BYTES} bytes",
    }
    if plan:
        rows["start within"] = "\n".join(told(plan))
    for name, value in rows.items():
        table.add_row(name, Text(value))  # or a path with brackets in it would be taken for markup
    return table
