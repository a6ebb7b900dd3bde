"""A local cloud with a service whose model isn't there yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import DemoSettings
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S

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


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where instances have the model: all on this machine's disk."""
    return tmp_path_factory.mktemp("model-files") / "llama"


@pytest.fixture(scope="package")
def operator(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The unmodified app with it, and with the demo's service."""
    file: Path = place.with_name("model.yaml")
    file.write_text(SERVICE.format(bucket=BUCKET, path=place), encoding="utf-8")
    settings = DemoSettings(WARNING_S, tmp_path_factory.mktemp("model"))
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch"), [file]) as operator:
        yield operator
