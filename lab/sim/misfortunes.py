"""What happens to a service from outside: by EC2, by an operator, or by accident."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from lab.sim import damage, odd_messages, operators
from lab.sim.faults import OF_HELD, Call
from lab.sim.gate import at
from lab.sim.instances import SimInstance
from lab.sim.offers import LASTS_S
from lab.sim.scenario import Misfortune, held
from lab.sim.world import SimWorld
from lab.world import events
from lab.world.instances import NEVER
from spotrelay.plane.core.pools import OPTIONS, Offering, PurchaseOption
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.events.ticks import Tick

NONSENSE_COUNT = (4, 10)
"""How many odd messages come at once: enough to share a batch with each other and with real events."""

REFUSES_S = (5.0, 60.0)
"""How long there is no capacity anywhere: some attempts of a replica, and a cooldown."""


ALONE_AFTER_S = 160.0
"""By then the Spot instances have ended, and what was bought in their place serves."""

ENDS = (
    "Server.InternalError: Internal error on launch",
    "Client.VolumeLimitExceeded: Volume limit exceeded",
    "Client.InstanceInitiatedShutdown: Instance initiated shutdown",
    "Server.SpotInstanceTermination: Spot instance termination",
)
"""EC2's reasons for an end without a warning."""


@dataclass(frozen=True, slots=True)
class _Victim:
    """The service that a misfortune strikes, as it is then."""

    world: SimWorld
    service: str
    alive: list[SimInstance]
    spot: list[SimInstance]
    spec: ServiceSpec | None
    """None: its stack is gone."""


def strike(world: SimWorld, kind: Misfortune) -> None:
    """Strike one of the services. Nothing happens if it has no suitable instance."""
    world.say(f"** {kind}")
    now = world.scheduler.now
    service = world.random.choice(world.scenario.specs).service
    alive = [i for i in world.cloud.of(service) if i.is_alive(now)]
    spot = [i for i in alive if i.offering.purchase_option is PurchaseOption.SPOT]
    _STRIKES[kind](_Victim(world, service, alive, spot, world.services.valid(service, now)))


def _warn(victim: _Victim) -> None:
    random = victim.world.random
    for instance in random.sample(victim.spot, min(len(victim.spot), random.randint(1, 2))):
        victim.world.cloud.warn(instance)


def _stop(victim: _Victim) -> None:
    if victim.spot:
        victim.world.cloud.warn(victim.world.random.choice(victim.spot), "stop")


def _hibernate(victim: _Victim) -> None:
    if victim.spot:
        victim.world.cloud.warn(victim.world.random.choice(victim.spot), "hibernate")


def _drought(victim: _Victim) -> None:
    """A pool has no capacity any more, neither for launches nor for its instances."""
    if not victim.spot:
        return
    cloud = victim.world.cloud
    offering = victim.world.random.choice(victim.spot).offering
    cloud.market.set_capacity(offering, 0)
    # Half the time all other pools are full, so that many replicas get fallbacks, and return together later.
    if Random(f"{victim.world.scenario.seed}-drought").random() < 0.5:  # noqa: S311 - to be repeated
        for state in cloud.market:
            other = Offering(state.pool, PurchaseOption.SPOT)
            cloud.market.set_capacity(
                other, min(state.capacity(other.purchase_option), state.in_use(other.purchase_option))
            )
    for instance in list(cloud.instances.values()):
        if instance.offering == offering:
            cloud.warn(instance)


def _die(victim: _Victim) -> None:
    """Half the time an on-demand instance: everything else happens to Spot."""
    random = victim.world.random
    on_demand = [i for i in victim.alive if i not in victim.spot]
    candidates = on_demand if on_demand and random.random() < 0.5 else victim.alive
    if candidates:
        instance = random.choice(candidates)
        # Not drawn at random: otherwise it would change the rest of the run.
        victim.world.cloud.end(instance, why=ENDS[int(instance.host[2:], 16) % len(ENDS)])


def _hang(victim: _Victim) -> None:
    if victim.alive:
        victim.world.random.choice(victim.alive).broken_at = victim.world.scheduler.now


def _mute(victim: _Victim) -> None:
    if victim.alive:
        victim.world.random.choice(victim.alive).mute_at = victim.world.scheduler.now


