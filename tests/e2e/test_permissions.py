"""Least privilege, measured: what the functions called against what their roles were granted."""

from __future__ import annotations

from spotrelay.model import ReplicaState
from stacks import permissions
from stacks.permissions import Function
from tests.e2e.stand import Stand

ROLES = {
    Function.ON_SIGNAL: "OnSignalRole",
    Function.RECONCILE: "ReconcileRole",
    Function.SURVEY: "SurveyRole",
}

NEEDS = {
    # A transaction has no right of its own: it needs those of the writes in it.
    "dynamodb:TransactWriteItems": {"dynamodb:PutItem", "dynamodb:UpdateItem"},
}
"""Calls whose right has another name."""

PLACE = permissions.AS_CDK_NAG_WRITES
"""Which actions are granted doesn't depend on the place."""


def test_every_call_was_granted_and_none_was_denied(stand: Stand) -> None:
    """No function calls anything beyond its grants, and IAM, which is enforced here, refuses it nothing."""
    victim = stand.watch.look().ready[0]
    assert victim.instance_id
    stand.cloud.warn(victim.instance_id)
    stand.until_state(victim.id, ReplicaState.TERMINATED)
    for function, role in ROLES.items():
        calls = stand.calls(role)
        called = {f"{call['service']}:{call['action']}" for call in calls}
        assert called, f"{function} made no call at all"
        needed = set().union(*(NEEDS.get(action, {action}) for action in called))
        assert needed <= permissions.actions(permissions.grants(function, PLACE)), function
        codes = {call["error_code"] for call in calls}
        assert not {code for code in codes if "Denied" in code or "Unauthorized" in code}, function
