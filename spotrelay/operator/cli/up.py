"""`spotrelay up`: deploys services and waits until their replicas serve."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import EXIT_FAILED
from spotrelay.operator.cli.options import (
    AsJson,
    Confirmed,
    Contexts,
    EndpointUrl,
    Profile,
    Region,
    Timeout,
    Where,
)
from spotrelay.plane.view.words import duration

if TYPE_CHECKING:
    from spotrelay.operator.cli.deploying import Deployer, Limit, Reached
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.operator.deploy.assembly import Assembly
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.operator.look.progress import Progress


def up(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Service files, or directories of them.", show_default=False),
    ],
    context: Contexts = None,
    timeout: Timeout = "1h",
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Deploy services with everything they need, and wait until all replicas are ready.

    The control plane and the network are deployed with them if they aren't there, or have changed; other
    services stay as they are. The exit code is 1 if replicas can't be launched, fail, or take too long.

    Example: spotrelay up services/demo.yaml
    """
    from spotrelay.operator.cli import cdk, control_plane, deploying
    from spotrelay.operator.cli.telling import Teller

    with (
        control_plane.errors_shown("up"),
        TemporaryDirectory(prefix="spotrelay-") as scratch,
        Teller(is_json=is_json) as teller,
    ):
        cdk.must_be_here("up")
        limit = deploying.Limit.said(timeout)
        said = deploying.parsed(context or ())
        services = deploying.loaded(files, said)
        where = Where(region, profile, endpoint_url)
        deployer = deploying.Deployer(where, services, Path(scratch), teller, limit)
        assembly = deployer.synthesized(said)
        _must_lose_nothing(deployer, assembly, teller, is_confirmed=is_confirmed)
        since = datetime.now(UTC)
        deployer.deploy(assembly)
        plane = deploying.found(where)
        following = deploying.Following(plane, teller, limit, since, _line)
        reached = following.until_done(assembly.services)
        _end(deployer, plane, reached, teller, limit)
        for one in reached:
            if one.why_not:
                deploying.told("up", one)
        if any(one.why_not for one in reached):
            raise typer.Exit(EXIT_FAILED)


def _must_lose_nothing(deployer: Deployer, assembly: Assembly, teller: Teller, *, is_confirmed: bool) -> None:
    """Ask before something of a service that serves is taken away."""
    from spotrelay.operator.cli import deploying
    from spotrelay.plane.core.names import SERVICE_STACK

    for service in assembly.services:
        stack = deployer.stacks.find(SERVICE_STACK + service)
        if stack is not None:
            deploying.confirm_removed(
                service, deployer.compared(assembly, service, stack), teller, is_confirmed=is_confirmed
            )


def _line(made: Progress) -> str:
    rolls = f" ({made.rolling(made.before[-1])})" if made.before else ""
    why = f": {made.waits_for}" if made.waits_for else ""
    return f"{made.service} {made.ready}/{made.desired} ready{rolls}{why}"


def _end(
    deployer: Deployer, plane: ControlPlane, reached: list[Reached], teller: Teller, limit: Limit
) -> None:
    from spotrelay.operator.cli.request import ways_to_ask
    from spotrelay.operator.request import Entrance
    from spotrelay.plane.core.names import SERVICE_STACK

    lines, documents = [], []
    for one in reached:
        made = one.progress
        stack = deployer.stacks.find(SERVICE_STACK + made.service)
        entrance = Entrance.of(stack.outputs) if stack else None
        ways = ways_to_ask(plane, entrance, made.service) if entrance else None
        if not one.why_not:
            lines.append(
                f"{made.service} {made.ready}/{made.desired} ready after {duration(one.after_s)}"
                + (f": {entrance.address}" if entrance else "")
            )
            lines += (f"  {line}" for line in (ways.lines if ways else ()))
        documents.append(
            {
                "service": made.service,
                "version": made.version,
                "ready": made.ready,
                "desired": made.desired,
                "after_s": round(one.after_s, 1),
                "address": entrance.address if entrance else None,
                "curl": ways.curl if ways else None,
                "why_not": one.why_not or None,
            }
        )
    teller.end("\n".join(lines), {"services": documents, "after_s": round(limit.elapsed_s, 1)})
