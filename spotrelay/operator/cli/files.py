"""Service files as commands take them: files, directories, standard input, and what is said beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from spotrelay.file.service import Problem, Service, ServiceFileError, load
from spotrelay.file.source.inputs import Inputs, InputsError, inputs

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Service files, directories of them, or - for standard input.",
        show_default=False,
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env", help="An environment variable; overrides the file's.", metavar="K=V", show_default=False
    ),
]
EnvFile = Annotated[
    Path | None,
    typer.Option(
        "--env-file", help="A file of K=V lines; --env overrides it.", metavar="F", show_default=False
    ),
]
Secret = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        help="A secret's value; K alone takes it from your environment.",
        metavar="K=V",
        show_default=False,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "-n", "--name", help="The service's name; overrides the file's.", metavar="NAME", show_default=False
    ),
]


def given(env: list[str] | None, env_file: Path | None, secret: list[str] | None, name: str | None) -> Inputs:
    """What the options say.

    Raises:
        typer.BadParameter: one of them can't be used.
    """
    try:
        return inputs(env or (), env_file, secret or (), name)
    except InputsError as error:
        raise typer.BadParameter(str(error)) from error


def expanded(paths: Iterable[Path]) -> Iterator[Path]:
    """Each file once, and for a directory the service files in it."""
    for path in dict.fromkeys(paths):
        if _is_directory(path):
            found = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
            yield from found or [path]
        else:
            yield path


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, say: `load` tells
        return False


def load_all(paths: Iterable[Path], said: Inputs) -> tuple[list[Service], list[Problem]]:
    """Every service, and every problem: also that two have one name."""
    services: list[Service] = []
    problems: list[Problem] = []
    by_name: dict[str, Path] = {}
    for path in expanded(paths):
        if _is_directory(path):
            problems.append(Problem(str(path), None, "", "has no service file (*.yaml, *.yml) in it"))
            continue
        try:
            service = load(path, said)
        except ServiceFileError as error:
            problems += error.problems
            continue
        if service.name in by_name:
            message = f"{by_name[service.name]} is named {service.name}, too: give one another name"
            problems.append(Problem(str(path), None, "name", message))
        by_name.setdefault(service.name, path)
        services.append(service)
    return services, problems
