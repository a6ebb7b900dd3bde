"""The `spotrelay` command: each of its subcommands is a module here."""

from __future__ import annotations

import typer

from spotrelay.cli.chaos import chaos
from spotrelay.cli.override import override
from spotrelay.cli.replay import replay
from spotrelay.cli.retire import retire
from spotrelay.cli.validate import validate

app = typer.Typer(
    name="spotrelay",
    help="Keeps GPU inference running on EC2 Spot.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback is for a bug of ours, and then in full
)


@app.callback()
def _spotrelay() -> None:
    """Keeps GPU inference running on EC2 Spot."""


app.command()(validate)
app.command()(chaos)
app.command()(replay)
app.command()(override)
app.command()(retire)
