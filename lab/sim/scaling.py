"""Operators ask for another number of replicas, as drawn."""

from __future__ import annotations

from functools import partial

from lab.sim.gate import at
from lab.sim.scenario.scaling import Asked
from lab.sim.world import SimWorld
from spotrelay.plane.core.rows import ScaleRequest, Source
from spotrelay.plane.events.ticks import Tick


def ask(world: SimWorld, asked: Asked) -> None:
    """Make the request; the command refuses it for a service that isn't deployed."""
    now = world.scheduler.now
    spec = world.services.valid(asked.service, now)
    if spec is None:
        return
    request = ScaleRequest(max(spec.replicas + asked.change, 1), at(now + asked.lasts_s))
    _note(world, asked.service, request)
    if asked.reset_after_s is not None:
        world.scheduler.at(now + asked.reset_after_s, partial(_reset, world, asked.service))


def _reset(world: SimWorld, service: str) -> None:
    if world.services.valid(service, world.scheduler.now):
        _note(world, service, None)


def _note(world: SimWorld, service: str, request: ScaleRequest | None) -> None:
    what = f"{request.replicas} replicas until {request.until}" if request else "the service file's number"
    world.say(f"** an operator asks for {what} of {service}")
    world.memory.note_request(service, Source.OPERATOR, request)
    world.note_in_effect(service)
    world.ticks.send_once(Tick(service).to_json())
