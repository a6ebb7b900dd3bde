"""One synthesis for all tests here: importing the CDK and synthesizing take seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stacks.application import CONTROL_PLANE, NETWORK, SERVICE_PREFIX, build
from stacks.settings import AppSettings
from tests.template.support import Template

ROOT = Path(__file__).resolve().parents[2]
SERVICE_FILES = {"demo": ROOT / "services" / "demo.yaml", "llama3": ROOT / "services" / "llama3.yaml"}

SCALED = """
name: scaled
resources: {accelerators: L4, use_spot: true, ports: 8080}
service:
  readiness_probe: {path: /v1/models, post_data: {ready: true}, initial_delay_seconds: 600}
  replica_policy: {min_replicas: 0, max_replicas: 4}
spotrelay:
  standby: 1
  scaling: {ongoing: {target_per_replica: 8}}
run: serve
"""
"""Follows its requests, may sleep, and has standbys."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep these tests in one worker, so that they share the synthesis."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("template"))


def synthesize(target: Path, settings: AppSettings, context: Mapping[str, Any] | None = None) -> Path:
    """A cloud assembly of the stacks that the settings ask for.

    `context` is for the CDK itself, beside the flags of cdk.json.
    """
    import aws_cdk as cdk  # here, since stacks says which Node it starts: stacks comes first

    app = cdk.App(outdir=str(target), context={**flags(), **(context or {})})
    build(app, settings)
    app.synth()
    return target


def flags() -> dict[str, Any]:
    """What cdk.json decides about the CDK itself."""
    context = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return {name: value for name, value in context.items() if name.startswith("@aws-cdk")}


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The control plane and both service files of the repository."""
    services = tuple(SERVICE_FILES.values())
    return synthesize(tmp_path_factory.mktemp("assembly"), AppSettings(services=services))


@pytest.fixture(scope="session")
def control_plane(assembly: Path) -> Template:
    """The control plane's template."""
    return Template.read(assembly, CONTROL_PLANE)


@pytest.fixture(scope="session")
def network(assembly: Path) -> Template:
    """The shared network's template."""
    return Template.read(assembly, NETWORK)


@pytest.fixture(scope="session", params=sorted(SERVICE_FILES))
def service_name(request: pytest.FixtureRequest) -> str:
    """Each service of the repository."""
    return str(request.param)


@pytest.fixture(scope="session")
def service_stack(assembly: Path, service_name: str) -> Template:
    """Its template."""
    return Template.read(assembly, SERVICE_PREFIX + service_name)


@pytest.fixture(scope="session")
def asset(assembly: Path) -> Path:
    """The functions' code as it is uploaded."""
    (found,) = (path for path in assembly.glob("asset.*") if path.is_dir())
    return found


@pytest.fixture(scope="session")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The stack of `SCALED`."""
    directory = tmp_path_factory.mktemp("scaled")
    file = directory / "scaled.yaml"
    file.write_text(SCALED, encoding="utf-8")
    assembly = synthesize(directory / "assembly", AppSettings(services=(file,)))
    return Template.read(assembly, f"{SERVICE_PREFIX}scaled")
