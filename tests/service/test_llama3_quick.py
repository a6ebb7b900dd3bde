"""The scripts of services/llama3-quick.yaml, run with stand-ins for what they fetch and for the engine."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from pathlib import Path

import pytest

from spotrelay.file.service import load
from tests.service.scripts import Instance

ROOT = Path(__file__).parents[2]
QUICK = load(ROOT / "services" / "llama3-quick.yaml")

HASH = re.compile(r"\b[0-9a-f]{64}\b")


def release(**files: str) -> bytes:
    """An archive as llama.cpp packs them: everything in one directory."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"some-build/{name.replace('_', '-')}")
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content.encode()))
    return packed.getvalue()


THERE = {
    "llama-b11160-bin-ubuntu-cuda-12.8-x64.tar.gz": release(llama_server='#!/bin/bash\necho "$*"\n'),
    "cudart-llama-b11160-bin-ubuntu-cuda-12.8-x64.tar.gz": release(libcudart="CUDA"),
    "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf": b"weights",
}
"""What the addresses in the file give, instead of gigabytes."""


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """One that has just booted, with a network that has these files."""
    instance = Instance(tmp_path, QUICK, "/opt/llama")
    (tmp_path / "there").mkdir()
    for name, content in THERE.items():
        (tmp_path / "there" / name).write_bytes(content)
    # The last argument is an address.
    instance.command("curl", f'cat "{tmp_path}/there/$(basename "${{@: -1}}")" || exit 22')
    return instance


def pinned() -> str:
    """The set-up, with the hashes of what is there in the place of the real ones."""
    hashes = (hashlib.sha256(content).hexdigest() for content in THERE.values())
    return HASH.sub(lambda _: next(hashes), QUICK.setup or "")


def test_all_that_it_fetches_has_a_version_and_a_hash() -> None:
    """Three files: of a release, and of one commit of the model's repository."""
    setup = QUICK.setup or ""
    assert len(set(HASH.findall(setup))) == len(THERE)
    assert all(name in setup for name in THERE)
    assert re.search(r"/download/b\d+/", setup)
    assert re.search(r"resolve\n.*\$models/[0-9a-f]{40}/", setup, re.DOTALL)


def test_engine_libraries_and_weights_are_where_it_starts_from(instance: Instance) -> None:
    """The engine beside the libraries that it looks for there; a second try finds nothing in its way."""
    for _ in range(2):
        done = instance.run(pinned())
        assert done.returncode == 0, done.stderr
    assert {path.name for path in (instance.root / "opt" / "bin").iterdir()} == {"llama-server", "libcudart"}
    assert (instance.root / "opt" / "model.gguf").read_bytes() == b"weights"
    started = instance.run(QUICK.run, HOST="0.0.0.0", PORT="8081")
    assert started.stdout.startswith(
        f"--model {instance.root}/opt/model.gguf --alias llama-3.1-8b --host 0.0.0.0"
    )


@pytest.mark.parametrize("name", THERE)
def test_what_isnt_the_pinned_file_ends_the_set_up(instance: Instance, name: str) -> None:
    """Whichever of the three it is; its address is told, and nothing of it is unpacked."""
    (instance.root / "there" / name).write_bytes(release(llama_server="something else"))
    done = instance.run(pinned())
    assert done.returncode == 1
    assert f"{name} couldn't be fetched, or isn't what this file pins" in done.stderr
    assert "something else" not in {
        path.read_text() for path in (instance.root / "opt" / "bin").iterdir() if path.is_file()
    }


@pytest.mark.parametrize("name", THERE)
def test_what_isnt_there_ends_the_set_up(instance: Instance, name: str) -> None:
    """The same for what can't be fetched."""
    (instance.root / "there" / name).unlink()
    done = instance.run(pinned())
    assert done.returncode == 1
    assert f"{name} couldn't be fetched" in done.stderr


def test_a_set_up_that_fails_leaves_nothing_behind_that_still_runs(instance: Instance) -> None:
    """It is tried again at once, and the model takes longest."""
    (instance.root / "there" / next(iter(THERE))).unlink()
    network = (instance.root / "bin" / "curl").read_text().removeprefix("#!/bin/bash\n")
    instance.command("curl", f'[[ "$*" == *gguf ]] && sleep 0.5; {network}')
    done = instance.run(f"( {pinned()} )\necho $?; cat /opt/llama/model.gguf")
    assert done.stdout == "1\nweights"


def test_its_limits_agree() -> None:
    """A replica is full when every slot has a request; each has the model's 8192 tokens."""
    flags = dict(re.findall(r"--([\w-]+) (\d+)", QUICK.run))
    assert QUICK.busy
    assert int(flags["parallel"]) == QUICK.busy.limit
    assert int(flags["ctx-size"]) == QUICK.busy.limit * 8192
    assert "--metrics" in QUICK.run
