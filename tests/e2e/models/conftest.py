"""A local cloud with a service whose model isn't there yet, and one whose start lasts until it may end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import DemoSettings
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S
from tests.e2e.operators.conftest import Command, spotrelay

__all__ = ["Command", "spotrelay"]

BUCKET = "spotrelay-e2e-models"

SERVICE = """
name: model
service:
  replicas: 1
  readiness_probe: {{path: /weights, initial_delay_seconds: 600}}
resources:
  accelerators: "L4:1"
  use_spot: true
  ports: 8081
spotrelay:
  peers: true
  models:
    - {{source: s3://{bucket}/llama/8b/, path: {path}}}
run: cd {path} && exec python3 -m http.server --bind $HOST $PORT
"""

HELD = """
name: held
service:
  replicas: 1
  readiness_probe: {{path: /, initial_delay_seconds: 600}}
resources:
  accelerators: "L4:1"
  use_spot: true
  ports: 8082
setup: until [ -e {go} ]; do sleep 0.2; done
run: exec python3 -m http.server --bind $HOST $PORT
"""


@pytest.fixture(scope="package")
def go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the set-up of `HELD` waits for."""
    return tmp_path_factory.mktemp("held") / "go"


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where instances have the model: all on this machine's disk."""
    return tmp_path_factory.mktemp("model-files") / "llama"


@pytest.fixture(scope="package")
def operator(place: Path, tmp_path_factory: pytest.TempPathFactory, go: Path) -> Iterator[Operator]:
    """The unmodified app with both, and with the demo's service."""
    directory = tmp_path_factory.mktemp("service-files")
    texts = {
        "model": SERVICE.format(bucket=BUCKET, path=place),
        "held": HELD.format(go=go),
    }
    for name, text in texts.items():
        (directory / f"{name}.yaml").write_text(text, encoding="utf-8")
    files = sorted(directory.iterdir())
    settings = DemoSettings(WARNING_S, tmp_path_factory.mktemp("model"))
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch"), files) as operator:
        yield operator
