"""Installs what the examples for AWS install, from PyPI, and tries as much of it as needs no GPU.

    .venv/bin/python scripts/try_examples.py [--into DIR] [--python VERSION] [NAME...]

Gigabytes, and minutes: a person's command, after a change of what an example installs.
It writes docs/examples-checked.md; examples that weren't named keep their section.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from spotrelay.file.service import Service, load

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "examples-checked.md"

THEIRS = "3.12"
"""The Python that the files name, and that their requirements.txt was made for."""

_HEAD = """\
# Examples, checked

What these files install was installed with its hashes, imported, and given the file's command line, on a
machine without a GPU. Nothing was served: whether an engine starts on a GPU only a GPU shows. To do it
again, with some 20 GB of disk:

```sh long
.venv/bin/python scripts/try_examples.py
```

"""

NAMES = ["llama3", "llama3-quick", "sdxl"]

_MORE = {
    "llama3-quick": """\
Its hashes weren't made here. Each was found, the same, in public projects that have nothing to do with each
other: the weights' in more than five, three of them with the commit; the two of release b11160 in two. A
wrong one would end the set-up, not serve something else. That llama.cpp knows the options of its `run` is a
test: `tests/engine`.
"""
}
"""What a reader of an example's section should know beside it."""

_PARSE = """\
import sys
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform
vllm.platforms._current_platform = CpuPlatform()  # there is no GPU here, and it insists on some device
from vllm.entrypoints.common.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
if sys.argv[1] != "serve":
    sys.exit(f"no such command: {sys.argv[1]}")
known = make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[2:])
print(f"model {known.model_tag}, port {known.port}, at most {known.max_num_seqs} sequences of"
      f" {known.max_model_len} tokens, {known.shutdown_timeout} s to shut down")
"""

_VERSIONS = """\
import sys
from importlib.metadata import version
print(", ".join(f"{name} {version(name)}" for name in sys.argv[1:]))
"""

_SDXL = """\
import torch, diffusers, transformers, accelerate
from diffusers import StableDiffusionXLPipeline
import runpy
runpy.run_path("server.py")
print(f"torch is built for CUDA {torch.version.cuda}")
"""

_LLAMA3 = """\
import torch, torchaudio, vllm
import vllm.entrypoints.launchers.api_server.entry
print(f"torch is built for CUDA {torch.version.cuda}, and torchaudio imports beside it")
"""


class FailedError(Exception):
    """A step that failed; the message is what it said."""


