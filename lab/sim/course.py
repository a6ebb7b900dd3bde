"""The course of a run: what happens in its world and when, until all is at rest, and the check of that."""

from __future__ import annotations

from functools import partial

from lab.sim import final_state, misfortunes, moves, operators, scaling, standbys, versions
from lab.sim.load import Loads
from lab.sim.rules import Rule
from lab.sim.world import SCHEDULE_S, SimWorld
from spotrelay.plane.core.pools import OPTIONS, Offering
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.events.ticks import Tick, TickKind

SETTLED_WITHIN_S = 5400.0
"""How long after the last misfortune everything must be at rest. Long, because every pool may have lost an
instance and cool for half an hour, a killed tick is redelivered after six minutes, and back-offs double."""

SETTLING_LAG_S = 25.0
"""The lag of the tick queue while settling. The result doesn't depend on how often ticks run, and fewer ticks
leave time for more seeds."""


def play(world: SimWorld) -> None:
    """Run until everything is at rest, a rule is broken, or time is up."""
    scenario, scheduler = world.scenario, world.scheduler
    for spec in scenario.specs:
        world.deploy(spec)
        if scenario.is_warm:
            world.warm(spec)
        if scenario.adopted.has_foreign:
            world.add_foreign(spec)
        moves.begin(world, scenario.moves, spec)
        if scenario.listing.is_surveyed:
            world.survey(spec)
    for when, kind in scenario.misfortunes:
        scheduler.at(when, partial(misfortunes.strike, world, kind))
    for asked in scenario.requests:
        scheduler.at(asked.at, partial(scaling.ask, world, asked))
    standbys.schedule(world, scenario.standbys)
    _change_load(world, scenario.loads)
    moves.schedule(world, scenario.moves)
    versions.schedule(world, scenario.versions)
    scheduler.at(scenario.faults_s, partial(_end_faults, world))
    scheduler.at(world.random.uniform(0, SCHEDULE_S), world.schedule)
    scheduler.run(scenario.faults_s + SETTLED_WITHIN_S)
    if not world.checker.violations:
        if not world.is_at_rest:
            world.checker.report(Rule.SETTLES, final_state.unrest(world))
        else:
            final_state.check(world)
    scheduler.close()


def _change_load(world: SimWorld, loads: Loads) -> None:
    """Say when it changes."""
    for share, rate in loads.rates[1:]:
        what = f"** {rate:.1f} requests a second from now on"
        world.scheduler.at(share * world.scenario.faults_s, partial(world.say, what))


def _end_faults(world: SimWorld) -> None:
    """End the faults: there is capacity again, and no stack changes any more."""
    world.say("faults end")
    world.cloud.offers.recover()
    # A moment later, because the table may be restored right now.
    world.scheduler.at(world.scheduler.now + 1, partial(_survey_all, world))
    world.cloud.broken_boots = 0
    world.cloud.starts = None
    world.cloud.bad.clear()
    for instance in world.cloud.instances.values():
        instance.is_protected = False
        if not instance.is_foreign:
            instance.service = instance.launched_for
    world.ticker.lag_s = SETTLING_LAG_S
    for spec in world.scenario.specs:
        if world.services.valid(spec.service, world.scheduler.now) is None:
            # If the event was lost, an operator says so: `spotrelay retire`, or `override`.
            kind = world.odd.choice((TickKind.REMOVED, TickKind.OVERRIDE))
            if kind is TickKind.OVERRIDE:
                operators.confirm_removal(world, spec.service)
            else:
                world.ticks.send(Tick(spec.service, kind=kind).to_json())
    for queue in (world.signals, world.ticks, world.leaves):
        queue.duplicates = 0
    for state in world.cloud.market:
        for option in OPTIONS.values():
            enough = state.in_use(option) + 2 * sum(_most(s) for s in world.scenario.specs)
            world.cloud.market.set_capacity(Offering(state.pool, option), enough)


def _survey_all(world: SimWorld) -> None:
    for spec in world.scenario.specs:
        current = world.services.valid(spec.service, world.scheduler.now)
        if current and world.scenario.listing.is_surveyed:
            world.survey(current)


def _most(spec: ServiceSpec) -> int:
    """As many instances as a service may ever want."""
    scaled = spec.scaling.max_replicas if spec.scaling else 0
    return max(spec.replicas, scaled) + spec.overprovision + spec.standby
