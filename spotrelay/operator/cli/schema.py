"""`spotrelay schema`: the JSON Schema of a service file, for editors."""

from __future__ import annotations

import typer

from spotrelay.file.reference import schema_text


def schema() -> None:
    """Print the JSON Schema of service files.

    With it, editors with a YAML language server complete and check service files that begin with
    `# yaml-language-server: $schema=PATH`.

    Example: spotrelay schema
    """
    typer.echo(schema_text(), nl=False)
