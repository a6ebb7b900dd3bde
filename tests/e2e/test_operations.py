"""What the demo's stories don't show: launches that AWS throttles, and replicas that we end ourselves."""

from __future__ import annotations

import json

from spotrelay.model import ReplicaState
from spotrelay.names import Metric, service_parameter
from tests.e2e.stand import SERVICE, Stand


def test_a_throttled_launch_is_made_up_for(stand: Stand) -> None:
    """When EC2 throttles the launch of a replacement, a tick launches it, and there is only one."""
    victim = stand.watch.look().ready[0]
    assert victim.instance_id
    # Twice: the first is repeated within the same invocation.
    stand.cloud.inject_fault("CreateFleet", "RequestLimitExceeded", count=2, status=503)
    before = stand.count(Metric.LAUNCH_ERRORS, SERVICE)
    stand.cloud.warn(victim.instance_id)
    stand.until_state(victim.id, ReplicaState.TERMINATED)
    seen = stand.whole(stand.spec.replicas)
    assert len(seen.replacements(victim.id)) == 1
    assert stand.count(Metric.LAUNCH_ERRORS, SERVICE) == before + 1


def test_fewer_replicas_and_more_again(stand: Stand) -> None:
    """A replica too many is drained and terminated by us; one too few is launched under a new ID."""
    before = stand.watch.look()
    stand.cloud.settings()
    _want(stand, 2)
    fewer = stand.whole(2)
    (dropped,) = {r.id for r in before.ready} - {r.id for r in fewer.ready}
    assert fewer.replicas[dropped].warned_at is None
    instance = next(
        i for i in stand.cloud.instances() if i["instance_id"] == fewer.replicas[dropped].instance_id
    )
    assert instance["state"] in ("shutting-down", "terminated")
    assert "TerminateInstances" in {call["action"] for call in stand.calls("ReconcileRole")}
    _want(stand, 3)
    more = stand.whole(3)
    assert max(more.replicas) == max(before.replicas) + 1


def _want(stand: Stand, replicas: int) -> None:
    """Change the number of replicas, as deploying a changed service file does."""
    ssm = stand.operator.session.client("ssm")
    name = service_parameter(SERVICE)
    document = json.loads(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    value = json.dumps({**document, "replicas": replicas})
    ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=True)
