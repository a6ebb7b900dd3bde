"""One simulated world: the production code, its ports, and when it is at rest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from random import Random

from lab.sim import cloud as clouds
from lab.sim.alarms import SimAlarms
from lab.sim.cloud import SimCloud
from lab.sim.faults import FaultPlan
from lab.sim.gate import CallGate, Invocation, SimClock, at, time_of
from lab.sim.instances import SimInstance
from lab.sim.load import WINDOW_S, SimLoads
from lab.sim.odd_messages import Fate, Oddity
from lab.sim.offers import SimOffers
from lab.sim.ports import (
    SimDeadLetters,
    SimFleet,
    SimNotices,
    SimProber,
    SimRouter,
    SimServices,
    SimTelemetry,
    SimTicker,
)
from lab.sim.queues import LEAVES, SIGNALS, TICKS, Handler, Message, QueueSettings, SimQueue
from lab.sim.rules import Rule, limits, word
from lab.sim.rules.checker import Checker
from lab.sim.rules.cooldowns import CooldownChecker
from lab.sim.rules.desired import CLOCKS_S, in_effect, rolled_back
from lab.sim.rules.history import MAX_DOCUMENT_AGE_S
from lab.sim.rules.incidents import IncidentChecker
from lab.sim.rules.invocations import InvocationChecker
from lab.sim.rules.launches import LaunchChecker
from lab.sim.rules.load import LoadChecker
from lab.sim.rules.messages import MessageChecker
from lab.sim.rules.metrics import MetricChecker
from lab.sim.rules.moves import MoveChecker
from lab.sim.rules.standbys import StandbyChecker
from lab.sim.scenario import Scenario, with_alarms
from lab.sim.scheduler import Scheduler
from lab.sim.starts import LateStarts, Starts
from lab.sim.store import SimStore
from lab.sim.timeline import Timeline, describe
from lab.world.instances import NEVER
from lab.world.targets import Target
from spotrelay.plane.control.controller import Controller
from spotrelay.plane.control.intake import Intake
from spotrelay.plane.core.instances import InstanceState
from spotrelay.plane.core.pools import OPTIONS, Offering, PurchaseOption
from spotrelay.plane.core.ports import PortError, Ports
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.memory import MemoryStore
from spotrelay.plane.placement import surveying

SCHEDULE_S = 60.0
"""EventBridge's schedule of ticks."""

SCHEDULE_ARRIVES = 0.9
"""How often its event arrives while faults last."""

REMOVAL_LOST = 0.3
"""How often the deletion event of a service's parameter is lost."""

SCHEDULE_EVENT = '{"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}'

FORCED = 0.3
"""The share of removed stacks whose load balancer goes while replicas still run."""

WARM_S = 1000.0
"""How long ago the replicas of a warm start became ready: longer than any duration of the policy."""

Build = Callable[[Ports, SimDeadLetters], Intake]


def production(ports: Ports, dead_letters: SimDeadLetters) -> Intake:
    """The production code, as the functions run it."""
    return Intake(Controller(ports), dead_letters, ports.telemetry)


