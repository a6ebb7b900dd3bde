"""A service file that is right, to be made wrong in one place at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spotrelay.file.service import Problem, Service, ServiceFileError, load

GOOD = """\
service:
  replicas: 2
  surge: 1
resources:
  accelerators: {A10G, L4, L40S}
  ports: 8081
run: python3 serve.py
"""

Loader = Callable[[str], Service]
Refuser = Callable[[str | bytes], tuple[Problem, ...]]


def on_cpus(service: Service) -> Service:
    """It on instances without a GPU."""
    return replace(
        service, instance_types=(replace(service.instance_types[0], name="m7i.xlarge", manufacturer=""),)
    )


@pytest.fixture
def service(tmp_path: Path) -> Loader:
    """Load a service file with this text."""

    def load_text(text: str) -> Service:
        file = tmp_path / "chat.yaml"
        file.write_text(text, encoding="utf-8")
        return load(file)

    return load_text


@pytest.fixture
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refuser:
    """The problems of a service file with this text, which must have some."""
    monkeypatch.chdir(tmp_path)

    def refuse(text: str | bytes) -> tuple[Problem, ...]:
        file = Path("chat.yaml")
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ServiceFileError) as caught:
            load(file)
        assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
        return caught.value.problems

    return refuse
