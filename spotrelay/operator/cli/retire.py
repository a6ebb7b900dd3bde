"""`spotrelay retire`: says that a service's stack is gone, for when the event that says so got lost."""

from __future__ import annotations

import typer

from spotrelay.operator.cli.errors import CommandError
from spotrelay.operator.cli.options import Confirmed, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.plane.core.names import service_parameter


def retire(
    name: ServiceName,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Tell the controller that a service's stack is gone, so that it ends the replicas that are left.

    Normally an event says so. Without it nothing is ended, even if the service's document is missing.

    Example: spotrelay retire demo
    """
    from spotrelay.operator.cli import control_plane

    with control_plane.errors_shown("retire"):
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        if plane.is_deployed(name):
            raise CommandError(
                f"{name} is deployed in {plane.region} (parameter {service_parameter(name)}): "
                f"remove its stack first, with `spotrelay down {name}`"
            )
        typer.echo(
            f"The control plane of {plane.region} will take the stack of {name} for gone.\n"
            "When some more ticks have found no document of it, the replicas that it still has are ended."
        )
        control_plane.confirm("Go on?", is_confirmed=is_confirmed)
        plane.tell(name, "removed")
        typer.echo("Told. The log of the next ticks says what became of it.")
