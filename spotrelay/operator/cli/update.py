"""`spotrelay update`: deploys a changed service file, and follows its roll-out to the end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
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
from spotrelay.plane.core.names import SERVICE_STACK, image_parameter
from spotrelay.plane.view.words import duration

if TYPE_CHECKING:
    from spotrelay.operator.cli.deploying import Limit, Reached
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.operator.deploy.difference import Difference
    from spotrelay.operator.deploy.stacks import Stack, Stacks
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.operator.look.progress import Progress
    from spotrelay.plane.core.spec import ServiceSpec


def update(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The changed service file; with --rollback, the service's name is enough.",
            show_default=False,
        ),
    ],
    is_rollback: Annotated[
        bool,
        typer.Option("--rollback", help="Go back to the version before, as `rollback` does; deploy nothing."),
    ] = False,
    is_image: Annotated[
        bool,
        typer.Option("--image", help="Take the newest image of the file's SSM parameter; else it stays."),
    ] = False,
    context: Contexts = None,
    timeout: Timeout = "2h",
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Show what a changed service file changes, deploy it, and follow the roll-out to its end.

    The file's `on_update` says how a version rolls out. The exit code is 1 if the version is given up, or
    takes too long.

    Example: spotrelay update services/demo.yaml
    """
    from spotrelay.operator.cli import cdk, control_plane, deploying
    from spotrelay.operator.cli.telling import Teller

    with (
        control_plane.errors_shown("update"),
        TemporaryDirectory(prefix="spotrelay-") as scratch,
        Teller(is_json=is_json) as teller,
    ):
        limit = deploying.Limit.said(timeout)
        said = deploying.parsed(context or ())
        where = Where(region, profile, endpoint_url)
        if is_rollback and is_image:
            raise CommandError("--rollback has the image of the version before: leave out --image")
        if is_rollback:
            _back(_name(file, said), where, teller, limit, is_confirmed=is_confirmed)
            return
        cdk.must_be_here("update")
        if file.is_dir():
            raise CommandError(f"{file} is a directory: name one service file")
        services = deploying.loaded([file], said)
        name = services[0].name
        plane = control_plane.find(name, where)
        spec = control_plane.deployed(plane, name)
        deployer = deploying.Deployer(where, services, Path(scratch), teller, limit)
        assembly = deployer.synthesized(said)
        stack = deployer.stacks.find(SERVICE_STACK + name)
        if stack is None:
            raise CommandError(f"{name} has a document and no stack: run spotrelay up {file}")
        newer = deployer.newer_image(services[0], spec)
        if is_image and not services[0].image.is_parameter:
            raise CommandError(f"{file} names its image itself: name another one there, without --image")
        asked = newer if is_image else None
        made = deployer.compared(assembly, name, stack, asked)
        for line in shown(spec, made, newer if newer != asked else None):
            teller.say(line)
        if made.is_nothing and deployer.is_all_as_deployed(assembly):
            teller.end(
                f"{name} is as {file} says: nothing to deploy",
                {"service": name, "version": spec.version, "is_deployed": False},
            )
            return
        deploying.confirm_removed(name, made, teller, is_confirmed=is_confirmed)
        since = datetime.now(UTC)
        parameter = f"{stack.name}:{image_parameter(services[0].image.reference)}"
        deployer.deploy(assembly, {parameter: asked} if asked else {})
        _say_address(plane, deployer.stacks, stack, teller)
        wanted = control_plane.deployed(plane, name).version
        follow(plane, spec, teller, limit, since, wanted)


def _say_address(plane: ControlPlane, stacks: Stacks, before: Stack, teller: Teller) -> None:
    """Where clients reach the service from now on, if that is another place."""
    from spotrelay.operator.cli.request import ways_to_ask
    from spotrelay.operator.request import Entrance

    stack = stacks.find(before.name)
    entrance, earlier = (Entrance.of(one.outputs) if one else None for one in (stack, before))
    if entrance and entrance.address != (earlier and earlier.address):
        service = before.name.removeprefix(SERVICE_STACK)
        teller.say(f"{service} is reached at {entrance.address} from now on")
        for line in ways_to_ask(plane, entrance, service).lines:
            teller.say(f"  {line}")


def _name(file: Path, said: dict[str, str]) -> str:
    from spotrelay.operator.cli import deploying

    return deploying.loaded([file], said)[0].name if file.is_file() else str(file)


def _back(name: str, where: Where, teller: Teller, limit: Limit, *, is_confirmed: bool) -> None:
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.cli.rollback import give_up

    plane = control_plane.find(name, where)
    spec = control_plane.deployed(plane, name)
    since = datetime.now(UTC)
    with teller.paused():
        given_up = give_up(plane, spec, is_confirmed=is_confirmed)
    teller.say(given_up)
    plane.tell(name, "tick")
    follow(plane, spec, teller, limit, since)


def follow(
    plane: ControlPlane,
    spec: ServiceSpec,
    teller: Teller,
    limit: Limit,
    since: datetime,
    wanted: int | None = None,
) -> None:
    """Until all replicas are as they should be; `spec` is the document of before.

    `wanted`: the version that was deployed; None: whichever is to run.
    """
    from spotrelay.operator.cli import deploying

    name, before = spec.service, spec.version
    following = deploying.Following(plane, teller, limit, since, lambda made: made.rolling(before))
    (reached,) = following.until_done([name])
    made = reached.progress
    if wanted is not None and not reached.why_not:
        reached = replace(reached, why_not=overtaken(made, wanted))
    teller.end(
        ended(made, before, reached.after_s) if not reached.why_not else "",
        document(reached, before),
    )
    if reached.why_not:
        deploying.told("update", reached)
        raise typer.Exit(EXIT_FAILED)


def document(reached: Reached, before: int) -> dict[str, Any]:
    """What became of a roll-out, for scripts."""
    made = reached.progress
    return {
        "service": made.service,
        "version": made.version,
        "before": before,
        "is_deployed": True,
        "ready": made.ready,
        "desired": made.desired,
        "new": made.new,
        "failed": made.failed,
        "to_go": made.to_go,
        "after_s": round(reached.after_s, 1),
        "why_not": reached.why_not or None,
    }


def shown(spec: ServiceSpec, made: Difference, newer: str | None = None) -> list[str]:
    """What is told before it is deployed; `newer`: an image that isn't asked for."""
    from spotrelay.operator.deploy.difference import THE_IMAGE

    name, version = spec.service, spec.version
    if made.is_new_version:
        lines = [f"{name} v{version}→v{version + 1} ({spec.on_update}): {'; '.join(made.instances)}"]
    else:
        lines = [f"{name} stays v{version}: no instance has to change"]
    lines += [f"  {line}" for line in made.settings]
    lines += [f"  {change}" for change in made.resources]
    # Another parameter's image is always its newest.
    if newer and THE_IMAGE not in made.instances:
        lines.append(f"  the image stays; {newer} is newer: --image takes it")
    return lines


def overtaken(made: Progress, wanted: int) -> str:
    """Why the version that was deployed isn't what runs; empty if it is."""
    if made.version == wanted:
        return ""
    what = "was deployed meanwhile" if made.version > wanted else "runs: an operator went back to it"
    return f"v{wanted} isn't what runs. v{made.version} {what}"


def ended(made: Progress, before: int, after_s: float) -> str:
    """What is told when it has rolled out."""
    which = f"v{before}→v{made.version}" if made.version != before else f"v{made.version}"
    failed = f", {made.failed} failed on the way" if made.failed else ""
    return f"{made.service} {which}: {made.ready}/{made.desired} ready after {duration(after_s)}{failed}"
