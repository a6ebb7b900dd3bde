"""The scripts of services/llama3.yaml, run with stand-ins for what they call."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spotrelay.service import load
from spotrelay.service.tools import needs_uv

ROOT = Path(__file__).parents[2]
LLAMA3 = load(ROOT / "services" / "llama3.yaml")

# As uv: a directory that exists is refused.
UV = """\
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
        self.command("uv", UV)

    def command(self, name: str, script: str) -> None:
        """Something on PATH."""
        file = self.root / "bin" / name
        file.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def run(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        """The script, with the directories that it writes to in here."""
        for there, here in {"/opt/vllm": "vllm"}.items():
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


def test_set_up_works_again_after_it_broke_off(instance: Instance) -> None:
    """A try that failed halfway leaves nothing that the next one, or one more, stumbles over."""
    script = LLAMA3.setup
    assert script
    assert instance.run(script, FAIL="1").returncode == 1
    for _ in range(2):
        done = instance.run(script)
        assert done.returncode == 0, done.stderr
    assert "vllm==" in (instance.root / "installed").read_text()


def test_uv_is_there_and_no_script_is_run_as_it_comes() -> None:
    """SpotRelay installs uv before the set-up, which fetches no installer of its own."""
    assert needs_uv(LLAMA3)
    assert "curl" not in f"{LLAMA3.setup}{LLAMA3.run}"


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
        f"{home} serve {LLAMA3.envs['MODEL_NAME']} --host 0.0.0.0 --port 8081 --max-model-len 8192"
        " --max-num-seqs 256\n"
    )
