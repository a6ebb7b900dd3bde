"""A target group: what is registered, and what the load balancer makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from lab.world.instances import NEVER
from spotrelay.plane.core.instances import InstanceState, TargetState

CHECK_S = 10.0
"""How long a load balancer takes to find a target healthy: two checks, five seconds apart, as the service's
stack wants them."""


@dataclass(slots=True)
class Target:
    """A target of a target group."""

    registered_at: float
    drained_at: float = NEVER
    """When it was taken out of rotation."""
    gone_at: float = NEVER
    by: object = None
    """Who registered it."""
    port: int | None = None
    """None: whatever its server listens on."""

    def is_in_rotation(self, time: float) -> bool:
        """Whether it isn't draining then."""
        return self.drained_at > time

    def is_shown(self, time: float) -> bool:
        """Whether the group has it then."""
        return self.registered_at <= time < self.gone_at

    def state(
        self, time: float, instance: InstanceState, healthy_at: float, initial_s: float = NEVER
    ) -> TargetState:
        """What the load balancer says of it then.

        `healthy_at` is when it has passed its checks, `NEVER` for a server that doesn't answer any more. It
        is called new for `initial_s`.
        """
        if not self.is_in_rotation(time):
            return TargetState.DRAINING
        if instance in (InstanceState.TERMINATED, InstanceState.STOPPED):
            return TargetState.UNUSED
        if not instance.is_alive:
            return TargetState.UNHEALTHY
        if healthy_at <= time:
            return TargetState.HEALTHY
        return TargetState.INITIAL if time < self.registered_at + initial_s else TargetState.UNHEALTHY


TargetGroup = dict[str, Target]
"""Its targets, by ID of the instance or of its slot."""


def register(group: TargetGroup, id_: str, now: float, *, by: object = None, port: int | None = None) -> bool:
    """Register a running one; whether that changes anything."""
    if id_ in group and group[id_].is_in_rotation(now):
        return False
    group[id_] = Target(now, by=by, port=port)
    return True


def deregister(group: TargetGroup, id_: str, now: float, delay_s: float, port: int | None = None) -> bool:
    """Take it out of rotation, where it is registered with that port; whether that changes anything."""
    target = group.get(id_)
    if target is None or not target.is_in_rotation(now) or target.port not in (None, port):
        return False
    target.drained_at, target.gone_at = now, now + delay_s
    return True
