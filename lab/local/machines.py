"""Instances as processes: each runs its service's own start command at an address of its own."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lab.local import machine_init, metadata
from lab.local.environment import EC2_WARNING_S
from lab.local.network import Network, Shape, SharedNetwork
from lab.local.user_data import ServiceFiles, UserDataError
from lab.local.user_data import parse as parse_user_data
from spotrelay.plane.core.replica import CONSOLE_MARK, Phase

_log = logging.getLogger(__name__)

COMMANDS = Path(__file__).parent / "commands"
"""What the default image has on its PATH, and this machine may not."""

_KERNEL = "[    0.000000]"
"""How a line of the kernel's begins."""

_CONSOLE = "/dev/console"

_PHASES = "/run/spotrelay-phases"
"""What a start has told: /run is empty after each boot."""

_ROOT = 'bake.py" /'
"""How what makes a disk fit for an image is told which one: here never this machine's own."""

_INSTANCE_ID = re.compile(r"[A-Za-z0-9_-]+")

# All instances of a launch template's version have the same, and reading it takes 10 ms, in which nobody
# else's call is answered: half a second when fifty replacements boot at once.
_parsed = lru_cache(maxsize=16)(parse_user_data)


@dataclass(slots=True)
class _Machine:
    directory: Path
    process: subprocess.Popen[bytes] | None
    address: str


def give_own_disks() -> bool:
    """Whether instances have a disk of their own on this machine, see `machine_init.OWN_DISK`."""
    if shutil.which("unshare") is None:
        return False
    # Of no effect outside of `unshare`.
    bind = ["mount", "--bind", tempfile.gettempdir(), machine_init.OWN_DISK]
    return not subprocess.run(["unshare", "--mount", *bind], capture_output=True, check=False).returncode


