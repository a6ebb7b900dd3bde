"""`ports.Router` on a target group of an Application Load Balancer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import TARGET_GROUP_NOT_FOUND, TARGET_INVALID, translated
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.ports import NO_PORTS, Denied, PortError
from spotrelay.plane.core.slots import host, port
from spotrelay.plane.core.spec import ServiceSpec

if TYPE_CHECKING:
    from mypy_boto3_elbv2.type_defs import TargetDescriptionTypeDef, TargetHealthDescriptionTypeDef


MAX_TARGETS = 100
"""ELBv2 documents no limit, and refuses large calls now and then. So many at a time are what Kubernetes asks
for (kubernetes/kubernetes#101592)."""


class TargetGroupRouter:
    """`ports.Router`. A target group that is gone has no targets, and what is asked of it does nothing."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def register(
        self, spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int] = NO_PORTS
    ) -> frozenset[str]:
        return _call(self._clients.elbv2.register_targets, spec, instance_ids, ports)

    def deregister(
        self, spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int] = NO_PORTS
    ) -> None:
        # AWS says that an absent target is fine. One that it calls invalid can't be in rotation either.
        try:
            _call(self._clients.elbv2.deregister_targets, spec, instance_ids, ports)
        except Denied:
            # What is gone has no tag, by which our role may change it: IAM refuses before ELB can say so.
            with suppress(PortError):
                if self._described(spec) is None:
                    return
            raise

    def ports(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, int]:
        found = self._by_slot(spec, slots).items()
        return {slot: described["Target"].get("Port", spec.port) for slot, described in found}

    def health(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, TargetState]:
        found = self._by_slot(spec, slots).items()
        return {slot: state_of(described["TargetHealth"].get("State", "")) for slot, described in found}

    def _by_slot(
        self, spec: ServiceSpec, slots: Collection[str]
    ) -> Mapping[str, TargetHealthDescriptionTypeDef]:
        """Every target by the slot that it is; an instance's first one has the lowest port."""
        found: dict[str, TargetHealthDescriptionTypeDef] = {}
        targets = self._described(spec) or ()
        for described in sorted(targets, key=lambda d: d["Target"].get("Port", spec.port)):
            target = described["Target"]
            by_port = f"{target['Id']}:{target.get('Port', spec.port)}"
            found[by_port if by_port in slots or target["Id"] in found else target["Id"]] = described
        return found

    def _described(self, spec: ServiceSpec) -> Sequence[TargetHealthDescriptionTypeDef] | None:
        """Every target; None where the group is gone."""
        try:
            with translated():
                answer = self._clients.elbv2.describe_target_health(TargetGroupArn=spec.target_group_arn)
        except Denied as denied:
            if denied.code != TARGET_GROUP_NOT_FOUND:
                raise
            return None
        return answer["TargetHealthDescriptions"]


def _call(
    call: Callable[..., object], spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int]
) -> frozenset[str]:
    """Call for as many targets at once as may be; the ones that ELBv2 can't take.

    One invalid target and it takes none of them: then it is asked for each by itself.
    """
    slots = list(dict.fromkeys(instance_ids))
    refused: set[str] = set()
    for first in range(0, len(slots), MAX_TARGETS):
        batch = slots[first : first + MAX_TARGETS]
        # Registered with a port, a target is known by ID and port together.
        targets: list[TargetDescriptionTypeDef] = [
            {"Id": host(slot), "Port": port(slot) or ports.get(slot, spec.port)} for slot in batch
        ]
        try:
            with translated():
                call(TargetGroupArn=spec.target_group_arn, Targets=targets)
        except Denied as denied:
            if denied.code not in (TARGET_INVALID, TARGET_GROUP_NOT_FOUND):
                raise
            if denied.code == TARGET_INVALID and len(batch) > 1:
                refused |= frozenset().union(*(_call(call, spec, [slot], ports) for slot in batch))
            else:
                refused |= set(batch)
    return frozenset(refused)


def state_of(state: str) -> TargetState:
    """A target's state, as DescribeTargetHealth names it."""
    try:
        # A Network Load Balancer's "unhealthy.draining" is an unhealthy target that finishes its connections.
        return TargetState(state.partition(".")[0])
    except ValueError:
        return TargetState.UNAVAILABLE  # a new state: it is in the group, and nobody knows how it is
