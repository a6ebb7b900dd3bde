"""What a start has reached, as an instance tells it: each phase once in a boot, and it fails nothing."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from spotrelay.file.instance import phases
from spotrelay.file.instance.console import SCRIPT
from spotrelay.file.service import user_data
from spotrelay.plane.core.replica import CONSOLE_MARK, TOLD_BY_INSTANCES, Phase
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import starts
from tests.unit.cases import NOW

from .conftest import GOOD, Loader
from .test_userdata import files

FILES = "file_mounts: {/data: s3://my-bucket/data}\n"


class Boot:
    """console.sh as a unit's scripts call it, with a console of its own."""

    def __init__(self, directory: Path, console: str = "console") -> None:
        self.console, self.told = directory / console, directory / "told"
        self._script = directory / phases.SCRIPT
        own = {"/dev/console": str(self.console), phases.LINE: str(self.told)}
        text = SCRIPT
        for path, its in own.items():
            text = text.replace(path, its)
        self._script.write_text(text, encoding="utf-8")

    def tell(self, *reached: str) -> subprocess.CompletedProcess[str]:
        """Call it."""
        return subprocess.run(
            ["bash", str(self._script), *reached], capture_output=True, text=True, check=False, timeout=30
        )

    def lines(self, count: int) -> list[str]:
        """What the console shows: so many lines. They are there as soon as it has been told."""
        said = self.console.read_text(encoding="utf-8").splitlines()
        assert len(said) == count, said
        return said


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    """An instance that has just booted."""
    return Boot(tmp_path)


def test_what_is_told_is_what_the_control_plane_reads(boot: Boot) -> None:
    """All of it in one line, which its reader drops nothing of, with the boot as the kernel counts it."""
    boot.tell(Phase.SETS_UP)
    boot.tell(Phase.HAS_FILES, Phase.IS_SET_UP)
    boot.tell(Phase.LOADS)
    lines = boot.lines(3)
    assert boot.told.read_text(encoding="utf-8") == f"{lines[-1]}\n"
    now = time.time()
    since = NOW.fromtimestamp(0, NOW.tzinfo)
    said = starts.said("\n".join(lines), since, NOW.fromtimestamp(now + 1, NOW.tzinfo))
    assert [*said.phases] == [*TOLD_BY_INSTANCES]
    assert said.dropped == 0
    up_s = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
    assert abs(said.phases[Phase.BOOTED].timestamp() - (now - up_s)) < 1.5
    assert said.phases[Phase.HAS_FILES] == said.phases[Phase.IS_SET_UP]
    assert said.phases[Phase.LOADS] - said.phases[Phase.BOOTED] > seconds(0)


def test_each_is_told_once_in_a_boot(boot: Boot) -> None:
    """A start that fails is tried again, and that is no other start; no line is repeated for it."""
    for _ in range(3):
        boot.tell(Phase.SETS_UP)
        boot.tell(Phase.IS_SET_UP)
    first, second = boot.lines(2)
    assert second.startswith(f"{first} {Phase.IS_SET_UP}=")
    assert first.startswith(f"{CONSOLE_MARK} {Phase.BOOTED}=")


@pytest.mark.parametrize("console", ["/nowhere/at/all", "/dev/full", "hangs"])
def test_a_console_that_takes_nothing_costs_a_second_at_most(tmp_path: Path, console: str) -> None:
    """It prints nothing where the service's words go, ends well, and the file has what the console lacks."""
    os.mkfifo(tmp_path / "hangs")  # to open it waits for a reader
    boot = Boot(tmp_path, console)
    began = time.monotonic()
    done = boot.tell(Phase.LOADS)
    assert time.monotonic() - began < 4, "a busy machine's second"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert f" {Phase.LOADS}=" in boot.told.read_text(encoding="utf-8")


TELLS = "ExecStartPre=-/bin/bash /opt/spotrelay/console.sh"
SET_UP = "setup: make install\n"
MODELS = "spotrelay: {models: [{source: s3://my-bucket/m/, path: /m}]}\n"


@pytest.mark.parametrize(
    ("more", "begins", "over"),
    [
        (SET_UP, "sets_up has_files", "has_files is_set_up loads"),
        (FILES + SET_UP, "sets_up", "has_files is_set_up loads"),
        (FILES, "sets_up", "has_files is_set_up loads"),
        (SET_UP + MODELS, "sets_up has_files", "has_files is_set_up"),
    ],
    ids=["setup", "files and setup", "files", "setup and models"],
)
def test_the_unit_tells_what_it_has_reached_and_starts_whatever_becomes_of_that(
    service: Loader, more: str, begins: str, over: str
) -> None:
    """Before set-up and after it, and by "-" without any word in whether it starts.

    What there is nothing of is told with what comes before it, and so took no time.
    """
    unit = files(user_data(service(GOOD + more), "us-east-1"))["spotrelay.service"]
    lines = [line for line in unit.splitlines() if line.startswith("ExecStart")]
    assert lines == [
        f"{TELLS} {begins}",
        "ExecStartPre=/bin/bash /opt/spotrelay/once.sh",
        f"{TELLS} {over}",
        "ExecStart=/bin/bash /opt/spotrelay/run.sh",
    ]


@pytest.mark.parametrize(
    ("more", "told"),
    [("", "sets_up has_files is_set_up loads"), (MODELS, "sets_up has_files is_set_up")],
    ids=["nothing", "models"],
)
def test_without_set_up_all_before_run_is_told_at_once(service: Loader, more: str, told: str) -> None:
    """One process, and no parts of some milliseconds."""
    unit = files(user_data(service(GOOD + more), "us-east-1"))["spotrelay.service"]
    assert [line for line in unit.splitlines() if line.startswith("ExecStartPre")] == [f"{TELLS} {told}"]


def test_files_and_models_are_told_where_there_are_any(service: Loader) -> None:
    """In set-up, once files and mounts are there; in run.sh, once models are."""
    setup = files(user_data(service(GOOD + FILES + SET_UP), "us-east-1"))["setup.sh"]
    assert setup.index("prepare.sh") < setup.index(f'console.sh" {Phase.HAS_FILES}') < setup.index("make")
    plain = files(user_data(service(GOOD + SET_UP), "us-east-1"))
    assert "console.sh" not in plain["setup.sh"] + plain["run.sh"]
    run = files(user_data(service(GOOD + MODELS), "us-east-1"))["run.sh"]
    assert run.index("fetch.py") < run.index(f'console.sh" {Phase.LOADS}') < run.index("python3 serve.py")
