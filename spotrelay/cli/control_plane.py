"""The control plane of a region, as an operator's command finds it and tells it something.

Whoever may read its parameter and the services' (ssm:GetParameters), and write to its tick queue
(sqs:SendMessage), may do this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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

from spotrelay.aws.clients import Clients
from spotrelay.core.names import CONTROL_PLANE_PARAMETER, SERVICE_NAME, service_parameter

EXIT_UNDONE = 1
"""The control plane wasn't told."""


class CommandError(Exception):
    """Why a command can't do what it is for: one line, with the remedy."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Where to reach it, and what it knows of the service that the command is about."""

    region: str
    service: str
    is_deployed: bool
    """Whether the service has a runtime document."""
    _clients: Clients
    _tick_queue_url: str

    def tell(self, kind: str) -> None:
        """Send the service's message of this kind to the tick queue.

        Raises:
            CommandError: it couldn't be sent.
        """
        body = json.dumps({"service": self.service, "kind": kind})
        with explained():
            self._clients.sqs.send_message(QueueUrl=self._tick_queue_url, MessageBody=body)


def find(service: str, region: str | None) -> ControlPlane:
    """The control plane of the region, None: of the region that the AWS configuration names.

    Raises:
        CommandError: there is none, or it can't be asked.
    """
    if not re.fullmatch(SERVICE_NAME, service):
        raise CommandError(f"{service!r} can't be a service's name: those are lower-case, as in its file")
    document = service_parameter(service)
    with explained():
        clients = Clients(boto3.Session(region_name=region))
        region = clients.ssm.meta.region_name
        answer = clients.ssm.get_parameters(Names=[CONTROL_PLANE_PARAMETER, document])
    found = {parameter["Name"]: parameter["Value"] for parameter in answer["Parameters"]}
    if CONTROL_PLANE_PARAMETER not in found:
        raise CommandError(
            f"no control plane in {region} (no parameter {CONTROL_PLANE_PARAMETER}): "
            "name its region with --region, or deploy it"
        )
    try:
        queue_url = str(json.loads(found[CONTROL_PLANE_PARAMETER])["tick_queue_url"])
    except (ValueError, TypeError, KeyError):
        raise CommandError(
            f"parameter {CONTROL_PLANE_PARAMETER} in {region} names no tick queue: "
            "deploy the control plane again"
        ) from None
    return ControlPlane(region, service, document in found, clients, queue_url)


@contextmanager
def errors_shown(command: str) -> Iterator[None]:
    """End the command with one line on standard error where it can't go on."""
    try:
        yield
    except CommandError as error:
        typer.echo(f"spotrelay {command}: {error}", err=True)
        raise typer.Exit(EXIT_UNDONE) from None


def confirm(question: str, *, is_confirmed: bool) -> None:
    """Ask, unless it is confirmed already; anything but a yes ends the command."""
    if not is_confirmed:
        typer.confirm(question, abort=True)


@contextmanager
def explained() -> Iterator[None]:
    """Raise what boto3 raises as a CommandError: why, and what to do."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise CommandError(_why(error)) from error


def _why(error: BotoCoreError | ClientError) -> str:
    match error:
        case NoRegionError():
            return "which region? Name it with --region, or set AWS_DEFAULT_REGION"
        case NoCredentialsError() | PartialCredentialsError():
            return f"no AWS credentials ({error}): set AWS_PROFILE, or run `aws configure`"
        case ProfileNotFound():
            return f"{error}: set AWS_PROFILE to one that `aws configure list-profiles` shows"
        case ClientError() if "AccessDenied" in error.response["Error"]["Code"]:
            return f"{error}: docs/operating.md lists the two permissions that this needs"
        case _:
            return str(error)
