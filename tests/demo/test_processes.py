"""The demo's children: none outlives it, and what they say when they fail is not lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab.demo import tether
from lab.demo.errors import DemoError
from lab.demo.processes import Processes

WITHIN_S = 60.0
"""A bound, not a measure: what is waited for takes milliseconds."""

# A child with a child of its own in the same process group, which ignores polite requests.
STUBBORN_FAMILY = (
    "trap '' TERM; sh -c \"trap '' TERM; sleep 600\" & echo child $!; echo ready > {ready}; wait; sleep 600"
)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Children that are stopped after the test, whatever it did."""
    children = Processes(tmp_path, tmp_path)
    yield children
    children.stop_all()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def _wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while alive := [pid for pid in pids if _is_alive(pid)]:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_command_that_ends_well(processes: Processes, tmp_path: Path) -> None:
    """A command's output goes into its log, and its success is noticed."""
    child = processes.start("greeting", ["sh", "-c", "echo hello; echo again >&2"], os.environ)
    processes.finish(child, "the greeting", WITHIN_S)
    assert (tmp_path / "greeting.log").read_text().splitlines()[1:] == ["hello", "again"]


def test_a_command_that_fails_says_why(processes: Processes) -> None:
    """The error names the command, its status and its log, and quotes the end of it."""
    child = processes.start("deploy", ["sh", "-c", "echo no such bucket; exit 3"], os.environ)
    with pytest.raises(
        DemoError, match=r"(?s)cdk deploy failed \(exit status 3\); see .*deploy\.log.*no such bucket"
    ):
        processes.finish(child, "cdk deploy", WITHIN_S)


def test_a_command_that_hangs_is_stopped(processes: Processes) -> None:
    """Waiting has a bound, after which the command is gone."""
    child = processes.start("hang", ["sleep", "600"], os.environ)
    with pytest.raises(DemoError, match="the hang took longer than 0 s and was stopped"):
        processes.finish(child, "the hang", 0.01)
    assert child.poll() is not None


def test_stopping_ends_grandchildren_that_do_not_listen(processes: Processes, tmp_path: Path) -> None:
    """A command that ignores SIGTERM goes, and so does what it has started."""
    ready = tmp_path / "ready"
    child = processes.start("family", ["sh", "-c", STUBBORN_FAMILY.format(ready=ready)], os.environ)
    _wait_for(ready)
    tether_itself = psutil.Process(child.pid)
    pids = [p.pid for p in (tether_itself, *tether_itself.children(recursive=True))]
    assert len(pids) >= 3
    child.stop()
    _wait_until_gone(pids)


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Even SIGKILL, which leaves the demo no time to clean up, leaves no process behind."""
    ready = tmp_path / "ready"
    command = [sys.executable, "-I", tether.__file__, "sh", "-c", STUBBORN_FAMILY.format(ready=ready)]
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            f"subprocess.Popen({command!r}, stdin=subprocess.PIPE)\n"
            "time.sleep(600)",
        ]
    )
    _wait_for(ready)
    pids = [p.pid for p in psutil.Process(parent.pid).children(recursive=True)]
    assert len(pids) >= 3
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    _wait_until_gone(pids)
