"""`spotrelay secrets`: writes the secrets of service files to Parameter Store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from spotrelay.messages import nearest
from spotrelay.operator.cli.errors import EXIT_BAD_INPUT, CommandError
from spotrelay.operator.cli.files import Env, EnvFile, Files, Name, Secret, given, load_all
from spotrelay.operator.cli.options import Region, Where


def secrets(
    files: Files,
    secret: Secret = None,
    env: Env = None,
    env_file: EnvFile = None,
    name: Name = None,
    region: Region = None,
) -> None:
    """Store secrets, encrypted, in the SSM parameters from which the instances read them.

    A secret that has its value in the file is written, too. Parameters that get no value stay as they are.
    Replicas read the version that they were deployed with: `spotrelay update` rolls a changed one out.

    Example: spotrelay secrets services/llama3.yaml --secret HF_TOKEN
    """
    from spotrelay.operator.cli.control_plane import errors_shown
    from spotrelay.plane.aws.clients import Clients

    said = given(env, env_file, secret, name)
    # Elsewhere what is said beside a file adds to its secrets. Here that would be one that no replica reads.
    services, problems = load_all(files, replace(said, secrets={}))
    for problem in problems:
        typer.echo(str(problem), err=True)
    if problems:
        raise typer.Exit(EXIT_BAD_INPUT)
    with errors_shown("secrets"):
        todo = [
            (service, key, parameter, said.secrets.get(key) or service.secret_values.get(key))
            for service in services
            for key, parameter in service.secrets.items()
        ]
        declared = {key for _, key, _, _ in todo}
        if unknown := sorted(said.secrets.keys() - declared):
            close = nearest(unknown[0], declared)
            meant = f"did you mean {close}?" if close else f"add `{unknown[0]}:` under `secrets` there"
            raise CommandError(f"no file has a secret {unknown[0]}: {meant}")
        changed: dict[str, Path] = {}
        clients = Clients(Where(region).session())
        for service, key, parameter, value in todo:
            if value is None:
                typer.echo(f"{service.name}: {key}: {parameter} isn't written: give it with --secret {key}=…")
                continue
            written = clients.ssm.put_parameter(
                Name=parameter,
                Value=value,
                Type="SecureString",
                Overwrite=True,
                Description=f"Secret {key} of the SpotRelay service {service.name}",
            )
            version = written["Version"]
            typer.echo(f"{service.name}: {key}: written to {parameter}, version {version}")
            if version > 1:
                changed.setdefault(service.name, service.path)
        for changed_service, path in changed.items():
            typer.echo(
                f"{changed_service}: replicas keep the value that they were deployed with, new ones as well:"
                f" `spotrelay update {path}` rolls this one out"
            )
