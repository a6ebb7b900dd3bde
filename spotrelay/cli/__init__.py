"""The operator's commands."""

from __future__ import annotations

import sys

_NEEDED = {"greenlet", "typer", "click", "rich", "pydantic", "ruamel"}


def main() -> None:
    """Run the `spotrelay` command."""
    try:
        from spotrelay.cli.app import app
    except ModuleNotFoundError as error:
        # A Lambda asset, or `uv sync` without groups, has the runtime only.
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        sys.stderr.write(f"spotrelay: {package} is not installed: run `uv sync --group operator`\n")
        raise SystemExit(1) from None
    app()
