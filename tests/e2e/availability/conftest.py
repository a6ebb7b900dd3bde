"""A local cloud with EC2's own two minutes of warning, and services that are hurt while clients use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.local.environment import EC2_WARNING_S
from tests.e2e import deploying
from tests.e2e.availability.stories import SLOW, Stories, begun
from tests.e2e.clients import MODEL
from tests.e2e.deploying import Unhurried
from tests.e2e.faults.bench import Bench

DRAIN_S = 5
"""An answer takes a second or two. The drain deadline is 95 s after a warning then."""

SERVICE = """
name: {name}
service:
  replicas: 3
  health_check: /health{probe}
  drain_seconds: {drain_s}
spotrelay: {{drain_unhurried: {drain_s}}}
resources:
  accelerators: {accelerators}
  use_spot: true
  ports: 8081
envs:
  MODEL_NAME: {model}
  TOKEN_S: 0.05
run: exec python3 -m lab.demo.chat_server
"""

PROBE = """
  readiness_probe:
    path: /v1/chat/completions
    post_data: {model: $MODEL_NAME, messages: [{role: user, content: Ready?}], max_tokens: 1}"""
"""With one, it is a tick that takes a replica into rotation. The others do without a function for it."""

ACCELERATORS = {"taken": "T4:1", "hung": "L4:1", "stuck": "L40S:1"}
"""Each from pools of its own, so that one can be without capacity while the others are not."""


SLOW_SERVICE = """
name: {name}
spotrelay: {{standby: 100%, drain_unhurried: {drain_s}}}
service:
  replicas: 3
  health_check: /health{probe}
  drain_seconds: {drain_s}
resources:
  accelerators: "A10G:4"
  use_spot: true
  ports: 8081
envs:
  MODEL_NAME: {model}
  TOKENS: 100
  TOKEN_S: 0.05
run: |
  if [ ! -e engine ]; then
    while [ -e {gate} ]; do sleep 0.5; done
    touch engine
  fi
  exec python3 -m lab.demo.chat_server
"""
"""A start without an engine on the disk takes for as long as the gate is shut. Its pools are its own, too."""


SHARED_FILE = Path(__file__).parent / "shared.yaml"
"""A service whose replicas share instances; none to begin with."""


@pytest.fixture(scope="package")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file exists, a cold start of the slow service doesn't come to its end."""
    return tmp_path_factory.mktemp("gate") / "shut"


@pytest.fixture(scope="package")
def operator(tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[Operator]:
    """The unmodified app with the demo's service and five others, all whole, and standbys for one."""
    settings = Unhurried(EC2_WARNING_S, tmp_path_factory.mktemp("availability"))
    scratch = tmp_path_factory.mktemp("scratch")
    slow = scratch / f"{SLOW}.yaml"
    text = SLOW_SERVICE.format(name=SLOW, probe=PROBE, drain_s=DRAIN_S, model=MODEL, gate=gate)
    slow.write_text(text, encoding="utf-8")
    files = [slow, SHARED_FILE]
    for name, accelerators in ACCELERATORS.items():
        file = scratch / f"{name}.yaml"
        probe = PROBE if name == "stuck" else ""
        text = SERVICE.format(name=name, probe=probe, accelerators=accelerators, drain_s=DRAIN_S, model=MODEL)
        file.write_text(text, encoding="utf-8")
        files.append(file)
    with deploying.deployed(settings, scratch, files) as operator:
        for service in ("demo", SLOW, *ACCELERATORS):
            Bench(operator, service).settled()
        yield operator


@pytest.fixture(scope="package")
def stories(operator: Operator, gate: Path) -> Iterator[Stories]:
    """The long ones, under way."""
    with begun(operator, gate) as stories:
        yield stories


@pytest.fixture
def demo(operator: Operator, stories: Stories) -> Bench:
    """The demo's service, whole, while nothing happens to the others but what the stories say."""
    bench = Bench(operator, "demo")
    bench.settled(has_history=False)
    return bench
