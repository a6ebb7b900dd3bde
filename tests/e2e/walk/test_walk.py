"""docs/deploy.md from its first command to its last, with a dozen services, by who may do what it lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.demo.operator import LocalSession
from tests.e2e.lifecycle.conftest import RARE_FILE
from tests.e2e.operators.conftest import Command

SERVICES = 12

WITHIN_S = 900.0


def service_files(directory: Path) -> list[Path]:
    """One light replica each."""
    text = RARE_FILE.read_text(encoding="utf-8").replace("replicas: 3", "replicas: 1")
    files = [directory / f"s{number}.yaml" for number in range(1, SERVICES + 1)]
    for file in files:
        file.write_text(text.replace("name: rare", f"name: {file.stem}"), encoding="utf-8")
    return files


@pytest.mark.timeout(2 * WITHIN_S)
def test_a_dozen_services_come_and_go(endpoint: str, spotrelay: Command, tmp_path: Path) -> None:
    """Quotas, deployment, status, removal: each says what it should, and no right is missing."""
    files = [str(file) for file in service_files(tmp_path)]

    code, out, err = spotrelay("validate", "--account", "--prices", *files)
    assert code == 0, out + err

    code, out, err = spotrelay("up", *files, "-c", "alarm_email=you@example.com")
    assert code == 0, out + err
    assert out.count("1/1 ready after") == SERVICES

    code, out, err = spotrelay("status")
    assert (code, out.count("WHOLE")) == (0, SERVICES), out + err
    assert "unknown" not in out.lower()

    code, out, err = spotrelay("down", "--all", "--yes")
    assert code == 0, out + err
    assert out.count("nothing left") == SERVICES + len(["control plane", "network"])
    left = (
        LocalSession(endpoint)
        .client("ec2")
        .describe_instances(
            Filters=[{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
        )
    )
    assert not left["Reservations"]
