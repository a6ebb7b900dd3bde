"""EC2 in simulated time, the same for every policy: pools that hold what a recording says they held.

When a pool comes to hold less than what is in use, the excess is taken, chosen at random, and was warned
`warning_s` before: the cloud looks ahead in the recording. From the warning on, the pool gives out no more
than it will hold then. So at any time a pool has room for the least that it holds within the next
`warning_s`: its *floor*. Whatever is beyond the floor is being taken.

On-demand is always to be had, except in the spells that `on_demand_dry` draws (`capacity.dry_spells`); what
runs on-demand stays. A Spot instance costs at any time what its pool costs then.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import NamedTuple

from lab.market import Candidate, MarketRequest, RefusalCode, Strategy
from lab.market.allocation import Standing, allocate
from lab.replay.capacity import dry_spells
from lab.replay.ledger import Ledger
from lab.replay.recommendations import Recommendation, recommendations
from lab.replay.settings import ReplaySettings
from lab.replay.traces import PoolTrace, Trace
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption

NEVER = math.inf


class Kind(StrEnum):
    """What can happen to a machine."""

    ADVISED = "advised"
    """EC2 recommends to leave it."""
    WARNED = "warned"
    LOST = "lost"
    UP = "up"


ADVISED, WARNED, LOST, UP = Kind.ADVISED, Kind.WARNED, Kind.LOST, Kind.UP


@dataclass(slots=True, eq=False)
class Machine:
    """An instance. Times are seconds since the trace's start, `NEVER` for what didn't happen (yet)."""

    id: str
    offering: Offering
    launched_at: float
    up_at: float
    """When it can serve, if it lives that long."""
    launch_id: str | None = None
    is_advised: bool = False
    """Whether EC2 has recommended to leave it."""
    warned_at: float = NEVER
    lost_at: float = NEVER
    """When EC2 takes it: known from the warning on, or when it happens where there are no warnings."""
    drained_at: float = NEVER
    """When the policy took it out of service on purpose, not because of a warning."""
    out_at: float = NEVER
    """When the policy took it out of rotation, for whatever reason."""
    ended_at: float = NEVER
    is_up: bool = False
    """Whether that time has come while it was alive and in rotation."""

    @property
    def is_spot(self) -> bool:
        """Whether EC2 may take it."""
        return self.offering.purchase_option is PurchaseOption.SPOT

    @property
    def is_alive(self) -> bool:
        """Whether it still exists."""
        return self.ended_at == NEVER

    @property
    def is_warned(self) -> bool:
        """Whether EC2 is taking it, or took it, after a warning."""
        return self.warned_at != NEVER


class Event(NamedTuple):
    """Something that happened to a machine."""

    at: float
    kind: Kind
    machine: Machine


@dataclass(slots=True)
class _Pool:
    price: float
    """What a Spot instance costs now, in mean Spot prices."""
    floor: int = 0
    """The least that it holds within the next `warning_s`."""
    machines: dict[str, Machine] = field(default_factory=dict)
    """Spot instances in it that aren't warned."""
    paid: int = 0
    """Spot instances in it, warned or not."""

    @property
    def free(self) -> int:
        return self.floor - len(self.machines)


class _Change(NamedTuple):
    """A pool's floor changes; where it sinks, what is beyond it is lost at `lost_at`."""

    at: float
    pool: CapacityPool
    floor: int
    lost_at: float


class _NewPrice(NamedTuple):
    at: float
    pool: CapacityPool
    price: float


