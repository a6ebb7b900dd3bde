"""The ports in memory: for tests and simulation, and to show in the fewest lines what each port means."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count

from spotrelay.plane.core.answers import Answers, Trouble, Work
from spotrelay.plane.core.held import Held, Override
from spotrelay.plane.core.incidents import Incidents
from spotrelay.plane.core.instances import Instance, InstanceState, Refusal, RefusalKind, TargetState
from spotrelay.plane.core.names import Alarm, Metric
from spotrelay.plane.core.notices import Notice
from spotrelay.plane.core.pools import Cooldown, Offering, PoolMemory, Scope, Survey
from spotrelay.plane.core.ports import MAX_STARTS, NO_PORTS, Conflict, LaunchRequest, LaunchResult, Ports
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import (
    Backoff,
    Changes,
    LaunchIntent,
    LaunchWindow,
    Removal,
    Rollback,
    Rows,
    ScaleRequest,
    Source,
    Starts,
    Told,
)
from spotrelay.plane.core.scaling import Load, Needed, Ongoing, OngoingTarget, OngoingTotal
from spotrelay.plane.core.slots import host, port
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryClock:
    """Time that passes only when told to."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._now = start

    def now(self) -> datetime:
        """The present."""
        return self._now

    def advance(self, duration_s: float) -> None:
        """Let time pass."""
        self._now += seconds(duration_s)


@dataclass(slots=True)
class MemoryService:
    """What the store keeps about a service."""

    highest_id: int = 0
    replicas: dict[int, Replica] = field(default_factory=dict)
    history: dict[int, Replica] = field(default_factory=dict)
    intents: dict[str, LaunchIntent] = field(default_factory=dict)
    serving: int = 0
    removal: Removal = field(default_factory=Removal)
    document: ServiceSpec | None = None
    is_claimed: bool = True
    earlier: dict[int, ServiceSpec] = field(default_factory=dict)
    rollback: Rollback | None = None
    backoff: Backoff = field(default_factory=Backoff)
    standby_backoff: Backoff = field(default_factory=Backoff)
    window: LaunchWindow = field(default_factory=LaunchWindow)
    requests: dict[Source, ScaleRequest] = field(default_factory=dict)
    told: Told = field(default_factory=Told)
    held: Held = field(default_factory=Held)
    incidents: Incidents = field(default_factory=Incidents)
    ongoing: OngoingTotal | None = None
    starts: Starts = field(default_factory=dict)
    lease: tuple[str, datetime] | None = None
    next_tick: datetime | None = None


