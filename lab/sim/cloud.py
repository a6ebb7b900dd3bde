"""The simulated EC2 and load balancer: their true state, whatever they answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from random import Random

from lab.market import Candidate, Market, MarketRequest, PoolState, Strategy
from lab.sim.gate import at
from lab.sim.instances import SimInstance
from lab.sim.offers import ON_DEMAND_PRICES, Listing, SimOffers
from lab.sim.scheduler import Scheduler
from lab.sim.starts import BUCKET, SPARE_S, LateStarts
from lab.sim.wrong_answers import WrongAnswers
from lab.world import targets
from lab.world.events import WARNING_S, state_change, warning
from lab.world.instances import NEVER, Change, Since, course
from lab.world.targets import CHECK_S, Target, TargetGroup
from spotrelay.plane.core import slots
from spotrelay.plane.core.instances import InstanceState, Refusal, RefusalKind, TargetState
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.ports import Denied, LaunchRequest, LaunchResult
from spotrelay.plane.core.spec import LaunchTemplate, ServiceSpec

BOOT_S = (3.0, 25.0)
LOAD_S = (1.0, 20.0)
"""From running to answering health checks. Real models take longer, but nothing else happens meanwhile."""

INITIAL_S = 30.0
"""How long a load balancer takes to call a new target unhealthy."""

VISIBLE_S = 8.0
"""DescribeInstances may not show a new instance for this long."""

SHUTTING_DOWN_S = (2.0, 30.0)

NO_IMAGE = "InvalidAMIID.NotFound"

RESUME_S = (10.0, 35.0)
"""From the start of a stopped instance to running. Its server answers after `LOAD_S` more."""

RESUME_SICK_S = (20.0, 240.0)
"""How long a resumed instance doesn't answer, if it comes back sick."""

UNREGISTERED_S = 300.0
"""When ELB drops a terminated instance's target. It documents no time; long, so that we are first."""

TEMPLATE = "lt-1"
"""The launch template of every simulated service."""

ON_DEMAND_TEMPLATE = LaunchTemplate("lt-2", "1")
"""What targets their capacity reservations."""

STRATEGIES = {
    (PurchaseOption.SPOT, False): Strategy.PRICE_CAPACITY_OPTIMIZED,
    (PurchaseOption.SPOT, True): Strategy.CAPACITY_OPTIMIZED_PRIORITIZED,
    (PurchaseOption.ON_DEMAND, False): Strategy.LOWEST_PRICE,
    (PurchaseOption.ON_DEMAND, True): Strategy.PRIORITIZED,
}
"""By purchase option and whether types are ordered, as `aws.fleet` asks for it."""


Emit = Callable[[str, str | None], None]
"""Takes an event's text, and the instance of a warning."""