def _odd_answers(victim: _Victim) -> tuple[list[SimInstance], tuple[float, float]]:
    """Some of the service's instances, often one and sometimes all, and for how long."""
    now = victim.world.scheduler.now
    random = Random(f"{victim.world.scenario.seed}-{now}")  # noqa: S311 - to be repeated
    number = random.choice((1, 1, 2, len(victim.alive)))
    chosen = random.sample(victim.alive, min(number, len(victim.alive)))
    return chosen, (now, now + random.choice((100.0, 200.0, 400.0, NEVER)))


def _refuse_probe(victim: _Victim) -> None:
    chosen, while_ = _odd_answers(victim)
    for instance in chosen:
        instance.refuses = while_


def _busy(victim: _Victim) -> None:
    chosen, while_ = _odd_answers(victim)
    for instance in chosen:
        instance.busy = while_


def _broken(victim: _Victim) -> None:
    victim.world.cloud.broken_boots += 1


def _refuse(victim: _Victim) -> None:
    world = victim.world
    market = world.cloud.market
    # If on-demand is left, there are fallbacks. If not, cooling Spot pools are asked.
    options = list(OPTIONS.values()) if world.random.random() < 0.5 else [PurchaseOption.SPOT]
    room: dict[Offering, int] = {}
    for state in market:
        for option in options:
            offering = Offering(state.pool, option)
            room[offering] = state.free(option)
            market.set_capacity(offering, state.in_use(option))

    def give_again() -> None:
        world.say("there is capacity again")
        for state in market:
            for option in options:
                offering = Offering(state.pool, option)
                market.set_capacity(offering, state.in_use(option) + max(room[offering], 1))

    lasts_s = world.random.uniform(*REFUSES_S)
    if world.scheduler.now + lasts_s < world.scenario.faults_s:
        world.scheduler.at(world.scheduler.now + lasts_s, give_again)


def _recommend(victim: _Victim) -> None:
    world = victim.world
    for instance in world.random.sample(victim.spot, world.random.randint(0, len(victim.spot))):
        world.emit(events.rebalance(instance.host, at(world.scheduler.now)), None)


def _advise(victim: _Victim) -> None:
    world = victim.world
    if victim.spot:
        instance = world.random.choice(victim.spot)
        world.emit(events.rebalance(instance.host, at(world.scheduler.now)), None)
        soon = world.scheduler.now + world.random.uniform(0, 40)
        world.scheduler.at(soon, lambda: world.cloud.warn(instance))


def _spare(victim: _Victim) -> None:
    world = victim.world
    if not victim.spot:
        return
    instance = world.random.choice(victim.spot)
    world.cloud.warn(instance)

    def spare() -> None:
        if instance.is_being_taken(world.scheduler.now):
            world.say(f"EC2 spares {instance.host}")
            for slot in world.cloud.slots_of(instance):
                slot.warned_at, slot.spared_at = NEVER, world.scheduler.now

    world.scheduler.at(world.scheduler.now + world.random.uniform(1, 110), spare)


def _protect(victim: _Victim) -> None:
    for instance in victim.world.random.sample(victim.alive, min(len(victim.alive), 2)):
        for slot in victim.world.cloud.slots_of(instance):
            slot.is_protected = True


def _sick(victim: _Victim) -> None:
    world = victim.world
    now, lasts_s = world.scheduler.now, world.random.uniform(5, 120)
    for instance in world.random.sample(victim.alive, world.random.randint(0, len(victim.alive))):
        instance.sick = (now, min(now + lasts_s, world.scenario.faults_s))


def _alone(victim: _Victim) -> None:
    """There is no Spot any more, and what stands in for it is too busy to answer its checks."""
    world, now = victim.world, victim.world.scheduler.now
    before = {}
    for state in world.cloud.market:
        for option in OPTIONS.values():
            offering = Offering(state.pool, option)
            before[offering] = state.capacity(option), state.free(option)
            beside = 0 if option is PurchaseOption.SPOT else max(state.free(option), len(victim.alive) + 1)
            world.cloud.market.set_capacity(offering, state.in_use(option) + beside)
    for instance in victim.spot:
        world.cloud.warn(instance)

    def sicken() -> None:
        for instance in world.cloud.of(victim.service):
            if instance.is_alive(world.scheduler.now):
                instance.sick = (world.scheduler.now, world.scenario.faults_s)

    def give_again() -> None:
        world.say("there is Spot again")
        for state in world.cloud.market:
            offering = Offering(state.pool, PurchaseOption.SPOT)
            in_use, (capacity, free) = state.in_use(offering.purchase_option), before[offering]
            # The end of faults may have given more by now.
            least = max(state.capacity(offering.purchase_option), capacity)
            world.cloud.market.set_capacity(offering, max(in_use + max(free, 1), least))

    world.scheduler.at(now + ALONE_AFTER_S, sicken)
    world.scheduler.at(world.scenario.faults_s, give_again)


