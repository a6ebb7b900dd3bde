"""What a process of the command loads: only what it needs, since each package is time at every start."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperOption
from typer.testing import CliRunner

from spotrelay.operator.cli import commands
from spotrelay.operator.cli.app import app
from spotrelay.operator.cli.commands import OWN, PANELS, Commands
from tests.docs.checks import complaint

ROOT = Path(__file__).resolve().parents[2]


HEAVY = {
    "lab": "the simulation and the replay: only their own commands",
    "matplotlib": "only what draws",
    "ruamel": "only what reads service files",
    "spotrelay.file.values": "only what reads service files: pydantic builds its model of them at each start",
    "starlette": "only the local page",
    "hypercorn": "only the local page",
    "rich.markdown": "only the help",
    "typer.rich_utils": "only the help, and errors in the command line",
}
"""What takes long to load, and what needs it. (pydantic itself Typer loads for numbers and lists.)"""

NO_NUMBERS = {"pydantic": "only numbers and lists on the command line, and service files"}

NO_BOTO3 = {"boto3": "only the mirror's uploads in parts: what asks AWS asks by botocore"}

NOBODY_ASKED = {
    "boto3": "as long as all the rest, and nobody is asked",
    "botocore": "the same",
}

WITH_A_SERVICE = """
import boto3, os
from moto import mock_aws
from tests.cli.test_status import deployed
commands = sys.argv[1:]
with mock_aws():
    deployed(boto3.Session(), 3)
    for command in commands:
        print("==", command, file=sys.stderr, flush=True)
        if not os.fork():
            sys.argv[1:] = command.split()
            main()
        assert os.wait()[1] == 0, command
print("== nothing", file=sys.stderr)
"""
"""Each command in a process of its own, in an account that is made once. What is needed for that isn't among
what is looked for."""


def _loaded_by(*arguments: str, program: str = "main()", **environment: str) -> list[str]:
    """The modules that a process of the command has loaded when it ends, after what it says of itself."""
    whole = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('', *sys.modules, sep='\\n', file=sys.stderr))\n"
        f"from spotrelay.operator.cli import main\n{program}"
    )
    done = subprocess.run(
        [sys.executable, "-c", whole, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def _runs(*arguments: str) -> str:
    """What the command says, its words joined whatever the width of the frame around them."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return " ".join(result.output.replace("│", " ").split())


def test_every_module_of_a_command_is_in_the_table() -> None:
    """A module here that defines a function of its own name is a command, and is listed."""
    folder = ROOT / "spotrelay" / "operator" / "cli"
    named = {
        file.stem for file in folder.glob("*.py") if f"\ndef {file.stem}(" in file.read_text(encoding="utf-8")
    }
    assert {name.replace("_", "-") for name in named} == set(OWN)


def test_the_help_has_every_command_in_order_the_laboratorys_last() -> None:
    """With what each is for, by purpose."""
    said = _runs("--help")
    places = [said.index(f" {name} ") for name in (*OWN, "chaos", "replay")]
    assert places == sorted(places)
    assert "chaos Run the controller in simulated time under every fault" in said


def test_the_help_loads_no_command() -> None:
    """Nor what draws boxes, asks AWS or checks input: who looks for a command waits for none of them."""
    loaded = _loaded_by("--help")
    assert _of(loaded, HEAVY | NOBODY_ASKED | NO_NUMBERS | {"rich": "its text is plain"}) == {}
    assert not {f"spotrelay.operator.cli.{name}" for name in OWN} & set(loaded)