@dataclass(frozen=True)
class Trial:
    """One example, and where it is installed."""

    service: Service
    into: Path
    python: str

    @property
    def name(self) -> str:
        """Its file's."""
        return self.service.path.stem

    @property
    def directory(self) -> Path:
        """With its requirements."""
        return ROOT / "services" / self.name

    @property
    def environment(self) -> Path:
        """Where the set-up would install to, but for the place."""
        return self.into / self.name

    def said(self, *command: str | Path, **env: str) -> str:
        """What a command printed last. Raises FailedError."""
        done = subprocess.run(
            [*map(str, command)],
            cwd=self.directory, env={**os.environ, **env}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise FailedError(f"{' '.join(map(str, command))[:200]}\n{done.stderr[-3000:]}")
        return (done.stdout.strip().splitlines() or [""])[-1]

    def run_python(self, code: str, *arguments: str) -> str:
        """The same of a program in the environment."""
        return self.said(self.environment / "bin" / "python", "-c", code, *arguments)


def _installed(trial: Trial) -> str:
    uv = Path(sys.executable).parent / "uv"
    trial.said(uv, "venv", "--quiet", "--clear", "--python", trial.python, trial.environment)
    requirements = "requirements.txt"
    if trial.python != THEIRS:
        requirements = str(trial.into / f"{trial.name}.txt")
        platform = ("--python-platform", "x86_64-manylinux_2_28", "--python-version", trial.python)
        asked = ("--quiet", "--generate-hashes", *platform, "requirements.in", "-o", requirements)
        trial.said(uv, "pip", "compile", *asked)
    trial.said(
        *(uv, "pip", "install", "--quiet", "--python", trial.environment / "bin" / "python"),
        *("--require-hashes", "-r", requirements),
    )
    files = [path.stat().st_size for path in trial.environment.rglob("*") if path.is_file()]
    anew = "" if trial.python == THEIRS else f", resolved anew for Python {trial.python}"
    return f"{len(files):,} files, {sum(files) / 1e9:.1f} GB{anew}"


def _versions(trial: Trial) -> str:
    names = (trial.directory / "requirements.in").read_text(encoding="utf-8").split()
    more = ["torch", "torchaudio", "transformers", "flashinfer-python"] if trial.name == "llama3" else []
    return trial.run_python(_VERSIONS, *(name.partition("==")[0] for name in names), *more)


def _imported(trial: Trial) -> str:
    return trial.run_python({"llama3": _LLAMA3, "sdxl": _SDXL}[trial.name])


def _fetched(trial: Trial) -> str:
    """The set-up of llama3-quick as it is, into a directory; or which host there is no way to from here."""
    setup = (trial.service.setup or "").replace("/opt/llama", str(trial.environment))
    for host in ("github.com", "huggingface.co"):
        try:
            socket.create_connection((host, 443), timeout=10).close()
        except OSError:
            return f"not here: there is no way from this machine to {host}"
    trial.said("bash", "-c", setup)
    version = trial.said("bash", "-c", '"$0" --version 2>&1', trial.environment / "bin" / "llama-server")
    return f"all three; the engine says: {version}"


def _parsed(trial: Trial) -> str:
    """The file's `run`, with the engine's own parser in the engine's place."""
    shim = trial.into / "shim"
    shim.mkdir(exist_ok=True)
    (shim / "vllm").write_text(f"#!{trial.environment}/bin/python\n{_PARSE}", encoding="utf-8")
    (shim / "vllm").chmod(0o755)
    run = trial.service.run.replace("/opt/vllm/bin", str(shim))
    return trial.said("bash", "-c", run, **trial.service.envs, HOST="0.0.0.0", PORT="8081")  # noqa: S104 - as there


def steps(trial: Trial) -> Iterator[tuple[str, Callable[[Trial], str]]]:
    """What is tried of it."""
    if trial.name == "llama3-quick":
        yield "fetched, with hashes", _fetched
        return
    yield "installed, with hashes", _installed
    yield "versions", _versions
    yield "imported", _imported
    if trial.name == "llama3":
        yield "its command line, by vLLM's own parser", _parsed


def tried(trial: Trial) -> Iterator[str]:
    """The example's lines of the page. Raises FailedError."""
    yield f"## services/{trial.name}.yaml\n\n"
    python = f", with Python {trial.python}" if trial.directory.is_dir() else ""
    yield f"On {datetime.now(UTC):%Y-%m-%d}{python}:\n\n| | | s |\n|---|---|---|\n"
    for name, step in steps(trial):
        began = time.monotonic()
        sys.stderr.write(f"{trial.name}: {name} …\n")
        said = step(trial)
        yield f"| {name} | {said} | {time.monotonic() - began:.0f} |\n"
    if words := _MORE.get(trial.name):
        yield f"\n{words}"


def _sections() -> dict[str, str]:
    """What the page says of each example today."""
    _, *sections = re.split(r"(?m)^(?=## )", PAGE.read_text(encoding="utf-8"))
    return {Path(section.split()[1]).stem: f"{section.strip()}\n" for section in sections}


def main(arguments: Sequence[str] | None = None) -> int:
    """Try them and write the page."""
    parser = argparse.ArgumentParser(prog="scripts/try_examples.py", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--into", type=Path, help="a directory to install into (a scratch one)")
    parser.add_argument(
        "--python", default=THEIRS, help=f"{THEIRS}, as the files say, or one that is here: resolved anew"
    )
    said = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        into = said.into or Path(scratch)
        trials = [
            Trial(load(ROOT / "services" / f"{name}.yaml"), into.absolute(), said.python)
            for name in said.names
        ]
        try:
            sections = _sections() | {trial.name: "".join(tried(trial)) for trial in trials}
        except FailedError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    PAGE.write_text(_HEAD + "\n".join(sections[name] for name in NAMES if name in sections), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
