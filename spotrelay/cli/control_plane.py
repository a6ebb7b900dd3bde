"""The control plane of a region, as a command finds it, and the errors that a command shows.

docs/operating.md lists the permissions that each command needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import typer
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
)

from spotrelay.core.names import CONTROL_PLANE_PARAMETER, SERVICE_NAME
from spotrelay.core.ports import Denied, OtherControlPlane, PortError, UnreadableDocument
from spotrelay.operate.access import ControlPlane, UnreadableControlPlaneError

EXIT_UNDONE = 1
"""The control plane wasn't told."""

PERMISSIONS = "docs/operating.md lists the permissions that this needs"


class CommandError(Exception):
    """Why a command can't do what it is for: one line, with the remedy."""


def find(service: str, region: str | None) -> ControlPlane:
    """The control plane of the region, None: of the region that the AWS configuration names.

    Raises:
        CommandError: there is none, or no service can have this name.
        BotoCoreError, ClientError, UnreadableControlPlaneError: see `ControlPlane.found_with`.
    """
    if not re.fullmatch(SERVICE_NAME, service):
        raise CommandError(f"{service!r} can't be a service's name: those are lower-case, as in its file")
    session = boto3.Session(region_name=region)
    plane = ControlPlane.found_with(session)
    if plane is None:
        raise CommandError(
            f"no control plane in {session.region_name} (no parameter {CONTROL_PLANE_PARAMETER}): "
            "name its region with --region, or deploy it"
        )
    return plane


@contextmanager
def errors_shown(command: str) -> Iterator[None]:
    """End the command with one line on standard error where it can't go on."""
    with errors_told(command) as told:
        yield
    if told:
        raise typer.Exit(EXIT_UNDONE)


@contextmanager
def errors_told(command: str) -> Iterator[list[str]]:
    """Say in one line on standard error what can't be done, and go on; the list then has the line."""
    told: list[str] = []
    try:
        yield told
    except (CommandError, UnreadableControlPlaneError, UnreadableDocument, OtherControlPlane) as error:
        told.append(str(error))
    except PortError as error:
        told.append(_with_remedy(error))
    except (BotoCoreError, ClientError) as error:
        told.append(_why(error))
    for why in told:
        typer.echo(f"spotrelay {command}: {why}", err=True)


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask, unless it is confirmed already; anything but a yes ends the command."""
    if not is_confirmed:
        typer.confirm(question, abort=True)


def _why(error: BotoCoreError | ClientError) -> str:
    match error:
        case NoRegionError():
            return "which region? Name it with --region, or set AWS_DEFAULT_REGION"
        case NoCredentialsError() | PartialCredentialsError():
            return f"no AWS credentials ({error}): set AWS_PROFILE, or run `aws configure`"
        case ProfileNotFound():
            return f"{error}: set AWS_PROFILE to one that `aws configure list-profiles` shows"
        case ClientError() if "AccessDenied" in error.response["Error"]["Code"]:
            return f"{error}: {PERMISSIONS}"
        case _:
            return str(error)


def _with_remedy(error: PortError) -> str:
    """The same for what the control plane's own ports raise."""
    if isinstance(error, Denied):
        return f"{error}: {PERMISSIONS}"
    return f"{error}: try again"
