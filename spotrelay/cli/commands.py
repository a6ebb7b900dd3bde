"""The table of the commands. One's module is loaded when the command is run, described or completed."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from typer.core import TyperCommand

PANELS = {
    "Deploy": ("up", "update", "rollback", "scale", "down"),
    "Look": ("status", "history", "explain", "cost", "prices", "scores", "logs", "request", "ui"),
    "Rehearse and repair": ("drill", "adopt", "override", "retire"),
    "Service files": ("validate", "secrets", "schema"),
    "Choose a GPU": ("recommend", "compare", "catalog"),
}
"""By purpose, as the help shows them: each is the function of this name in the module of this name, beside
this one."""

LABORATORY = "Laboratory"
"""The panel of what comes with a clone alone."""

OWN = {name: panel for panel, names in PANELS.items() for name in names}
"""Each of them, and the panel that it is in."""

SETTINGS: dict[str, dict[str, Any]] = {
    # Or a negative number would be called an unknown option.
    "scale": {"ignore_unknown_options": True},
}


@cache
def _laboratory() -> dict[str, EntryPoint]:
    """What pyproject.toml announces beside them, as far as it is there: a wheel has no laboratory."""
    announced = sorted(entry_points(group="spotrelay.commands"), key=lambda point: point.name)
    return {point.name: point for point in announced if _is_there(point.module)}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that it would be in
        return False


class Commands(UserDict[str, Any]):
    """By name."""

    def __getitem__(self, name: str) -> TyperCommand:
        if name not in self.data:
            self.data[name] = _loaded(name)
        command: TyperCommand = self.data[name]
        return command

    def __iter__(self) -> Iterator[str]:
        return iter((*OWN, *_laboratory()))

    def __len__(self) -> int:
        return len(OWN) + len(_laboratory())

    def __contains__(self, name: object) -> bool:
        return name in OWN or name in _laboratory()


def _loaded(name: str) -> Any:
    """The command as Typer makes it of its function.

    Raises:
        KeyError: there is none of that name.
    """
    function: Callable[..., object]
    if name in OWN:
        function = getattr(import_module(f"spotrelay.cli.{name}"), name)
    else:
        function = _laboratory()[name].load()
    alone = typer.Typer(add_completion=False)
    panel = OWN.get(name, LABORATORY)
    alone.command(name, context_settings=SETTINGS.get(name), rich_help_panel=panel)(function)
    return get_command(alone)


class LazyGroup(TyperGroup):
    """A group of commands that are loaded when they are needed, as Click's documentation has it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # as Typer calls it
        """Their names alone: what is inherited looks at each command, too."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # as Typer calls it
        """The command, loaded; None: there is none."""
        if cmd_name not in self.commands:  # `get` would take a bug in a command's module for the same
            return None
        return self.commands[cmd_name]
