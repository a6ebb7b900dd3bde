"""The `spotrelay` command: each of its subcommands is a module here, or one of the laboratory's."""

from __future__ import annotations

from importlib.metadata import entry_points, version
from typing import Annotated

import typer

from spotrelay.cli.adopt import adopt
from spotrelay.cli.catalog import catalog
from spotrelay.cli.compare import compare
from spotrelay.cli.cost import cost
from spotrelay.cli.down import down
from spotrelay.cli.drill import drill
from spotrelay.cli.explain import explain
from spotrelay.cli.history import history
from spotrelay.cli.logs import logs
from spotrelay.cli.override import override
from spotrelay.cli.prices import prices
from spotrelay.cli.recommend import recommend
from spotrelay.cli.retire import retire
from spotrelay.cli.rollback import rollback
from spotrelay.cli.scale import scale
from spotrelay.cli.schema import schema
from spotrelay.cli.scores import scores
from spotrelay.cli.secrets import secrets
from spotrelay.cli.status import status
from spotrelay.cli.ui import ui
from spotrelay.cli.up import up
from spotrelay.cli.update import update
from spotrelay.cli.validate import validate

app = typer.Typer(
    name="spotrelay",
    help="Keeps GPU inference running on EC2 Spot.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,  # a traceback is for a bug of ours, and then in full
)

LABORATORY = "lab"


def _say_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"spotrelay {version('spotrelay')}")
        raise typer.Exit


@app.callback()
def _spotrelay(
    is_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Keeps GPU inference running on EC2 Spot."""


def _add_laboratory() -> None:
    """What pyproject.toml announces, as far as the laboratory is there: a wheel has none."""
    for command in sorted(entry_points(group="spotrelay.commands"), key=lambda point: point.name):
        try:
            app.command(command.name)(command.load())
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != LABORATORY:
                raise


app.command()(up)
app.command()(update)
app.command()(down)
app.command()(status)
app.command()(history)
app.command()(explain)
app.command()(cost)
app.command()(prices)
app.command()(scores)
app.command()(logs)
app.command()(ui)
app.command()(validate)
app.command()(secrets)
app.command()(schema)
app.command()(catalog)
app.command()(recommend)
app.command()(compare)
app.command()(adopt)
app.command()(drill)
app.command()(override)
app.command()(retire)
app.command()(rollback)
# Or a negative number would be called an unknown option.
app.command(context_settings={"ignore_unknown_options": True})(scale)
_add_laboratory()
