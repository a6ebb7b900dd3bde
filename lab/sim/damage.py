"""Damage to state: tables lost or restored, wrong answers, tags edited by hand."""

from __future__ import annotations

import copy
from random import Random

from lab.sim.rules.word import OF_DOCUMENT
from lab.sim.world import SimWorld
from spotrelay.plane.memory import MemoryStore

WRONG_ANSWERS_S = (3.0, 45.0)
"""How long wrong answers last: longer than a tick, shorter than an operator needs to notice."""

LONG_SHARE, LONG_WRONG_ANSWERS_S = 0.5, (40.0, 240.0)
"""How often both answer wrongly, and for longer than it takes until what is missing counts as gone."""

UNKNOWN_S = (3.0, 240.0)
"""How long the load balancer doesn't know its targets' health: longer than an unhealthy fallback may stay."""

RESTORED_AFTER_S = (5.0, 40.0)
"""How old the backup is that a table is restored from."""


def lose_meta(world: SimWorld, service: str) -> None:
    """Lose the service's entry: its highest ID, its count of serving replicas, what was asked for."""
    entry = world.memory.damage(service)
    entry.highest_id, entry.serving = 0, 0
    entry.requests.clear()
    entry.rollback = None
    world.checker.damage([service])


def lose_row(world: SimWorld, service: str) -> None:
    """Lose a replica's row, and its instance's index entry."""
    entry = world.memory.damage(service)
    if entry.replicas:
        row = entry.replicas.pop(world.random.choice(sorted(entry.replicas)))
        world.memory.unlearn(row.instance_id)
    world.checker.damage([service])


def empty_table(world: SimWorld, _service: str) -> None:
    """Replace the table with an empty one."""
    world.memory.replace_with(MemoryStore())
    world.checker.damage(world.services.documents)


def restore_table(world: SimWorld, _service: str) -> None:
    """Restore the table from a backup of now, some time later."""
    backup = copy.deepcopy(world.memory)

    def restore() -> None:
        world.say("the table is restored from a backup")
        world.memory.replace_with(backup)
        world.checker.damage(world.services.documents)

    when = world.scheduler.now + world.random.uniform(*RESTORED_AFTER_S)
    world.scheduler.at(min(when, world.scenario.faults_s), restore)


def hide_document(world: SimWorld, service: str) -> None:
    """Hide the service's parameter for a while, though its stack exists."""
    # Two signs of a removal are never wrong at once; see docs/reliability.md.
    if any(OF_DOCUMENT in message.body for message in world.ticks.messages):
        return
    world.services.hidden_until[service] = _until(world)


def is_hidden(world: SimWorld, service: str) -> bool:
    """Whether the parameter is hidden."""
    return world.services.hidden_until.get(service, 0.0) > world.scheduler.now


def take_over(world: SimWorld, _service: str) -> None:
    """Another control plane manages the region's services for a while."""
    world.services.other_control_plane_until = _until(world)


def garble_document(world: SimWorld, service: str) -> None:
    """An operator breaks the parameter's text, and repairs it later."""
    world.services.garbled_until[service] = _until(world)


def answer_wrongly(world: SimWorld, _service: str) -> None:
    """EC2 or the load balancer answers with nothing, or with half of what exists, and reports success."""
    wrong = world.cloud.wrong_answers
    wrong.until = _until(world)
    wrong.seed = world.random.random()
    wrong.share = world.random.choice((0.0, 0.0, 0.5))
    wrong.about_instances = world.random.random() < 0.7
    wrong.about_health = not wrong.about_instances or world.random.random() < 0.2
    # Not drawn from the world's generator: otherwise it would change the rest of the run.
    own = Random(f"{world.scenario.seed}-{world.scheduler.now}-wrong")  # noqa: S311 - to be repeated
    if own.random() < LONG_SHARE:
        wrong.until = min(world.scheduler.now + own.uniform(*LONG_WRONG_ANSWERS_S), world.scenario.faults_s)
        wrong.about_instances = wrong.about_health = True
        wrong.share = own.choice((0.0, 0.4))


def forget_health(world: SimWorld, _service: str) -> None:
    """The load balancer doesn't know the health of some of its targets, or of any."""
    unknown = world.cloud.unknown
    # Not drawn from the world's generator: otherwise it would change the rest of the run.
    own = Random(f"{world.scenario.seed}-{world.scheduler.now}")  # noqa: S311 - to be repeated
    unknown.until = min(world.scheduler.now + own.uniform(*UNKNOWN_S), world.scenario.faults_s)
    unknown.seed, unknown.share = own.random(), own.choice((0.0, 0.5))


def untag(world: SimWorld, service: str) -> None:
    """Remove the tag of an instance; it is put back when faults end."""
    alive = [i for i in world.cloud.of(service) if i.is_alive(world.scheduler.now)]
    if alive:
        instance = world.random.choice(alive)
        for slot in world.cloud.slots_of(instance):
            slot.service, slot.was_untagged = None, True
        # Half of them end unseen: only the load balancer notices.
        if Random(f"{world.scenario.seed}-untagged").random() < 0.5:  # noqa: S311 - to be repeated
            world.cloud.end(instance)


def _until(world: SimWorld) -> float:
    return min(world.scheduler.now + world.random.uniform(*WRONG_ANSWERS_S), world.scenario.faults_s)
