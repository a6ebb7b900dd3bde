"""`spotrelay override`: a person's word for what the controller wouldn't do on its own."""

from __future__ import annotations

import typer

from spotrelay.cli.options import Confirmed, EndpointUrl, Profile, Region, ServiceName, Where


def override(
    name: ServiceName,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Let the controller carry out what it holds back for one service.

    The log line `held_back` (`spotrelay logs NAME`) says what that is, and why it isn't credible.
    """
    from spotrelay.cli import control_plane

    with control_plane.errors_shown("override"):
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        if not plane.is_deployed(name):
            typer.echo(f"warning: no service {name} is deployed in {plane.region}", err=True)
        typer.echo(
            f"The control plane of {plane.region} will now carry out what it holds back for {name}.\n"
            "That may end replicas that serve. Its log says what and why: held_back."
        )
        control_plane.confirm("Go on?", is_confirmed=is_confirmed)
        plane.tell(name, "override")
        typer.echo("Told. The log of the next tick says what became of it.")
