"""What an instance that bakes leaves on its disk, and what it erases."""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotrelay.file.instance import bake, baking, bundle, fitting, packing, userdata
from spotrelay.file.instance.unit import HOME
from spotrelay.file.instance.userdata import environment
from spotrelay.file.service import Service, user_data
from tests.service.conftest import Loader
from tests.service.test_packs import imported

FILE = """\
service: {replicas: 1}
resources: {accelerators: L4, ports: 8081}
envs: {WORD: hush}
setup: apt-get install -y ffmpeg
run: serve
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine's disk, with what tells it apart and what it was given."""
    found = tmp_path / "root"
    for name, content in {
        "etc/machine-id": "0123\n",
        "etc/hosts": "127.0.0.1 localhost\n",
        "etc/ssh/ssh_host_ed25519_key": "private",
        "etc/ssh/sshd_config": "Port 22\n",
        "etc/systemd/system/spotrelay.service": "[Unit]\n",
        "var/lib/cloud/instances/i-1/user-data.txt": "hush",
        "var/lib/cloud/instances/i-1/boot-finished": "",
        "var/lib/cloud/seed/nocloud/meta-data": "the image's",
        "var/lib/systemd/random-seed": "seed",
        "var/log/journal/0123/system.journal": "hush",
        "var/log/cloud-init.log": "hush",
        "root/.bash_history": "export TOKEN=hush\n",
        "home/ubuntu/.bash_history": "export TOKEN=hush\n",
        "usr/bin/ffmpeg": "program",
    }.items():
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_text(content)
    (found / "var/lib/cloud/instance").symlink_to(found / "var/lib/cloud/instances/i-1")
    (found / "var/lib/dbus").mkdir()
    (found / "var/lib/dbus/machine-id").symlink_to("/etc/machine-id")
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """/opt/spotrelay after set-up."""
    found = tmp_path / "spotrelay"
    for name in (".bake-began", ".setup-done-1", ".prepared-1", "service.env", "setup.sh", "tools/uv"):
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_text("hush" if name == "service.env" else "")
    return found


def plan(*paths: str) -> dict[str, Any]:
    """What the instance is told; `paths`: what replicas have from a pack."""
    elsewhere = ["/etc/systemd/system/spotrelay.service"]
    return {"paths": list(paths), "home": ["service.env", "setup.sh", "crash.sh"], "elsewhere": elsewhere}


def names(below: Path) -> set[str]:
    """All files and links there."""
    return {
        str(Path(at, one).relative_to(below))
        for at, directories, files in os.walk(below)
        for one in (*files, *(d for d in directories if Path(at, d).is_symlink()))
    }


def test_what_no_other_machine_may_have_is_erased(root: Path, home: Path) -> None:
    """Identity, cloud-init's state, logs, and what the service was given; what set-up made stays."""
    bake.clean(root, home, plan())
    assert names(root) == {
        "etc/machine-id",
        "etc/hosts",
        "etc/ssh/sshd_config",
        "var/lib/cloud/seed/nocloud/meta-data",
        "usr/bin/ffmpeg",
    }
    assert (root / "etc/machine-id").read_text() == ""
    assert names(home) == {".setup-done-1", ".prepared-1", "tools/uv"}


@pytest.mark.parametrize(
    "name",
    [
        "spotrelay/service.env",
        "root/var/lib/cloud/instances/i-1/user-data.txt",
        "root/etc/ssh/ssh_host_ed25519_key",
        "root/root/.bash_history",
    ],
)
def test_secrets_are_overwritten(name: str, root: Path, home: Path, tmp_path: Path) -> None:
    """A snapshot has the blocks of a deleted file, too."""
    other = tmp_path / "other"
    other.hardlink_to(tmp_path / name)
    size = other.stat().st_size
    bake.clean(root, home, plan())
    assert other.read_bytes() == bytes(size)


def test_what_replicas_have_from_a_pack_is_left_out(root: Path, home: Path, tmp_path: Path) -> None:
    """And so is the mark of a set-up that is over: a replica must ask for its pack."""
    made = tmp_path / "opt" / "vllm"
    made.mkdir(parents=True)
    (made / "big").write_text("9 GB")
    bake.clean(root, home, plan(str(made), str(tmp_path / "never-made")))
    assert not made.exists()
    assert names(home) == {".prepared-1", "tools/uv"}


