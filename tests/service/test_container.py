"""A service in a container, with a real one: Podman in Docker's place, and an image that is made here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Loader
from .test_boot import Instance
from .units import Unit

IMAGE = "localhost/spotrelay-test:1"

COMMANDS = ("bash", "cat", "env", "id", "ls", "mkdir", "sleep", "touch")

# A sandbox may not raise limits, and has no registry for what is here already.
DOCKER = """\
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
    found = Instance(tmp_path)
    found.command("docker", DOCKER)
    yield found
    podman("rm", "--force", "--ignore", "spotrelay")


def test_a_container_serves_ends_in_time_and_serves_again(
    service: Loader, image: str, instance: Instance
) -> None:
    """Set up once; asked to end it finishes its answer; at the next start what the set-up made is there.

    No value that it is given is kept by Docker.
    """
    env = {**instance.boot(service(FILE % image)), "KEY": "a secret\nof two lines"}
    for said in ("set up with a secret\nof two lines\n", ""):
        done = instance.run("once.sh", **env)
        assert (done.returncode, done.stdout) == (0, said), done.stderr
    unit = Unit(
        instance.directory, ["bash", str(instance.directory / "run.sh")], {**instance.environment, **env}
    )
    for _ in range(2):
        unit.start(until="listens")
        work = "/root/sky_workdir"
        assert unit.said == [f"runs in {work} with a secret", "of two lines, /made", "listens"]
        assert "secret" not in podman("inspect", "spotrelay")
        unit.stop()
        assert unit.main.wait(30) == 0
        assert unit.said[-3:] == ["asked", "answered", "ends"]
    done = instance.run("stop.sh")
    assert (done.returncode, done.stdout) == (0, ""), "as when a replica has ended by itself"