class MemoryStore:
    """`ports.Store`."""

    def __init__(self) -> None:
        self._services: dict[str, MemoryService] = {}
        self._known: set[str] = set()
        self._located: dict[str, tuple[str, int]] = {}
        self._slots: dict[str, list[str]] = {}
        """By instance, its slots beside the first one."""
        self._cooldowns: dict[Scope, Cooldown] = {}
        self._surveys: dict[str, Survey] = {}

    def services(self) -> Sequence[str]:
        return sorted(self._known)

    def forget(self, service: str) -> None:
        self._known.discard(service)
        self._of(service).requests.clear()
        self._of(service).rollback = None
        self._of(service).told = Told()
        self._of(service).held = Held()
        self._of(service).incidents = Incidents()
        self._of(service).ongoing = None
        self._of(service).starts = {}

    def locate(self, instance_ids: Collection[str]) -> Mapping[str, tuple[str, int]]:
        found = {i: self._located[i] for i in instance_ids if i in self._located}
        others = [slot for i in found for slot in self._slots.get(i, ()) if slot in self._located]
        return found | {slot: self._located[slot] for slot in others}

    def read(self, service: str, replica_ids: Collection[int]) -> Rows:
        kept = self._of(service)
        replicas = {i: kept.replicas[i] for i in sorted(replica_ids) if i in kept.replicas}
        return Rows(
            kept.highest_id,
            kept.serving,
            replicas=replicas,
            backoff=kept.backoff,
            standby_backoff=kept.standby_backoff,
            window=kept.window,
            requests=dict(kept.requests),
            rollback=kept.rollback,
        )

    def load(self, service: str) -> Rows:
        kept = self._of(service)
        replicas = dict(sorted(kept.replicas.items()))
        return Rows(
            kept.highest_id,
            kept.serving,
            is_whole=True,
            removal=kept.removal,
            document=kept.document,
            is_claimed=kept.is_claimed,
            earlier=dict(kept.earlier),
            rollback=kept.rollback,
            replicas=replicas,
            intents=dict(kept.intents),
            backoff=kept.backoff,
            standby_backoff=kept.standby_backoff,
            window=kept.window,
            requests=dict(kept.requests),
            told=kept.told,
            held=kept.held,
            incidents=kept.incidents,
            ongoing=kept.ongoing,
            starts=kept.starts,
        )

    def document(self, service: str) -> ServiceSpec | None:
        return self.load(service).last_document

    def keep_document(self, spec: ServiceSpec, earlier: Mapping[int, ServiceSpec] | None = None) -> None:
        kept = self._of(spec.service)
        kept.document = spec
        if earlier is not None:
            kept.earlier = dict(earlier)

    def note_claim(self, service: str, *, is_ours: bool) -> None:
        self._of(service).is_claimed = is_ours

    def note_held(self, service: str, held: Held) -> None:
        self._of(service).held = held

    def note_ongoing(self, service: str, total: OngoingTotal) -> None:
        self._of(service).ongoing = total

    def note_starts(self, service: str, starts: Starts) -> None:
        self._of(service).starts = starts

    def note_removal(self, service: str, removal: Removal) -> None:
        self._of(service).removal = removal

    def note_request(self, service: str, source: Source, request: ScaleRequest | None) -> None:
        requests = self._of(service).requests
        requests.pop(source, None)
        if request is not None:
            requests[source] = request

    def note_rollback(self, service: str, rollback: Rollback | None) -> None:
        self._of(service).rollback = rollback

    def history(self, service: str, limit: int) -> Sequence[Replica]:
        ended = self._of(service).history
        return [ended[i] for i in sorted(ended, reverse=True)[:limit]]

    def ended(self, service: str, replica_ids: Collection[int]) -> Sequence[Replica]:
        ended = self._of(service).history
        return [ended[i] for i in sorted(replica_ids) if i in ended]

    def note_told(self, service: str, told: Told) -> None:
        kept = self._of(service)
        if kept.told.revision != told.revision:
            raise Conflict(f"{service}: what was told of it has changed since it was read")
        kept.told = replace(told, revision=told.revision + 1)

    def note_incidents(self, service: str, incidents: Incidents) -> None:
        kept = self._of(service)
        if kept.incidents.revision != incidents.revision:
            raise Conflict(f"{service}: what its alarms were told has changed since it was read")
        kept.incidents = replace(incidents, revision=incidents.revision + 1)

    def commit(self, changes: Changes) -> None:
        kept = self._of(changes.service)
        self._check(kept, changes)
        if changes.highest_id:
            kept.highest_id = changes.highest_id[1]
            self._known.add(changes.service)
        if changes.serving:
            kept.serving = changes.serving[1]
        # An instance may pass from one replica to another.
        passed_on = {row.instance_id for row in changes.create}
        for row in changes.stored:
            if row.instance_id and not (row.state.is_ended and row.instance_id in passed_on):
                self._located[row.instance_id] = (row.service, row.id)
                self._slots[row.instance_id] = row.siblings
            if row.state.is_ended:
                kept.history[row.id] = row
                kept.replicas.pop(row.id, None)
            else:
                kept.replicas[row.id] = row
        for intent_id in changes.close_intents:
            kept.intents.pop(intent_id, None)
        if changes.open_intent:
            kept.intents[changes.open_intent.id] = changes.open_intent
        kept.backoff = changes.backoff or kept.backoff
        kept.standby_backoff = changes.standby_backoff or kept.standby_backoff
        if changes.window:
            kept.window = changes.window[1]

    def cool(self, cooldowns: Collection[Cooldown]) -> None:
        for cooldown in cooldowns:
            known = self._cooldowns.get(cooldown.scope)
            if known is None or known.until < cooldown.until:
                self._cooldowns[cooldown.scope] = cooldown

    def forgive(self, scopes: Collection[Scope]) -> None:
        for scope in scopes:
            self._cooldowns.pop(scope, None)

    def note_survey(self, survey: Survey) -> None:
        self._surveys[survey.service] = survey

    def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
        cooldowns = (
            c for c in self._cooldowns.values() if c.scope.region == region and c.remembered_until > now
        )
        return PoolMemory(tuple(sorted(cooldowns, key=lambda c: str(c.scope))), self._surveys.get(service))

    def acquire(self, service: str, holder: str, now: datetime, ttl_s: float) -> bool:
        kept = self._of(service)
        if kept.lease and kept.lease[0] != holder and kept.lease[1] > now:
            return False
        kept.lease = (holder, now + seconds(ttl_s))
        return True

    def release(self, service: str, holder: str) -> None:
        kept = self._of(service)
        if kept.lease and kept.lease[0] == holder:
            kept.lease = None

    def claim_tick(self, service: str, due: datetime, now: datetime, serving: datetime | None) -> bool:
        kept = self._of(service)
        if kept.next_tick and now < kept.next_tick <= due and kept.next_tick != serving:
            return False
        kept.next_tick = due
        return True

    def damage(self, service: str) -> MemoryService:
        """What is kept about the service, to be edited behind everybody's back."""
        return self._of(service)

    def unlearn(self, instance_id: str | None) -> None:
        """Forget whose the instance is."""
        self._located.pop(instance_id or "", None)

    def replace_with(self, other: MemoryStore) -> None:
        """Become what another store is: a new table, or one that was restored."""
        self.__dict__.update(other.__dict__)

    def _of(self, service: str) -> MemoryService:
        kept = self._services.get(service)
        if kept is None:
            kept = self._services[service] = MemoryService()
        return kept

    @staticmethod
    def _check(kept: MemoryService, changes: Changes) -> None:
        written = [row.id for row in (*changes.create, *changes.update)]
        if len(set(written)) < len(written):
            raise ValueError(f"a transaction takes each row once, this one has {written}")
        if changes.size > Changes.MAX_SIZE:
            raise ValueError(f"a transaction takes {Changes.MAX_SIZE} items, this one has {changes.size}")
        if changes.highest_id and changes.highest_id[0] != kept.highest_id:
            raise Conflict(f"highest ID is {kept.highest_id}, not {changes.highest_id[0]}")
        if changes.serving and changes.serving[0] != kept.serving:
            raise Conflict(f"{kept.serving} serve, not {changes.serving[0]}")
        if changes.window and changes.window[0] != kept.window:
            raise Conflict(f"launches of this minute are {kept.window}, not {changes.window[0]}")
        for row in changes.create:
            if row.id in kept.replicas or row.id in kept.history:
                raise Conflict(f"{row} exists")
        for row in changes.update:
            stored = kept.replicas.get(row.id)
            if stored is None or stored.revision != row.revision:
                raise Conflict(f"{row}: revision {row.revision} is not the stored one")