def _bad_pool(victim: _Victim) -> None:
    pools = [state.pool for state in victim.world.cloud.market]
    victim.world.cloud.bad.add(victim.world.random.choice(pools))


def _bad_zone(victim: _Victim) -> None:
    pools = [state.pool for state in victim.world.cloud.market]
    zone = victim.world.random.choice(pools).zone
    victim.world.cloud.bad |= {pool for pool in pools if pool.zone == zone}


def _tag(victim: _Victim) -> None:
    """A foreign instance gets our tag."""
    cloud = victim.world.cloud
    pool = next(iter(cloud.market)).pool
    cloud.add(None, Offering(pool, PurchaseOption.SPOT), age_s=500).service = victim.service


def _override(victim: _Victim) -> None:
    """An operator looks whether there is something to override: mostly an instance that loses its tag."""
    world, service = victim.world, victim.service
    is_wanted = held.looks(world.scenario.seed) or world.scenario.target[0] in OF_HELD
    is_untagged = world.random.random() < 0.5 or is_wanted
    # Of a removed service nobody would look when the tag is back.
    if is_untagged and victim.spec is not None:
        damage.untag(world, service)
        # Not by the minute: the run is over by then.
        world.ticks.send(Tick(service).to_json(), 1)
    soon = world.scheduler.now + world.random.uniform(0, 20)
    world.scheduler.at(min(soon, world.scenario.faults_s), partial(operators.override, world, service))


def _damage(do: Callable[[SimWorld, str], None]) -> Callable[[_Victim], None]:
    return lambda victim: do(victim.world, victim.service)


def _scale(victim: _Victim) -> None:
    if victim.spec:
        wanted = victim.world.random.randint(0, victim.spec.replicas + 2)
        victim.world.deploy(replace(victim.spec, replicas=wanted))


def _shrink(victim: _Victim) -> None:
    if victim.spec and victim.spec.replicas:
        wanted = victim.world.random.randrange(victim.spec.replicas)
        victim.world.deploy(replace(victim.spec, replicas=wanted))


def _deploy(victim: _Victim) -> None:
    if victim.spec is None:
        return
    world, version = victim.world, victim.spec.version + 1
    world.deploy(world.scenario.of_version(victim.spec, version))
    if world.scenario.bad_versions and world.random.random() < world.scenario.bad_versions:
        world.cloud.bad_versions.add((victim.service, version))
        # Long enough for more than one of its replicas to fail.
        mended_at = world.scenario.faults_s + world.random.uniform(0, 900)
        world.scheduler.at(mended_at, partial(_mend, world, victim.service))


def _mend(world: SimWorld, service: str) -> None:
    """A bad version is followed by a good one."""
    spec = world.services.valid(service, world.scheduler.now)
    if spec and (service, spec.version) in world.cloud.bad_versions:
        version = spec.version + 1
        world.deploy(world.scenario.of_version(spec, version))


def _remove(victim: _Victim) -> None:
    """Remove the stack; half the time it is deployed again."""
    world, spec = victim.world, victim.spec
    if spec is None:
        return
    world.deploy(None, victim.service)
    if world.scenario.target[0] is not Call.FORGET and world.random.random() < 0.5:
        again = world.random.uniform(world.scheduler.now, world.scenario.faults_s)
        world.scheduler.at(again, lambda: world.deploy(spec))


def _switch(victim: _Victim) -> None:
    """Switch Spot or its fallback off or on."""
    if victim.spec:
        spec, is_spot = victim.spec, victim.world.random.random() < 0.5
        other_spot = replace(spec, use_spot=not spec.use_spot)
        other_fallback = replace(spec, on_demand_fallback=not spec.on_demand_fallback)
        victim.world.deploy(other_spot if is_spot else other_fallback)


