"""What must never happen, and does: tables lost or restored, answers that are wrong, tags edited by hand."""

from __future__ import annotations

import copy
from random import Random
from typing import TYPE_CHECKING

from spotrelay.memory import MemoryStore

if TYPE_CHECKING:
    from lab.sim.world import SimWorld

LIES_S = (3.0, 45.0)
"""How long wrong answers are given: longer than a tick, shorter than anybody needs to notice."""

RESTORED_AFTER_S = (5.0, 40.0)
"""How old the backup is that a table is restored from."""


def lose_meta(world: SimWorld, service: str) -> None:
    """The service's own entry is gone: its highest ID, and how many serve."""
    kept = world.memory.damage(service)
    kept.highest_id, kept.serving = 0, 0
    world.checker.damage([service])


def lose_row(world: SimWorld, service: str) -> None:
    """A replica's row is gone, and with it whose its instance is."""
    kept = world.memory.damage(service)
    if kept.replicas:
        row = kept.replicas.pop(world.random.choice(sorted(kept.replicas)))
        world.memory.unlearn(row.instance_id)
    world.checker.damage([service])


def empty_table(world: SimWorld, _service: str) -> None:
    """The table is a new one."""
    world.memory.replace_with(MemoryStore())
    world.checker.damage(world.services.documents)


def restore_table(world: SimWorld, _service: str) -> None:
    """The table becomes what it was some time before."""
    backup = copy.deepcopy(world.memory)

    def restore() -> None:
        world.say("the table is restored from a backup")
        world.memory.replace_with(backup)
        world.checker.damage(world.services.documents)

    when = world.scheduler.now + world.random.uniform(*RESTORED_AFTER_S)
    world.scheduler.at(min(when, world.scenario.faults_s), restore)


def hide_document(world: SimWorld, service: str) -> None:
    """The service's parameter isn't there for a while, though its stack is."""
    # Two signs of a removal are never wrong at once; see docs/reliability.md.
    if any('"override"' in message.body for message in world.ticks.messages):
        return
    world.services.hidden_until[service] = _until(world)


def is_hidden(world: SimWorld, service: str) -> bool:
    """Whether the parameter isn't there, though its stack is."""
    return world.services.hidden_until.get(service, 0.0) > world.scheduler.now


def usurp(world: SimWorld, _service: str) -> None:
    """Another control plane is in charge of the region's services for a while."""
    world.services.other_control_plane_until = _until(world)


def garble_document(world: SimWorld, service: str) -> None:
    """Somebody edits the parameter, and mends it."""
    world.services.garbled_until[service] = _until(world)


def lie(world: SimWorld, _service: str) -> None:
    """EC2, or the load balancer, answers as if nothing were there, or half of it, and calls it a success."""
    lies = world.cloud.lies
    lies.until = _until(world)
    lies.seed = world.random.random()
    lies.share = world.random.choice((0.0, 0.0, 0.5))
    lies.about_instances = world.random.random() < 0.7
    lies.about_health = not lies.about_instances or world.random.random() < 0.2


def untag(world: SimWorld, service: str) -> None:
    """Somebody takes the tag off an instance; it is put back in the end."""
    alive = [i for i in world.cloud.of(service) if i.is_alive(world.scheduler.now)]
    if alive:
        instance = world.random.choice(alive)
        instance.service = None
        # Half of them end unseen: then the load balancer alone knows.
        if Random(f"{world.scenario.seed}-untagged").random() < 0.5:  # noqa: S311 - to be repeated
            world.cloud.end(instance)


def _until(world: SimWorld) -> float:
    return min(world.scheduler.now + world.random.uniform(*LIES_S), world.scenario.faults_s)


class Lies:
    """Which part of an answer is missing, and until when."""

    def __init__(self) -> None:
        self.until = 0.0
        self.share = 0.0
        """Of what there is, so much is shown."""
        self.seed = 0.0
        self.about_instances = False
        self.about_health = False

    def spares(self, instance_id: str, now: float) -> bool:
        """Whether the instance is among what is shown: the same ones all the while."""
        if now >= self.until:
            return True
        return Random(f"{self.seed} {instance_id}").random() < self.share  # noqa: S311 - to be repeated
