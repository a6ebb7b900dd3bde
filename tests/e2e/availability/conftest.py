"""A local cloud with EC2's own two minutes of warning, and services that are hurt while clients use them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from spotrelay.demo import deployment, environment
from spotrelay.demo.deployment import Deployer
from spotrelay.demo.operator import Operator
from spotrelay.demo.processes import Processes
from spotrelay.demo.settings import ROOT, SERVICE_FILE, Settings
from spotrelay.local.environment import EC2_WARNING_S
from tests.e2e.availability.stories import Stories, begun
from tests.e2e.clients import MODEL
from tests.e2e.faults.bench import Bench

MINUTE_S = 6.0
"""How long the schedule's minute is: ticks at rest, which many tests wait for, are ten times as frequent."""

DRAIN_S = 5
"""An answer takes a second or two. The last safe moment is 95 s after a warning then."""

SERVICE = """
name: {name}
service:
  replicas: 3
  health_check: /health{probe}
  drain_seconds: {drain_s}
resources:
  accelerators: {accelerators}
  use_spot: true
  ports: 8081
envs:
  MODEL_NAME: {model}
  TOKEN_S: 0.05
run: exec python3 -m spotrelay.demo.chat_server
"""

PROBE = """
  readiness_probe:
    path: /v1/chat/completions
    post_data: {model: $MODEL_NAME, messages: [{role: user, content: Ready?}], max_tokens: 1}"""
"""With one, it is a tick that takes a replica into rotation. The others do without a function for it."""

ACCELERATORS = {"taken": "T4:1", "hung": "L4:1", "stuck": "L40S:1"}
"""Each from pools of its own, so that one can be without capacity while the others are not."""


@dataclass(frozen=True, slots=True)
class Unhurried(Settings):
    """A schedule that is compressed while warnings are not."""

    @property
    def schedule_s(self) -> float:
        """See `MINUTE_S`."""
        return MINUTE_S


@pytest.fixture(scope="package")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The unmodified app with the demo's service and three others, all whole."""
    os.environ.setdefault("no_proxy", "127.0.0.1")  # see tests.e2e.conftest
    settings = Unhurried(EC2_WARNING_S, tmp_path_factory.mktemp("availability"))
    deployment.clear(settings.out)
    files = [SERVICE_FILE]
    for name, accelerators in ACCELERATORS.items():
        file = settings.out / f"{name}.yaml"
        probe = PROBE if name == "stuck" else ""
        text = SERVICE.format(name=name, probe=probe, accelerators=accelerators, drain_s=DRAIN_S, model=MODEL)
        file.write_text(text, encoding="utf-8")
        files.append(file)
    processes = Processes(settings.logs, ROOT)
    try:
        home = tmp_path_factory.mktemp("availability-home")
        env = environment.clean(os.environ)
        operator = Operator(Deployer(settings, processes, env, home, lambda _: None, files).deploy())
        try:
            for service in ("demo", *ACCELERATORS):
                Bench(operator, service).settled()
            yield operator
        finally:
            operator.save_function_logs(settings.logs)
    finally:
        processes.stop_all()


@pytest.fixture(scope="package")
def stories(operator: Operator) -> Iterator[Stories]:
    """The long ones, under way."""
    with begun(operator) as stories:
        yield stories


@pytest.fixture
def demo(operator: Operator, stories: Stories) -> Bench:
    """The demo's service, whole, while nothing happens to the others but what the stories say."""
    bench = Bench(operator, "demo")
    bench.settled(has_history=False)
    return bench
