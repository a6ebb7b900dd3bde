"""The unit of a service's instances, and how a replica is stopped: with real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spotrelay.file.instance.unit import STOP
from spotrelay.file.service import user_data

from .conftest import GOOD, Loader
from .test_userdata import files
from .units import Unit

# Tells when it is there, and when it was asked to end; with a number it takes so long for its last answer.
SERVER = """\
import os, signal, sys, time
def end(*_):
    print("asked", flush=True)
    time.sleep(float(sys.argv[1]))
    print("answered", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("listens", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Unit]]:
    """Start one with this script, until its server listens."""
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    (tmp_path / "stop.sh").write_text(STOP, encoding="utf-8")
    started: list[Unit] = []

    def make(script: str) -> Unit:
        started.append(Unit(tmp_path, ["bash", "-c", script], {"PATH": os.environ["PATH"]}))
        started[-1].start(until="listens")
        return started[-1]

    yield make
    for unit in started:
        unit.kill()


@pytest.mark.parametrize(
    "script",
    [
        "exec python3 server.py 1",
        "python3 server.py 1; true",
        "bash -c 'python3 server.py 1; true'; true",
        "python3 server.py 1 & wait",
    ],
)
def test_a_server_is_asked_to_end_and_finishes_its_answer(start: Callable[[str], Unit], script: str) -> None:
    """Whether the script has become it, waits for it, or has it in the background: the stop waits for it."""
    replica = start(script)
    replica.stop()
    assert replica.said == ["listens", "asked", "answered"]


def test_what_a_server_has_started_is_its_own_to_end(start: Callable[[str], Unit]) -> None:
    """An engine that got the signal, too, would cut the answers that its server wants to finish."""
    replica = start(
        "exec python3 -c \"import subprocess; subprocess.run(['python3', 'server.py', '0'], check=False)\""
    )
    replica.stop()
    assert replica.said == ["listens"]


def test_each_of_several_servers_is_asked(start: Callable[[str], Unit]) -> None:
    """One for each GPU, say."""
    replica = start("for slot in 1 2 3; do (while true; do python3 server.py 0; sleep 60; done) & done; wait")
    replica.until("listens", times=3)
    replica.stop()
    assert replica.said.count("answered") == 3


def test_in_a_container_the_first_process_is_the_containers(start: Callable[[str], Unit]) -> None:
    """There the script is called with its number, and no variable names another."""
    replica = start("python3 server.py 0; true")
    replica.stop(str(replica.main.pid), main=1)
    assert replica.said == ["listens", "asked", "answered"]


def test_a_replica_that_has_ended_by_itself_has_nothing_to_stop(tmp_path: Path) -> None:
    """systemd calls ExecStop then, too, and names no main process."""
    done = subprocess.run(
        ["bash", "-c", STOP], env={"PATH": os.environ["PATH"]}, capture_output=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("status", [0, 3])
def test_a_script_that_leaves_its_server_in_the_background_waits_for_it(
    service: Loader, tmp_path: Path, status: int
) -> None:
    """systemd would kill the server and start the script again, for ever; what failed is started again."""
    chat = replace(service(GOOD), run=f"sleep 60 & echo $!\nexit {status}", instance_types=())
    script = files(user_data(chat, "eu-west-1"))["run.sh"].replace("nvidia-smi -L", "true")
    process = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout
        assert int(process.stdout.readline())
        if status:
            assert process.wait(30) == status
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd isn't here")
def test_systemd_takes_the_unit(service: Loader, tmp_path: Path) -> None:
    """No line in it is unknown."""
    written = files(user_data(service(GOOD + "setup: make\n"), "eu-west-1"))
    unit = written["spotrelay.service"].splitlines()
    assert {"KillMode=mixed", "TimeoutStopSec=120", "LimitNOFILE=1048576"} <= set(unit)
    (after,) = (line for line in unit if line.startswith("After="))
    assert "dlami-nvme.service" in after
    names = ("spotrelay.service", "spotrelay-console.service")
    for name in names:
        (tmp_path / name).write_text(written[name], encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / name) for name in names)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if "spotrelay" in line] == []
