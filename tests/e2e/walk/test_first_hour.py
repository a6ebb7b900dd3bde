"""docs/first-hour.md: each command that it shows, in its order, prints what it shows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab.demo.operator import LocalSession
from lab.local.environment import REGION
from spotrelay.plane.core.names import CONTROL_PLANE_STACK
from tests import wheels
from tests.docs.blocks import ROOT
from tests.docs.transcript import Step, steps
from tests.e2e.walk.conftest import DEPLOYER

PAGE = ROOT / "docs" / "first-hour.md"

CLONE = ROOT / ".venv" / "bin" / "spotrelay"

ON_THE_CLOCK_S = 900.0
"""Three minutes of it are EC2's two, and what a drill waits for around them."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command as it is installed without a clone."""
    folder = tmp_path_factory.mktemp("wheel")
    return wheels.installed(wheels.built(folder), folder) / "spotrelay"


@pytest.mark.timeout(2 * ON_THE_CLOCK_S)
@pytest.mark.usefixtures("spotrelay")
def test_the_first_hour_is_as_it_is_told(endpoint: str, wheel: Path) -> None:
    """From a clone and from the wheel, by who may do what the docs say: deployed, asked, drilled, removed."""
    shown = steps(PAGE)
    assert {step.command[1] for step in shown} >= {"validate", "up", "status", "request", "drill", "down"}
    for step in shown:
        assert step.differs(_printed(CLONE if step.command[1] == "up" else wheel, step)) == ""
        if step.command[1] == "up":
            _may_drill(endpoint)


def _printed(program: Path, step: Step) -> str:
    """What somebody sees of it, but for the lines that say only that it still waits."""
    done = subprocess.run(
        [program, *step.command[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "AWS_DEFAULT_REGION": REGION, "COLUMNS": "100", "NO_COLOR": "1"},
        timeout=ON_THE_CLOCK_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    waits = (line for line in done.stderr.splitlines() if not line.startswith("… "))
    return "\n".join([done.stdout, *waits])


def _may_drill(endpoint: str) -> None:
    """What docs/operations.md says of permissions: an administrator attaches a policy of the stack."""
    administrator = LocalSession(endpoint)
    (stack,) = administrator.client("cloudformation").describe_stacks(StackName=CONTROL_PLANE_STACK)["Stacks"]
    policies = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    iam = administrator.client("iam")
    iam.attach_role_policy(RoleName=DEPLOYER, PolicyArn=policies["DrillPolicy"])
