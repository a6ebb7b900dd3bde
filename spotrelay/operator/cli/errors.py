"""Why a command can't do what it is for, and the exit codes that say so.

What AWS and botocore have to say is put into such words by `control_plane`: who asks nobody loads neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

EXIT_FAILED = 1
"""What was asked for failed, or the fleet isn't whole."""

EXIT_BAD_INPUT = 2
"""What was asked for can't be: a wrong argument or file, a service or control plane that isn't there."""

EXIT_NO_ACCESS = 3
"""There are no credentials, or they lack a permission."""

AWS_SAYS = "AWS says:"
"""What comes before AWS's own words. They are long, and come last."""


class CommandError(Exception):
    """Why a command can't do what it is for: one line, with the remedy."""

    def __init__(self, message: str, exit_code: int = EXIT_BAD_INPUT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def bad_input_shown(command: str) -> Iterator[None]:
    """End the command with one line on standard error if it can't go on; for what may ask nobody."""
    try:
        yield
    except CommandError as error:
        typer.echo(f"spotrelay {command}: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
