"""What something else launched, drawn from a seed: adopted replicas and foreign targets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from random import Random

from spotrelay.operator.adoption import NO_VERSION
from spotrelay.plane.core.replica import ReplicaState

SHARE = 0.2
"""The share of runs with something adopted, where replicas are ready at the beginning."""

REPLACED = 0.3
"""Of these, the share in which what is adopted is to be replaced."""

FOREIGN_SHARE = 0.2
"""The share of runs with a foreign target."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The adopted replicas of a run's services, among those that are ready at the beginning."""

    count: int = 0
    """So many of each service's, the first ones."""
    is_to_be_replaced: bool = False
    has_foreign: bool = False
    """Whether a target of each service's group belongs to nobody."""

    def version_of(self, id_: int, version: int) -> int:
        """The version of a replica that is there at the beginning."""
        return NO_VERSION if self.is_to_be_replaced and id_ <= self.count else version

    def entered(self, id_: int, entered: dict[ReplicaState, datetime]) -> dict[ReplicaState, datetime]:
        """What it went through: an adopted one is ready at once."""
        if id_ > self.count:
            return entered
        ready = entered[ReplicaState.READY]
        return dict.fromkeys((ReplicaState.REQUESTED, ReplicaState.PROVISIONING, ReplicaState.READY), ready)


def draw(seed: int, *, may_be_replaced: bool) -> Adopted:
    """A seed's, from a generator of its own: the rest of the run doesn't depend on it."""
    random = Random(f"{seed}-adopted")  # noqa: S311 - to be repeated, not to be unpredictable
    count = random.randint(1, 3) if random.random() < SHARE else 0
    is_to_be_replaced = random.random() < REPLACED and may_be_replaced
    return Adopted(count, is_to_be_replaced, random.random() < FOREIGN_SHARE)
