"""Everything of a region goes with one command. It comes last: there is nothing left to test."""

from __future__ import annotations

import re

import pytest

from spotrelay.plane.core.names import CONTROL_PLANE_STACK, NETWORK_STACK, SERVICE_STACK
from tests.e2e.availability.test_stacks import _left as left_of
from tests.e2e.deploying import Standing
from tests.e2e.faults.bench import Bench
from tests.e2e.leaks import SECRET_PARAMETER
from tests.e2e.lifecycle.conftest import Command
from tests.e2e.stand import WITHIN_S

OURS = (SERVICE_STACK, NETWORK_STACK, CONTROL_PLANE_STACK)


@pytest.mark.timeout(4 * WITHIN_S)
def test_all_of_it_goes_and_nothing_is_left(standing: Standing, spotrelay: Command) -> None:
    """Services, network and control plane: what was is listed and counted, and the account has nothing of it
    but the table, which is named.
    """
    operator = standing.operator
    standing.look_around()
    benches = [Bench(operator, service) for service in ("demo", "rare")]
    instances = [str(r.instance_id) for bench in benches for r in bench.watch.look().ready]
    assert len(instances) >= len(benches)
    code, out, err = spotrelay("down", "--all", "--yes")
    assert code == 0, err
    assert all(id_ in out for id_ in instances), "what goes is listed by its ID"
    for bench in benches:
        assert re.search(
            rf"^{bench.service} gone: \d+ instances, \d+ volumes, 1 parameter; nothing left$", out, re.M
        )
        # The secret is the operator's own: nothing of ours made it.
        assert {*left_of(operator, bench.service)} <= {SECRET_PARAMETER}
    for stack in (NETWORK_STACK, CONTROL_PLANE_STACK):
        assert f"{stack} gone: stack; nothing left" in out
    table = operator.deployment.table
    assert f"kept: table {table}, with the history" in out
    assert operator.session.client("dynamodb").list_tables()["TableNames"] == [table]
    pages = operator.session.client("cloudformation").get_paginator("list_stacks").paginate()
    stacks = {s["StackName"]: s["StackStatus"] for page in pages for s in page["StackSummaries"]}
    assert {s for name, s in stacks.items() if name.startswith(OURS)} == {"DELETE_COMPLETE"}
    assert not [i for i in operator.cloud.instances() if i["state"] not in ("terminated", "shutting-down")]
    for client, list_, kind in (
        ("lambda", "list_functions", "Functions"),
        ("sqs", "list_queues", "QueueUrls"),
        ("elbv2", "describe_load_balancers", "LoadBalancers"),
    ):
        assert not getattr(operator.session.client(client), list_)().get(kind), client
    code, _, err = spotrelay("status")
    assert (code, "no control plane" in err) == (2, True), err
