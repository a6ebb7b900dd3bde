"""A world for the controller's tests: what is called is on record, and any call can be made to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.held import Override
from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.pools import Offering, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.events import InterruptionWarning, Signal, StateChange
from spotrelay.plane.memory import (
    MemoryClock,
    MemoryFleet,
    MemoryLoads,
    MemoryNotices,
    MemoryProber,
    MemoryRouter,
    MemoryServices,
    MemoryStore,
    MemoryTelemetry,
    MemoryTicker,
    World,
)
from tests.examples import demo_spec

Meddle = Callable[..., object]


@dataclass
class Troubled(World):
    """A world in which something can happen before or after a call of the controller's.

    The test itself reaches the fakes directly, past all of it.
    """

    before: dict[str, Meddle] = field(default_factory=dict)
    """By call (`"store.commit"`): what to do first, with the call's arguments. An error prevents the call."""
    after: dict[str, Meddle] = field(default_factory=dict)
    """By call: what to do when it has taken effect. An error loses the answer."""
    calls: list[str] = field(default_factory=list)
    """Every call, in order, also those that failed."""
    numbers: Any = field(default_factory=lambda: count(1))

    def ports(self) -> Any:
        """The ports for a controller; all controllers of one world give other IDs."""
        ports = super().ports()
        watched = {
            name: _Watched(getattr(ports, name), name, self)
            for name in ("store", "fleet", "router", "prober", "loads", "ticker", "notices", "services")
        }
        return type(ports)(
            **watched,
            telemetry=self.telemetry,
            clock=self.clock,
            new_id=lambda: f"id-{next(self.numbers):06d}",
        )

    def meddle(self, call: str, act: Meddle, times: int | None = 1, *, after: bool = False) -> None:
        """Have something happen at the next so many calls; None: at all of them."""
        left = iter(range(times)) if times is not None else count()
        acts = self.after if after else self.before

        def once(*args: object, **kwargs: object) -> None:
            if next(left, None) is None:
                return
            act(*args, **kwargs)

        acts[call] = once

    def refuse(self, call: str, error: Exception, times: int | None = 1) -> None:
        """Have the next so many calls fail before they do anything; None: all of them."""
        self.meddle(call, raising(error), times)

    def lose(self, call: str, error: Exception) -> None:
        """Have the next call take effect and its answer get lost."""
        self.meddle(call, raising(error), after=True)


class _Watched:
    """One port, as the controller has it."""

    def __init__(self, port: object, name: str, world: Troubled) -> None:
        self._port, self._name, self._world = port, name, world

    def __getattr__(self, method: str) -> Any:
        call, act = f"{self._name}.{method}", getattr(self._port, method)

        def called(*args: Any, **kwargs: Any) -> Any:
            self._world.calls.append(call)
            if call in self._world.before:
                self._world.before[call](*args, **kwargs)
            answer = act(*args, **kwargs)
            if call in self._world.after:
                self._world.after[call](*args, **kwargs)
            return answer

        return called


def raising(error: Exception) -> Meddle:
    """Whoever calls it gets the error."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def world_of(*specs: ServiceSpec) -> Troubled:
    """A world where these services are deployed and nothing runs yet."""
    clock = MemoryClock()
    fleet = MemoryFleet(clock)
    return Troubled(
        clock,
        MemoryStore(),
        fleet,
        MemoryRouter(fleet),
        MemoryProber(),
        MemoryLoads(),
        MemoryTicker(),
        MemoryNotices(),
        MemoryServices(*specs),
        MemoryTelemetry(),
    )


def active(world: World, service: str = "demo") -> list[Replica]:
    """The replicas that should exist and those that serve on, by ID."""
    return [r for r in rows(world, service).replicas.values() if r.state.is_active]


def counted(world: World, service: str = "demo") -> list[int]:
    """The IDs of the replicas that should exist; what EC2 takes back isn't among them."""
    return [r.id for r in active(world, service) if r.is_counted]


def rows(world: World, service: str = "demo") -> Rows:
    """What the table says."""
    return world.store.load(service)


def word(world: World, service: str = "demo") -> Override:
    """An operator's, who looks now and says that all that is held back is true."""
    return Override(frozenset(rows(world, service).held.back), world.clock.now())


def table(world: World, service: str = "demo") -> Any:
    """What the table holds of a service, for a test that damages it."""
    return world.store._services[service]


def in_rotation(world: World, service: str = "demo") -> set[str]:
    """The instances that get requests, or would if they were healthy."""
    health = world.router.health(world.services.specs.get(service) or demo_spec(service))
    return {i for i, state in health.items() if state.is_in_rotation}


def alive(world: World) -> set[str]:
    """The instances that run, or are about to."""
    return {i.id for i in world.fleet.instances.values() if i.state.is_alive}


def settle(world: World, controller: Controller, rounds: int = 6) -> None:
    """Let time pass: instances boot, pass their checks, and the tick sees it."""
    for _ in range(rounds):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        world.fleet.run()
        for service in world.services.names():
            controller.tick(service)
        world.router.pass_checks()


def serving(*specs: ServiceSpec) -> tuple[Troubled, Controller]:
    """Services with every replica READY, and nobody about to put them into rotation any more."""
    specs = specs or (demo_spec(),)
    world = world_of(*specs)
    controller = Controller(world.ports())
    settle(world, controller)
    for spec in specs:
        assert [r.state for r in active(world, spec.service)] == [ReplicaState.READY] * spec.replicas
    # EC2 shows by now whatever was launched, and no lease is held any more.
    world.clock.advance(max(timing.VISIBLE_WITHIN_S, timing.LEASE_S))
    world.calls.clear()
    world.router.calls.clear()
    world.fleet.launches.clear()
    world.ticker.scheduled.clear()
    world.telemetry.records.clear()
    world.telemetry.counts.clear()
    return world, controller


def instance_of(replica: Replica) -> str:
    """The ID of its instance."""
    assert replica.instance_id is not None
    return replica.instance_id


def warn(world: World, *replicas: Replica) -> list[Signal]:
    """EC2 warns the replicas; the events, as delivered once."""
    now = world.clock.now()
    ids = [instance_of(r) for r in replicas]
    world.fleet.interrupted |= dict.fromkeys(ids, now)
    return [InterruptionWarning(i, now, "terminate") for i in ids]


def reclaim(world: World, *replicas: Replica) -> list[Signal]:
    """EC2 takes the instances; the events. Their Spot requests go on to say what they said."""
    ids = [instance_of(r) for r in replicas]
    world.fleet.enter(InstanceState.TERMINATED, ids)
    return [StateChange(i, world.clock.now(), InstanceState.TERMINATED) for i in ids]


def dry(world: World, *options: PurchaseOption) -> None:
    """Every pool of the demo's has nothing to give, bought these ways."""
    world.fleet.capacity.update({Offering(p, o): 0 for p in demo_spec().pools for o in options})


def recorded(world: World, event: str) -> list[dict[str, Any]]:
    """The log's lines about an event."""
    return [dict(facts) for name, facts in world.telemetry.records if name == event]
