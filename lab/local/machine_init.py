"""Process 1 of a local instance: what systemd is to a real one. Run by path; imports little, to start fast.

`python -I machine_init.py DIRECTORY` runs DIRECTORY/once.sh, if there is one, then DIRECTORY/run.sh, both in
DIRECTORY/work; before and after set-up it tells what the start has reached, as the unit does, where
DIRECTORY/phases says that DIRECTORY/console.sh knows how. Beside them it runs DIRECTORY/peers.py, or else
DIRECTORY/fetch.py, if there are models, which has a unit of its own. Whenever run.sh ends, it runs
DIRECTORY/crash.sh (ExecStopPost), and starts again (Restart=always). Where the machine allows it, what is in
/srv is the instance's own. Standard input is a pipe that nobody ever writes to: its end means that the local
cloud is gone, and then the instance goes with it, whatever killed the cloud.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

# systemd's default is 0.1 s; a service that dies while starting shall not eat a whole processor here.
RESTART_DELAY_S = 1.0

_PR_SET_CHILD_SUBREAPER = 36  # from <linux/prctl.h>
_CLONE_NEWNS = 0x00020000  # from <linux/sched.h>
_MS_BIND, _MS_REC, _MS_SLAVE = 1 << 12, 1 << 14, 1 << 19  # from <linux/mount.h>

OWN_DISK = "/srv"
"""The one directory outside its own that each instance has for itself. A pack is put in place as a whole, so
what several instances unpack at once must not be at one place. This directory each machine has, and mostly
with nothing in it."""

_BOOT = """
cd work
tell() { [ ! -f ../phases ] || bash ../console.sh "$@"; }
over="has_files is_set_up $([ -f ../fetch.json ] || echo loads)"
if [ -f ../once.sh ]; then
  tell sets_up $([ -f ../aws.sh ] || [ -f ../prepare.sh ] || echo has_files)
  bash ../once.sh || exit
  tell $over
else
  tell sets_up $over
fi
exec bash ../run.sh
"""

# By the script that is there. The first one's unit has Restart=on-failure.
_MODELS = {
    "peers.py": "until python3 -I peers.py --keep; do sleep 1; done",
    "fetch.py": "exec python3 -I fetch.py --keep",
}

_AFTER = """
cd work
[ ! -f ../crash.sh ] || exec bash ../crash.sh
"""


def kill_tree(leader: int) -> None:
    """SIGKILLs the process group of `leader` and whatever of its descendants has left the group.

    The descendants are complete because the leader adopts orphans. Unknown processes are no error.
    """
    for pid in _descendants(leader):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) != leader:
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def stop_service(leader: int) -> None:
    """SIGSTOPs everything below `leader`, so that it neither answers nor ends. The leader itself goes on."""
    stopped: set[int] = set()
    # Until nothing new is found: what wasn't stopped yet may have started more meanwhile.
    while new := set(_descendants(leader)) - stopped:
        _signal(new, signal.SIGSTOP)
        stopped |= new


def continue_service(leader: int) -> None:
    """SIGCONTs everything below `leader`."""
    _signal(_descendants(leader), signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _descendants(pid: int) -> list[int]:
    """All processes below one.

    The kernel is asked for each one's children. To ask every process of the machine for its parent takes 5 ms
    where there are 300, and a pool that EC2 takes back may be 50 instances.
    """
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        import psutil  # here, because only kernels that were built without that file need it

        with contextlib.suppress(psutil.NoSuchProcess):
            return [process.pid for process in psutil.Process(pid).children(recursive=True)]
        return []
    found: list[int] = []
    # Each thread has the children that it started.
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _take_own_disk(directory: Path) -> None:
    """Puts a directory of the instance's in the place of `OWN_DISK`, for this process and all below it alone.

    Where the machine doesn't allow that, instances share what is there.
    """
    if sys.platform != "linux":
        return
    libc, own = ctypes.CDLL(None, use_errno=True), directory / OWN_DISK.lstrip("/")
    own.mkdir(exist_ok=True)
    # Without the second call this machine would see the third's effect, too.
    if not libc.unshare(_CLONE_NEWNS) and not libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None):
        libc.mount(bytes(own), OWN_DISK.encode(), None, _MS_BIND, None)


def _adopt_orphans() -> None:
    """Makes daemons, whose parent has exited, children of this process instead of the machine's process 1."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _say(message: str) -> None:
    sys.stderr.write(f"[instance] {message}\n")
    sys.stderr.flush()


def _spawn(directory: Path, script: str = _BOOT) -> int:
    os.chdir(directory)
    return os.posix_spawnp(
        "bash",
        ["bash", "-c", script],
        os.environ,
        # The service must not hold the pipe whose end means that the cloud is gone.
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
        # Python ignores these two; a service expects the defaults.
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )


def _fetch_models(directory: Path) -> int | None:
    """Starts their unit, once its script is there: from the boot on, or with the service's files."""
    found = [script for name, script in _MODELS.items() if (directory / name).exists()]
    has_models = found and (directory / "fetch.json").exists()  # an instance that packs has none to fetch
    return _spawn(directory, found[0]) if has_models else None


def _reap() -> dict[int | None, int]:
    """Collects every child that has ended: its wait status by its ID."""
    statuses: dict[int | None, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = ended[1]
    return statuses


def _kill_leftovers(other: int | None) -> None:
    """Ends what the service left running, as systemd does with the unit's control group before a restart.

    `other` belongs to another unit, with all below it.
    """
    others = {other, *_descendants(other)} if other else set()
    _signal({*_descendants(os.getpid())} - others, signal.SIGKILL)


def _run(directory: Path) -> None:
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGHUP, lambda *_: None)  # `commands/systemctl` starts the unit of models so
    os.environ["LOCAL_INIT"] = str(os.getpid())
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    models = _fetch_models(directory)
    service: int | None = _spawn(directory)
    after: int | None = None
    restart_at: float | None = None
    while True:
        timeout = None if restart_at is None else max(0.0, restart_at - time.monotonic())
        readable = select.select([0, wake_read], [], [], timeout)[0]
        if wake_read in readable:
            os.read(wake_read, 4096)
            models = models or _fetch_models(directory)
        if 0 in readable and not os.read(0, 4096):
            return
        ended = _reap()
        if (status := ended.get(service)) is not None:
            _kill_leftovers(models)
            code = os.waitstatus_to_exitcode(status)
            how = f"with status {code}" if code >= 0 else f"by signal {signal.Signals(-code).name}"
            _say(f"the service ended {how}; starting it again in {RESTART_DELAY_S:g} s")
            service, after = None, _spawn(directory, _AFTER)
        elif after in ended:
            after, restart_at = None, time.monotonic() + RESTART_DELAY_S
        elif restart_at is not None and time.monotonic() >= restart_at:
            restart_at = None
            service = _spawn(directory)


def main() -> None:
    """Runs the instance until the local cloud is gone."""
    _take_own_disk(Path(sys.argv[1]))
    _adopt_orphans()
    try:
        _run(Path(sys.argv[1]))
    finally:
        kill_tree(os.getpid())


if __name__ == "__main__":
    main()