def test_cloud_init_is_waited_for(root: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set-up may be over before it is: it would write again what was erased."""
    finished = root / bake.FINISHED
    finished.unlink()
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        assert (home / "service.env").exists()
        waited.append(seconds)
        finished.write_text("")

    monkeypatch.setattr("spotrelay.file.instance.bake.time.sleep", sleep)
    bake.clean(root, home, plan())
    assert len(waited) == 1


def test_what_is_on_the_instance_store_is_refused(root: Path) -> None:
    """No image has it, and a replica wouldn't run set-up. What was there before is nobody's."""
    store = root / "opt/dlami/nvme"
    store.mkdir(parents=True)
    began = time.time() - 10
    (store / "of-before").write_text("")
    bake.check(root, time.time() + 10)
    with pytest.raises(bake.BakeError, match=r"set-up has made .*of-before, on the instance's own store"):
        bake.check(root, began)


def test_who_fails_says_so_and_ends(home: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the console, with the reason; and what powers the instance off is there until the end."""
    said: list[str] = []
    monkeypatch.setattr("spotrelay.file.instance.bake.tell", said.append)
    monkeypatch.setattr("spotrelay.file.instance.bake.__file__", str(home / "bake.py"))
    monkeypatch.setattr("sys.argv", ["bake.py", str(root)])
    (home / "crash.sh").write_text("")
    (home / "bake.json").write_text(json.dumps(plan()))

    erase = bake._erase

    def fail(path: Path) -> None:
        if path.name == "setup.sh":
            raise OSError("disk is full")
        erase(path)

    monkeypatch.setattr("spotrelay.file.instance.bake._erase", fail)
    assert bake.main() == 1
    assert said == ["spotrelay: nothing is baked: disk is full"]
    assert (home / "crash.sh").exists()


def test_it_runs_on_the_instances_python() -> None:
    """As a script without the package, of what Python 3.9 reads."""
    assert imported(Path(bake.__file__).read_text(encoding="utf-8")) <= sys.stdlib_module_names


def written(text: bytes) -> dict[str, str]:
    """The files of user data, by path."""
    files = packing.written(gzip.decompress(text).decode())
    return {path: packing.content(one) for path, one in files.items()}


@pytest.mark.parametrize("size", [0, 20_000], ids=["readable", "compressed"])
def test_set_up_leaves_a_replicas_mark(service: Loader, size: int) -> None:
    """All that the mark is of is as replicas have it; nothing serves, fetches models or has a pack."""
    deployed = user_data(service(FILE.replace("setup: ", f"setup: |\n  # {'x' * size}\n  ")), "us-east-1")
    its = {path: packing.content(one) for path, one in packing.written(deployed).items()}
    assert "apt-get install" in its[f"{HOME}/setup.sh"]
    files = written(baking.user_data(deployed, ()))
    for name in ("setup.sh", "service.env", "stop.sh"):
        assert files[f"{HOME}/{name}"] == its[f"{HOME}/{name}"]
    mark = its[f"{HOME}/once.sh"].partition("\n")[2].rstrip()
    assert mark in files[f"{HOME}/run.sh"]
    assert "serve\n" not in files[f"{HOME}/run.sh"]
    assert f"{HOME}/once.sh" not in files
    told = json.loads(files[f"{HOME}/bake.json"])
    all_of_them = {*(f"{HOME}/{name}" for name in told["home"]), *told["elsewhere"]}
    assert all_of_them >= {*files, *its} - {f"{HOME}/bake.json"}


def test_it_fits_where_a_replicas_just_fits(service: Loader) -> None:
    """User data has a limit: with the longest script that still stands in it, and is random."""
    words = base64.b64encode(random.Random(1).randbytes(6000)).decode()  # noqa: S311 - the same each time
    deployed = user_data(service(FILE.replace("setup: ", f"setup: |\n  # {words}\n  ")), "us-east-1")
    assert userdata.MAX_BYTES - 1000 < len(deployed.encode()) <= userdata.MAX_BYTES
    assert len(baking.user_data(deployed, ())) <= userdata.MAX_BYTES - 1000


def test_all_of_set_up_runs_beside_a_pack(service: Loader) -> None:
    """What isn't below its paths is what the image is for."""
    paths = "spotrelay: {pack: {paths: [/opt/vllm]}}\n"
    files = written(baking.user_data(user_data(service(FILE + paths), "us-east-1"), ["/opt/vllm"]))
    assert files[f"{HOME}/pack.sh"] == "#!/bin/bash\nexit 1\n"
    assert json.loads(files[f"{HOME}/bake.json"])["paths"] == ["/opt/vllm"]


def deployed_scripts(service: Service) -> dict[str, str]:
    """What instances of a service have, by path below /opt/spotrelay."""
    archive = bundle.Archive("s3://b/k", bundle.digest(service) if bundle.is_needed(service) else "")
    files = packing.written(user_data(service, "us-east-1", archive))
    return {path.removeprefix(f"{HOME}/"): packing.content(one) for path, one in files.items()}


@pytest.mark.parametrize(
    ("before", "after"), [("ffmpeg", "ffmpeg git"), ("hush", "loud"), ("# a file", "# another")]
)
def test_another_set_up_is_known(service: Loader, tmp_path: Path, before: str, after: str) -> None:
    """By its script, its variables and its files; another `run` is the same set-up."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("# a file")
    one = replace(service(FILE), workdir=code)
    scripts = deployed_scripts(one)
    assert fitting.is_deployed(one, environment(one), scripts)
    (code / "main.py").write_text("# a file".replace(before, after))
    other = replace(service(FILE.replace(before, after)), workdir=code)
    assert not fitting.is_deployed(other, environment(other), scripts)
    (code / "main.py").write_text("# a file")
    run = replace(service(FILE.replace("serve", "serve --faster")), workdir=code)
    assert fitting.is_deployed(run, environment(run), scripts)