class ReplayCloud:
    """The market made from a trace, the machines in it, and the time. Whoever drives it calls `advance`."""

    def __init__(self, trace: Trace, settings: ReplaySettings) -> None:
        self.now = 0.0
        self.settings = settings
        self.pools: tuple[CapacityPool, ...] = tuple(p.pool for p in trace.pools)
        self.ledger = Ledger(settings)
        self.history: list[Machine] = []
        """Every machine there ever was, in order of launch."""
        self._pools = {p.pool: _Pool(p.prices[0][1]) for p in trace.pools}
        self._alive: dict[str, Machine] = {}
        self._warned: dict[str, Machine] = {}
        self._changes = sorted(
            (
                _Change(at, p.pool, floor, lost_at)
                for p in trace.pools
                for at, floor, lost_at in floors(p, settings)
            ),
        )
        self._next_change = 0
        self._new_prices = deque(
            sorted(_NewPrice(at, p.pool, price) for p in trace.pools for at, price in p.prices[1:])
        )
        self._recommendations = deque(recommendations(trace, settings))
        self._dry = dry_spells(trace, settings)
        self._due: list[tuple[float, int, Kind, Machine]] = []
        self._numbers = count(1)
        self._plans = count()
        # A stream of chance for each matter, so that more of one changes nothing about the others.
        self._takes, self._ties, self._losses, self._refusals = (
            Random(f"{settings.seed} {matter}")  # noqa: S311 - to be repeated, not to be unpredictable
            for matter in (
                "which is taken",
                "which pool of equals",
                "which warning is lost",
                "which resume is refused",
            )
        )
        self.advance(0.0)

    def launch(
        self,
        option: PurchaseOption,
        count: int,
        pools: Sequence[CapacityPool] | None = None,
        launch_id: str | None = None,
    ) -> tuple[list[Machine], list[CapacityPool]]:
        """Ask for instances from any of the pools (None: all of them), price-capacity-optimized.

        Returns what was granted, and the pools that refused; an order that was filled reports none.
        """
        if option is PurchaseOption.ON_DEMAND:
            asked = list(pools or self.pools)
            if any(begin <= self.now < end for begin, end in self._dry):
                self.ledger.refusals += self.ledger.is_measuring
                return [], asked
            pool = asked[0]
            return [self._begin(Offering(pool, option), launch_id) for _ in range(count)], []
        # EC2 promises no order among pools that are equally deep and cost the same.
        among = list(self.pools if pools is None else pools)
        self._ties.shuffle(among)
        standings = [
            Standing(max(0, self._pools[p].free), self.price(p), RefusalCode.UNFULFILLABLE_CAPACITY)
            for p in among
        ]
        request = MarketRequest(
            tuple(Candidate(p) for p in among), count, option, Strategy.PRICE_CAPACITY_OPTIMIZED
        )
        allocation = allocate(request, standings)
        if allocation.granted < count and self.ledger.is_measuring:
            self.ledger.refusals += 1
        machines = [
            self._begin(Offering(among[grant.index], option), launch_id)
            for grant in allocation.grants
            for _ in range(grant.count)
        ]
        return machines, [among[refusal.index] for refusal in allocation.refusals]

    def price(self, pool: CapacityPool) -> float:
        """What a Spot instance in the pool costs now, in mean Spot prices."""
        return self._pools[pool].price

    def launch_in(self, pool: CapacityPool, option: PurchaseOption) -> Machine | None:
        """One instance from one pool, if it has any."""
        machines, _ = self.launch(option, 1, (pool,))
        return machines[0] if machines else None

    def drain(self, machine: Machine) -> None:
        """Take it out of rotation. One that isn't warned counts as ready no more."""
        if not machine.is_alive or machine.out_at != NEVER:
            return
        self.ledger.to(self.now)
        machine.out_at = self.now
        self.ledger.in_rotation -= machine.is_up
        if not machine.is_warned:
            machine.drained_at = self.now
            self.ledger.ready -= machine.is_up

    def readmit(self, machine: Machine, up_at: float) -> None:
        """Put one back into rotation that was drained and never warned: from `up_at` on it serves again."""
        if machine.is_warned:
            raise ValueError(f"{machine.id} is warned: what it was lost for can't be undone")
        machine.is_up = False
        machine.out_at = machine.drained_at = NEVER
        self.postpone(machine, up_at)

    def terminate(self, machine: Machine) -> None:
        """End it now; one that is gone already is fine."""
        if machine.is_alive:
            self._end(machine)

    def resume(self, stopped: Machine) -> Machine | None:
        """Start a stopped machine again: another one of the same ID; None if EC2 has no room for it."""
        is_dry = any(begin <= self.now < end for begin, end in self._dry)
        if self._refusals.random() < self.settings.standby_refusal or is_dry:
            self.ledger.refusals += self.ledger.is_measuring
            return None
        up_at = self.now + self.settings.standby_start_s
        return self._began(Machine(stopped.id, stopped.offering, self.now, up_at, stopped.launch_id))

    def stopped(self, change: int) -> None:
        """So many more machines are stopped, or fewer: their disks stay."""
        self.ledger.to(self.now)
        self.ledger.stopped += change

    def postpone(self, machine: Machine, up_at: float) -> None:
        """Have a machine that can't serve yet do so at another time, as when nobody sends it requests."""
        if machine.is_up:
            raise ValueError(f"{machine.id} is up since {machine.up_at:g}, it can't be up at {up_at:g}")
        machine.up_at = up_at
        self._plan(up_at, UP, machine)

    def machines(self) -> Collection[Machine]:
        """Those that exist, in order of launch."""
        return self._alive.values()

    def machine(self, id_: str) -> Machine | None:
        """The one of that ID, if it exists."""
        return self._alive.get(id_)

    def warned(self) -> Collection[Machine]:
        """Those that EC2 is about to take, whether or not their warning reached anybody."""
        return self._warned.values()

    def next_event_at(self) -> float:
        """When something may happen at the earliest; `NEVER` if nothing will."""
        change = self._changes[self._next_change].at if self._next_change < len(self._changes) else NEVER
        price = self._new_prices[0].at if self._new_prices else NEVER
        advice = self._recommendations[0].at if self._recommendations else NEVER
        due = self._due[0][0] if self._due else NEVER
        return min(change, price, advice, due)

    def advance(self, to: float) -> list[Event]:
        """Let time pass up to and including `to`; what happened, in order.

        A warning is an event unless it was lost.
        """
        events: list[Event] = []
        while (at := self.next_event_at()) <= to:
            self.now = max(self.now, at)
            if self._new_prices and self._new_prices[0].at == at:
                self._reprice(self._new_prices.popleft())
            elif self._recommendations and self._recommendations[0].at == at:
                self._advise(self._recommendations.popleft(), at, events)
            elif self._due and self._due[0][0] == at:
                _, _, kind, machine = heappop(self._due)
                if kind is UP:
                    self._up(machine, at, events)
                elif machine.is_alive:
                    self._end(machine)
                    events.append(Event(at, LOST, machine))
            else:
                self._change(self._changes[self._next_change], events)
                self._next_change += 1
        self.now = max(self.now, to)
        return events

    def close(self, time: float) -> Ledger:
        """Let time pass up to the end of the run; what it adds up to."""
        self.advance(time)
        self.ledger.close(time)
        return self.ledger

    def _begin(self, offering: Offering, launch_id: str | None) -> Machine:
        number = next(self._numbers)
        up_at = self.now + self.settings.cold_start_s
        return self._began(Machine(f"i-{number:017x}", offering, self.now, up_at, launch_id))

    def _began(self, machine: Machine) -> Machine:
        self._alive[machine.id] = machine
        self.history.append(machine)
        self.ledger.to(self.now)
        self._paid(machine, +1)
        if machine.is_spot:
            self._pools[machine.offering.pool].machines[machine.id] = machine
        if self.ledger.is_measuring:
            self.ledger.launches += 1
        self._plan(machine.up_at, UP, machine)
        return machine

    def _up(self, machine: Machine, at: float, events: list[Event]) -> None:
        # It may have ended before, been postponed, or been taken out of rotation: then it never serves.
        if machine.is_up or not machine.is_alive or machine.up_at != at or machine.out_at != NEVER:
            return
        machine.is_up = True
        self.ledger.to(at)
        self.ledger.in_rotation += 1
        self.ledger.ready += 1
        events.append(Event(at, UP, machine))

    def _change(self, change: _Change, events: list[Event]) -> None:
        pool = self._pools[change.pool]
        pool.floor = change.floor
        if pool.free >= 0:
            return
        for machine in self._chosen(pool, -pool.free):
            del pool.machines[machine.id]
            machine.lost_at = change.lost_at
            self._plan(change.lost_at, LOST, machine)
            if self.settings.warning_s > 0:
                machine.warned_at = change.at
                self._warned[machine.id] = machine
                if self._losses.random() >= self.settings.warning_loss:
                    events.append(Event(change.at, WARNED, machine))

    def _chosen(self, pool: _Pool, count: int) -> list[Machine]:
        """So many of a pool's machines, at random: first of those that EC2 recommended to leave."""
        advised = [m for m in pool.machines.values() if m.is_advised]
        others = [m for m in pool.machines.values() if not m.is_advised]
        first = self._takes.sample(advised, min(count, len(advised)))
        return first + self._takes.sample(others, count - len(first))

    def _advise(self, made: Recommendation, at: float, events: list[Event]) -> None:
        pool = self._pools[made.pool]
        for machine in self._chosen(pool, max(0, len(pool.machines) - made.held)):
            # EC2 may say it again; one more event changes nothing.
            if not machine.is_advised:
                machine.is_advised = True
                events.append(Event(at, ADVISED, machine))

    def _reprice(self, new: _NewPrice) -> None:
        pool = self._pools[new.pool]
        self.ledger.to(self.now)
        self.ledger.paid(PurchaseOption.SPOT, -pool.paid, pool.price)
        pool.price = new.price
        self.ledger.paid(PurchaseOption.SPOT, pool.paid, pool.price)

    def _paid(self, machine: Machine, change: int) -> None:
        pool = self._pools[machine.offering.pool]
        if machine.is_spot:
            pool.paid += change
        self.ledger.paid(machine.offering.purchase_option, change, pool.price)

    def _end(self, machine: Machine) -> None:
        ledger = self.ledger
        ledger.to(self.now)
        machine.ended_at = self.now
        del self._alive[machine.id]
        self._warned.pop(machine.id, None)
        self._pools[machine.offering.pool].machines.pop(machine.id, None)
        self._paid(machine, -1)
        if machine.is_up:
            ledger.in_rotation -= machine.out_at == NEVER
            ledger.ready -= machine.drained_at == NEVER
        # Whoever terminates a warned one has lost it all the same.
        if machine.lost_at != NEVER and ledger.is_measuring:
            ledger.losses += 1

    def _plan(self, at: float, kind: Kind, machine: Machine) -> None:
        if at != NEVER:
            heappush(self._due, (at, next(self._plans), kind, machine))


def floors(trace: PoolTrace, settings: ReplaySettings) -> Iterator[tuple[float, int, float]]:
    """(from when on, the least that the pool holds within the next `warning_s`, when that comes true).

    Only changes, in order; time and memory grow with the number of changes in the trace.
    """
    enters = [(max(0.0, at - settings.warning_s), at, held) for at, held in trace.capacity]
    leaves = [at for at, _ in trace.capacity[1:]]
    window: deque[tuple[float, int, float]] = deque()  # (beginning, held, end), what is held rising
    position, floor = 0, None
    for time in sorted({*(enter for enter, *_ in enters), *leaves}):
        while position < len(enters) and enters[position][0] <= time:
            _, at, held = enters[position]
            until = leaves[position] if position < len(leaves) else NEVER
            while window and window[-1][1] >= held:
                window.pop()
            window.append((at, held, until))
            position += 1
        while window[0][2] <= time:
            window.popleft()
        at, held, _ = window[0]
        if held != floor:
            floor = held
            yield time, held, max(at, time)
