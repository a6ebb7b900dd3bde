"""The scripts of services/llama3.yaml, run with fallbacks for what they fetch and start."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from spotrelay.service import load

ROOT = Path(__file__).parents[2]
LLAMA3 = load(ROOT / "services" / "llama3.yaml")

# As uv: a directory that exists is refused.
UV = """#!/bin/bash
target="${@: -1}"
if [ "$1" = venv ]; then
  test -e "$target" && { echo "$target exists" >&2; exit 2; }
  mkdir "$target"
elif [ -n "$FAIL" ]; then exit 1
else echo "$@" >> installed; fi
"""


class Instance:
    """A directory that serves as an instance's file system, with its commands first on PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bin").mkdir()
        self.wheel = root / "served.whl"
        with zipfile.ZipFile(self.wheel, "w") as wheel:
            wheel.writestr("uv-0.13.8.data/scripts/uv", UV)
        self.command("curl", f'while [ "$1" != -o ]; do shift; done; cp {self.wheel} "$2"')

    def command(self, name: str, script: str) -> None:
        """Something on PATH."""
        file = self.root / "bin" / name
        file.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def run(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        """The script, with the directories that it writes to in here."""
        for there, here in {"/usr/local/bin": "bin", "/opt/vllm": "vllm"}.items():
            script = script.replace(there, str(self.root / here))
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.root,
            env={"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", **LLAMA3.envs, **env},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """One that has just booted."""
    return Instance(tmp_path)


def setup() -> str:
    """The set-up script."""
    assert LLAMA3.setup
    return LLAMA3.setup


def expecting(instance: Instance) -> str:
    """The set-up script, told to expect the fallback for the installer."""
    digest = hashlib.sha256(instance.wheel.read_bytes()).hexdigest()
    return re.sub(r"[0-9a-f]{64}  uv.whl", f"{digest}  uv.whl", setup())


def test_set_up_works_again_after_it_broke_off(instance: Instance) -> None:
    """A try that failed halfway leaves nothing that the next one, or one more, stumbles over."""
    script = expecting(instance)
    assert instance.run(script, FAIL="1").returncode == 1
    for _ in range(2):
        done = instance.run(script)
        assert done.returncode == 0, done.stderr
    assert "vllm==" in (instance.root / "installed").read_text()


def test_nothing_is_run_that_is_not_what_was_pinned(instance: Instance) -> None:
    """An installer with another hash ends the set-up before any of it is unpacked."""
    done = instance.run(setup())
    assert done.returncode == 1
    assert "uv.whl: FAILED" in done.stdout
    assert not (instance.root / "bin" / "uv").exists()
    assert not re.search(r"\|\s*(env\s.*)?(ba)?sh\b", setup()), "and no script is run as it comes"


def test_the_installer_is_the_one_that_the_repository_locks() -> None:
    """Address and hash are those of uv.lock, which were checked when it was made."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    wheels = {wheel["url"]: wheel["hash"] for p in packages if p["name"] == "uv" for wheel in p["wheels"]}
    (url,) = re.findall(r"https://\S+\.whl", setup())
    assert f"sha256:{re.findall(r'[0-9a-f]{64}(?=  uv.whl)', setup())[0]}" == wheels[url]


@pytest.mark.parametrize(
    ("is_mounted", "home"), [("0", "/opt/dlami/nvme/huggingface"), ("1", "the-usual-place")]
)
def test_the_weights_are_on_the_instance_store_where_there_is_one(
    instance: Instance, is_mounted: str, home: str
) -> None:
    """vLLM's cache is on the disk that the image has mounted, and where it always is if there is none."""
    (instance.root / "vllm" / "bin").mkdir(parents=True)
    instance.command("mountpoint", f'[ "$*" = "-q /opt/dlami/nvme" ] && exit {is_mounted}')
    vllm = instance.root / "vllm" / "bin" / "vllm"
    vllm.write_text('#!/bin/bash\necho "${HF_HOME:-the-usual-place} $*"\n', encoding="utf-8")
    vllm.chmod(0o755)
    done = instance.run(LLAMA3.run, HOST="0.0.0.0", PORT="8081")
    assert done.stdout == (
        f"{home} serve {LLAMA3.envs['MODEL_NAME']} --host 0.0.0.0 --port 8081 --max-model-len 8192\n"
    )
