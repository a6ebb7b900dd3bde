"""Twenty files in SkyServe's format, as its users write them: each gives the service that its head says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from spotrelay.file.dialects.dialect import Dialect, dialect_of
from spotrelay.file.service import load
from spotrelay.file.source.document import read
from spotrelay.file.source.inputs import Inputs

DIRECTORY = Path(__file__).parent / "skyserve"

SAID = {"vllm-llama": Inputs(envs={"HF_TOKEN": "made up"}), "secrets-null": Inputs(secrets={"HF_TOKEN": "x"})}
"""What their users say at the launch."""


def case(file: Path) -> object:
    """A file, expected to fail while another part of the service file isn't there."""
    waits = re.search(r"^# waits for: (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    marks = [pytest.mark.xfail(reason=f"waits for {waits[1]}", strict=False)] if waits else []
    return pytest.param(file, id=file.stem, marks=marks)


FILES = sorted(DIRECTORY.glob("*.yaml"))


def test_there_are_twenty_and_all_are_in_skyserves_words() -> None:
    """None has a word of ours."""
    assert len(FILES) == 20
    assert {dialect_of(read(file).values) for file in FILES} == {Dialect.SKYSERVE}


@pytest.mark.parametrize("file", [case(file) for file in FILES])
def test_a_file_of_skyserves_gives_its_service(file: Path) -> None:
    """Every attribute that its head names."""
    text = file.read_text(encoding="utf-8")
    (line,) = re.findall(r"^# expect: (.*)$", text, re.MULTILINE)
    service = load(file, SAID.get(file.stem, Inputs()))
    expected = json.loads(line)
    assert {name: getattr(service, name) for name in expected} == expected
