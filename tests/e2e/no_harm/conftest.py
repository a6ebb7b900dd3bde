"""A local cloud with EC2's own two minutes of warning, and a service for each line of stories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.local.environment import EC2_WARNING_S
from tests.e2e import deploying
from tests.e2e.availability.conftest import PROBE
from tests.e2e.clients import MODEL
from tests.e2e.deploying import Unhurried
from tests.e2e.no_harm.stories import (
    BUSY_SERVICE,
    FIRST_IMAGE,
    LIMIT,
    LONE,
    LONG,
    PAIR,
    REFUSING,
    SINGLE,
    Told,
)

SERVICE = """
name: {name}
service:
  replicas: {replicas}
  drain_seconds: 5{probe}
spotrelay:
  health_check: /health
  drain_unhurried: {unhurried}
  image: {image}{more}
resources:
  accelerators: "{accelerators}"
  use_spot: true
  ports: 8081
envs:
  MODEL_NAME: {model}
  TOKENS: 1000
  TOKEN_S: 0.05
  MOODS: {moods}
run: |
  if [ -e {moods}/boot ]; then . {moods}/boot; fi
  exec python3 -m tests.e2e.no_harm.server
"""

PATIENT_PROBE = f"""{PROBE}
    timeout_seconds: 3
    consecutive_failure_threshold_timeout: 120"""

BUSY = f"""
  busy:
    limit: {LIMIT}
    finished: [chat_server_requests_finished_total]
    ongoing: [chat_server_requests_in_flight]"""

PARTS: Mapping[str, Mapping[str, object]] = {
    SINGLE: {"accelerators": "T4:1"},
    PAIR: {"accelerators": "L4:1", "replicas": 2, "image": FIRST_IMAGE},
    LONE: {"accelerators": "A10G:4"},  # dry, so nobody else's
    REFUSING: {"accelerators": "L40S:1", "probe": PROBE},
    BUSY_SERVICE: {"accelerators": "T4:4", "probe": PATIENT_PROBE, "more": BUSY},
    LONG: {"accelerators": "A10G:1", "unhurried": 60},
}
"""What the services have. Without a probe one is asked what the load balancer asks."""

DEFAULTS = {"replicas": 0, "image": "ami-0123456789abcdef0", "probe": "", "more": "", "unhurried": 30}


@pytest.fixture(scope="package")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Operator, Path]]:
    """The unmodified app with the demo's service and one for each line of stories, none of which runs yet."""
    settings = Unhurried(EC2_WARNING_S, tmp_path_factory.mktemp("no_harm"))
    scratch, moods = tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("moods")
    files = []
    for name, parts in PARTS.items():
        (moods / name).mkdir()
        text = SERVICE.format_map({**DEFAULTS, **parts, "name": name, "model": MODEL, "moods": moods / name})
        files.append(scratch / f"{name}.yaml")
        files[-1].write_text(text, encoding="utf-8")
    with deploying.deployed(settings, scratch, files) as operator:
        yield operator, moods


@pytest.fixture(scope="package")
def told(operator: tuple[Operator, Path]) -> Iterator[Told]:
    """All stories, begun: those of a service one after the other, services side by side."""
    told = Told(*operator)
    yield told
    told.end()
