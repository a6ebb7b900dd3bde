"""`spotrelay override`: a person's word for what the controller wouldn't do on its own."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.options import Confirmed, EndpointUrl, Profile, Region, ServiceName, Where

if TYPE_CHECKING:
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.core.held import Answer, HeldBack, Override

ANSWERED_WITHIN_S = 30.0
"""A tick comes within seconds, and takes a second or two. One that waits for another tick takes five more."""

LOOK_S = 1.0


def override(
    name: ServiceName,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Let the controller carry out what it holds back for one service: what this shows, and nothing else.

    If it sees something else by then, or more, nothing is carried out, and this says so.

    Example: spotrelay override demo
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.plane.core.held import Override

    with control_plane.errors_shown("override"):
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        held = plane.store.held(name).back
        if not held:
            raise _nothing(plane, name)
        typer.echo(f"The control plane of {plane.region} holds back for {name}:")
        for one in held:
            typer.echo(_in_words(one))
        typer.echo("It will carry this out if it still holds back this and nothing else.")
        control_plane.confirm("Go on?", is_confirmed=is_confirmed)
        given = Override(frozenset(held), datetime.now(UTC))
        plane.override(name, given)
        with Teller() as teller:
            teller.now("waits for the control plane's answer")
            answer = _answer(plane, name, given)
        _tell(name, answer)


def _nothing(plane: ControlPlane, service: str) -> CommandError:
    """That there is nothing to override, or no such service."""
    from spotrelay.operator.cli import control_plane

    if not plane.is_deployed(service):
        return control_plane.not_deployed(plane, service)
    return CommandError(
        f"nothing is held back for {service} in {plane.region} that an override lets go on, so nothing is"
        f" sent: `spotrelay logs {service}` shows the rest, with its remedy"
    )


def _in_words(held: HeldBack) -> str:
    since = held.since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"- {held.what}, since {since}: {held.why}.\n  If you say that this is true, {held.then}."


def _answer(plane: ControlPlane, service: str, given: Override) -> Answer | None:
    """What became of it; None: nobody has said so by now."""
    give_up_at_s = time.monotonic() + ANSWERED_WITHIN_S
    while time.monotonic() < give_up_at_s:
        time.sleep(LOOK_S)
        answer = plane.store.held(service).answer
        if answer and answer.given_at == given.given_at:
            return answer
    return None


def _tell(service: str, answer: Answer | None) -> None:
    if answer is None:
        typer.echo(f"Told, and no answer yet: `spotrelay logs {service}` will have it.")
        return
    for what in answer.done:
        typer.echo(f"Carried out; no longer: {what}")
    if answer.lapsed:
        raise CommandError(
            f"not carried out: {answer.lapsed}; look again with `spotrelay override {service}`", EXIT_FAILED
        )
