"""`spotrelay request`: one request to a service, as its clients send it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.options import AsJson, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operator.cli.telling import echo_json

if TYPE_CHECKING:
    from spotrelay.operator.deploy.stacks import Stacks
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.operator.request import Entrance, Exchange, Request, Sender
    from spotrelay.plane.core.spec import ReadinessProbe


def request(
    name: ServiceName,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="What to ask a chat model.", metavar="TEXT", show_default=False),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option("--path", help="Where to send it; else as the probe.", metavar="P", show_default=False),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="GET, or POST with --data.", metavar="M", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", help="The body, @FILE for a file's content.", metavar="D", show_default=False),
    ] = None,
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Send one request to a service's own address, and show the answer as it comes.

    A service whose readiness probe is a chat in the form of OpenAI's API gets a chat; any other gets what its
    probe asks. The exit code is 1 if the answer isn't a 2xx, or is cut.

    Example: spotrelay request llama3 --prompt "Who are you?"
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.deploy.stacks import Stacks
    from spotrelay.operator.request import Sender, UnansweredError, key_of

    with control_plane.errors_shown("request"):
        if prompt is not None and (data is not None or method is not None):
            raise CommandError("--prompt makes the whole request: leave out --data and --method")
        body = None if data is None else _body(data)
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        probe = control_plane.deployed(plane, name).readiness_probe
        entrance = entrance_of(Stacks(plane.clients), name)
        sender = Sender(entrance, key_of(plane.clients, entrance), via(entrance))
        try:
            asked = _asked(sender, probe, prompt, path, method, body)
            answer = sender.send(asked)
        except UnansweredError as error:
            raise CommandError(f"{name}: {error}", EXIT_FAILED) from error
        _show(name, entrance, asked, answer, is_json=is_json)
        if not answer.is_good:
            raise typer.Exit(EXIT_FAILED)


def entrance_of(stacks: Stacks, service: str) -> Entrance:
    """Where clients reach the service.

    Raises:
        CommandError: nobody knows, because the load balancer isn't SpotRelay's.
        PortError: CloudFormation can't be asked.
    """
    from spotrelay.operator.request import Entrance
    from spotrelay.plane.core.names import SERVICE_STACK

    stack = stacks.find(SERVICE_STACK + service)
    if stack is None:
        raise CommandError(f"{service} has no stack {SERVICE_STACK}{service}: spotrelay up FILE deploys it")
    found = Entrance.of(stack.outputs)
    if found is None:
        raise CommandError(
            f"{service} is behind a load balancer of yours, whose address isn't known here: send it with curl"
        )
    return found


@dataclass(frozen=True, slots=True)
class Ways:
    """How to send a service a request, for people who have just deployed it."""

    curl: str
    """A command that sends it."""
    lines: list[str]


def ways_to_ask(plane: ControlPlane, entrance: Entrance, service: str) -> Ways:
    """For a service that has been deployed.

    Raises:
        PortError, UnreadableDocument: its document can't be read.
    """
    from spotrelay.operator.request import curl, of_probe

    spec = plane.services.get(service, fresh=True)
    there = via(entrance)
    command = curl(entrance, of_probe(spec.readiness_probe if spec else None), there)
    lines = [*entrance.remarks, f"try it: spotrelay request {service}", f"or: {command}"]
    if entrance.is_internal and not there:
        lines.append(
            "only from networks with a route to it, as it is internal: docs/networking.md has the ways"
        )
    return Ways(command, lines)


def via(entrance: Entrance) -> str | None:
    """Where requests go instead: to a local cloud, which is all of AWS at one address, but for HTTPS."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL")  # `Where.session` puts --endpoint-url there
    return endpoint if endpoint and entrance.address.startswith("http://") else None


def _body(data: str) -> bytes:
    if not data.startswith("@"):
        return data.encode()
    try:
        return Path(data[1:]).read_bytes()
    except OSError as error:
        raise CommandError(f"--data: {data[1:]}: {error.strerror}") from error


def _asked(
    sender: Sender,
    probe: ReadinessProbe | None,
    prompt: str | None,
    path: str | None,
    method: str | None,
    body: bytes | None,
) -> Request:
    from spotrelay.operator.request import CHAT_PATH, Request, chat, is_chat, of_probe

    if path is not None and not path.startswith("/"):
        raise CommandError(f"--path: expected a path such as {CHAT_PATH}, got {path!r}")
    if prompt is not None and not is_chat(probe):
        return chat(_model(sender), prompt, path or CHAT_PATH)
    usual = of_probe(probe, prompt)
    if body is None and method is None and (path is None or prompt is not None):
        return replace(usual, path=path or usual.path)
    headers = {} if body is None else {"Content-Type": "application/json" if _is_json(body) else "text/plain"}
    method = (method or ("GET" if body is None else "POST")).upper()
    return Request(method, path or usual.path, body, headers)


def _model(sender: Sender) -> str:
    """What the server calls its model, where the service's probe doesn't say.

    Raises:
        CommandError: it doesn't say.
        UnansweredError: it doesn't answer.
    """
    from spotrelay.operator.request import MODELS_PATH, Request

    answer = sender.send(Request("GET", MODELS_PATH))
    told = b"".join(answer.pieces())
    try:
        return str(json.loads(told)["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise CommandError(
            f"--prompt is for chats in the form of OpenAI's API, and GET {MODELS_PATH} names no model"
            f" ({answer.status} {answer.reason}): say --path and --data instead",
            EXIT_FAILED,
        ) from None


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def _show(name: str, entrance: Entrance, asked: Request, answer: Exchange, *, is_json: bool) -> None:
    from spotrelay.messages import harmless
    from spotrelay.operator.request import ERROR_SHOWN, remedy

    is_served = 200 <= answer.status < 300
    kept = b""
    if is_json or not is_served:
        kept = b"".join(answer.pieces())
    elif sys.stdout.isatty():
        _on_screen(answer)
    else:
        for piece in answer.pieces():
            typer.echo(piece, nl=False)
    first, total = answer.first_byte_s or 0.0, answer.total_s
    failed = f"{asked.method} {asked.path} was refused"
    why_not = answer.cut or ("" if is_served else remedy(answer.status, name, entrance) or failed)
    if is_json:
        document = {
            "service": name,
            "address": entrance.address,
            "method": asked.method,
            "path": asked.path,
            "status": answer.status,
            "first_byte_s": round(first, 3),
            "total_s": round(total, 3),
            "answer": kept.decode("utf-8", "replace"),
            "why_not": why_not or None,
        }
        echo_json(document)
        return
    status = f"{answer.status} {answer.reason}".strip()
    typer.echo(f"{status}: first byte after {first:.2f} s, all after {total:.2f} s", err=True)
    if why_not:
        typer.echo(f"spotrelay request: {name}: {why_not}", err=True)
    if words := harmless(kept[:ERROR_SHOWN].decode("utf-8", "replace")).strip():
        typer.echo(words, err=True)


def _on_screen(answer: Exchange) -> None:
    if answer.is_text:
        for text in answer.texts():
            typer.echo(text, nl=False)
        typer.echo()  # few answers end a line
    else:
        size = sum(len(piece) for piece in answer.pieces())
        typer.echo(f"{size} bytes of {answer.content_type or 'an unknown type'}: redirect them into a file")