class SimWorld:
    """The world of one run."""

    def __init__(
        self, scenario: Scenario, timeline: Timeline | None = None, build: Build = production
    ) -> None:
        self.scenario = scenario
        self.timeline = timeline
        self.random = Random(~scenario.seed)  # noqa: S311 - to be repeated, not to be unpredictable
        self.scheduler = Scheduler()
        self.plan = FaultPlan(self.random, scenario.target, scenario.faults_s)
        self.gate = CallGate(self.scheduler, self.plan, self.random, timeline)
        market = clouds.market(scenario.capacity, scenario.seed)
        self.cloud = SimCloud(self.scheduler, self.random, market, self.emit)
        own = Random(f"{scenario.seed}-survey")  # noqa: S311 - to be repeated
        self.cloud.offers = SimOffers(own, scenario.listing)
        self.cloud.resumes = Random(f"{scenario.seed}-resumes")  # noqa: S311 - to be repeated
        self.cloud.sick_resumes = scenario.standbys.sick
        if scenario.starts != Starts():
            own = Random(f"{scenario.seed}-late")  # noqa: S311 - to be repeated
            self.cloud.starts = LateStarts(scenario.starts, own, scenario.faults_s)
        self.checker = Checker(self.scheduler, self.cloud)
        self.message_checker = MessageChecker(self.checker, MetricChecker(self.checker, self.cloud))
        self.memory = MemoryStore()
        self.checker.standby_checker = StandbyChecker(self.checker, self.cloud, lambda: self.memory)
        self.services = SimServices(self.gate, self.scheduler, self.random)
        self.checker.documents = self.services.since
        self.checker.was_removed = self.was_removed
        self.checker.note_in_effect = self.note_in_effect
        self.checker.quiet_since = scenario.faults_s
        learning = CooldownChecker(self.scheduler, self.checker.report, self._is_intact, self.memory.recall)
        self.checker.launch_checker = LaunchChecker(
            self.scheduler, self.checker.report, learning, self.services.since
        )
        self.checker.move_checker = MoveChecker(self.checker)
        self.invocation_checker = InvocationChecker(self.checker, self.memory)
        self.cloud.end_in_rotation = self.checker.end_in_rotation
        self.signals = self._queue(SIGNALS, self._on_signals)
        self.ticks = self._queue(TICKS, self._on_tick)
        self.leaves = self._queue(LEAVES, self._on_tick)
        self.dead_letters = SimDeadLetters(self.gate)
        self.ticker = SimTicker(self.gate, self.checker, self.ticks, self.leaves, scenario.tick_lag_s)
        self.loads = SimLoads(self.gate, self.scheduler, scenario.loads, scenario.faults_s)
        self.load_checker = LoadChecker(self.checker, self.loads)
        self.notices = SimNotices(self.gate, self.scheduler)
        self.alarms = SimAlarms(self.scheduler, scenario.seed, scenario.faults_s, timeline)
        self.checker.incident_checker = IncidentChecker(self.checker, self.alarms)
        self.store = SimStore(self.gate, self.checker, self.scheduler, self.random, self.memory, self.alarms)
        numbers = count(1)
        self.ports = Ports(
            self.store,
            SimFleet(self.gate, self.checker, self.scheduler, self.random, self.cloud),
            SimRouter(self.gate, self.checker, self.scheduler, self.random, self.cloud, self.memory),
            SimProber(self.gate, self.scheduler, self.cloud, self.loads, self.scenario.is_told),
            self.loads,
            self.ticker,
            self.notices,
            self.services,
            SimTelemetry(self.checker, self.gate),
            SimClock(self.scheduler),
            lambda: f"id-{next(numbers):06d}",
        )
        self.intake = build(self.ports, self.dead_letters)
        self.odd = Random(f"{scenario.seed} messages")  # noqa: S311 - see `random`
        """Draws odd messages: a generator of its own, so that new kinds change nothing else."""
        self.malformed: Counter[str] = Counter()
        """Malformed messages that were sent."""
        self.found: list[SimInstance] = []
        """What had lost its tag and has it again, while an operator thinks."""
        self.is_at_rest = False
        self._ends_noted: set[tuple[str, float]] = set()
        self._last_tick_at = NEVER

    @property
    def is_faulty(self) -> bool:
        """Whether faults last."""
        return self.scheduler.now < self.scenario.faults_s

    def say(self, what: str, details: object = None) -> None:
        """Add a line about the world to the timeline; the story has it without details."""
        if self.timeline is not None:
            self.timeline.add(self.scheduler.now, "world", None, what, details)
            self.timeline.tell(self.scheduler.now, what.removeprefix("** "))

    # The functions.

    def _queue(self, settings: QueueSettings, handler: Handler) -> SimQueue:
        queue = SimQueue(
            settings,
            self.scheduler,
            self.random,
            handler,
            self._ended,
            self.checker.note_crash,
            self.timeline,
        )
        queue.duplicates = self.scenario.duplicated
        return queue

    def _on_signals(self, invocation: Invocation, messages: Mapping[str, str]) -> list[str]:
        fates = self.message_checker.fates
        invocation.bodies = tuple(b for b in messages.values() if fates.get(b, Fate.HANDLED) is Fate.HANDLED)
        try:
            again = self.intake.signals(messages)
        except PortError as error:
            self.checker.report(
                Rule.REDELIVERED_ON_FAILURE, f"{invocation.name} fails with all its messages: {error!r}"
            )
            raise
        self.message_checker.signals(invocation, messages, again)
        return again

    def _on_tick(self, invocation: Invocation, messages: Mapping[str, str]) -> list[str]:
        for body in messages.values():
            word.note(invocation, body)
            try:
                self.intake.tick(body)
            except PortError as error:
                self.message_checker.tick(invocation, body, error)
                raise
            self.message_checker.tick(invocation, body, None)
        return []

    def _ended(self, invocation: Invocation, done: Sequence[Message], came_to_end: bool) -> None:
        for message in done:
            if message.warned is not None:
                for slot in self.cloud.slots_at(message.warned):
                    self.checker.after_acknowledge(invocation, slot.id, self.memory)
        if came_to_end and invocation.observed_at is not None:
            self.checker.after_tick(invocation)
        self.checker.launch_checker.after_invocation(
            invocation, is_undisturbed=came_to_end and not invocation.disturbances
        )
        self.invocation_checker.check(invocation, came_to_end=came_to_end)
        self.load_checker.check(invocation)
        self.alarms.hear(invocation)
        self.checker.incident_checker.check(invocation, came_to_end=came_to_end)

    # Messages.

    def emit(self, body: str, warned: str | None) -> None:
        """Send an event of EC2's: it may arrive late, twice, or never."""
        self._note_event(body, warned)
        scenario, random = self.scenario, self.random
        if self.is_faulty and random.random() < (scenario.lost if warned else scenario.lost_states):
            self.say(f"an event is lost: {json.loads(body).get('detail-type', 'a message')}", body)
            return
        delay_s = random.random() ** 3 * scenario.delay_s if self.is_faulty else random.random()
        self.signals.send(body, delay_s, warned)

    def _note_event(self, body: str, warned: str | None) -> None:
        """Record an event of EC2's, which names an instance and is about all of its slots."""
        instance_id = warned or json.loads(body)["detail"]["instance-id"]
        for slot in self.cloud.slots_at(instance_id):
            self.invocation_checker.note_event(body, slot.id, is_warning=warned is not None)

    def send_odd(self, oddity: Oddity) -> None:
        """Send an odd message."""
        self.message_checker.fates[oddity.body] = oddity.fate
        self.malformed[oddity.body] += oddity.fate is Fate.SET_ASIDE
        (self.signals if oddity.is_event else self.ticks).send_once(oddity.body)

    def schedule(self) -> None:
        """Send the schedule's event now, and every minute from now on."""
        pause_s = 0.0
        if not self.is_faulty:
            services = [s.service for s in self.scenario.specs]
            self.checker.check_progress(services, self.memory)
            self.checker.launch_checker.check_progress(services, self.memory, self.checker.quiet_since)
            if self._is_at_rest():
                if self.checker.incident_checker.is_settled():
                    self.is_at_rest = True
                    self.scheduler.stop()
                    return
                pause_s = self._pause_s()
            self._last_tick_at = self.scheduler.now
        if not self.is_faulty or self.random.random() < SCHEDULE_ARRIVES:
            self.ticks.send(SCHEDULE_EVENT)
        self.scheduler.at(self.scheduler.now + SCHEDULE_S + pause_s, self.schedule)

    def _pause_s(self) -> float:
        """For how long no tick comes, though alarms have still to hear of one: everything else is at rest."""
        rows = [self.memory.load(spec.service) for spec in self.scenario.specs]
        ends = [request.until for one in rows for request in one.requests.values()]
        ends += [one.standby_backoff.until for one in rows]
        if any(end is not None and time_of(end) > self.scheduler.now for end in ends):
            return 0.0  # a number or a standby's back-off that ends meanwhile is no rest
        pause_s = self.alarms.pause_s()
        if pause_s:
            self.say("the schedule stops for an hour")
        return pause_s

    def _is_at_rest(self) -> bool:
        """Whether nothing is in flight, and a whole minute with a tick changed nothing."""
        return (
            self._last_tick_at > max(self.checker.changed_at, self.cloud.changed_at)
            and self._last_tick_at < self.scheduler.now
            and self.signals.is_empty
            and self.ticks.is_empty
            and self.leaves.is_empty
            and not any(self._has_pending_change(i) for i in self.cloud.instances.values())
            and not any(self._is_waiting(spec.service) for spec in self.scenario.specs)
        )

    def _is_waiting(self, service: str) -> bool:
        """Whether a replica is to end because EC2 spared its instance, a fallback is to be retried, or a
        restored table has a lease that lets no tick in."""
        rows = self.memory.load(service)
        lease = self.memory.damage(service).lease
        is_restored = lease is not None and service in self.checker.damaged
        until = [rows.backoff.fallback_until, lease[1] if lease and is_restored else None]
        ends = (r.until for r in rows.requests.values() if r.until)
        until += [end for end in ends if time_of(end) <= self.scheduler.now + CLOCKS_S]
        # The average of the last minute moves for that long after the last change. What replicas count is
        # asked for in the minute after, and followed in the next.
        scaling = self.scenario.loads.scaling
        windows = 4 if scaling and scaling.ongoing else 2
        is_moving = self.scheduler.now < self.scenario.faults_s + windows * WINDOW_S
        is_scaling = scaling is not None and is_moving
        # Those that serve tell in the next minute what nobody knows yet.
        is_scaling = is_scaling or any(
            r.rising_since or r.falling_since or r.unknown_since for r in rows.requests.values()
        )
        is_removed = bool(rows.replicas) and self.services.valid(service, self.scheduler.now) is None
        # A standby that is refused waits for its pools; its service serves meanwhile.
        is_draining = any(
            row.state is ReplicaState.DRAINING or (row.stands_by and row.state is ReplicaState.REQUESTED)
            for row in rows.replicas.values()
        )
        lately = at(self.scheduler.now - 2 * SCHEDULE_S)
        return (
            is_draining
            or is_removed
            or is_scaling
            or any(moment is not None and moment > lately for moment in until)
        )

    def _has_pending_change(self, instance: SimInstance) -> bool:
        """Whether it is still to end, by EC2 or by us as it has no row; or no tick has seen it stopped."""
        now = self.scheduler.now
        since, state = instance.states[-1]
        if state is InstanceState.STOPPED and since > self._last_tick_at:
            return True
        if instance.service is None or not instance.is_alive(now):
            return False
        is_young = now - instance.launched_at < limits.ORPHAN_AFTER_S + 2 * SCHEDULE_S
        rows = self.memory.load(instance.service).replicas.values()
        owned = {row.instance_id for row in rows}
        has_no_row = not any(slot.id in owned for slot in self.cloud.slots_of(instance))
        return instance.is_being_taken(now) or (is_young and has_no_row)

    def _is_intact(self, service: str, since: float) -> bool:
        """Whether the service's document existed, and its rows weren't damaged, since then."""
        now = self.scheduler.now
        was_removed = self.was_removed(service, since - MAX_DOCUMENT_AGE_S, now)
        return not was_removed and service not in self.checker.damaged

    # The world.

    def was_removed(self, service: str, since: float, until: float) -> bool:
        """Whether there was no document at some time in between, or nobody could tell it."""
        is_unknown = any(since <= at <= until for at in self.store.unknown_at.get(service, ()))
        return is_unknown or self.services.was_removed(service, since, until)

    def deploy(self, spec: ServiceSpec | None, service: str = "") -> None:
        """Deploy the service's document, or remove its stack."""
        spec = spec and with_alarms(spec)
        name = spec.service if spec else service
        self.say(f"{name} is {'deployed: ' + describe(spec) if spec else 'removed'}")
        self.services.documents.setdefault(name, []).append((self.scheduler.now, spec))
        self.note_in_effect(name)
        if spec is None:
            # The stack keeps its load balancer until the replicas have ended, unless its removal is forced.
            if Random(f"{self.scenario.seed}-forced").random() < FORCED:  # noqa: S311 - to be repeated
                self.cloud.groups.pop(name, None)
        else:
            self.cloud.groups.setdefault(name, {})
            self.cloud.ports[name, spec.version] = spec.port
        operation = "Update" if spec else "Delete"
        detail = f'{{"name": "/spotrelay/services/{name}", "operation": "{operation}"}}'
        if spec is None and self.odd.random() < REMOVAL_LOST:
            self.say("the event of its removal is lost")
            return
        self.ticks.send(f'{{"source": "aws.ssm", "detail": {detail}}}')

    def note_in_effect(self, service: str) -> None:
        """Record the document that is in effect, by what is deployed and by what the table has."""
        now, rows = self.scheduler.now, self.memory.load(service)
        requests = rows.requests
        deployed = rolled_back(self.services.valid(service, now), rows)
        known = self.services.in_effect.setdefault(service, [])
        # For a function whose clock is ahead, a request that is about to end is over.
        for moment in (now + 2 * CLOCKS_S, now):
            spec = in_effect(deployed, requests, moment)
            if not known or known[-1][1] != spec:
                known.append((now, spec))
                self.checker.changed_at = now
        for ends in (time_of(r.until) for r in requests.values() if r.until):
            for when in (ends - CLOCKS_S, ends + CLOCKS_S):
                if when > now and (service, when) not in self._ends_noted:
                    self._ends_noted.add((service, when))
                    self.scheduler.at(when, partial(self.note_in_effect, service))

    def survey(self, spec: ServiceSpec, when: float | None = None) -> None:
        """Survey EC2 for the service, now or before the run."""
        when = self.scheduler.now if when is None else when
        found = self.cloud.offers.survey(spec, when)
        self.checker.move_checker.surveys.setdefault(spec.service, []).append(found)
        last = self.memory.recall(spec.service, spec.region, at(when)).survey
        survey = surveying.following(found, last)
        self.say("EC2 was asked for pools, prices and scores", survey)
        self.memory.note_survey(survey)

    def warm(self, spec: ServiceSpec) -> None:
        """Give the service replicas that have been ready for a while."""
        rows = []
        on_demand = spec.base_on_demand if spec.use_spot else spec.replicas
        age_s = self.scenario.moves.age_s or WARM_S
        entered = {
            ReplicaState.REQUESTED: at(-age_s - 60),
            ReplicaState.PROVISIONING: at(-age_s - 60),
            ReplicaState.STARTING: at(-age_s - 30),
            ReplicaState.READY: at(-age_s),
        }
        number = spec.standby if self.scenario.standbys.is_warm else 0
        count = spec.replicas + number
        free: dict[PurchaseOption, list[SimInstance]] = {option: [] for option in OPTIONS.values()}
        for id_ in range(1, spec.replicas + 1):
            is_spot = id_ <= spec.replicas - on_demand
            is_adopted = id_ <= self.scenario.adopted.count
            option = PurchaseOption.SPOT if is_spot else PurchaseOption.ON_DEMAND
            if is_adopted or not free[option]:
                added = self.cloud.add(
                    spec.service,
                    self._roomy(spec, option),
                    age_s=age_s + 60,
                    sharing=None if is_adopted else spec,
                )
                added.highest_id = count
                for slot in self.cloud.slots_of(added):
                    slot.version = None if is_adopted else spec.version
                free[option] += self.cloud.slots_of(added)
            instance = free[option].pop(0)
            rows.append(
                Replica(
                    spec.service,
                    id_,
                    self.scenario.adopted.version_of(id_, spec.version),
                    ReplicaState.READY,
                    "fewer replicas than wanted",
                    self.scenario.adopted.entered(id_, entered),
                    instance.offering,
                    instance.id,
                    purchase_option=option,
                    port=spec.port if is_adopted or instance.slots else None,
                    slots=max(len(instance.slots), 1),
                    is_adopted=is_adopted,
                )
            )
            port = self.cloud.port_of(instance)
            self.cloud.groups[spec.service][instance.id] = Target(-age_s, port=port)
            self.checker.recorded[instance.id] = -age_s
        standing_by = [self._standing_by(spec, id_, count) for id_ in range(spec.replicas + 1, count + 1)]
        self.memory.commit(Changes(spec.service, (0, count), (0, spec.replicas), create=tuple(rows)))
        # By itself: so many rows are more than a transaction takes.
        self.memory.commit(Changes(spec.service, (count, count), create=tuple(standing_by)))
        self.memory.keep_document(spec)
        self.checker.ids[spec.service] = count

    def add_foreign(self, spec: ServiceSpec) -> None:
        """An instance of nobody's, in the service's target group, if there is room for one."""
        free = [p for p in spec.pools if self._free(Offering(p, PurchaseOption.ON_DEMAND))]
        if not free:
            return
        instance = self.cloud.add(None, Offering(free[0], PurchaseOption.ON_DEMAND), age_s=WARM_S)
        self.cloud.groups[spec.service][instance.id] = Target(-WARM_S, port=spec.port)

    def _standing_by(self, spec: ServiceSpec, id_: int, highest_id: int) -> Replica:
        """A standby that was tried out, and has been stopped for a while."""
        pool = self.cloud.resumes.choice(spec.pools)
        instance = self.cloud.add(
            spec.service, Offering(pool, PurchaseOption.ON_DEMAND), age_s=WARM_S, is_stopped=True
        )
        instance.highest_id = highest_id
        self.checker.recorded[instance.id] = -WARM_S
        entered = {
            ReplicaState.REQUESTED: at(-WARM_S),
            ReplicaState.PROVISIONING: at(-WARM_S),
            ReplicaState.STARTING: at(-WARM_S),
            ReplicaState.STANDBY: at(-WARM_S),
        }
        return Replica(
            spec.service,
            id_,
            spec.version,
            ReplicaState.STANDBY,
            "standby",
            entered,
            instance.offering,
            instance.id,
            purchase_option=PurchaseOption.ON_DEMAND,
            is_standby=True,
            resume_s=40.0,
        )

    def _roomy(self, spec: ServiceSpec, option: PurchaseOption) -> Offering:
        """Where one more is to be had; a foreign instance may have the last place, then there is one more."""
        offerings = [Offering(pool, option) for pool in spec.pools]
        for offering in offerings:
            if self._free(offering):
                return offering
        in_use = self.cloud.market.state(offerings[0].pool).in_use(option)
        self.cloud.market.set_capacity(offerings[0], in_use + 1)
        return offerings[0]

    def _free(self, offering: Offering) -> int:
        return self.cloud.market.state(offering.pool).free(offering.purchase_option)
