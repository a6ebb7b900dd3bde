"""`ports.Router` on a target group of an Application Load Balancer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from spotrelay.aws.clients import Clients
from spotrelay.aws.errors import TARGET_GROUP_NOT_FOUND, TARGET_INVALID, translated
from spotrelay.core.instances import TargetState
from spotrelay.core.ports import Denied
from spotrelay.core.spec import ServiceSpec

if TYPE_CHECKING:
    from mypy_boto3_elbv2.type_defs import TargetDescriptionTypeDef


class TargetGroupRouter:
    """See `ports.Router`. A target group that is gone has no targets: nothing to do there is an error."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def register(self, spec: ServiceSpec, instance_ids: Collection[str]) -> frozenset[str]:
        """See `ports.Router.register`."""
        return _call(spec, instance_ids, self._register)

    def deregister(self, spec: ServiceSpec, instance_ids: Collection[str]) -> None:
        """See `ports.Router.deregister`."""
        # AWS says that an absent target is fine. One that it calls invalid can't be in rotation either.
        _call(spec, instance_ids, self._deregister)

    def health(self, spec: ServiceSpec) -> Mapping[str, TargetState]:
        """See `ports.Router.health`."""
        try:
            with translated():
                answer = self._clients.elbv2.describe_target_health(TargetGroupArn=spec.target_group_arn)
        except Denied as denied:
            if denied.code != TARGET_GROUP_NOT_FOUND:
                raise
            return {}
        return {
            described["Target"]["Id"]: _state(described["TargetHealth"].get("State", ""))
            for described in answer["TargetHealthDescriptions"]
        }

    def _register(self, target_group_arn: str, targets: Sequence[TargetDescriptionTypeDef]) -> None:
        self._clients.elbv2.register_targets(TargetGroupArn=target_group_arn, Targets=targets)

    def _deregister(self, target_group_arn: str, targets: Sequence[TargetDescriptionTypeDef]) -> None:
        self._clients.elbv2.deregister_targets(TargetGroupArn=target_group_arn, Targets=targets)


def _call(
    spec: ServiceSpec,
    instance_ids: Collection[str],
    call: Callable[[str, Sequence[TargetDescriptionTypeDef]], None],
) -> frozenset[str]:
    """Call for all the targets at once; the ones that ELBv2 can't take.

    One invalid target and it takes none of them: then it is asked for each by itself.
    """
    if not instance_ids:
        return frozenset()
    # Registered with a port, a target is known by ID and port together.
    targets: list[TargetDescriptionTypeDef] = [
        {"Id": instance_id, "Port": spec.port} for instance_id in dict.fromkeys(instance_ids)
    ]
    try:
        with translated():
            call(spec.target_group_arn, targets)
    except Denied as denied:
        if denied.code not in (TARGET_INVALID, TARGET_GROUP_NOT_FOUND):
            raise
        if denied.code == TARGET_INVALID and len(targets) > 1:
            return frozenset().union(*(_call(spec, [target["Id"]], call) for target in targets))
        return frozenset(instance_ids)
    return frozenset()


def _state(state: str) -> TargetState:
    try:
        return TargetState(state)
    except ValueError:
        # A state that is new, or a Network Load Balancer's: not healthy, and in the group.
        return TargetState.UNAVAILABLE