class Machines:
    """Starts and kills instances. Not thread-safe: call it from one thread.

    An instance is a session of processes under `machine_init`, which restarts the service when it ends and
    takes everything down when this process ends, however it ends. Logs stay in `logs`, one per instance;
    the scratch directory goes with the instance. `warning_s` is how long this cloud's warnings last, which
    a service may go by. `endpoint` is where instances find AWS and their metadata; None: nowhere. The
    network is closed by `stop_all`.
    """

    def __init__(
        self,
        root: Path,
        logs: Path | None = None,
        warning_s: float = EC2_WARNING_S,
        endpoint: str | None = None,
        network: Network | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._network = network or SharedNetwork()
        self._scratch = root / "instances"
        self._images = root / "images"
        self._warning_s = warning_s
        self._logs = logs or root / "logs"
        self._machines: dict[str, _Machine] = {}
        self._halted: set[str] = set()
        self._consoles: set[str] = set()
        """Of instances whose service's words reach it."""
        self._funerals = ThreadPoolExecutor(1, "spotrelay-machines")

    def new_address(self) -> str:
        """An address for a new instance."""
        return self._network.new_address()

    def start(
        self, instance_id: str, address: str, user_data: str, gpus: int = 0, image_id: str = ""
    ) -> None:
        """Boots an instance: the setup and run scripts of its user data, with HOST set to `address`.

        One that was halted boots with the disk that it had, and runs no setup that has succeeded before. A
        new one has that of its image, if it was kept.

        User data that isn't SpotRelay's makes an instance that just exists; so does unreadable user data, as
        on EC2, where cloud-init complains into a log. The complaint is in the instance's log.
        Raises ValueError if the ID is in use or no plain name.
        """
        if not _INSTANCE_ID.fullmatch(instance_id):
            raise ValueError(f"instance ID {instance_id!r}: expected letters, digits, '-' and '_'")
        if instance_id in self._machines and instance_id not in self._halted:
            raise ValueError(f"instance {instance_id} is running already; stop it first")
        directory = self._scratch / instance_id
        try:
            files = _parsed(user_data)
        except UserDataError as error:
            _log.warning("instance %s runs nothing: %s", instance_id, error)
            self._write_log(instance_id, str(error))
            files = None
        kept = self._images / image_id
        if image_id and kept.is_dir() and not directory.exists():
            shutil.copytree(kept, directory, symlinks=True)
        # As EC2's console has it: something, from the first second on.
        self._write_log(instance_id, f"{_KERNEL} {instance_id} boots")
        if files is not None and files.reach_console:
            self._consoles.add(instance_id)
        process = None if files is None else self._boot(instance_id, address, directory, files, gpus)
        self._halted.discard(instance_id)
        self._machines[instance_id] = _Machine(directory, process, address)

    def keep_disk(self, instance_id: str, image_id: str) -> int:
        """Keeps a copy of an instance's disk for new instances; its bytes."""
        kept = self._images / image_id
        kept.mkdir(parents=True)
        if (machine := self._machines.get(instance_id)) is not None and machine.directory.is_dir():
            shutil.copytree(machine.directory, kept, symlinks=True, dirs_exist_ok=True)
        return sum(path.lstat().st_size for path in kept.rglob("*"))

    def halt(self, instance_id: str) -> None:
        """Kills what the instance runs and keeps its disk, so that it can be started again.

        An unknown ID is no error.
        """
        machine = self._machines.get(instance_id)
        if machine is None:
            return
        self._halted.add(instance_id)
        process, machine.process = machine.process, None
        if process is not None:
            machine_init.kill_tree(process.pid)
            self._funerals.submit(_end, process)

    def stop(self, instance_id: str) -> None:
        """SIGKILLs everything the instance runs, which cuts its connections. An unknown ID is no error."""
        machine = self._machines.pop(instance_id, None)
        if machine is None:
            return
        self._halted.discard(instance_id)
        if machine.process is not None:
            machine_init.kill_tree(machine.process.pid)
        # On a busy machine a killed process may take its time to be gone, and nobody need wait for it.
        self._funerals.submit(_bury, machine)

    def hang(self, instance_id: str) -> None:
        """SIGSTOPs what the instance runs: connections to it are made and stay, and nothing answers.

        An instance that runs nothing, or isn't known, is no error.
        """
        self._with_process(instance_id, machine_init.stop_service)

    def resume(self, instance_id: str) -> None:
        """Lets a hung instance go on."""
        self._with_process(instance_id, machine_init.continue_service)

    def shape(self, instance_id: str, shape: Shape) -> bool:
        """Makes the instance's network so slow; False: it isn't on its network yet.

        One that runs nothing, or isn't known, is no error. Raises NetworkError: this machine can't.
        """
        machine = self._machines.get(instance_id)
        if machine is None or machine.process is None or machine.process.poll() is not None:
            return True
        return self._network.shape(machine.process.pid, machine.address, shape)

    def stop_all(self) -> None:
        """Stops every instance, and waits until nothing is left of any."""
        for instance_id in list(self._machines):
            self.stop(instance_id)
        self._funerals.shutdown()
        self._network.close()

    def on_console(self, instance_id: str, *, latest: bool) -> bytes:
        """What its console shows; nothing if it hasn't booted yet.

        The service's words are there if its user data sees to it, and, of an instance that runs, only in
        the `latest` output: what EC2 keeps otherwise is of the moment when it came to run.
        """
        path = self.log_path(instance_id)
        said = path.read_bytes() if path.exists() else b""
        if instance_id in self._consoles and (latest or instance_id not in self._machines):
            return said
        return b"".join(line for line in said.splitlines(keepends=True) if line.startswith(_KERNEL.encode()))

    def log_path(self, instance_id: str) -> Path:
        """Where the instance's standard output and error go; absent for an instance that runs nothing."""
        return self._logs / f"{instance_id}.log"

    def _with_process(self, instance_id: str, do: Callable[[int], None]) -> None:
        machine = self._machines.get(instance_id)
        if machine is not None and machine.process is not None:
            do(machine.process.pid)

    def _boot(
        self, instance_id: str, address: str, directory: Path, files: ServiceFiles, gpus: int
    ) -> subprocess.Popen[bytes]:
        work = directory / "work"
        work.mkdir(parents=True, exist_ok=True)
        if "bake.py" in files.others and _ROOT not in files.run:
            # It would erase what this machine has of its own: its SSH keys, its logs.
            raise ValueError(f"instance {instance_id}: its run.sh doesn't say {_ROOT}")
        phases = directory / "phases"
        for name, content in {**files.others, "run.sh": files.run}.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            # Its console isn't this machine's.
            own = content.replace(_CONSOLE, shlex.quote(str(self.log_path(instance_id).absolute())))
            own = own.replace(_PHASES, shlex.quote(str(phases.absolute())))
            own = own.replace(_ROOT, f'bake.py" {shlex.quote(str(directory / "root"))}')
            (directory / name).write_text(own, encoding="utf-8")
            if _PHASES in content:
                # /proc/uptime is this machine's: the kernel's part is played here.
                told = f"{CONSOLE_MARK} {Phase.BOOTED}={time.time():.3f}\n"
                phases.write_text(told, encoding="utf-8")
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log_path(instance_id).open("ab") as log:
            return self._network.start(
                address,
                # Isolated (-I): the service's PYTHONPATH and the like are for the service, not for its init.
                [sys.executable, "-I", machine_init.__file__, str(directory)],
                {
                    **_environment(files.environment, address, work, self._warning_s),
                    **self._aws(instance_id),
                    "LOCAL_GPUS": str(gpus),
                },
                log.fileno(),
                directory,
            )

    def _aws(self, instance_id: str) -> dict[str, str]:
        """Where the instance finds AWS. On EC2 it knows by itself."""
        if self._endpoint is None:
            return {}
        return {
            "AWS_ENDPOINT_URL": self._endpoint,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.address(self._endpoint, instance_id),
        }

    def _write_log(self, instance_id: str, message: str) -> None:
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log_path(instance_id).open("a", encoding="utf-8") as log:
            log.write(message + "\n")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _bury(machine: _Machine) -> None:
    if machine.process is not None:
        _end(machine.process)
    shutil.rmtree(machine.directory, ignore_errors=True)


def _environment(service: dict[str, str], address: str, home: Path, warning_s: float) -> dict[str, str]:
    """What the service sees: its own environment, the little that systemd gives, and WARNING_S.

    The operator's credentials must not leak into an instance: it has those of its role, and no others. How
    long warnings last here is for services that are slow in relation to it: they would be too fast where
    somebody chose longer ones.
    """
    path = service.get("PATH", os.environ.get("PATH", os.defpath))
    return {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "WARNING_S": f"{warning_s:g}",
        **service,
        "PATH": os.pathsep.join((str(COMMANDS), str(Path(sys.executable).parent), path)),
        "HOST": address,
    }
