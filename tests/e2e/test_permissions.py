"""Least privilege, measured: what the functions' roles asked IAM for against what they were granted."""

from __future__ import annotations

from spotrelay.model import ReplicaState
from stacks import permissions
from stacks.permissions import Function
from tests.e2e.conftest import Rescaled
from tests.e2e.stand import Stand

ROLES = {
    Function.ON_SIGNAL: "OnSignalRole",
    Function.RECONCILE: "ReconcileRole",
    Function.SURVEY: "SurveyRole",
}

PLACE = permissions.AS_CDK_NAG_WRITES
"""Which actions are granted doesn't depend on the place."""

UNSEEN = {
    # An account's first fleet makes EC2's own roles; the local cloud has none. And signals register what runs
    # only for a service without a readiness probe: tests/e2e/faults has one.
    Function.ON_SIGNAL: {"iam:CreateServiceLinkedRole", "elasticloadbalancing:RegisterTargets"},
    Function.RECONCILE: {"iam:CreateServiceLinkedRole"},
    # Lambda itself sends to the dead-letter queue, in the role's name; the local cloud asks nobody for that.
    Function.SURVEY: {"sqs:SendMessage"},
}
"""Granted actions that IAM isn't asked for here."""


def test_every_grant_is_used_and_nothing_else_is_asked_for(stand: Stand, rescaled: Rescaled) -> None:
    """Over the life of a deployment each role used every action that it was granted, and was refused none."""
    victim = stand.watch.look().ready[0]
    assert victim.instance_id
    stand.cloud.warn(victim.instance_id)
    stand.until_state(victim.id, ReplicaState.TERMINATED)
    decisions = stand.cloud.decisions()
    for function, role in ROLES.items():
        asked = {d["action"]: d for d in decisions if d["role"] == stand.outputs[role]}
        assert not {action for action, d in asked.items() if d["refused"]}, function
        granted = permissions.actions(permissions.grants(function, PLACE))
        assert set(asked) == granted - UNSEEN[function], function
