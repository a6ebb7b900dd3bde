"""The operator's commands without a clone: a wheel of them, in an environment that has nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import pytest

from spotrelay.operator.cli.commands import OWN
from tests import wheels
from tests.wheels import ROOT

# One environment, not one for each worker.
pytestmark = pytest.mark.xdist_group("wheel")

NOBODY = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}

SOMEBODY = {
    **NOBODY,
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_MAX_ATTEMPTS": "1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",  # where nobody listens
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built once."""
    return wheels.built(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel and nothing of the clone."""
    return wheels.installed(wheel, tmp_path_factory.mktemp("installed"))


def _run(installed: Path, command: Sequence[str | Path], environment: dict[str, str]) -> tuple[int, str, str]:
    """Outside the clone, with nothing of it on any path: exit code, output and errors."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=installed.parents[1],
        env={
            "PATH": os.defpath,
            "HOME": str(installed.parents[1]),
            "NO_COLOR": "1",
            "COLUMNS": "200",
            **environment,
        },
    )
    return done.returncode, done.stdout, done.stderr


def _says(installed: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    return _run(installed, [installed / "spotrelay", *arguments], environment or NOBODY)


def test_the_wheel_has_all_that_the_package_has_and_nothing_else(wheel: Path) -> None:
    """Data, schema, the page's files and the licence, too; neither the CDK app nor the laboratory."""
    there = (path for path in (ROOT / "spotrelay").rglob("*") if "__pycache__" not in path.parts)
    files = {str(path.relative_to(ROOT)) for path in there if path.is_file()}
    with zipfile.ZipFile(wheel) as contents:
        names = {name for name in contents.namelist() if not name.endswith("/")}
    assert {name for name in names if ".dist-info/" not in name} == files
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_every_command_is_there_and_the_laboratorys_are_not(installed: Path) -> None:
    """The help lists what the wheel has."""
    code, said, errors = _says(installed, "--help")
    assert (code, errors) == (0, "")
    assert not [name for name in OWN if f" {name} " not in said]
    assert "Laboratory" not in said


def test_every_module_can_be_loaded(installed: Path) -> None:
    """What a command loads late needs no other package either: but what draws, which says so."""
    program = (
        "import pkgutil, importlib, spotrelay\n"
        "for found in pkgutil.walk_packages(spotrelay.__path__, 'spotrelay.'):\n"
        "    if found.name not in ('spotrelay.__main__', 'spotrelay.operator.look.drawing'):\n"
        "        importlib.import_module(found.name)\n"
    )
    python = installed / "python"
    assert _run(installed, [python, "-c", program], NOBODY) == (0, "", "")
    code, said, errors = _says(installed, "prices", "chat", "--out", "prices.png")
    assert (code, said) == (2, "")
    assert "--out prices.png: matplotlib, which draws, isn't installed" in errors


def test_a_file_is_validated_and_the_schema_is_printed(installed: Path) -> None:
    """From the data that the wheel has, for a file that is anywhere."""
    file = "service: {replicas: 2}\nresources: {accelerators: L4, ports: 8080}\nrun: exec my-server\n"
    (installed.parents[1] / "chat.yaml").write_text(file, encoding="utf-8")
    code, said, errors = _says(installed, "validate", "chat.yaml", "--json")
    assert (code, errors) == (0, "")
    assert json.loads(said)["services"][0]["name"] == "chat"
    schema = resources.files("spotrelay.file").joinpath("service-file.schema.json").read_text("utf-8")
    assert _says(installed, "schema") == (0, schema, "")


def test_who_asks_an_account_is_told_what_is_wrong(installed: Path) -> None:
    """In one line: there are no credentials, or nobody answers."""
    code, said, errors = _says(installed, "status", "--region", "us-east-1")
    assert (code, said, len(errors.splitlines())) == (3, "", 1)
    assert "credentials" in errors
    code, said, errors = _says(installed, "status", **SOMEBODY)
    assert (code, said, len(errors.splitlines())) == (1, "", 1)
    assert "http://127.0.0.1:1" in errors


def test_what_deploys_says_that_it_needs_a_clone(installed: Path) -> None:
    """First of all, before anybody is asked: whoever has no clone can do nothing about the rest."""
    for command in ("up", "update"):
        code, said, errors = _says(installed, command, "nonesuch.yaml")
        assert (code, said) == (2, "")
        assert errors == (
            f"spotrelay {command}: deploying needs a clone of SpotRelay, and this installation has none: in a"
            f" clone, run make setup, and then .venv/bin/spotrelay {command}\n"
        )