def _take_out(victim: _Victim) -> None:
    if victim.alive:
        instance = victim.world.random.choice(victim.alive)
        spec = replace(victim.world.scenario.specs[0], service=victim.service, drain_s=5)
        ports = {instance.id: victim.world.cloud.port_of(instance) or spec.port}
        victim.world.cloud.deregister(spec, [instance.id], ports)


def _foreign(victim: _Victim) -> None:
    """EC2 warns a foreign Spot instance."""
    cloud = victim.world.cloud
    pool = next(iter(cloud.market)).pool
    cloud.warn(cloud.add(None, Offering(pool, PurchaseOption.SPOT)))


def _nonsense(victim: _Victim) -> None:
    """Send malformed messages and events for others, and a real event among them."""
    world, now = victim.world, victim.world.scheduler.now
    instance_id = victim.alive[0].host if victim.alive else "i-0123456789abcdef0"
    for _ in range(world.odd.randint(*NONSENSE_COUNT)):
        world.send_odd(odd_messages.oddity(world.odd, instance_id, victim.service, now))
    if victim.alive:
        state = victim.alive[0].state(now)
        world.signals.send_once(events.state_change(instance_id, at(now), state))


def _limit(victim: _Victim) -> None:
    world, offers = victim.world, victim.world.cloud.offers
    limit = offers.limit([state.pool for state in world.cloud.market])
    world.say(f"from now on EC2 refuses launches ({limit.code})", limit)

    def end() -> None:
        if limit in offers.limits:
            offers.limits.remove(limit)

    world.scheduler.at(world.scheduler.now + offers.random.uniform(*LASTS_S), end)


def _survey(victim: _Victim) -> None:
    """Change prices; most of the time there is a new survey."""
    offers = victim.world.cloud.offers
    offers.change_prices()
    if victim.spec and offers.random.random() < 0.7:
        victim.world.survey(victim.spec)


_STRIKES: dict[Misfortune, Callable[[_Victim], None]] = {
    Misfortune.WARN: _warn,
    Misfortune.STOP: _stop,
    Misfortune.HIBERNATE: _hibernate,
    Misfortune.DROUGHT: _drought,
    Misfortune.DIE: _die,
    Misfortune.HANG: _hang,
    Misfortune.MUTE: _mute,
    Misfortune.REFUSE_PROBE: _refuse_probe,
    Misfortune.BUSY: _busy,
    Misfortune.BROKEN: _broken,
    Misfortune.REFUSE: _refuse,
    Misfortune.RECOMMEND: _recommend,
    Misfortune.ADVISE: _advise,
    Misfortune.SPARE: _spare,
    Misfortune.PROTECT: _protect,
    Misfortune.SICK: _sick,
    Misfortune.ALONE: _alone,
    Misfortune.BAD_POOL: _bad_pool,
    Misfortune.BAD_ZONE: _bad_zone,
    Misfortune.TAG: _tag,
    Misfortune.UNTAG: _damage(damage.untag),
    Misfortune.LOSE_META: _damage(damage.lose_meta),
    Misfortune.LOSE_ROW: _damage(damage.lose_row),
    Misfortune.EMPTY: _damage(damage.empty_table),
    Misfortune.RESTORE: _damage(damage.restore_table),
    Misfortune.HIDE: _damage(damage.hide_document),
    Misfortune.GARBLE: _damage(damage.garble_document),
    Misfortune.USURP: _damage(damage.take_over),
    Misfortune.OVERRIDE: _override,
    Misfortune.LIE: _damage(damage.answer_wrongly),
    Misfortune.UNKNOWN: _damage(damage.forget_health),
    Misfortune.SCALE: _scale,
    Misfortune.SHRINK: _shrink,
    Misfortune.DEPLOY: _deploy,
    Misfortune.SWITCH: _switch,
    Misfortune.REMOVE: _remove,
    Misfortune.TAKE_OUT: _take_out,
    Misfortune.FOREIGN: _foreign,
    Misfortune.NONSENSE: _nonsense,
    Misfortune.LIMIT: _limit,
    Misfortune.SURVEY: _survey,
}
