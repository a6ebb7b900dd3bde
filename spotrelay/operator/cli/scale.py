"""`spotrelay scale`: another number of replicas than the service file's, for a while."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import CommandError
from spotrelay.operator.cli.options import Confirmed, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operator.cli.times import period
from spotrelay.plane.core.rows import ScaleRequest, Source, derive
from spotrelay.plane.core.scaling import MAX_REPLICAS
from spotrelay.plane.view.words import asked_in_words

if TYPE_CHECKING:
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.core.spec import ServiceSpec

LONGEST = timedelta(days=7)
"""What lasts longer belongs in the file."""


def scale(
    name: ServiceName,
    replicas: Annotated[
        str | None,
        typer.Argument(
            help="How many replicas there should be; if left out, show the number.",
            metavar="REPLICAS",
            show_default=False,
        ),
    ] = None,
    lasts: Annotated[
        str | None,
        typer.Option("--for", help="For how long: 90m, 2h or 1d.", metavar="TIME", show_default=False),
    ] = None,
    is_reset: Annotated[bool, typer.Option("--reset", help="Go back to the service file's number.")] = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Set another number of replicas than the service file's for a while, or show the number.

    Afterwards the service file's number counts again, without a deployment. It asks before it sets 0.

    Example: spotrelay scale demo 5 --for 2h
    """
    from spotrelay.operator.cli import control_plane

    with control_plane.errors_shown("scale"):
        now = datetime.now(UTC)
        request = _request(replicas, lasts, now, is_reset=is_reset)
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        spec = control_plane.deployed(plane, name)
        if request and request.replicas == 0:
            question = f"{name}: end all of its replicas? Nobody answers its clients then."
            control_plane.confirm(question, is_confirmed=is_confirmed)
        if request or is_reset:
            plane.store.note_request(name, Source.OPERATOR, request)
        _show(plane, spec, now)
        if request or is_reset:
            plane.tell(name, "tick")


def _request(
    replicas: str | None, lasts: str | None, now: datetime, *, is_reset: bool
) -> ScaleRequest | None:
    """What the arguments ask for; None if they reset it, or only ask what it is.

    Raises:
        CommandError: they contradict each other, or one isn't understood.
    """
    if replicas is None:
        if lasts is not None:
            raise CommandError("--for needs a number of replicas before it, as in: scale NAME 5 --for 2h")
        return None
    if is_reset:
        raise CommandError("--reset lets the service file's number count: leave out REPLICAS")
    count = _count(replicas)
    if lasts is None:
        raise CommandError(
            f"for how long? Say so with --for, as in --for 2h; {count} for good belongs into the service file"
        )
    return ScaleRequest(count, now + period(lasts, "--for", LONGEST))


def _count(text: str) -> int:

    # More digits than the limit has are too many in any case, and may be more than int() takes.
    if re.fullmatch("[0-9]{1,9}", text) and int(text) <= MAX_REPLICAS:
        return int(text)
    raise CommandError(f"REPLICAS: expected a whole number from 0 to {MAX_REPLICAS}, got {text!r}")


def _show(plane: ControlPlane, spec: ServiceSpec, now: datetime) -> None:
    """What the control plane goes by, as it is on record."""
    wanted = derive(spec, plane.store.read(spec.service, ()).requests, now)
    typer.echo(f"{spec.service}: {asked_in_words(wanted, spec, now)}")
