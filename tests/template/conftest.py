"""One synthesis for all tests here: importing the CDK and synthesizing take seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stacks.application import CONTROL_PLANE, NETWORK, SERVICE_PREFIX, build
from stacks.settings import AppSettings
from tests.template.support import Template

ROOT = Path(__file__).resolve().parents[2]
SERVICE_FILES = {"demo": ROOT / "services" / "demo.yaml", "llama3": ROOT / "services" / "llama3.yaml"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep these tests in one worker, so that they share the synthesis."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("template"))


def synthesize(target: Path, settings: AppSettings, context: Mapping[str, Any] | None = None) -> Path:
    """A cloud assembly of the stacks that the settings ask for; `context` is for the CDK itself."""
    import aws_cdk as cdk  # here, since stacks says which Node it starts: stacks comes first

    app = cdk.App(outdir=str(target), context=context)
    build(app, settings)
    app.synth()
    return target


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
    (found,) = assembly.glob("asset.*")
    return found
