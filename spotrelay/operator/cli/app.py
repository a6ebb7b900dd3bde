"""The `spotrelay` command: each of its subcommands is a module here, or one of the laboratory's."""

from __future__ import annotations

from typing import Annotated

import typer

from spotrelay.operator.cli.commands import LazyGroup

app = typer.Typer(
    name="spotrelay",
    cls=LazyGroup,
    help="Keeps GPU inference running on EC2 Spot.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # see `commands`
    pretty_exceptions_enable=False,  # a traceback is for a bug of ours, and then in full
)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"spotrelay {version('spotrelay')}")
        raise typer.Exit


@app.callback()
def _spotrelay(
    is_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Keeps GPU inference running on EC2 Spot."""
