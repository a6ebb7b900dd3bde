"""docs/deploy.md from its first command to its last, with a dozen services, by who may do what it lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.demo.operator import LocalSession
from spotrelay.plane.core.names import CONTROL_PLANE_STACK, NETWORK_STACK, SERVICE_STACK
from tests.e2e.availability.test_stacks import left_of
from tests.e2e.lifecycle.conftest import RARE_FILE
from tests.e2e.operators.conftest import Command

SERVICES = 12

WITHIN_S = 900.0

OURS = (SERVICE_STACK, NETWORK_STACK, CONTROL_PLANE_STACK)


def service_files(directory: Path) -> list[Path]:
    """One light replica each."""
    text = RARE_FILE.read_text(encoding="utf-8").replace("replicas: 3", "replicas: 1")
    files = [directory / f"s{number}.yaml" for number in range(1, SERVICES + 1)]
    for file in files:
        file.write_text(text.replace("name: rare", f"name: {file.stem}"), encoding="utf-8")
    return files


@pytest.mark.timeout(2 * WITHIN_S)
def test_a_dozen_services_come_and_go(endpoint: str, spotrelay: Command, tmp_path: Path) -> None:
    """Quotas, deployment, status, removal: each says what it should, and no right is missing.

    What goes is listed and counted, and the account has nothing of it but the table, which is named.
    """
    files = [str(file) for file in service_files(tmp_path)]

    code, out, err = spotrelay("validate", "--account", "--prices", *files)
    assert code == 0, out + err

    code, out, err = spotrelay("up", *files, "-c", "alarm_email=you@example.com")
    assert code == 0, out + err
    assert out.count("1/1 ready after") == SERVICES

    code, out, err = spotrelay("status")
    assert (code, out.count("WHOLE")) == (0, SERVICES), out + err
    assert "unknown" not in out.lower()

    account = LocalSession(endpoint)
    instances = there(account)
    assert len(instances) >= SERVICES
    code, out, err = spotrelay("down", "--all", "--yes")
    assert code == 0, out + err
    assert all(id_ in out for id_ in instances), "what goes is listed by its ID"
    for file in files:
        service = Path(file).stem
        counted = r"\d+ instances?, \d+ volumes?, 1 parameter"
        assert re.search(rf"^{service} gone: {counted}; nothing left$", out, re.M), out
        assert left_of(account, service) == []
    for stack in (NETWORK_STACK, CONTROL_PLANE_STACK):
        assert f"{stack} gone: stack; nothing left" in out
    assert there(account) == []
    (table,) = re.findall(r"kept: table (\S+), with the history", out)
    assert table in account.client("dynamodb").list_tables()["TableNames"]
    pages = account.client("cloudformation").get_paginator("list_stacks").paginate()
    stacks = {s["StackName"]: s["StackStatus"] for page in pages for s in page["StackSummaries"]}
    assert {s for name, s in stacks.items() if name.startswith(OURS)} == {"DELETE_COMPLETE"}
    for client, list_, kind in (
        ("lambda", "list_functions", "Functions"),
        ("sqs", "list_queues", "QueueUrls"),
        ("elbv2", "describe_load_balancers", "LoadBalancers"),
    ):
        assert not getattr(account.client(client), list_)().get(kind), client
    code, _, err = spotrelay("status")
    assert (code, "no control plane" in err) == (2, True), err


def there(account: LocalSession) -> list[str]:
    """The instances that there are, ended ones apart."""
    states = ["pending", "running", "stopping", "stopped"]
    found = account.client("ec2").describe_instances(
        Filters=[{"Name": "instance-state-name", "Values": states}]
    )
    return [instance["InstanceId"] for one in found["Reservations"] for instance in one["Instances"]]
