"""Least privilege, measured: what the functions' roles asked IAM for against what they were granted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from lab.local.environment import ACCOUNT, REGION
from spotrelay.plane.core.names import prober_function, service_parameter
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.scaling import Scaling
from spotrelay.plane.core.timing import LEASE_S
from stacks import permissions
from stacks.permissions import Function
from tests.e2e.conftest import Rescaled
from tests.e2e.damage import Damage
from tests.e2e.stand import Stand

ROLES = {
    Function.ON_SIGNAL: "OnSignalRole",
    Function.RECONCILE: "ReconcileRole",
    Function.SURVEY: "SurveyRole",
}

OTHER_ACCOUNT = "111111111111"
"""To the local cloud, an access key of twelve digits is the root of the account of this number."""

PLACE = permissions.AS_CDK_NAG_WRITES
"""Which actions are granted doesn't depend on the place."""

UNSEEN = {
    # An account's first Spot request makes a role of EC2's; the local cloud has none. And signals register
    # replicas only for a service without a readiness probe: tests/e2e/faults has one. The service here has no
    # standbys: tests/local/test_grants asks for what they need. Nor does it name a group of capacity
    # reservations, which EC2 lists in the name of whoever launches into it. A signal looks into the target
    # group only if no row tells a port, or the group is gone: tests/local/test_grants does, too.
    Function.ON_SIGNAL: {
        "elasticloadbalancing:DescribeTargetHealth",
        "iam:CreateServiceLinkedRole",
        "resource-groups:ListGroupResources",
        "elasticloadbalancing:RegisterTargets",
        "ec2:StartInstances",
    },
    Function.RECONCILE: {
        "iam:CreateServiceLinkedRole",
        "resource-groups:ListGroupResources",
        "ec2:StartInstances",
        "ec2:StopInstances",
    },
    # Lambda itself sends to the dead-letter queue, in the role's name; the local cloud asks nobody for that.
    # And EC2 announces nothing here that a tick would have to know: tests/e2e/counted has that.
    Function.SURVEY: {"sqs:SendMessage"},
}
"""Granted actions that IAM isn't asked for here."""


@pytest.fixture(scope="module")
def strangers(deployed: Stand) -> Mapping[str, boto3.Session]:
    """A principal of the account that may do nothing here, and the root of another account."""
    return {
        "here": deployed.assume("stranger"),
        "elsewhere": boto3.Session(OTHER_ACCOUNT, OTHER_ACCOUNT, region_name=REGION),
    }


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_strangers_reach_nothing(deployed: Stand, strangers: Mapping[str, boto3.Session], where: str) -> None:
    """Who was granted nothing sends no message, rings nobody, calls no function, and reads and writes no row.

    Another account's root may do everything there: what stops it are the policies of our resources.
    """

    def client(service: str) -> Any:
        endpoint = deployed.operator.deployment.endpoint
        make = partial(strangers[where].client, service)  # its overloads want a literal name
        return make(endpoint_url=endpoint, config=Config(retries={"total_max_attempts": 1}))

    outputs = deployed.outputs
    arn = f"arn:aws:{{}}:{REGION}:{ACCOUNT}:{{}}"
    table = arn.format("dynamodb", f"table/{outputs['TableName']}")
    prober = arn.format("lambda", f"function:{prober_function(deployed.service)}")
    item = {"PK": {"S": "SERVICES"}, "SK": {"S": "mine"}}
    sqs, sns, functions = client("sqs"), client("sns"), client("lambda")
    attempts: dict[str, Callable[[], object]] = {
        "forge a signal": lambda: sqs.send_message(QueueUrl=outputs["SignalQueueUrl"], MessageBody="{}"),
        "forge a tick": lambda: sqs.send_message(QueueUrl=outputs["TickQueueUrl"], MessageBody="{}"),
        "forge a leave": lambda: sqs.send_message(QueueUrl=outputs["LeaveQueueUrl"], MessageBody="{}"),
        "take a signal": lambda: sqs.receive_message(QueueUrl=outputs["SignalQueueUrl"]),
        "read dead letters": lambda: sqs.receive_message(QueueUrl=outputs["DeadLetterQueueUrl"]),
        "ring an alarm": lambda: sns.publish(TopicArn=outputs["AlarmTopic"], Message="fire"),
        "ask the prober": lambda: functions.invoke(FunctionName=prober, Payload=b"{}"),
        "read rows": lambda: client("dynamodb").scan(TableName=table),
        "write a row": lambda: client("dynamodb").put_item(TableName=table, Item=item),
    }
    if where == "here":  # elsewhere the name means a parameter of that account
        attempts["write a document"] = lambda: client("ssm").put_parameter(
            Name=service_parameter(deployed.service), Value="{}", Overwrite=True
        )
    for what, attempt in attempts.items():
        # Of what it isn't allowed to see, another account is told that it isn't there.
        with pytest.raises(ClientError, match=r"Denied|AuthorizationError|NotFound|NonExistent|DoesNotExist"):
            pytest.fail(f"{where} one can {what}: {attempt()}")


def test_every_grant_is_used_and_nothing_else_is_asked_for(stand: Stand, rescaled: Rescaled) -> None:
    """Over the life of a deployment each role used every action that it was granted, and was refused none."""
    victim = stand.watch.look().ready[0]
    assert victim.instance_id
    # Signals query only to mend a service's lost entry; while the lease is taken, no tick mends it.
    store = stand.operator.store
    stand.eventually(
        lambda: store.acquire(stand.service, "test", datetime.now(UTC), LEASE_S), "no tick is under way"
    )
    Damage.to(stand.operator).lose_meta(stand.service)
    stand.cloud.warn(victim.instance_id)
    queried = {"role": stand.outputs["OnSignalRole"], "action": "dynamodb:Query"}
    stand.eventually(
        lambda: any(d.items() >= queried.items() for d in stand.cloud.decisions()), "a signal has mended it"
    )
    store.release(stand.service, "test")
    stand.until_state(victim.id, ReplicaState.TERMINATED)
    stand.deliver("{not JSON")  # what a signal's function sets aside, it sends
    assert stand.dead_letters()
    # As every hour; that a service was deployed has set off the survey of this one only.
    functions = stand.operator.session.client("lambda")
    functions.invoke(FunctionName=stand.outputs["SurveyFunction"], Payload=b'{"source": "aws.events"}')
    # A number that follows the load, and is the same.
    stand.change(scaling=asdict(Scaling(min_replicas=3, max_replicas=3, target_qps_per_replica=5.0)))
    measured = {"role": stand.outputs["ReconcileRole"], "action": "cloudwatch:GetMetricData"}
    stand.eventually(
        lambda: any(d.items() >= measured.items() for d in stand.cloud.decisions()), "a tick has asked"
    )
    stand.change(scaling=None)
    decisions = stand.cloud.decisions()
    for function, role in ROLES.items():
        asked = {d["action"]: d for d in decisions if d["role"] == stand.outputs[role]}
        assert not {action for action, d in asked.items() if d["refused"]}, function
        granted = permissions.actions(permissions.grants(function, PLACE))
        assert set(asked) == granted - UNSEEN[function], function
