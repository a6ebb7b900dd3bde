"""The table of the commands. One's module is loaded when it is run, completed, or asked for its help."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import typer
from typer._coercion import PassThroughRuntimeParam, TypeDescriptor
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

LABORATORY = "Laboratory"
"""The panel of what comes with a clone alone."""

PANELS = {
    "Deploy": {
        "up": "Deploy services with everything they need, and wait until all replicas are ready.",
        "update": "Show what a changed service file changes, deploy it, and follow the roll-out to its end.",
        "pack": "Run a service's set-up once, and keep what it makes in a bucket for its replicas' starts.",
        "rollback": (
            "Go back to the previous version: its replicas are launched first, then the current ones drained."
        ),
        "scale": "Set another number of replicas than the service file's for a while, or show the number.",
        "down": "Remove a service: its replicas finish their requests first. Ends when nothing is left.",
    },
    "Look": {
        "status": (
            "Show whether a service is whole, each of its replicas, what was lost and what it costs now."
        ),
        "history": "Show each loss with its times and what replaced it, and the starts that failed.",
        "explain": (
            "Say why a replica exists, which pools were asked for it and which were left out, and why "
            "it went."
        ),
        "cold-start": (
            "Show where the time of the last starts went: a bar for each, and what would make each part "
            "shorter."
        ),
        "cost": (
            "Show what a service's instances, disks and load balancer cost, and what on-demand would "
            "have cost."
        ),
        "prices": "Show the Spot price of each pool that the service may use, over time, the cheapest first.",
        "scores": "Show each zone's Spot placement score, 1 (unlikely to get Spot) to 10, now and over time.",
        "logs": (
            "Show the control plane's decisions about a service, or, with ID, an instance's console output."
        ),
        "request": "Send one request to a service's own address, and show the answer as it comes.",
        "ui": "Show the fleet on a local page, live: replicas, timeline, losses, prices, scores, cost.",
    },
    "Rehearse and repair": {
        "drill": (
            "Interrupt Spot replicas of a service as EC2 does, and watch until the service is whole again."
        ),
        "adopt": "Take over instances that already serve, in the target group that the service file names.",
        "override": (
            "Let the controller carry out what it holds back for one service: what this shows, and "
            "nothing else."
        ),
        "retire": (
            "Tell the controller that a service's stack is gone, so that it ends the replicas that are left."
        ),
    },
    "Service files": {
        "validate": "Check service files, and show what they would run on.",
        "secrets": "Store secrets, encrypted, in the SSM parameters from which the instances read them.",
        "mirror": "Copy a model from Hugging Face into a bucket, and check each file.",
        "schema": "Print the JSON Schema of service files.",
    },
    "Choose a GPU": {
        "recommend": "Say which instance types suit a model, in which order, and why not the others.",
        "compare": (
            "Show side by side what an on-demand instance and a group of Spot instances have, cost and lose."
        ),
        "catalog": "Show what each accelerator has, and the instance types that have it.",
    },
    LABORATORY: {
        "chaos": (
            "Run the controller in simulated time under every fault, and check that no rule is ever broken."
        ),
        "replay": "Run policies through a recorded Spot market: availability, cost, losses, gaps.",
    },
}
"""By purpose, as the help shows them, each with the first sentence of its own help: so that no module is
loaded for the list. Each is the function of this name in the module of this name, beside this one; those of
the laboratory are where pyproject.toml says."""

OWN = {name: panel for panel, lines in PANELS.items() if panel != LABORATORY for name in lines}
"""Each of them but the laboratory's, and the panel that it is in."""

SETTINGS: dict[str, dict[str, Any]] = {
    # Or a negative number would be called an unknown option.
    "scale": {"ignore_unknown_options": True},
}


@cache
def _laboratory() -> dict[str, EntryPoint]:
    """What pyproject.toml announces beside them, as far as it is there: a wheel has no laboratory."""
    from importlib.metadata import entry_points

    announced = sorted(entry_points(group="spotrelay.commands"), key=lambda point: point.name)
    # Of the package alone: to look for what is in it would load it.
    return {point.name: point for point in announced if _is_there(point.module.partition(".")[0])}


def _is_there(package: str) -> bool:
    return find_spec(package) is not None


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
        module = name.replace("-", "_")
        function = getattr(import_module(f"spotrelay.operator.cli.{module}"), module)
    else:
        function = _laboratory()[name].load()
    # Plain help: Rich's boxes take longer than most answers to load, and their text can't be copied.
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=Command, context_settings=SETTINGS.get(name))(function)
    return get_command(alone)


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and options."""
        return _taken_as_they_are(super().get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Its arguments and options by their own names, without Python's: `<str>` helps nobody."""
        for title, kind in (("Arguments", TyperArgument), ("Options", TyperOption)):
            told = [param.get_help_record(ctx) for param in self.get_params(ctx) if isinstance(param, kind)]
            # Each option has a metavar; of an argument Typer shows the type beside it.
            if records := [(one[0].partition(" <")[0], one[1]) for one in told if one]:
                with formatter.section(title):
                    formatter.write_dl(records)


def _taken_as_they_are(params: list[Any]) -> list[Any]:
    """The same, and Typer takes words and flags as the command line has them.

    A word is text, and a flag is there or not. To make sure of that, Typer would load pydantic, which is a
    fifth of the time that `status` takes.
    """
    for param in params:
        described: TypeDescriptor | None = getattr(param, "type_descriptor", None)
        if described and described.annotation in (str, bool):
            param._runtime_param = PassThroughRuntimeParam(described.parameter_info, described.annotation)
    return params


class LazyGroup(TyperGroup):
    """A group of commands that are loaded when they are needed, as Click's documentation has it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands()

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options."""
        return _taken_as_they_are(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # as Typer calls it
        """Their names alone: what is inherited looks at each command, too."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # as Typer calls it
        """The command, loaded; None: there is none."""
        if cmd_name not in self.commands:  # `get` would take a bug in a command's module for the same
            return None
        return self.commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # as Typer calls it
        """Their names and what they do, by purpose; none is loaded."""
        for panel, lines in PANELS.items():
            if there := [(name, line) for name, line in lines.items() if name in self.commands]:
                with formatter.section(panel):
                    formatter.write_dl(there)
