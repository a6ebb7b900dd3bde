"""Instances as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab.local.machines import COMMANDS, Machines, give_own_disks
from spotrelay.file.instance.unit import ONCE
from tests.local_data_plane.support import PORT, wait_until

ADDRESS = "127.3.2.1"


def user_data(run: str, setup: str | None = None, **environment: str) -> str:
    """A cloud-config as SpotRelay compiles it."""
    settings = {"HOST": "0.0.0.0", "PORT": str(PORT), **environment}
    files = {
        "service.env": "".join(f'{key}="{value}"\n' for key, value in settings.items()),
        "run.sh": run,
        **({} if setup is None else {"setup.sh": setup, "once.sh": ONCE}),
    }
    entries = [{"path": f"/opt/spotrelay/{name}", "content": text} for name, text in files.items()]
    return "#cloud-config\n" + json.dumps({"write_files": entries})  # JSON is YAML


def lines(path: Path) -> list[str]:
    """What a script has written so far."""
    return path.read_text().splitlines() if path.exists() else []


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie doesn't."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Machines that are gone after the test."""
    room = Machines(tmp_path / "machines", warning_s=12.5)
    yield room
    room.stop_all()


def test_environment(machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service sees its own environment, its address as HOST, WARNING_S and our Python, no credentials."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    out = tmp_path / "out"
    machines.start(
        "i-1", ADDRESS, user_data(f"env > {out}.new; mv {out}.new {out}; sleep 1000", GREETING="a b")
    )
    wait_until(out.exists, "the service has written its environment")
    seen = dict(line.split("=", 1) for line in lines(out))
    assert (seen["HOST"], seen["PORT"], seen["GREETING"]) == (ADDRESS, str(PORT), "a b")
    assert seen["WARNING_S"] == "12.5"
    # What stands for an instance's programs hides this machine's own.
    assert seen["PATH"].split(os.pathsep)[:2] == [str(COMMANDS), str(Path(sys.executable).parent)]
    assert not any(name.startswith("AWS_") for name in seen)


def test_halt(machines: Machines, tmp_path: Path) -> None:
    """What was halted boots again with its disk, without the set-up; nothing of what it ran is left."""
    out = tmp_path / "out"
    data = user_data(f"cat model >> {out}; echo $$ > pid; sleep 1000", setup="echo downloaded >> model")
    machines.start("i-1", ADDRESS, data)
    pid = tmp_path / "machines" / "instances" / "i-1" / "work" / "pid"
    wait_until(lambda: bool(lines(pid)), "it runs")
    first = int(lines(pid)[0])
    machines.halt("i-1")
    machines.halt("i-unknown")
    wait_until(lambda: not alive(first), "nothing runs")
    machines.hang("i-1")
    machines.start("i-1", ADDRESS, data)
    with pytest.raises(ValueError, match="running already"):
        machines.start("i-1", ADDRESS, data)
    wait_until(lambda: len(lines(out)) == 2, "it has run again")
    assert lines(out) == ["downloaded", "downloaded"]
    machines.halt("i-1")
    machines.stop("i-1")
    wait_until(lambda: not pid.parent.exists(), "its disk is gone with it")


def test_restart(machines: Machines, tmp_path: Path) -> None:
    """A service that ends is started again; its set-up has run once, in the same directory, before it."""
    out = tmp_path / "out"
    machines.start("i-1", ADDRESS, user_data(f"cat model >> {out}", setup="echo downloaded >> model"))
    wait_until(lambda: len(lines(out)) >= 2, "the service has run twice")
    assert set(lines(out)) == {"downloaded"}


def test_failed_setup(machines: Machines, tmp_path: Path) -> None:
    """A set-up that fails is tried again, and the service doesn't start before it has succeeded."""
    out = tmp_path / "out"
    setup = f"echo setup >> {out}; [ -f tried ] || {{ touch tried; exit 1; }}"
    machines.start("i-1", ADDRESS, user_data(f"echo run >> {out}; sleep 1000", setup=setup))
    wait_until(lambda: "run" in lines(out), "the service runs")
    assert lines(out) == ["setup", "setup", "run"]


def test_leftovers(machines: Machines, tmp_path: Path) -> None:
    """What a service leaves running when it ends is gone before it is started again."""
    out = tmp_path / "out"
    machines.start("i-1", ADDRESS, user_data(f"setsid sleep 1000 & echo $! >> {out}"))
    wait_until(lambda: len(lines(out)) >= 2, "the service has run twice")
    assert not alive(int(lines(out)[0]))


DAEMONS = """
sleep 1000 & echo $! >> {out}
setsid sleep 1000 & echo $! >> {out}
(setsid bash -c 'echo $$ >> {out}; sleep 1000; true' &)
while [ $(wc -l < {out}) -lt 3 ]; do sleep 0.01; done
echo $$ >> {out}
exec sleep 1000
"""


def test_stop_kills_everything(machines: Machines, tmp_path: Path) -> None:
    """Stopping an instance kills children, grandchildren and daemons that left the process group."""
    out = tmp_path / "out"
    machines.start("i-1", ADDRESS, user_data(DAEMONS.format(out=out)))
    machines.start("i-2", ADDRESS, user_data(f"echo $$ > {out}.2; exec sleep 1000"))
    wait_until(lambda: len(lines(out)) == 4 and lines(Path(f"{out}.2")), "all processes run")
    machines.stop("i-1")
    wait_until(lambda: not any(alive(int(pid)) for pid in lines(out)), "all are gone")
    assert alive(int(lines(Path(f"{out}.2"))[0])), "the other instance is left alone"
    machines.stop("i-1")


def test_stop_kills_what_a_thread_has_started(machines: Machines, tmp_path: Path) -> None:
    """A process that a thread of the service started in a session of its own is killed, too."""
    out = tmp_path / "out"
    start = f"subprocess.call(['bash', '-c', 'echo $$ > {out}; exec sleep 1000'], start_new_session=True)"
    code = f"import subprocess, threading; threading.Thread(target=lambda: {start}).start()"
    machines.start("i-1", ADDRESS, user_data(f'exec python3 -c "{code}"'))
    wait_until(lambda: bool(lines(out)), "its process runs")
    machines.stop("i-1")
    wait_until(lambda: not alive(int(lines(out)[0])), "it is gone")


def test_a_hung_instance_answers_nothing_until_it_goes_on(machines: Machines, tmp_path: Path) -> None:
    """Every process of the service stops, and isn't started anew; then it goes on, or is killed as ever."""
    out = tmp_path / "out"
    machines.start("i-1", ADDRESS, user_data(DAEMONS.format(out=out)))
    wait_until(lambda: len(lines(out)) == 4, "all processes run")
    processes = [psutil.Process(int(pid)) for pid in lines(out)]
    machines.hang("i-1")
    wait_until(lambda: {p.status() for p in processes} == {psutil.STATUS_STOPPED}, "all are stopped")
    machines.resume("i-1")
    wait_until(lambda: psutil.STATUS_STOPPED not in {p.status() for p in processes}, "all go on")
    machines.hang("i-1")
    machines.stop("i-1")
    wait_until(lambda: not any(alive(p.pid) for p in processes), "all are gone")
    assert len(lines(out)) == 4, "the service was started once"
    machines.hang("i-1")
    machines.resume("i-1")


def test_nothing_is_left_of_stopped_instances(machines: Machines) -> None:
    """Once all are stopped there is no process of theirs, zombies included."""
    others = set(psutil.Process().children(recursive=True))
    for name in ("i-1", "i-2"):
        machines.start(name, ADDRESS, user_data("exec sleep 1000"))
    below = set(psutil.Process().children(recursive=True)) - others
    machines.stop("i-1")
    machines.stop_all()
    assert below
    assert below.isdisjoint(psutil.Process().children(recursive=True))
    # What an instance's own process had started is reaped by the first process of all, in its own time.
    _, left = psutil.wait_procs(below, timeout=30)
    assert left == []


PARENT = """
import sys, time
from pathlib import Path
from lab.local.machines import COMMANDS, Machines
from spotrelay.file.instance.unit import ONCE
machines = Machines(Path(sys.argv[1]))
machines.start("i-1", "127.3.2.1", sys.stdin.read())
time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_instances_die_with_the_cloud(tmp_path: Path, number: signal.Signals) -> None:
    """Nothing of an instance survives the process that runs the machines, even if that is SIGKILLed."""
    out = tmp_path / "out"
    arguments = [sys.executable, "-c", PARENT, str(tmp_path / "machines")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        parent.stdin.write(user_data(DAEMONS.format(out=out)))
        parent.stdin.close()
        wait_until(lambda: len(lines(out)) == 4, "all processes run")
        os.kill(parent.pid, number)
    wait_until(lambda: not any(alive(int(pid)) for pid in lines(out)), "all are gone")


def test_each_has_a_disk_of_its_own(machines: Machines, tmp_path: Path) -> None:
    """What one writes into /srv nobody else has; it is there again after a halt."""
    if not give_own_disks():
        pytest.skip("this machine gives instances no disks of their own")
    out, file = tmp_path / "out", f"/srv/spotrelay-{os.getpid()}"
    run = f"[ -e {file} ] && echo there >> {out}; touch {file}; echo ran >> {out}; sleep 1000"
    for id_ in ("i-1", "i-2"):
        machines.start(id_, ADDRESS, user_data(run))
        wait_until(lambda: lines(out)[-1:] == ["ran"], "it has written")
        assert lines(out) == ["ran"], id_
        out.unlink()
    assert not Path(file).exists()
    machines.halt("i-1")
    machines.start("i-1", ADDRESS, user_data(run))
    wait_until(lambda: lines(out)[-1:] == ["ran"], "it runs again")
    assert lines(out) == ["there", "ran"]


def test_not_ours(machines: Machines) -> None:
    """An instance with somebody else's user data just exists."""
    machines.start("i-1", ADDRESS, "#!/bin/bash\necho hello\n")
    assert machines.on_console("i-1", latest=True) == b"[    0.000000] i-1 boots\n"
    machines.stop("i-1")


def test_unreadable(machines: Machines) -> None:
    """An instance with a broken cloud-config exists, runs nothing, and says in its log what is wrong."""
    machines.start("i-1", ADDRESS, "#cloud-config\na: [")
    assert "not valid YAML" in machines.log_path("i-1").read_text()
    machines.stop("i-1")


def test_ids(machines: Machines) -> None:
    """An ID in use or with a path in it is refused; stopping an unknown instance is no error."""
    machines.start("i-1", ADDRESS, "")
    with pytest.raises(ValueError, match="i-1 is running already"):
        machines.start("i-1", ADDRESS, "")
    with pytest.raises(ValueError, match=r"\.\./i-2"):
        machines.start("../i-2", ADDRESS, "")
    machines.stop("i-3")


def test_scratch_goes_logs_stay(machines: Machines, tmp_path: Path) -> None:
    """A stopped instance leaves its log and nothing else."""
    machines.start("i-1", ADDRESS, user_data("echo hello; exec sleep 1000"))
    wait_until(lambda: "hello" in lines(machines.log_path("i-1")), "the log has the service's output")
    machines.stop("i-1")
    machines.stop_all()
    assert [path.name for path in (tmp_path / "machines").rglob("*") if path.is_file()] == ["i-1.log"]
