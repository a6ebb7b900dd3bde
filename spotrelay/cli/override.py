"""`spotrelay override`: a person's word for what the controller wouldn't do on its own."""

from __future__ import annotations

from typing import Annotated

import typer


def override(
    name: Annotated[str, typer.Argument(help="The service.", metavar="NAME", show_default=False)],
    region: Annotated[
        str | None, typer.Option(help="Of the control plane.", metavar="R", show_default=False)
    ] = None,
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Let the controller carry out what it holds back for one service.

    The control plane's log says what that is, and why it wasn't credible: held_back.
    """
    from spotrelay.cli import control_plane

    with control_plane.errors_shown("override"):
        plane = control_plane.find(name, region)
        if not plane.is_deployed(name):
            typer.echo(f"warning: no service {name} is deployed in {plane.region}", err=True)
        typer.echo(
            f"The control plane of {plane.region} will now carry out what it holds back for {name}.\n"
            "That may end replicas that serve. Its log says what and why: held_back."
        )
        control_plane.confirm("Go on?", is_confirmed=is_confirmed)
        plane.tell(name, "override")
        typer.echo("Told. The log of the next tick says what became of it.")
