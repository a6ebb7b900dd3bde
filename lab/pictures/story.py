"""What happens to the services before the pictures are taken: a bad quarter of an hour."""

from __future__ import annotations

import time
from collections.abc import Callable

from lab.demo.operator import Operator
from spotrelay.operator.look.watch import Snapshot, Watch
from spotrelay.plane.core.replica import Replica, ReplicaState

SERVICE, OTHER = "demo", "demo-2"

CALM_S = 100.0
"""Between what happens, so that a graph by the minute shows one thing after the other."""

WITHIN_S = 400.0

SPOT_QUOTA = "L-3819A6DF"
"""Of G and VT instances, in Service Quotas."""


class Story:
    """Takes replicas of one service away in three ways. Then EC2 refuses the other all Spot instances."""

    def __init__(self, operator: Operator, say: Callable[[str], None]) -> None:
        self._operator = operator
        self._say = say
        self._watch = Watch(operator.store, SERVICE, lambda _: None)
        self._types = {pool.instance_type for pool in operator.spec(SERVICE).pools}

    def lose(self) -> Replica:
        """A replica with a warning, then one without; the replacement of the first."""
        time.sleep(CALM_S)
        first, second, *_ = self._watch.look().ready
        self._say(f"EC2 warns replica {first.id}")
        self._operator.cloud.warn(str(first.instance_id))
        replacement = self._replaced(first)
        time.sleep(CALM_S)
        self._say(f"replica {second.id} is terminated behind EC2's back")
        self._operator.session.client("ec2").terminate_instances(InstanceIds=[str(second.instance_id)])
        self._replaced(second)
        time.sleep(CALM_S)
        return replacement

    def dry_up(self) -> None:
        """No Spot anywhere, and one is lost: an on-demand fallback serves."""
        self._say("Spot dries up")
        for instance_type in self._types:
            self._operator.cloud.dry_up(instance_type=instance_type, warn=False)
        lost = next(r for r in self._watch.look().ready if not r.is_fallback)
        self._operator.cloud.warn(str(lost.instance_id))
        self._until(lambda seen: any(r.is_fallback for r in seen.ready), "a fallback that serves")

    def bring_back(self) -> None:
        """A while later Spot is back, and in time it replaces the fallback."""
        time.sleep(CALM_S)
        self._say("Spot is back")
        for instance_type in self._types:
            self._operator.cloud.bring_back(instance_type=instance_type)
        self._until(
            lambda seen: not any(r.is_fallback for r in seen.present) and len(seen.ready) >= 3,
            "a fleet on Spot",
        )
        time.sleep(CALM_S)

    def refuse(self) -> None:
        """The account's Spot quota is cut to nothing, and the other service loses a replica."""
        self._say(f"the Spot quota is cut, and {OTHER} loses a replica")
        self._operator.cloud.set_quota(SPOT_QUOTA, 0)
        watch = Watch(self._operator.store, OTHER, lambda _: None)
        self._operator.cloud.warn(str(watch.look().ready[0].instance_id))
        time.sleep(2 * CALM_S)

    def _replaced(self, lost: Replica) -> Replica:
        def serve(seen: Snapshot) -> list[Replica]:
            return [r for r in seen.replacements(lost.id) if r.state is ReplicaState.READY]

        return serve(self._until(lambda seen: bool(serve(seen)), f"a replacement of {lost.id}"))[0]

    def _until(self, is_so: Callable[[Snapshot], bool], what: str) -> Snapshot:
        return self._watch.until(is_so, what, WITHIN_S)
