"""The rules that hold once things have settled, whatever went wrong before; written once for all tests.

`gather` reads what there is: the product's own table, the load balancer, and the local cloud's records of
what was really done to instances. `broken` judges it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from lab.demo.operator import Operator
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.spec import ServiceSpec

HISTORY_LIMIT = 10_000
"""More replicas than any test ends."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A service and its instances, as they are now."""

    desired: int
    standbys: int = 0
    """So many should stand by."""
    highest_id: int = 0
    present: Sequence[Replica] = ()
    ended: Sequence[Replica] = ()
    open_intents: Sequence[str] = ()
    targets: Mapping[str, str] = field(default_factory=dict)
    """Instance ID → health, of every target that the load balancer knows."""
    instances: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Every instance that was ever launched for the service, as the local cloud shows it, by ID."""
    interruptions: Sequence[Mapping[str, Any]] = ()
    """As the local cloud shows them, of any service."""

    @property
    def ever(self) -> list[Replica]:
        """All replicas, by ID."""
        return sorted((*self.present, *self.ended), key=lambda r: r.id)

    @property
    def rotation(self) -> dict[str, str]:
        """Instance ID → health, of the targets that get requests.

        A load balancer shows who left as draining for the whole delay, minutes after the instance is gone.
        """
        return {id_: health for id_, health in self.targets.items() if health != "draining"}

    @property
    def regulars(self) -> int:
        """How many replicas there ever were that stood in for nobody.

        Each loss makes it one more. Where a machine is busy, replacements start late, and fallbacks come and
        go beside them.
        """
        return sum(not r.is_fallback for r in self.ever)


def gather(operator: Operator, spec: ServiceSpec) -> Facts:
    """What there is of a service."""
    store, service = operator.store, spec.service
    rows = store.load(service)
    health = operator.session.client("elbv2").describe_target_health(TargetGroupArn=spec.target_group_arn)
    return Facts(
        spec.replicas,
        spec.standby,
        rows.highest_id,
        tuple(rows.replicas.values()),
        tuple(store.history(service, HISTORY_LIMIT)),
        tuple(rows.intents),
        {t["Target"]["Id"]: t["TargetHealth"]["State"] for t in health["TargetHealthDescriptions"]},
        {i["instance_id"]: i for i in operator.cloud.instances() if i["service"] == service and i["launch"]},
        operator.cloud.interruptions(),
    )


def broken(facts: Facts, *, has_history: bool = True) -> list[str]:
    """Every rule that doesn't hold, in words; none if things have settled as they should.

    Without a history the table can't say who was there and who replaced whom: it was damaged, or somebody
    asked for fewer replicas. Then IDs may have gaps, and losses no replacement.
    """
    checks = [_fleet, _ids, _instances, _standbys, _rotation]
    if has_history:
        checks += [_no_gaps, _losses]
    return [found for check in checks for found in check(facts)]


def _fleet(facts: Facts) -> Iterator[str]:
    """The fleet is whole, and nothing is under way."""
    states = Counter(r.state for r in facts.present)
    if states != Counter({ReplicaState.READY: facts.desired, ReplicaState.STANDBY: facts.standbys}):
        yield f"{facts.desired} READY expected, {facts.standbys} STANDBY, there are {dict(states)}"
    for replica in facts.present:
        if replica.unhealthy_since:
            yield f"{replica} doesn't answer"
    if facts.open_intents:
        yield f"launch intents are open: {', '.join(facts.open_intents)}"


def _ids(facts: Facts) -> Iterator[str]:
    """IDs are unique, were all given, and rise with time."""
    ids = [r.id for r in facts.ever]
    if len(set(ids)) != len(ids):
        yield f"an ID was given twice: {ids}"
    if ids and ids[-1] > facts.highest_id:
        yield f"IDs up to {facts.highest_id} were given, and there is {ids[-1]}"
    # A standby's instance passes from row to row, each of which says when it was requested.
    for earlier, later in pairwise(r for r in facts.ever if not r.is_standby):
        if later.entered[ReplicaState.REQUESTED] < earlier.entered[ReplicaState.REQUESTED]:
            yield f"{later} was requested before {earlier}"


def _no_gaps(facts: Facts) -> Iterator[str]:
    """Every ID that was given is a replica's."""
    missing = set(range(1, facts.highest_id + 1)) - {r.id for r in facts.ever}
    if missing:
        yield f"IDs up to {facts.highest_id} were given, and nobody has {sorted(missing)}"