class MemoryFleet:
    """`ports.Fleet` over pools with a capacity each; instances are pending until `run` is called."""

    def __init__(self, clock: MemoryClock, capacity: Mapping[Offering, int] | None = None) -> None:
        self.capacity = dict(capacity or {})
        """Free instances per offering; an offering that isn't named has as many as one wants."""
        self.instances: dict[str, Instance] = {}
        self.services: dict[str, str] = {}
        self.interrupted: dict[str, datetime] = {}
        """The instances that are being taken back, and since when that is known."""
        self.protected: dict[str, str] = {}
        """The instances that AWS refuses to terminate, and its words."""
        self.kept_running: dict[str, str] = {}
        """The instances that AWS refuses to stop, and its words."""
        self.consoles: dict[str, str] = {}
        """What instances' consoles show."""
        self.launches: list[LaunchRequest] = []
        self._clock = clock
        self._answers: dict[str, LaunchResult] = {}
        self._numbers = count(1)

    def launch(self, request: LaunchRequest) -> LaunchResult:
        if request.launch_id in self._answers:
            return self._answers[request.launch_id]
        self.launches.append(request)
        offerings = [Offering(pool, request.purchase_option) for pool in request.pools]
        instances: list[Instance] = []
        refusals = []
        wanted = request.count
        for offering in offerings:
            room = self.capacity.get(offering, request.count)
            hosted = request.spec.hosted_by(offering.pool.instance_type)
            taken = min(room, -(-max(wanted, 0) // hosted))
            wanted -= taken * hosted
            instances += [self._start(offering, request) for _ in range(taken)]
            if offering in self.capacity:
                self.capacity[offering] -= taken
            if room == 0:
                code = "InsufficientInstanceCapacity"
                refusals.append(Refusal(RefusalKind.CAPACITY, code, "no capacity", offering))
        self._answers[request.launch_id] = LaunchResult(tuple(instances), tuple(refusals))
        return self._answers[request.launch_id]

    def observe(self, service: str) -> Sequence[Instance]:
        return [i for i in self.instances.values() if self.services[i.id] == service]

    def look_up(self, instance_ids: Collection[str]) -> Sequence[Instance]:
        return [self.instances[i] for i in sorted(set(instance_ids)) if i in self.instances]

    def warned(self, instance_ids: Collection[str]) -> Mapping[str, datetime | None]:
        asked = (self.instances[i] for i in instance_ids if i in self.instances)
        alive = (i for i in asked if i.state.is_alive)
        spared = {i.id for i in alive if i.offering.purchase_option.has_spot_requests}
        said = (i for i in instance_ids if i in self.interrupted or i in spared)
        return {i: self.interrupted.get(i) for i in said}

    def console(self, instance_id: str) -> str:
        return self.consoles.get(instance_id, "")

    def start(self, instance_ids: Collection[str]) -> Mapping[str, Refusal]:
        """An instance takes the room that its offering has."""
        refused = {}
        asked = list(dict.fromkeys(instance_ids))
        if any(self._refusal_to_start(self.instances.get(id_)) for id_ in asked):
            asked = asked[:MAX_STARTS]
        for instance_id in asked:
            instance = self.instances.get(instance_id)
            if instance is not None and instance.state.is_alive:
                continue
            refusal = self._refusal_to_start(instance)
            if refusal:
                refused[instance_id] = refusal
                continue
            if instance is not None and instance.offering in self.capacity:
                self.capacity[instance.offering] -= 1
            self.enter(InstanceState.PENDING, [instance_id])
        return refused

    def _refusal_to_start(self, instance: Instance | None) -> Refusal | None:
        if instance is None:
            return Refusal(RefusalKind.OTHER, "InvalidInstanceID.NotFound", "no such instance", None)
        if instance.state.is_alive:
            return None
        if instance.state is not InstanceState.STOPPED:
            return Refusal(RefusalKind.OTHER, "IncorrectInstanceState", f"it is {instance.state}", None)
        if self.capacity.get(instance.offering, 1) == 0:
            return Refusal(RefusalKind.CAPACITY, "InsufficientInstanceCapacity", "no capacity", None)
        return None

    def stop(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        refused = {i: self.kept_running[i] for i in instance_ids if i in self.kept_running}
        known = [i for i in dict.fromkeys(instance_ids) if i in self.instances.keys() - refused]
        alive = [i for i in known if self.instances[i].state.is_alive]
        for offering in (self.instances[i].offering for i in alive):
            if offering in self.capacity:
                self.capacity[offering] += 1
        self.enter(InstanceState.STOPPED, alive)
        return refused

    def terminate(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        refused = {i: self.protected[i] for i in instance_ids if i in self.protected}
        self.enter(
            InstanceState.TERMINATED, [i for i in instance_ids if i in self.instances.keys() - refused]
        )
        return refused

    def run(self) -> list[str]:
        """Let every pending instance run; their IDs."""
        pending = [i.id for i in self.instances.values() if i.state is InstanceState.PENDING]
        self.enter(InstanceState.RUNNING, pending)
        return pending

    def enter(self, state: InstanceState, instance_ids: Iterable[str]) -> None:
        """Put instances into a state."""
        for instance_id in instance_ids:
            self.instances[instance_id] = replace(self.instances[instance_id], state=state)

    def _start(self, offering: Offering, request: LaunchRequest) -> Instance:
        number = next(self._numbers)
        instance_id = f"i-{number:017x}"
        instance = Instance(
            instance_id,
            InstanceState.PENDING,
            offering,
            self._clock.now(),
            request.launch_id,
            f"10.0.{number // 256}.{number % 256}",
            request.spec.template(offering.purchase_option).id,
            request.highest_id,
            version=request.spec.version,
        )
        self.instances[instance_id] = instance
        self.services[instance_id] = request.spec.service
        return instance


class MemoryRouter:
    """`ports.Router`; targets stay initial until `pass_checks` is called."""

    def __init__(self, fleet: MemoryFleet) -> None:
        self.groups: dict[str, dict[str, TargetState]] = {}
        """By target group: its targets."""
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.registered: dict[str, int] = {}
        """By instance, the port that it was registered with."""
        self._fleet = fleet

    def register(
        self, spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int] = NO_PORTS
    ) -> frozenset[str]:
        self.calls.append(("register", tuple(instance_ids)))
        running = {
            i
            for i in instance_ids
            if host(i) in self._fleet.instances
            and self._fleet.instances[host(i)].state is InstanceState.RUNNING
        }
        targets = self._of(spec)
        for instance_id in running:
            self.registered.setdefault(instance_id, port(instance_id) or ports.get(instance_id, spec.port))
            if targets.get(instance_id) in (None, TargetState.DRAINING):
                targets[instance_id] = TargetState.INITIAL
        return frozenset(instance_ids) - running

    def deregister(
        self, spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int] = NO_PORTS
    ) -> None:
        self.calls.append(("deregister", tuple(instance_ids)))
        targets = self._of(spec)
        for instance_id in targets.keys() & set(instance_ids):
            # A target is known by ID and port together; who puts one in here by hand says no port.
            known = port(instance_id) or ports.get(instance_id, spec.port)
            if self.registered.get(instance_id) in (None, known):
                targets[instance_id] = TargetState.DRAINING

    def ports(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, int]:  # noqa: ARG002
        return {i: self.registered.get(i, spec.port) for i in self._of(spec)}

    def health(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, TargetState]:  # noqa: ARG002
        return dict(self._of(spec))

    def pass_checks(self) -> None:
        """Let every registered target pass its health check, and every draining one be done."""
        self._check(TargetState.HEALTHY)

    def fail_checks(self) -> None:
        """Let every registered target fail its health check, and every draining one be done."""
        self._check(TargetState.UNHEALTHY)

    def _check(self, state: TargetState) -> None:
        for group, targets in self.groups.items():
            kept = (i for i, state in targets.items() if state is not TargetState.DRAINING)
            self.groups[group] = dict.fromkeys(kept, state)

    def _of(self, spec: ServiceSpec) -> dict[str, TargetState]:
        return self.groups.setdefault(spec.target_group_arn, {})


class MemoryProber:
    """`ports.Prober`: instances answer unless they are silent, or refuse."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.refusing: set[str] = set()
        self.work: dict[str, Work] = {}
        """By instance that is silent, what it tells about its work."""
        self.trouble: dict[str, Trouble] = {}
        """By instance that is silent or refuses, why it isn't ready."""
        self.requests: dict[str, float] = {}
        """By instance, those in progress or waiting; who isn't silent and isn't here has none."""

    def ask(self, spec: ServiceSpec, addresses: Mapping[str, str], serving: Collection[str] = ()) -> Answers:
        refusing = self.refusing & addresses.keys()
        silent = {i for i in self.silent if i in serving and i in self.work} if spec.busy else set()
        return Answers(
            frozenset(addresses.keys() - self.silent - refusing),
            frozenset(refusing),
            {id_: self.work[id_] for id_ in silent},
            {id_: told for id_, told in self.trouble.items() if id_ in addresses},
        )

    def ongoing(
        self,
        service: str,  # noqa: ARG002
        target: OngoingTarget,  # noqa: ARG002
        addresses: Mapping[str, tuple[str, int]],
    ) -> Ongoing:
        told = {id_: self.requests.get(id_, 0.0) for id_ in addresses if id_ not in self.silent}
        return Ongoing(told, dict.fromkeys(addresses.keys() - told.keys(), "it doesn't answer in time"))


class MemoryLoads:
    """`ports.Loads`: what the test says, and nothing at first."""

    def __init__(self) -> None:
        self.loads: dict[str, Load] = {}

    def observe(self, spec: ServiceSpec, needed: Needed, now: datetime) -> Load:  # noqa: ARG002
        return self.loads.get(spec.service, Load())


class MemoryTicker:
    """`ports.Ticker` and `ports.Announcer`: lists of what was sent."""

    def __init__(self) -> None:
        self.scheduled: list[tuple[str, datetime | None, float]] = []
        self.leaves: list[tuple[str, float]] = []
        self.overrides: list[tuple[str, Override, float]] = []
        self.announced: list[tuple[str, Mapping[str, str]]] = []

    def schedule(self, service: str, due: datetime | None = None, delay_s: float = 0) -> None:
        self.scheduled.append((service, due, delay_s))

    def schedule_leave(self, service: str, delay_s: float) -> None:
        self.leaves.append((service, delay_s))

    def schedule_override(self, service: str, override: Override, delay_s: float) -> None:
        self.overrides.append((service, override, delay_s))

    def announce(self, service: str, announced: Mapping[str, str]) -> None:
        self.announced.append((service, announced))


class MemoryDeadLetters:
    """`ports.DeadLetters`: what was set aside, why, and where it came from."""

    def __init__(self) -> None:
        self.letters: list[tuple[str, str, str]] = []

    def set_aside(self, body: str, why: str, source: str) -> None:
        self.letters.append((body, why, source))


class MemoryNotices:
    """`ports.Notices`: what was told."""

    def __init__(self) -> None:
        self.told: list[Notice] = []
        self.refused: dict[str, str] = {}
        """By notice ID, what isn't taken, and why."""

    def publish(self, notices: Sequence[Notice]) -> Mapping[str, str]:
        self.told += [notice for notice in notices if notice.id not in self.refused]
        return {notice.id: self.refused[notice.id] for notice in notices if notice.id in self.refused}


class MemoryServices:
    """`ports.Services`."""

    def __init__(self, *specs: ServiceSpec) -> None:
        self.specs = {spec.service: spec for spec in specs}

    def names(self) -> Sequence[str]:
        return sorted(self.specs)

    def get(self, service: str, *, fresh: bool = False) -> ServiceSpec | None:  # noqa: ARG002
        return self.specs.get(service)


class MemoryTelemetry:
    """`ports.Telemetry`: what was counted and recorded."""

    def __init__(self) -> None:
        self.counts: Counter[Metric] = Counter()
        self.values: dict[Metric, list[float]] = defaultdict(list)
        """Each value that was counted, as it was."""
        self.services: dict[Metric, set[str | None]] = defaultdict(set)
        """Whose it was; None: of no service."""
        self.sent: set[str] = set()
        """Of which services all is a metric."""
        self.told: list[tuple[datetime, str, Alarm, bool]] = []
        """When, of which service, which alarm, and whether its incident lasts."""
        self.records: list[tuple[str, Mapping[str, object]]] = []

    def count(self, metric: Metric, value: float = 1, *, service: str | None = None) -> None:
        self.services[metric].add(service)
        self.counts[metric] += int(value)
        self.values[metric].append(value)

    def send_all(self, service: str) -> None:
        self.sent.add(service)

    def tell(self, alarm: Alarm, *, service: str, lasts: bool, at: datetime) -> None:
        self.told.append((at, service, alarm, lasts))

    def record(self, event: str, **facts: object) -> None:
        self.records.append((event, facts))


@dataclass(slots=True)
class World:
    """Every port in memory, wired: what a test drives a controller with."""

    clock: MemoryClock
    store: MemoryStore
    fleet: MemoryFleet
    router: MemoryRouter
    prober: MemoryProber
    loads: MemoryLoads
    ticker: MemoryTicker
    notices: MemoryNotices
    services: MemoryServices
    telemetry: MemoryTelemetry

    @classmethod
    def of(cls, *specs: ServiceSpec, capacity: Mapping[Offering, int] | None = None) -> World:
        """A world where these services are deployed and nothing runs yet."""
        clock = MemoryClock()
        fleet = MemoryFleet(clock, capacity)
        return cls(
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

    def ports(self) -> Ports:
        """The ports for a controller."""
        numbers = count(1)
        return Ports(
            self.store,
            self.fleet,
            self.router,
            self.prober,
            self.loads,
            self.ticker,
            self.notices,
            self.services,
            self.telemetry,
            self.clock,
            lambda: f"id-{next(numbers):06d}",
        )
