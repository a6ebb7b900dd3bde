"""A service in a container, with a real one: Podman in Docker's place, and an image that is made here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spotrelay.service import Service, user_data

from .conftest import Loader
from .test_userdata import config

IMAGE = "localhost/spotrelay-test:1"

COMMANDS = ("bash", "cat", "env", "id", "ls", "mkdir", "sleep", "touch")

# A sandbox may not raise limits, and has no registry for what is here already.
DOCKER = """\
#!/bin/bash
unset DOCKER_CONFIG
arguments=()
while [ $# != 0 ]; do
  case $1 in
    pull) exec podman image exists "${@: -1}" ;;
    --ulimit) shift ;;
    create | run) arguments+=("$1" --ulimit nofile=1024:1024 --ulimit nproc=4096:4096) ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
exec podman --runtime runc "${arguments[@]}"
"""

# Copied under another name, bash is a server and no script.
RUN = """\
echo "runs in $PWD with $KEY, $(ls /made)"
echo 'trap "echo asked; sleep 1; echo answered; exit" TERM' > server
echo 'echo listens; while sleep 0.1; do :; done' >> server
/bin/server server
echo ends
"""

FILE = """\
service: {replicas: 1}
spotrelay: {drain_seconds: 20}
resources: {cpus: 2+, ports: 8081, image_id: "docker:%s"}
envs: {KEY: x}
setup: echo "set up with $KEY" && touch /made
run: |
""" + re.sub("^", "  ", RUN, flags=re.MULTILINE)


@dataclass
class Instance:
    """Where systemd's part is played by hand."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    def boot(self, service: Service, env: Mapping[str, str]) -> None:
        """Write what cloud-init would."""
        for entry in config(user_data(service, "eu-west-1"))["write_files"]:
            if entry["path"].startswith("/opt/spotrelay/"):
                file = self.root / entry["path"].removeprefix("/opt/spotrelay/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(entry["content"], encoding="utf-8")
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        nowhere = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}
        self.env = {"PATH": path, "HOME": str(self.root), "SPOTRELAY_SERVICE": "chat", **nowhere, **env}

    def run(self, name: str, **env: str) -> str:
        """One of the scripts; what it says."""
        done = subprocess.run(
            ["bash", str(self.root / name)],
            cwd=self.root, env={**self.env, **env}, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> subprocess.Popen[str]:
        """`run`, once it listens."""
        with (self.root / "said").open("w", encoding="utf-8") as said:
            main = subprocess.Popen(
                ["bash", str(self.root / "run.sh")],
                cwd=self.root, env=self.env, text=True, stdout=said, stderr=said,
            )  # fmt: skip
        for _ in range(600):
            if "listens" in self.said:
                return main
            assert main.poll() is None, self.said
            time.sleep(0.1)
        raise AssertionError(self.said)

    @property
    def said(self) -> list[str]:
        """What the last start said, without curl's complaint that this is no instance."""
        lines = (self.root / "said").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if not line.startswith("curl:")]


def podman(*arguments: str) -> str:
    """Call it; what it says."""
    return str(subprocess.run(["podman", *arguments], check=True, capture_output=True, text=True).stdout)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image with bash and little else."""
    if os.getuid() != 0 or not all(map(shutil.which, ("podman", "runc", "catatonit"))):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs root, podman, runc and catatonit")
    root = tmp_path_factory.mktemp("image")
    for directory in ("bin", "etc", "root", "tmp", "dev", "proc", "sys"):
        (root / directory).mkdir()
    (root / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/bash\n", encoding="utf-8")
    for command in COMMANDS:
        found = Path(shutil.which(command) or command).resolve()
        shutil.copy(found, root / "bin" / command)
        linked = subprocess.run(["ldd", str(found)], check=True, capture_output=True, text=True).stdout
        for library in map(Path, re.findall(r"(/\S+\.so\S*)", linked)):
            (root / library.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library.relative_to("/"))
    shutil.copy(root / "bin" / "bash", root / "bin" / "server")
    archive = shutil.make_archive(str(root.parent / "image"), "tar", root)
    podman("import", "--quiet", archive, IMAGE)
    yield IMAGE
    podman("rmi", "--force", IMAGE)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """One whose `docker` is Podman."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text(DOCKER, encoding="utf-8")
    (tmp_path / "bin" / "docker").chmod(0o755)
    yield Instance(tmp_path)
    podman("rm", "--force", "--ignore", "spotrelay")


def test_a_container_serves_ends_in_time_and_serves_again(
    service: Loader, image: str, instance: Instance
) -> None:
    """Set up once; asked to end it finishes its answer; at the next start what the set-up made is there.

    No value that it is given is kept by Docker.
    """
    instance.boot(service(FILE % image), {"KEY": "a secret\nof two lines"})
    assert instance.run("once.sh") == "set up with a secret\nof two lines\n"
    assert instance.run("once.sh") == ""
    for _ in range(2):
        main = instance.start()
        work = "/root/sky_workdir"
        assert instance.said == [f"runs in {work} with a secret", "of two lines, /made", "listens"]
        assert "secret" not in podman("inspect", "spotrelay")
        instance.run("stop.sh", MAINPID=str(main.pid))
        assert main.wait(30) == 0
        assert instance.said[-3:] == ["asked", "answered", "ends"]
    assert instance.run("stop.sh") == "", "which systemd calls, too, when a replica has ended by itself"