def _losses(facts: Facts) -> Iterator[str]:
    """Whatever ended was replaced, by exactly one other, and both say so; fallbacks and standbys go without.

    Tests never ask for fewer replicas, so an end that brings no replacement, such as that of a replica too
    many, is a mistake that was mended: a rule was broken all the same.
    """
    by_id = {r.id: r for r in facts.ever}
    for replica in facts.ever:
        successor, predecessor = by_id.get(replica.replaced_by or 0), by_id.get(replica.replaces or 0)
        if replica.is_fallback and replica.replaced_by:
            yield f"{replica} only stood in, and {replica.replaced_by} replaces it"
        is_extra = replica.is_fallback or replica.is_standby
        if replica.state.is_ended and successor is None and not is_extra:
            yield f"{replica} ended ({replica.reason}), and nothing replaces it"
        if replica.replaced_by and (successor is None or successor.replaces != replica.id):
            yield f"{replica} is replaced by {replica.replaced_by}, which doesn't say so"
        if replica.replaces and (predecessor is None or predecessor.replaced_by != replica.id):
            yield f"{replica} replaces {replica.replaces}, which doesn't say so"


def _instances(facts: Facts) -> Iterator[str]:
    """Every replica has its instance, every instance its replica, and EC2 takes what it has warned of."""
    owners = Counter(r.instance_id for r in facts.ever if r.instance_id and not r.is_standby)
    for instance_id, number in owners.items():
        if number > 1:
            yield f"{number} replicas have had {instance_id}"
    alive = {id_ for id_, i in facts.instances.items() if i["state"] in ("pending", "running", "stopped")}
    owned = {r.instance_id for r in facts.present}
    for instance_id in sorted(alive - owned):
        yield f"{instance_id} is alive and nobody's"
    for replica in facts.present:
        if replica.instance_id not in alive:
            yield f"{replica} has no living instance ({replica.instance_id})"
        elif facts.instances[replica.instance_id]["launch"] != replica.launch_id:
            yield f"{replica} has an instance of another launch"
    for interruption in facts.interruptions:
        instance_id = interruption["instance_id"]
        if instance_id in owned:
            yield f"{instance_id} is lost, and somebody's still"
        if instance_id in facts.instances and interruption["terminated_at"]:
            yield f"{instance_id} was warned and terminated by us all the same"


def _standbys(facts: Facts) -> Iterator[str]:
    """What stands by was tried out and is stopped, and nothing else is."""
    standbys = [r for r in facts.present if r.state is ReplicaState.STANDBY]
    if untried := [r.id for r in standbys if r.resume_s is None and r.retry_at is None]:
        yield f"{untried} were never tried out"
    stopped = {id_ for id_, i in facts.instances.items() if i["state"] == "stopped"}
    stand_by = {r.instance_id for r in standbys}
    if stopped != stand_by:
        yield f"stopped are {sorted(stopped)}, and {sorted(stand_by, key=str)} stand by"


def _rotation(facts: Facts) -> Iterator[str]:
    """In rotation is what is READY, and nothing else."""
    wanted = {r.instance_id: "healthy" for r in facts.present if r.state is ReplicaState.READY}
    if facts.rotation != wanted:
        odd = {id_: state for id_, state in facts.rotation.items() if wanted.get(id_) != state}
        yield f"in rotation: {odd}; missing there: {sorted(wanted.keys() - facts.rotation.keys(), key=str)}"
