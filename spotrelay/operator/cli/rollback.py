"""`spotrelay rollback`: gives the deployed version up, until another one is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import CommandError
from spotrelay.operator.cli.options import Confirmed, EndpointUrl, Profile, Region, ServiceName, Where

if TYPE_CHECKING:
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.core.rows import Rollback
    from spotrelay.plane.core.spec import ServiceSpec


def rollback(
    name: ServiceName,
    is_reset: Annotated[
        bool,
        typer.Option(
            "--reset", help="End the rollback: use the deployed version, and try it again if it failed."
        ),
    ] = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Go back to the previous version: its replicas are launched first, then the current ones drained.

    It asks before. The service file stays as it is: correct it and deploy it, which ends the rollback.

    Example: spotrelay rollback demo
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.plane.core.rows import Backoff, Changes

    with control_plane.errors_shown("rollback"):
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        spec = control_plane.deployed(plane, name)
        if is_reset:
            plane.store.note_rollback(name, None)
            plane.store.commit(Changes(name, backoff=Backoff()))
            typer.echo(f"{name}: version {spec.version} counts, as it is deployed")
        else:
            typer.echo(give_up(plane, spec, is_confirmed=is_confirmed))
        plane.tell(name, "tick")


def give_up(plane: ControlPlane, spec: ServiceSpec, *, is_confirmed: bool) -> str:
    """Note that the version before counts; the line that says so. Who calls it tells the control plane.

    Raises:
        Abort: it isn't confirmed, and the answer is no.
        CommandError: none is known.
        PortError: the table can't be asked.
    """
    from spotrelay.operator import rollback
    from spotrelay.operator.cli.control_plane import confirm

    back = rollback.before(spec, plane.store.load(spec.service))
    if back is None:
        raise CommandError(
            f"no version of {spec.service} before {spec.version} is known: deploy an earlier service file"
        )
    question = f"{spec.service}: go back from version {back.version} to {back.to}?"
    confirm(question, is_confirmed=is_confirmed)
    plane.store.note_rollback(spec.service, back)
    return _in_words(spec, back)


def _in_words(spec: ServiceSpec, back: Rollback) -> str:
    from spotrelay.plane.core.spec import OnUpdate

    which = "what is launched from now on has" if spec.on_update is OnUpdate.KEEP else "replicas get"
    return (
        f"{spec.service}: {which} version {back.to} instead of {back.version}, until another one is deployed"
    )
