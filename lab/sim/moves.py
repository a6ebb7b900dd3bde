"""Prices and scores change, so that replicas move."""

from __future__ import annotations

from functools import partial

from lab.sim.scenario.moves import Moves
from lab.sim.world import SimWorld
from spotrelay.plane.core.spec import ServiceSpec

LATE_S = 120.0


def schedule(world: SimWorld, moves: Moves) -> None:
    """Have prices change."""
    service = world.scenario.specs[0].service
    for share in moves.prices:
        # What comes after faults does so within a minute: the run ends once everything is at rest.
        when = min(share, 1.0) * world.scenario.faults_s + max(share - 1.0, 0.0) * LATE_S
        world.scheduler.at(when, partial(_change_prices, world, service))
    for share in moves.scores:
        world.scheduler.at(share * world.scenario.faults_s, partial(_change_scores, world, service))


def begin(world: SimWorld, moves: Moves, spec: ServiceSpec) -> None:
    """Have scores fall, most of the time, before a run begins: one survey has seen it already."""
    if moves.on_score:
        _let_fall(world, spec.service)
        world.survey(spec, -moves.before_s)


def _change_scores(world: SimWorld, service: str) -> None:
    _let_fall(world, service)
    spec = world.services.valid(service, world.scheduler.now)
    if spec:
        world.survey(spec)


def _let_fall(world: SimWorld, service: str) -> None:
    """Zones where replicas run score low from now on, or the others, or none, or all."""
    now, offers = world.scheduler.now, world.cloud.offers
    here = {i.offering.pool.zone for i in world.cloud.of(service) if i.is_alive(now)}
    zones = {state.pool.zone for state in world.cloud.market}
    some = {offers.random.choice(sorted(here or zones))}
    fallen: set[str] = offers.random.choice((*[some] * 6, zones - here, zones - some, set(), zones))
    offers.fallen = frozenset(fallen)
    world.say(f"** {sorted(offers.fallen)} score low")


def _change_prices(world: SimWorld, service: str) -> None:
    world.say("** Spot costs something else")
    now = world.scheduler.now
    pools = {i.offering.pool for i in world.cloud.of(service) if i.is_alive(now)}
    world.cloud.offers.change_prices(dear=pools)
    spec = world.services.valid(service, world.scheduler.now)
    if spec:
        world.survey(spec)
