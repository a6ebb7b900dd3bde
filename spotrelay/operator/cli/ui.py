"""`spotrelay ui`: what the commands print, live, on a page in a browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from spotrelay.operator.cli.errors import CommandError
from spotrelay.operator.cli.options import EndpointUrl, Profile, Region, Where

PORT = 8765
"""The same each time, so that it can be forwarded."""


def ui(
    name: Annotated[
        str | None,
        typer.Argument(help="The service; all of them, if left out.", metavar="NAME", show_default=False),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            "--port", help="Where to listen; 0 for any free port.", min=0, max=65535, metavar="PORT"
        ),
    ] = PORT,
    is_browser_left: Annotated[bool, typer.Option("--no-browser", help="Don't open a browser.")] = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Show the fleet on a local page, live: replicas, timeline, losses, prices, scores, cost.

    It can send a service a request, and changes nothing. It opens on this machine alone, by the address that
    is printed, and asks AWS only while a browser shows it.

    Example: spotrelay ui demo
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.cli.request import via
    from spotrelay.operator.page import server
    from spotrelay.operator.page.poller import Poller
    from spotrelay.operator.page.site import Site
    from spotrelay.operator.page.source import PlaneSource

    with control_plane.errors_shown("ui"):
        where = Where(region, profile, endpoint_url)
        plane = control_plane.find(name, where) if name else control_plane.find_any(where)
        if name and name not in {*plane.services.names(), *plane.store.services()}:
            raise control_plane.not_deployed(plane, name)
        explain = control_plane.explained
        source = PlaneSource(plane, control_plane.find_any(where), explain, [name] if name else ())
        try:
            socket = server.listen(port)
        except OSError as error:
            raise CommandError(
                f"--port {port}: {error.strerror}: choose another, or 0 for any free one"
            ) from error
        with Poller(source, explain) as poller, TemporaryDirectory(prefix="spotrelay-ui-") as own:
            site = Site(poller, plane.region, name, via=via)
            address = f"http://{server.ADDRESS}:{socket.getsockname()[1]}/{site.token}/"
            typer.echo(f"{address} shows {name or 'all services'} in {plane.region}, until Ctrl-C")
            sys.stdout.flush()  # whoever started this may read it through a pipe
            if not is_browser_left and has_desktop():
                webbrowser.open(forward(Path(own), address).as_uri())
            server.run(site.app(), socket)


def forward(directory: Path, address: str) -> Path:
    """A page that leads to the address: everybody can read a browser's command line, which names the page."""
    file = directory / "spotrelay.html"
    file.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', encoding="utf-8")
    return file


def has_desktop() -> bool:
    """Whether a browser has somewhere to open: in a plain terminal, a text browser would take it over."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
