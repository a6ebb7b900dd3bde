"""Operators who are shown what is held back, and say that it is true.

They are right when they look: nobody confirms what an answer shows that is wrong just then. By the time that
their word arrives, something else may be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from lab.sim import damage
from lab.sim.gate import at
from lab.sim.rules.word import OF_DOCUMENT
from lab.sim.world import SimWorld
from spotrelay.plane.core.held import HeldBack, Override
from spotrelay.plane.events.ticks import Tick, TickKind

LOOKS_AGAIN_S = (3.0, 15.0)
"""How long an operator waits where nothing is held back yet: the alarm takes a while, too."""

THINKS_S = (0.5, 40.0)
"""How long they think about it: some ticks."""

CHANGES = 0.7
"""How often something else happens meanwhile."""

OF_BEFORE = 0.15
"""How often they use a command of before 2026-11-24, which doesn't say what it is given for."""

LATE_S = 600.0
"""By then every message of before the end of faults has been delivered, also one that was tried again."""


def override(world: SimWorld, service: str) -> None:
    """An operator looks until something is held back, thinks about it, and says that it is true."""
    # A generator of their own: the rest of the run doesn't depend on them.
    own = Random(f"{world.scenario.seed}-{world.scheduler.now}-operator")  # noqa: S311 - to be repeated
    _look(world, service, own)


def confirm_removal(world: SimWorld, service: str) -> None:
    """An operator says that a service was removed, as soon as that is held back, until it is believed."""
    rows, now = world.memory.load(service), world.scheduler.now
    is_believed = rows.removal.told_at is not None or service not in world.memory.services()
    # A tick of before that comes late may remember what was forgotten, and a backup may be restored.
    is_settled = is_believed and now > world.scenario.faults_s + LATE_S
    if is_settled or world.services.valid(service, now) is not None:
        return
    held = [one for one in rows.held.back if one.what == OF_DOCUMENT]
    if held:
        _give(world, service, held)
    world.scheduler.at(now + LOOKS_AGAIN_S[1], partial(confirm_removal, world, service))


def _look(world: SimWorld, service: str, own: Random) -> None:
    now = world.scheduler.now
    held = world.memory.load(service).held.back
    # What an answer shows that is wrong now, nobody confirms.
    is_fooled = damage.is_hidden(world, service) or world.cloud.wrong_answers.until > now
    if not held or is_fooled:
        again = now + own.uniform(*LOOKS_AGAIN_S)
        if again < world.scenario.faults_s:
            world.scheduler.at(again, partial(_look, world, service, own))
        return
    thinks_s = own.uniform(*THINKS_S)
    world.say(f"an operator is shown what is held back of {service}: {', '.join(one.what for one in held)}")
    if own.random() < CHANGES:
        _change(world, service, thinks_s, own)
    is_of_before = own.random() < OF_BEFORE
    world.scheduler.at(now + thinks_s, partial(_give, world, service, () if is_of_before else held))


def _give(world: SimWorld, service: str, held: Sequence[HeldBack]) -> None:
    now = world.scheduler.now
    if any(one.what == OF_DOCUMENT for one in held) and world.services.valid(service, now) is not None:
        return  # it is deployed again, as everybody can see
    world.say(f"an operator overrides what is held back of {service}")
    given = Override(frozenset(held), at(now)) if held else Override()
    world.ticks.send(Tick(service, kind=TickKind.OVERRIDE, override=given).to_json())


def _change(world: SimWorld, service: str, thinks_s: float, own: Random) -> None:
    """While an operator thinks, something else comes to be seen, or nothing does for a while."""
    now = world.scheduler.now
    changes = [damage.answer_wrongly, damage.answer_wrongly, damage.untag, _lose_again]
    # Two signs of a removal are never wrong at once; see docs/reliability.md.
    if world.scenario.is_never_removed:
        changes.append(damage.hide_document)
    change = own.choice(changes)
    if change is _lose_again:
        _find_again(world, service)

    def happen() -> None:
        if world.is_faulty:
            change(world, service)

    world.scheduler.at(now + thinks_s * own.uniform(0.3, 1), happen)


def _find_again(world: SimWorld, service: str) -> None:
    """What lost its tag has it again, and a tick looks."""
    for instance in world.cloud.instances.values():
        if instance.launched_for == service and instance.service is None and not instance.is_foreign:
            instance.service = service
            world.found.append(instance)
    world.ticks.send(Tick(service).to_json())


def _lose_again(world: SimWorld, service: str) -> None:
    """It loses it once more, and a tick looks."""
    for instance in world.found:
        instance.service = None
    world.ticks.send(Tick(service).to_json())
