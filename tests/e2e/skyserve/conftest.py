"""A local cloud of its own with the SkyServe files that need no GPU, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import DemoSettings
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S
from tests.e2e.stand import Stand
from tests.service.test_skyserve import DIRECTORY

WORK = Path(__file__).parent / "work"
SERVER = WORK / "server.py"

SECRET = "made-up"
"""What HF_TOKEN is."""


def adapted(gate: Path) -> Mapping[str, Mapping[str, str]]:
    """What is other in a file than among the twenty, and why."""
    return {
        # All local instances are one machine: each server has to listen on its own address only.
        "http-server": {"http.server 8081": "http.server 8081 --bind $HOST"},
        # The deployment runs in the repository, whose files aren't the service's.
        "http-workdir": {"workdir: .": f"workdir: {WORK}"},
        # No GPU, and nothing that would have to be downloaded.
        "headers-and-key": {
            "accelerators: A10G": "cpus: 2+",
            "vllm serve m": f"python3 {SERVER} --port 8000",
        },
        "json-probe": {
            'accelerators: "L4:1"': "cpus: 2+",
            "run: serve": f"run: python3 {SERVER} --port 9000",
            "MODEL: qwen": f"MODEL: qwen, GATE: {gate}",
        },
        "secrets-null": {
            "accelerators: {L4: 1}": "cpus: 2+",
            "vllm serve m": f"python3 {SERVER} --port 8000 --api-key $HF_TOKEN",
        },
        # And delays that a test can wait for. Ticks of a service at rest come every 6 s, so they are longer.
        "tgi-autoscaled": {
            "accelerators: [A10G:1, L4:1]": "cpus: 2+",
            "text-generation-launcher --model-id mistralai/Mistral-7B-v0.1": f"python3 {SERVER}",
            "upscale_delay_seconds: 120": "upscale_delay_seconds: 8\n    downscale_delay_seconds: 10",
        },
    }


@dataclass(frozen=True)
class Deployed:
    """What stands, and the file that lets the servers of `json-probe` answer a POST."""

    operator: Operator
    gate: Path

    def stand(self, service: str) -> Stand:
        """One of the services."""
        return Stand(self.operator, service)


@pytest.fixture(scope="package")
def deployed_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """The unmodified app with the files, in which nothing is other than `adapted` says."""
    scratch = tmp_path_factory.mktemp("files")
    gate = scratch / "gate"
    gate.touch()
    files = []
    for name, changes in adapted(gate).items():
        text = (DIRECTORY / f"{name}.yaml").read_text(encoding="utf-8")
        for old, new in changes.items():
            assert text.count(old) == 1, f"{name}.yaml has no {old!r} any more"
            text = text.replace(old, new)
        files.append(scratch / f"{name}.yaml")
        files[-1].write_text(text, encoding="utf-8")
    settings = DemoSettings(WARNING_S, tmp_path_factory.mktemp("skyserve"))
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch"), files) as operator:
        # What `spotrelay secrets` does. Until then its instances try again.
        operator.session.client("ssm").put_parameter(
            Name="/spotrelay/secrets-null/HF_TOKEN", Value=SECRET, Type="SecureString"
        )
        yield Deployed(operator, gate)
