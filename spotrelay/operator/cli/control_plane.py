"""The control plane of a region, as a command finds it, and the errors that a command shows.

docs/commands.md lists the permissions that each command needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import typer
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    LoginError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from spotrelay.messages import nearest
from spotrelay.operator.cli.errors import AWS_SAYS, EXIT_BAD_INPUT, EXIT_FAILED, EXIT_NO_ACCESS, CommandError
from spotrelay.operator.cli.options import Where
from spotrelay.operator.look.access import ControlPlane, UnreadableControlPlaneError
from spotrelay.operator.look.denied import VALID_CREDENTIALS, missing_action
from spotrelay.plane.core.names import CONTROL_PLANE_PARAMETER, SERVICE_NAME
from spotrelay.plane.core.ports import Denied, NewerRows, OtherControlPlane, PortError, UnreadableDocument
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.view.rows import rows
from spotrelay.plane.view.snapshot import ServiceSnapshot

PERMISSIONS = "docs/commands.md lists the permissions that this needs"


def find(service: str, where: Where) -> ControlPlane:
    """The control plane of the region.

    Raises:
        CommandError: there is none, or no service can have this name.
        BotoCoreError, ClientError, UnreadableControlPlaneError: see `ControlPlane.found_with`.
    """
    if not re.fullmatch(SERVICE_NAME, service):
        raise CommandError(f"{service!r} can't be a service's name: those are lower-case, as in its file")
    return find_any(where)


def find_any(where: Where) -> ControlPlane:
    """The same, for a command that isn't about one service."""
    session = where.session()
    plane = ControlPlane.found_with(session)
    if plane is None:
        raise CommandError(
            f"no control plane in {session.region_name} (no parameter {CONTROL_PLANE_PARAMETER}): "
            "name its region with --region, or deploy it"
        )
    return plane


def deployed(plane: ControlPlane, service: str) -> ServiceSpec:
    """The service's document, as it is deployed.

    Raises:
        CommandError: no such service is deployed; the nearest name is named.
        PortError, UnreadableDocument, OtherControlPlane: see `ports.Services.get`.
    """
    spec = plane.services.get(service, fresh=True)
    if spec is not None:
        return spec
    raise not_deployed(plane, service)


def seen(plane: ControlPlane, service: str, now: datetime, *, ended: int) -> ServiceSnapshot:
    """The replicas of a service, of which something is there or was: with the last `ended` that are history.

    Raises:
        CommandError: there is no such service.
        PortError, UnreadableDocument: they can't be read.
    """
    found = rows(plane, service, now, ended=ended)
    if found.spec is None and not found.replicas:
        raise not_deployed(plane, service)
    return found


def not_deployed(plane: ControlPlane, service: str) -> CommandError:
    """That there is no such service, and what was probably meant."""
    try:
        names = plane.services.names()
    except PortError:
        names = ()  # the names are a help, and nothing that the command needs
    close = nearest(service, names)
    meant = f"; did you mean {close}?" if close else ": check the name, or deploy it first"
    return CommandError(f"no service {service} is deployed in {plane.region}{meant}")


@contextmanager
def errors_shown(command: str) -> Iterator[None]:
    """End the command with one line on standard error where it can't go on."""
    with errors_told(command) as told:
        yield
    if told:
        raise typer.Exit(told[0].exit_code)


class Told(str):
    """A line about what can't be done, and the exit code that goes with it."""

    __slots__ = ("exit_code",)
    exit_code: int

    def __new__(cls, line: str, exit_code: int) -> Told:
        """The line, with its exit code as an attribute."""
        told = super().__new__(cls, line)
        told.exit_code = exit_code
        return told


@contextmanager
def errors_told(command: str) -> Iterator[list[Told]]:
    """Say in one line on standard error what can't be done, and go on; the list then has the line."""
    told: list[Told] = []
    try:
        yield told
    except Exception as error:
        line = explained(error)
        if line is None:
            raise
        told.append(line)
    for why in told:
        typer.echo(f"spotrelay {command}: {why}", err=True)


def explained(error: Exception) -> Told | None:
    """What the error means to whoever runs a command; None: it is a bug of ours."""
    match error:
        case CommandError():
            return Told(str(error), error.exit_code)
        case NewerRows():
            return Told(
                f"{error}: run the `spotrelay` of the version that is deployed, or a later one", EXIT_FAILED
            )
        case UnreadableControlPlaneError() | UnreadableDocument() | OtherControlPlane():
            return Told(str(error), EXIT_FAILED)
        case PortError() | ClientError():
            action = missing_action(error)
            if action is not None and action.startswith(VALID_CREDENTIALS):
                remedy = "sign in again, or set AWS_PROFILE"
                return Told(
                    f"AWS doesn't take these credentials: {remedy}. {AWS_SAYS} {error}", EXIT_NO_ACCESS
                )
            if action is not None:
                return Told(f"you may not do {action}: {PERMISSIONS}. {AWS_SAYS} {error}", EXIT_NO_ACCESS)
            again = isinstance(error, PortError) and not isinstance(error, Denied)
            return Told(f"{error}: try again" if again else str(error), EXIT_FAILED)
        case BotoCoreError():
            return _of_configuration(error)
        case _:
            return None


def _of_configuration(error: BotoCoreError) -> Told:
    """What botocore itself has to say: before AWS was asked, or because it can't be reached."""
    match error:
        case NoRegionError():
            return Told("which region? Name it with --region, or set AWS_DEFAULT_REGION", EXIT_BAD_INPUT)
        case NoCredentialsError() | PartialCredentialsError():
            remedy = "set AWS_PROFILE, or run `aws configure`"
            return Told(f"no AWS credentials ({error}): {remedy}", EXIT_NO_ACCESS)
        case SSOError() | TokenRetrievalError():
            return Told(f"{error}: sign in with `aws sso login`", EXIT_NO_ACCESS)
        case LoginError():
            return Told(f"{error}: sign in with `aws login`", EXIT_NO_ACCESS)
        case CredentialRetrievalError():
            return Told(f"{error}: fix the profile, see `aws configure list`", EXIT_NO_ACCESS)
        case ProfileNotFound():
            remedy = "name one that `aws configure list-profiles` shows, with --profile or AWS_PROFILE"
            return Told(f"{error}: {remedy}", EXIT_BAD_INPUT)
        case EndpointConnectionError():
            return Told(f"{error}: is the region right, or the address of --endpoint-url?", EXIT_FAILED)
        case _:
            return Told(str(error), EXIT_FAILED)


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask, unless it is confirmed already; anything but a yes ends the command."""
    if not is_confirmed:
        typer.confirm(question, abort=True)