@pytest.mark.parametrize("name", list(Commands()))
def test_a_commands_own_help(name: str) -> None:
    """It begins with what the list says, has an example that the command takes, and nothing of Python's."""
    told = inspect.cleandoc(Commands()[name].help or "").split("\n\n")
    lines = {command: line for panel in PANELS.values() for command, line in panel.items()}
    assert " ".join(told[0].split()) == lines[name]
    head, _, example = told[-1].partition("Example: ")
    assert (head, complaint(tuple(shlex.split(example)))) == ("", None)
    assert example.startswith(f"spotrelay {name}")
    assert example in _runs(name, "--help")
    assert not re.search("<[a-z]", _runs(name, "--help"))
    options = [one for one in Commands()[name].params if isinstance(one, TyperOption) and not one.is_flag]
    assert [one.name for one in options if not one.metavar] == []


def test_a_slip_is_answered_with_the_nearest_command() -> None:
    """Of all of them, the laboratory's too; and nothing is said of what is near to nothing."""
    assert "No such command 'staus'. Did you mean 'status'?" in _runs("staus")
    assert "No such command 'repley'. Did you mean 'replay'?" in _runs("repley")
    assert "Did you mean" not in _runs("zzz")


def test_without_the_laboratory_its_commands_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel announces them and hasn't got them: they are neither listed nor run, and nothing fails."""
    monkeypatch.setattr(commands, "_is_there", lambda _: False)
    commands._laboratory.cache_clear()
    try:
        assert list(Commands()) == list(OWN)
        assert "replay" not in _runs("--help")
        assert "No such command 'replay'." in _runs("replay")
    finally:
        commands._laboratory.cache_clear()


def test_a_command_loads_no_other() -> None:
    """Neither the commands beside it nor the laboratory's, which alone take longer than most answers."""
    loaded = _loaded_by("schema")
    assert "spotrelay.operator.cli.schema" in loaded
    others = {f"spotrelay.operator.cli.{name}" for name in OWN} - {"spotrelay.operator.cli.schema"}
    assert not others & set(loaded)
    assert not {name for name in loaded if name.partition(".")[0] == "lab"}


@pytest.mark.parametrize(
    "arguments", [("recommend", "--params", "8B", "--offline", "--region", "us-east-1"), ("catalog",)]
)
def test_who_asks_nobody_loads_nothing_to_ask_with(arguments: tuple[str, ...]) -> None:
    """An answer from the bundled data needs neither AWS's client nor the model of service files."""
    assert _of(_loaded_by(*arguments), HEAVY | NOBODY_ASKED) == {}


def test_who_looks_at_a_service_loads_no_model_of_its_file() -> None:
    """What is deployed is known from its document and rows: neither the file's model nor what draws, serves
    a page or simulates is needed.
    """
    looking = ("status demo", "history demo", "explain demo 4", "scale demo", "cost demo")
    account = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    said = _loaded_by(*looking, program=WITH_A_SERVICE, **account)
    starts = [said.index(f"== {command}") for command in (*looking, "nothing")]
    for command, start, end in zip(looking, starts, starts[1:], strict=False):
        loaded = said[start:end]
        assert f"spotrelay.operator.cli.{command.split()[0]}" in loaded
        assert _of(loaded, HEAVY) == {}, command


def test_a_status_loads_what_it_asks_with_alone() -> None:
    """Neither what checks numbers nor what launches, drills or counts costs. Nobody is asked here: there is
    no such profile.
    """
    said = _loaded_by(
        *("status", "demo", "--profile", "nobody"),
        program="try: main()\nexcept SystemExit: pass",
        AWS_CONFIG_FILE=os.devnull,
    )
    assert "profile (nobody) could not be found" in said[0]
    names = ("plane.aws.fleet", "plane.aws.experiments", "plane.aws.days", "plane.aws.requests")
    ours = dict.fromkeys((f"spotrelay.{name}" for name in (*names, "operator.aws.targets")), "other commands")
    assert _of(said, HEAVY | NO_NUMBERS | ours | NO_BOTO3) == {}


def _of(loaded: list[str], unneeded: dict[str, str]) -> dict[str, str]:
    """What was loaded all the same, and why it needn't be."""
    return {name: why for name, why in unneeded.items() if name in loaded}
