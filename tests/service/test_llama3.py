"""The scripts of services/llama3.yaml, run with stand-ins for what they call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spotrelay.file.instance.tools import needs_uv
from spotrelay.file.service import load
from tests.service.scripts import Instance

ROOT = Path(__file__).parents[2]
LLAMA3 = load(ROOT / "services" / "llama3.yaml")

UV = """\
target="${@: -1}"
if [ "$1" = venv ]; then
  test -e "$target" && { echo "$target exists" >&2; exit 2; }
  mkdir "$target"
elif [ -n "$FAIL" ]; then exit 1
else echo "$@" >> installed; fi
"""


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """One that has just booted."""
    instance = Instance(tmp_path, LLAMA3, "/opt/vllm")
    # As uv: a directory that exists is refused.
    instance.command("uv", UV)
    instance.command("curl", 'cat > token; echo "$@" > asked')
    return instance


def test_set_up_works_again_after_it_broke_off(instance: Instance) -> None:
    """A try that failed halfway leaves nothing that the next one, or one more, stumbles over."""
    script = LLAMA3.setup
    assert script
    assert instance.run(script, FAIL="1").returncode == 1
    for _ in range(2):
        done = instance.run(script)
        assert done.returncode == 0, done.stderr
    assert "--require-hashes -r requirements.txt" in (instance.root / "installed").read_text()


def test_a_token_that_opens_nothing_is_said_before_anything_is_installed(instance: Instance) -> None:
    """Hugging Face is asked for the model's smallest file; the token stands in no command line."""
    script = LLAMA3.setup
    assert script
    assert instance.run(script, HF_TOKEN="hf_secret").returncode == 0
    assert (instance.root / "token").read_text() == "Authorization: Bearer hf_secret\n"
    asked = (instance.root / "asked").read_text()
    assert f"https://huggingface.co/{LLAMA3.envs['MODEL_NAME']}/resolve/main/config.json" in asked
    assert "secret" not in asked
    (instance.root / "installed").unlink()
    instance.command("curl", "exit 22")
    done = instance.run(script, HF_TOKEN="hf_wrong")
    assert done.returncode == 1
    assert "accepted the model's licence?" in done.stderr
    assert not (instance.root / "installed").exists()


def test_uv_is_there_and_no_script_is_run_as_it_comes() -> None:
    """SpotRelay installs uv before the set-up, which fetches no installer of its own."""
    assert needs_uv(LLAMA3)
    assert not re.search(r"\| *(ba)?sh", f"{LLAMA3.setup}{LLAMA3.run}")


@pytest.mark.parametrize(
    ("is_mounted", "home"), [("0", "/opt/dlami/nvme/huggingface"), ("1", "the-usual-place")]
)
def test_the_weights_are_on_the_instance_store_where_there_is_one(
    instance: Instance, is_mounted: str, home: str
) -> None:
    """vLLM's cache is on the disk that the image has mounted, and where it always is if there is none."""
    (instance.root / "opt" / "bin").mkdir(parents=True)
    instance.command("mountpoint", f'[ "$*" = "-q /opt/dlami/nvme" ] && exit {is_mounted}')
    vllm = instance.root / "opt" / "bin" / "vllm"
    vllm.write_text('#!/bin/bash\necho "${HF_HOME:-the-usual-place} $*"; ninja\n', encoding="utf-8")
    (vllm.parent / "ninja").symlink_to("/bin/true")
    vllm.parent.chmod(0o755)
    vllm.chmod(0o755)
    done = instance.run(LLAMA3.run, HOST="0.0.0.0", PORT="8081")
    assert done.stdout == (
        f"{home} serve {LLAMA3.envs['MODEL_NAME']} --host 0.0.0.0 --port 8081 --max-model-len 8192"
        f" --max-num-seqs 256 --shutdown-timeout {LLAMA3.drain_s:.0f}\n"
    )
    assert done.returncode == 0, "ninja, with which kernels are compiled, is found"


def test_idle_connections_are_the_balancers_to_close() -> None:
    """vLLM keeps them for longer, or a request meets a connection that is being closed: 502."""
    assert int(LLAMA3.envs["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > LLAMA3.idle_timeout_s


@pytest.mark.parametrize("name", ["llama3", "sdxl"])
def test_all_that_is_installed_has_its_version_and_its_hashes(name: str) -> None:
    """The list was made from requirements.in by the command that the file names, and is that file's still."""
    service = load(ROOT / "services" / f"{name}.yaml")
    directory = ROOT / "services" / name
    assert service.workdir == directory
    text = (directory / "requirements.txt").read_text(encoding="utf-8")
    command = "uv pip compile --generate-hashes --python-version 3.12 --python-platform x86_64-manylinux_2_28"
    assert command in text
    assert f"{command} \\\n#" in (ROOT / "services" / "llama3.yaml").read_text(encoding="utf-8")
    assert "venv --managed-python --python 3.12" in (service.setup or "")
    pinned = re.split(r"\n(?=\S)", re.sub(r"(?m)^ *#.*\n", "", text).strip())
    assert all(
        re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+ \\\n +--hash=sha256:[0-9a-f]{64}", one) for one in pinned
    )
    versions = {one.split(" ")[0] for one in pinned}
    asked = (directory / "requirements.in").read_text(encoding="utf-8").split()
    assert asked
    assert set(asked) <= versions