@dataclass(slots=True)
class SimCloud:
    """The state of EC2 and the load balancer."""

    scheduler: Scheduler
    random: Random
    market: Market
    emit: Emit = lambda _body, _warned: None
    """Sends events; the queue decides whether they arrive."""
    instances: dict[str, SimInstance] = field(default_factory=dict)
    """By ID; those that host several replicas by slot."""
    groups: dict[str, TargetGroup] = field(default_factory=dict)
    """By service; the group goes with the service's stack."""
    broken_boots: int = 0
    """So many of the next replicas never become ready."""
    answers: dict[str, tuple[LaunchRequest, LaunchResult]] = field(default_factory=dict)
    changed_at: float = 0.0
    """When something was last changed through the API."""
    wrong_answers: WrongAnswers = field(default_factory=WrongAnswers)
    """Which answers are wrong."""
    unknown: WrongAnswers = field(default_factory=WrongAnswers)
    """Whose health the load balancer doesn't know."""
    offers: SimOffers = field(default_factory=lambda: SimOffers(Random(0), Listing()))  # noqa: S311 - to be repeated
    """Prices, and what is refused for another reason than capacity."""
    ports: dict[tuple[str, int], int] = field(default_factory=dict)
    """By service and version, what its servers listen on."""
    bad_versions: set[tuple[str, int]] = field(default_factory=set)
    """By service: versions whose instances never become ready."""
    ill_versions: dict[tuple[str, int], float] = field(default_factory=dict)
    """By service: versions whose servers answer for so long, and then no more."""
    refused_versions: set[tuple[str, int]] = field(default_factory=set)
    """By service: versions that EC2 doesn't launch."""
    bad: set[CapacityPool] = field(default_factory=set)
    """Pools whose instances never become ready."""
    end_in_rotation: Callable[[SimInstance], None] = lambda _instance: None
    """Called when EC2 ends a warned instance that is in rotation."""
    resumes: Random = field(default_factory=lambda: Random(0))  # noqa: S311 - to be repeated
    """Draws what becomes of resumed instances: the rest of a run doesn't depend on it."""
    sick_resumes: float = 0.0
    """The share of resumed instances that don't answer for a while."""
    starts: LateStarts | None = None
    """What lets starts down; None: nothing does."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def launch(self, request: LaunchRequest) -> LaunchResult:
        """CreateFleet, instant."""
        known = self.answers.get(request.launch_id)
        if known:
            return known[1]
        self.changed_at = self.scheduler.now
        spec = request.spec
        if (spec.service, spec.version) in self.refused_versions:
            answer = _refused(request)
            self.answers[request.launch_id] = request, answer
            return answer
        ranks = {t: float(rank) for rank, t in enumerate(spec.instance_types)}
        refused = self.offers.refusals(request)
        blocked = {r.offering.pool if r.offering else None for r in refused}
        pools = [] if None in blocked else [pool for pool in request.pools if pool not in blocked]
        market_request = MarketRequest(
            tuple(
                Candidate(
                    pool,
                    ranks.get(pool.instance_type, len(ranks)),
                    weight=spec.hosted_by(pool.instance_type),
                )
                for pool in pools
            ),
            request.count,
            request.purchase_option,
            STRATEGIES[request.purchase_option, spec.ordered],
        )
        allocation = self.market.launch(market_request, at(self.scheduler.now))
        instances = [
            self._begin(spec.service, Offering(pools[grant.index], request.purchase_option), request)
            for grant in allocation.grants
            for _ in range(grant.count)
        ]
        # For Spot, EC2 names refusals only if the request wasn't fulfilled.
        granted = sum(spec.hosted_by(pools[g.index].instance_type) * g.count for g in allocation.grants)
        has_refusals = granted < request.count or request.purchase_option is PurchaseOption.ON_DEMAND
        refusals = (*refused,) if has_refusals else ()
        refusals += tuple(
            Refusal(
                RefusalKind.CAPACITY,
                refusal.code,
                "no capacity",
                Offering(pools[refusal.index], request.purchase_option),
            )
            for refusal in allocation.refusals
        )
        answer = LaunchResult(tuple(i.described(self.scheduler.now) for i in instances), refusals)
        self.answers[request.launch_id] = request, answer
        return answer

    def add(
        self,
        service: str | None,
        offering: Offering,
        *,
        age_s: float = 0,
        is_stopped: bool = False,
        sharing: ServiceSpec | None = None,
    ) -> SimInstance:
        """An instance that has been running, or was stopped, for a while when the simulation begins.

        `sharing` says how many replicas it hosts, if it is more than one.
        """
        option, state = offering.purchase_option, self.market.state(offering.pool)
        if not is_stopped:
            self.market.set_capacity(offering, state.in_use(option) + 1)
            self._takes_room(offering)
            self.market.set_capacity(offering, state.capacity(option))
        began = self.scheduler.now - age_s
        instance = SimInstance(
            id=f"i-{next(self._numbers):017x}",
            service=service,
            offering=offering,
            launched_at=began,
            visible_at=began,
            ready_at=began,
            states=[(began, InstanceState.STOPPED if is_stopped else InstanceState.RUNNING)],
            launch_id=None if service is None else "before",
            template=None if service is None else TEMPLATE,
            launched_for=service,
        )
        self._enter(instance, sharing)
        return instance

    def slots_of(self, instance: SimInstance) -> list[SimInstance]:
        """All slots of its instance; itself, if that hosts one replica."""
        return [self.instances[id_] for id_ in instance.slots] or [instance]

    def slots_at(self, instance_id: str) -> list[SimInstance]:
        """All slots of an instance."""
        instance = self.instances.get(slots.host(instance_id))
        return self.slots_of(instance) if instance else []

    def of(self, service: str) -> Iterator[SimInstance]:
        """The instances with the service's tag; those that host several replicas with each slot."""
        return (i for i in self.instances.values() if i.service == service)

    def warn(self, instance: SimInstance, action: str = "terminate") -> None:
        """EC2 warns the instance, and ends it two minutes later."""
        now = self.scheduler.now
        if instance.warned_at <= now or not instance.is_alive(now):
            return
        for slot in self.slots_of(instance):
            slot.warned_at = now
        self.emit(warning(instance.host, at(now), action), instance.host)
        change = Change.TERMINATE if action == "terminate" else Change.STOP

        def take() -> None:
            if instance.warned_at != now:
                return  # EC2 has spared it
            for slot in filter(self.serves, self.slots_of(instance)):
                self.end_in_rotation(slot)
            self.end(instance, change, why="Server.SpotInstanceTermination: Spot instance termination")

        # EC2 hibernates an instance with its warning, not two minutes later.
        self.scheduler.at(now + (0 if action == "hibernate" else WARNING_S), take)

    def end(
        self,
        instance: SimInstance,
        change: Change = Change.TERMINATE,
        *,
        why: str = "Client.UserInitiatedShutdown: User initiated shutdown",
    ) -> None:
        """The instance goes, for whatever reason."""
        now = self.scheduler.now
        state = instance.state(now)
        is_spot = instance.offering.purchase_option is PurchaseOption.SPOT
        # What EC2 itself is stopping can be ended once it is stopped.
        if not instance.may(change, now) or (is_spot and state is InstanceState.STOPPING):
            return
        gone_at = now + self.random.uniform(*SHUTTING_DOWN_S)
        for slot in self.slots_of(instance):
            slot.end = why
        self.changed_at = now
        self._send_events(instance, instance.enter(change, now, gone_at))
        if change is Change.TERMINATE:
            self.scheduler.at(gone_at + UNREGISTERED_S, lambda: self._unregister(instance))
        if state.is_alive:
            self.market.release(instance.offering)

    def start(self, instance: SimInstance) -> Refusal | None:
        """StartInstances, of one; None if it starts, or runs already."""
        now, offering = self.scheduler.now, instance.offering
        if not instance.may(Change.START, now):
            return instance.refusal_to_start(now)
        if not self._takes_room(offering):
            return Refusal(RefusalKind.CAPACITY, "InsufficientInstanceCapacity", "no capacity", offering)
        self.changed_at = now
        running_at = now + self.resumes.uniform(*RESUME_S)
        if instance.ready_at < NEVER:
            instance.ready_at = running_at + self.resumes.uniform(*LOAD_S)
        if self.resumes.random() < self.sick_resumes:
            instance.sick = (running_at, running_at + self.resumes.uniform(*RESUME_SICK_S))
        self._send_events(instance, instance.enter(Change.START, now, running_at))
        return None

    def _takes_room(self, offering: Offering) -> bool:
        """Take the place of one more instance, if there is one."""
        one = Candidate(offering.pool)
        request = MarketRequest((one,), 1, offering.purchase_option, Strategy.LOWEST_PRICE)
        return self.market.launch(request, at(self.scheduler.now)).granted > 0

    def stop(self, instance: SimInstance) -> str | None:
        """StopInstances, of one; AWS's words if it refuses to."""
        if instance.state(self.scheduler.now) is InstanceState.PENDING:
            return "IncorrectInstanceState: it is pending"
        self.end(instance, Change.STOP)
        return None

    def _unregister(self, instance: SimInstance) -> None:
        """A load balancer drops the targets of terminated instances by itself."""
        for group in self.groups.values():
            for slot in self.slots_of(instance):
                group.pop(slot.id, None)

    def register(
        self, spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int], by: object = None
    ) -> frozenset[str]:
        """RegisterTargets, of running instances; returns the others."""
        now = self.scheduler.now
        group = self.groups.get(spec.service)
        if group is None:
            return frozenset(instance_ids)
        running = [
            i
            for i in instance_ids
            if i in self.instances and self.instances[i].state(now) is InstanceState.RUNNING
        ]
        for instance_id in running:
            port = slots.port(instance_id) or ports.get(instance_id, spec.port)
            if targets.register(group, instance_id, now, by=by, port=port):
                self.changed_at = now
        return frozenset(instance_ids) - frozenset(running)

    def deregister(self, spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int]) -> None:
        """DeregisterTargets; what isn't registered, at this port, is fine."""
        now = self.scheduler.now
        group = self.groups.get(spec.service, {})
        for instance_id in instance_ids:
            port = slots.port(instance_id) or ports.get(instance_id, spec.port)
            if targets.deregister(group, instance_id, now, spec.deregistration_delay_s, port):
                self.changed_at = now

    def in_rotation(self, service: str, instance_id: str) -> Target | None:
        """The target, if it gets new requests."""
        target = self.groups.get(service, {}).get(instance_id)
        return target if target is not None and target.is_in_rotation(self.scheduler.now) else None

    def serves(self, instance: SimInstance) -> bool:
        """Whether it is in rotation and answers."""
        is_in = self.in_rotation(instance.launched_for or "", instance.id) is not None
        return is_in and instance.serves(self.scheduler.now)

    def answers_checks(self, service: str, instance_id: str, since: float) -> bool:
        """Whether it serves, and the load balancer has known that since then."""
        instance, target = self.instances[instance_id], self.in_rotation(service, instance_id)
        is_known = target is not None and self._target_state(instance, target, since) is TargetState.HEALTHY
        return is_known and self.serves(instance)

    def health(self, service: str, time: float) -> dict[str, TargetState]:
        """DescribeTargetHealth, as of a time."""
        found = {}
        for instance_id, target in self.groups.get(service, {}).items():
            if self.wrong_answers.about_health and not self.wrong_answers.shows(
                slots.host(instance_id), self.scheduler.now
            ):
                continue
            if target.is_shown(time):
                state = self._target_state(self.instances[instance_id], target, time)
                if state.is_in_rotation and not self.unknown.shows(instance_id, self.scheduler.now):
                    state = TargetState.UNAVAILABLE
                found[instance_id] = state
        return found

    def _target_state(self, instance: SimInstance, target: Target, time: float) -> TargetState:
        is_wrong = target.port not in (None, self.port_of(instance))
        if is_wrong or instance.broken_at <= time or instance.is_sick(time):
            return target.state(time, instance.state(time), NEVER, initial_s=0.0)
        found_at = max(target.registered_at, instance.ready_at) + CHECK_S
        return target.state(time, instance.state(time), found_at, INITIAL_S)

    def port_of(self, instance: SimInstance) -> int | None:
        """What its server listens on; None for one that nobody deployed."""
        return slots.port(instance.id) or self.ports.get((instance.launched_for or "", instance.version or 1))

    def _begin(self, service: str, offering: Offering, request: LaunchRequest) -> SimInstance:
        now, random = self.scheduler.now, self.random
        running_at = now + random.uniform(*BOOT_S)
        is_bad = offering.pool in self.bad or (service, request.spec.version) in self.bad_versions
        instance = SimInstance(
            id=f"i-{next(self._numbers):017x}",
            service=service,
            offering=offering,
            launched_at=now,
            visible_at=now + random.uniform(0, VISIBLE_S),
            ready_at=self._ready_at(running_at, is_bad=is_bad),
            states=course(Change.LAUNCH, now, running_at),
            launch_id=request.launch_id,
            template=request.spec.template(offering.purchase_option).id,
            highest_id=request.highest_id,
            launched_for=service,
            version=request.spec.version,
        )
        self._enter(instance, request.spec)
        for slot in self.slots_of(instance)[1:]:
            slot.ready_at = self._ready_at(running_at, is_bad=is_bad)
        if self.starts is not None:
            self._let_down(instance, request.spec, running_at, self.starts)
        ill_after_s = self.ill_versions.get((service, request.spec.version), NEVER)
        for slot in self.slots_of(instance):
            slot.broken_at = slot.ready_at + ill_after_s
        self._send_events(instance, instance.states[1:])
        return instance

    def _let_down(
        self, instance: SimInstance, spec: ServiceSpec, running_at: float, starts: LateStarts
    ) -> None:
        """Its start takes longer if its pack, its cache or all its peers fail it."""
        may_take_s = spec.initial_delay_s - LOAD_S[1] - SPARE_S
        zone = instance.offering.pool.zone
        serving = [i for i in self.of(spec.service) if i.offering.pool.zone == zone and self.serves(i)]
        peers, later = starts.honest(serving), starts.later(instance)

        def delay(share: float) -> None:
            for slot in self.slots_of(instance):
                slot.ready_at += share * may_take_s

        def fetch() -> None:
            # Whoever was named may be gone by now: all of it then comes from the bucket.
            if not any(map(self.serves, peers or ())):
                delay(BUCKET)

        delay(later)
        if peers is not None:
            self.scheduler.at(running_at, fetch)

    def _ready_at(self, running_at: float, *, is_bad: bool) -> float:
        """When a server of a new instance answers."""
        is_broken = self.broken_boots > 0
        self.broken_boots -= is_broken
        return NEVER if is_broken or is_bad else running_at + self.random.uniform(*LOAD_S)

    def _enter(self, instance: SimInstance, spec: ServiceSpec | None) -> None:
        """The instance is there, with as many slots as the document says."""
        count = spec.hosted_by(instance.offering.pool.instance_type) if spec else 1
        if spec and count > 1:
            instance.slots = tuple(slots.slot(instance.id, number, spec.port) for number in range(count))
        for id_ in instance.slots or (instance.id,):
            self.instances[id_] = instance if id_ == instance.id else replace(instance, id=id_)

    def _send_events(self, instance: SimInstance, states: Iterable[Since]) -> None:
        """Send the event of each state at its time, if the instance enters it."""

        def send(state: InstanceState) -> None:
            if instance.state(self.scheduler.now) is state:
                self.emit(state_change(instance.host, at(self.scheduler.now), state), None)

        for when, state in states:
            self.scheduler.at(when, partial(send, state))


def market(capacity: Mapping[Offering, int], seed: int) -> Market:
    """A market with these pools."""
    return Market(
        (
            PoolState(
                pool,
                ON_DEMAND_PRICES[pool.instance_type],
                capacity[Offering(pool, PurchaseOption.SPOT)],
                capacity[Offering(pool, PurchaseOption.ON_DEMAND)],
            )
            for pool in dict.fromkeys(offering.pool for offering in capacity)
        ),
        seed=seed,
    )


def _refused(request: LaunchRequest) -> LaunchResult:
    """How EC2 refuses what a version asks: the request, the fleet as a whole, or each of its pools.

    Raises:
        Denied: the request.
    """
    how, words = request.spec.version % 3, f"{NO_IMAGE}: the image does not exist"
    if how == 0:
        raise Denied(words, NO_IMAGE)
    pools = [Offering(pool, request.purchase_option) for pool in request.pools]
    about = pools if how == 1 else [None]
    return LaunchResult(refusals=tuple(Refusal(RefusalKind.REQUEST, NO_IMAGE, words, each) for each in about))
