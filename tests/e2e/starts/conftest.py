"""A local cloud with six services that can't start, each for another reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import DemoSettings
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S
from tests.e2e.operators.conftest import Command, spotrelay

__all__ = ["Command", "spotrelay"]

SERVICE = """
name: {name}
service:
  replicas: 1
  readiness_probe: {{path: /v1/models, initial_delay_seconds: 600}}
resources:
  accelerators: "L4:1"
  use_spot: true
  ports: 8081
{more}
"""

TAKES_ITS_PORT = """\
run: |
  python3 -c '
  import os, socket, time
  listener = socket.create_server((os.environ["HOST"], int(os.environ["PORT"])))
  time.sleep(60)' &
  sleep 1
  exec python3 -m http.server --bind $HOST $PORT
"""
"""What listens there first answers nothing: an answer would be news of a server that is up."""


@dataclass(frozen=True, slots=True)
class Start:
    """Why a service doesn't start, and what its operator is told."""

    more: str
    """Of its file."""
    said: str
    """What its replica says last."""
    remedy: str
    """Part of what is told to do about it."""


STARTS: Mapping[str, Start] = {
    # An engine that is refused its model says so in set-up; a secret that nobody stored is ours to tell.
    "no-token": Start(
        "secrets: {HF_TOKEN: null}\nrun: exec serve",
        "can't read parameter /spotrelay/no-token/HF_TOKEN",
        "give it a token",
    ),
    "no-driver": Start("envs: {LOCAL_NO_DRIVER: 1}\nrun: exec serve", "no GPU answers", "kernel and driver"),
    "no-memory": Start(
        "run: |\n  echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB'\n  exit 1",
        "CUDA out of memory",
        "more memory",
    ),
    "no-binary": Start("run: exec vllm serve m", "vllm: not found", "have setup install it"),
    # Nothing is known of such words: they are told, and where more is.
    "no-reason": Start(
        "run: |\n  echo 'ValueError: unknown architecture'\n  exit 1", "ValueError", "shows its console"
    ),
    "no-port": Start(TAKES_ITS_PORT, "Address already in use", "let nothing else listen"),
}


@pytest.fixture(scope="package")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with their files."""
    directory = tmp_path_factory.mktemp("starts-files")
    for name, start in STARTS.items():
        text = SERVICE.format(name=name, more=start.more)
        (directory / f"{name}.yaml").write_text(text, encoding="utf-8")
    return directory


@pytest.fixture(scope="package")
def operator(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[Operator]:
    """The unmodified app with them, and with the demo's service."""
    settings = DemoSettings(WARNING_S, tmp_path_factory.mktemp("starts"))
    with deploying.deployed(
        settings, tmp_path_factory.mktemp("scratch"), sorted(files.iterdir())
    ) as operator:
        yield operator
