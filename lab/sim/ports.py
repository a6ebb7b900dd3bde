"""All ports but the store. `cloud` has what they do, `gate` makes their calls fail."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random
from zlib import crc32

from lab.sim.cloud import SimCloud
from lab.sim.faults import Call
from lab.sim.gate import CallGate, MetricRecord, Word, at, time_of
from lab.sim.instances import SHOWN_S, SimInstance
from lab.sim.load import SimLoads
from lab.sim.queues import SimQueue
from lab.sim.rules import limits
from lab.sim.rules.checker import Checker
from lab.sim.scheduler import Killed, Scheduler
from lab.world.instances import NEVER
from spotrelay.plane.core.answers import Answers
from spotrelay.plane.core.held import Override
from spotrelay.plane.core.instances import Instance, Refusal, TargetState
from spotrelay.plane.core.names import Alarm, Metric
from spotrelay.plane.core.notices import Notice
from spotrelay.plane.core.ports import (
    NO_PORTS,
    Denied,
    LaunchRequest,
    LaunchResult,
    OtherControlPlane,
    Throttled,
    Unavailable,
    UnreadableDocument,
)
from spotrelay.plane.core.replica import CONSOLE_MARK
from spotrelay.plane.core.scaling import Ongoing, OngoingTarget
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.events.ticks import Tick, TickKind
from spotrelay.plane.memory import MemoryStore

LAG_S = 20.0
"""How old a stale answer may be."""


@dataclass(slots=True)
class SimFleet:
    """`ports.Fleet`."""

    gate: CallGate
    checker: Checker
    scheduler: Scheduler
    random: Random
    cloud: SimCloud

    def launch(self, request: LaunchRequest) -> LaunchResult:
        invocation, launch_checker = self.gate.invocation, self.checker.launch_checker
        launch_checker.before_launch(invocation, request)

        def effect() -> LaunchResult:
            self.checker.before_launch(request)
            return self.cloud.launch(request)

        try:
            result = self.gate(Call.LAUNCH, request, effect)
        except (Throttled, Denied) as error:
            launch_checker.after_launch(invocation, request, error)
            raise
        launch_checker.after_launch(invocation, request, result)
        return result

    def observe(self, service: str) -> Sequence[Instance]:
        invocation = self.gate.invocation

        def instances_as_of(lag_s: float = 0.0, newest_after_s: float = 0.0) -> Sequence[Instance]:
            invocation.observed_at = as_of = self.scheduler.now - lag_s
            invocation.observed, views = self._shown(self.cloud.of(service), as_of, newest_after_s)
            return views

        return self.gate(
            Call.OBSERVE,
            None,
            instances_as_of,
            partly=lambda: instances_as_of(newest_after_s=self.random.uniform(0, LAG_S)),
            stale=lambda: instances_as_of(self.random.uniform(0, LAG_S)),
        )

    def look_up(self, instance_ids: Collection[str]) -> Sequence[Instance]:
        invocation = self.gate.invocation

        def named() -> Sequence[Instance]:
            invocation.observed_at = as_of = self.scheduler.now
            asked = (i for i in self.cloud.instances.values() if i.host in instance_ids)
            observed, views = self._shown(asked, as_of)
            invocation.observed = [*(invocation.observed or ()), *observed]
            return views

        return self.gate(Call.LOOK_UP, sorted(instance_ids), named)

    def _shown(
        self, asked: Iterable[SimInstance], as_of: float, newest_after_s: float = 0.0
    ) -> tuple[list[Instance], list[Instance]]:
        """What EC2 describes of them: for the rules each slot, as a replica's row has it; EC2 knows none."""
        wrong, now = self.cloud.wrong_answers, self.scheduler.now
        shown = [
            (i, i.described(as_of))
            for i in asked
            if i.visible_at + newest_after_s <= as_of < i.shown_until(SHOWN_S)
            and (not wrong.about_instances or wrong.shows(i.host, now))
        ]
        slots = [replace(view, id=i.id) if i.slots else view for i, view in shown]
        return slots, [view for i, view in shown if i.id == i.host]

    def warned(self, instance_ids: Collection[str]) -> Mapping[str, datetime | None]:
        invocation = self.gate.invocation

        def said_as_of(lag_s: float = 0.0) -> Mapping[str, datetime | None]:
            as_of = self.scheduler.now - lag_s
            invocation.warned_at = as_of
            warned = (i for i in self.cloud.instances.values() if i.is_being_taken(as_of))
            invocation.warned = {i.id: at(i.warned_at) for i in warned}
            asked = [self.cloud.instances[i] for i in sorted(instance_ids)]
            fulfilled = [i.id for i in asked if i.is_fulfilled(as_of)]
            invocation.spared = frozenset(s.id for i in fulfilled for s in self.cloud.slots_at(i))
            return dict.fromkeys(fulfilled) | {i.id: at(i.warned_at) for i in asked if i.is_on_record(as_of)}

        if not instance_ids:
            return said_as_of()  # nobody is asked
        return self.gate(
            Call.WARNED, None, said_as_of, stale=lambda: said_as_of(self.random.uniform(0, LAG_S))
        )

    def console(self, instance_id: str) -> str:
        return self.gate(Call.CONSOLE, instance_id, lambda: _said(self.cloud.instances[instance_id]))

    def terminate(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        invocation = self.gate.invocation
        self.checker.standby_checker.before_terminate(instance_ids)

        def end(ids: Collection[str]) -> Mapping[str, str]:
            self.checker.before_terminate(invocation, ids)
            ended = (slot.id for id_ in ids for slot in self.cloud.slots_at(id_))
            invocation.terminated |= dict.fromkeys(ended, self.scheduler.now)
            refused = {}
            for instance_id in ids:
                instance = self.cloud.instances.get(instance_id)
                if instance is None:
                    continue
                if instance.is_protected:
                    refused[instance_id] = "OperationNotPermitted: disableApiTermination"
                else:
                    self.cloud.end(instance)
            return refused

        return self.gate.of_several(Call.TERMINATE, instance_ids, end, Throttled("EC2: too many requests"))

    def start(self, instance_ids: Collection[str]) -> Mapping[str, Refusal]:
        ids = sorted(instance_ids)  # a set's order differs from process to process
        self.checker.standby_checker.before_start(self.gate.invocation, ids)

        def begin(some: Collection[str]) -> Mapping[str, Refusal]:
            answers = {i: self.cloud.start(self.cloud.instances[i]) for i in some}
            return {id_: refusal for id_, refusal in answers.items() if refusal}

        refused = self.gate.of_several(Call.START, ids, begin, Throttled("EC2: too many requests"))
        self.checker.launch_checker.after_start(self.gate.invocation, refused.values())
        return refused

    def stop(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        ids = list(instance_ids)
        self.checker.standby_checker.before_stop(self.gate.invocation, ids)

        def halt(some: Collection[str]) -> Mapping[str, str]:
            answers = {i: self.cloud.stop(self.cloud.instances[i]) for i in some}
            return {id_: words for id_, words in answers.items() if words}

        return self.gate.of_several(Call.STOP, ids, halt, Throttled("EC2: too many requests"))


def _said(instance: SimInstance) -> str:
    """What its console shows: of an earlier version nothing, else what its start reached, or nonsense."""
    booted = f"{at(instance.launched_at).timestamp():.3f}"
    ready = f"{at(instance.ready_at).timestamp():.3f}" if instance.ready_at < NEVER else ""
    told = (
        "",
        f"{CONSOLE_MARK} booted={booted} loads={ready}\n",
        f"{CONSOLE_MARK} booted=9999999999.999 sings={booted} answered={ready} loads={booted}\n",
    )
    return told[crc32(instance.id.encode()) % len(told)]


@dataclass(slots=True)
class SimRouter:
    """`ports.Router`."""

    gate: CallGate
    checker: Checker
    scheduler: Scheduler
    random: Random
    cloud: SimCloud
    memory: MemoryStore

    def register(
        self, spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int] = NO_PORTS
    ) -> frozenset[str]:
        invocation = self.gate.invocation
        self.checker.standby_checker.before_register(instance_ids)

        def effect(ids: Collection[str]) -> frozenset[str]:
            self.checker.before_route(spec, ids)
            self.checker.before_enter(spec, ids, self.memory)
            self.checker.check_probed(invocation, spec, ids, self.memory)
            return self.cloud.register(spec, ids, ports, invocation)

        error = Unavailable("load balancer: server error")
        return self.gate.of_several(Call.REGISTER, instance_ids, effect, error)

    def deregister(
        self, spec: ServiceSpec, instance_ids: Collection[str], ports: Mapping[str, int] = NO_PORTS
    ) -> None:
        invocation = self.gate.invocation
        # A call takes a while: what comes back meanwhile is taken out for all that.
        rows = self.memory.load(spec.service).replicas.values()
        leaving = {r.instance_id for r in rows if not r.state.is_active}

        def effect(ids: Collection[str]) -> None:
            self.checker.before_route(spec, ids)
            self.checker.before_deregister(invocation, spec, ids, self.memory, leaving)
            self.cloud.deregister(spec, ids, ports)

        error = Throttled("load balancer: too many requests")
        self.gate.of_several(Call.DEREGISTER, instance_ids, effect, error)

    def ports(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, int]:  # noqa: ARG002
        group = self.cloud.groups.get(spec.service, {})
        known = {i: target.port for i, target in group.items() if target.port is not None}
        return self.gate(Call.HEALTH, None, lambda: known, stale=lambda: known)

    def health(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, TargetState]:  # noqa: ARG002
        invocation = self.gate.invocation

        def seen(lag_s: float = 0.0) -> Mapping[str, TargetState]:
            invocation.health = self.cloud.health(spec.service, self.scheduler.now - lag_s)
            return invocation.health

        return self.gate(Call.HEALTH, None, seen, stale=lambda: seen(self.random.uniform(0, LAG_S)))


@dataclass(slots=True)
class SimProber:
    """`ports.Prober`."""

    gate: CallGate
    scheduler: Scheduler
    cloud: SimCloud
    loads: SimLoads
    is_told: bool
    """Whether instances tell of servers that never start."""

    def ask(self, spec: ServiceSpec, addresses: Mapping[str, str], serving: Collection[str] = ()) -> Answers:
        invocation = self.gate.invocation

        def answers(step: int = 1) -> Answers:
            now = self.scheduler.now
            instances = [self.cloud.instances[i] for i in addresses]
            answering = frozenset([i.id for i in instances if i.answers_probe(now)][::step])
            refusing = frozenset(i.id for i in instances if i.refuses_probe(now))
            silent = (i for i in instances if i.id in serving and i.id not in answering | refusing)
            work = {i.id: work for i in silent if (work := i.work(now))} if spec.busy else {}
            trouble = {i.id: told for i in instances if self.is_told and (told := i.trouble(now))}
            return Answers(answering, refusing, work, trouble)

        found = self.gate(Call.PROBE, list(addresses), answers, partly=lambda: answers(2))
        # Each version is asked by itself.
        invocation.probed |= frozenset(addresses)
        invocation.answers |= found
        return found

    def ongoing(
        self,
        service: str,  # noqa: ARG002
        target: OngoingTarget,  # noqa: ARG002
        addresses: Mapping[str, tuple[str, int]],
    ) -> Ongoing:
        def told(step: int = 1) -> Ongoing:
            now = self.scheduler.now
            serving = [i for i in addresses if self.cloud.instances[i].serves(now)]
            total = self.loads.ongoing(now)
            # Each has as much to do as the others.
            counts = {} if total is None else {i: total / len(serving) for i in serving[::step]}
            return Ongoing(counts, dict.fromkeys(addresses.keys() - counts.keys(), "it doesn't answer"))

        return self.gate(Call.ONGOING, sorted(addresses), told, partly=lambda: told(2))


@dataclass(slots=True)
class SimTicker:
    """`ports.Ticker`."""

    gate: CallGate
    checker: Checker
    queue: SimQueue
    leaves: SimQueue
    lag_s: float = 0.0
    """How much later than requested messages become visible."""

    def schedule(self, service: str, due: datetime | None = None, delay_s: float = 0) -> None:
        body = Tick(service, due).to_json()
        invocation = self.gate.invocation
        invocation.scheduled_ticks.append(due)
        if due is None:
            self.checker.launch_checker.before_extra_tick(invocation, service, delay_s)
        self.gate(Call.SCHEDULE, (body, delay_s), lambda: self.queue.send(body, delay_s + self.lag_s))

    def schedule_leave(self, service: str, delay_s: float) -> None:
        body = Tick(service, kind=TickKind.LEAVE).to_json()

        def effect() -> None:
            self.leaves.send(body, delay_s)
            self.checker.leave_checks.setdefault(service, []).append(self.leaves.scheduler.now + delay_s)

        self.gate(Call.SCHEDULE_LEAVE, (body, delay_s), effect)

    def schedule_override(self, service: str, override: Override, delay_s: float) -> None:
        body = Tick(service, kind=TickKind.OVERRIDE, override=override).to_json()
        self.gate(Call.SCHEDULE, (body, delay_s), lambda: self.queue.send(body, delay_s + self.lag_s))


@dataclass(slots=True)
class SimDeadLetters:
    """`ports.DeadLetters`."""

    gate: CallGate
    letters: list[str] = field(default_factory=list)

    def set_aside(self, body: str, why: str, source: str) -> None:
        self.gate(Call.SET_ASIDE, (why, body, source), lambda: self.letters.append(body))


@dataclass(slots=True)
class SimNotices:
    """`ports.Notices`: what was told, and when."""

    gate: CallGate
    scheduler: Scheduler
    told: list[tuple[float, Notice]] = field(default_factory=list)

    def publish(self, notices: Sequence[Notice]) -> Mapping[str, str]:
        def take(some: Sequence[Notice] = notices) -> Mapping[str, str]:
            self.told += [(self.scheduler.now, notice) for notice in some]
            return {}

        def partly() -> Mapping[str, str]:
            take(notices[::2])
            return {notice.id: "ThrottlingException: slow down" for notice in notices[1::2]}

        return self.gate(Call.PUBLISH, notices, take, partly=partly)


@dataclass(slots=True)
class SimServices:
    """`ports.Services`: each service's documents, with the earlier ones."""

    gate: CallGate
    scheduler: Scheduler
    random: Random
    documents: dict[str, list[tuple[float, ServiceSpec | None]]] = field(default_factory=dict)
    """By service: its documents, and since when each is valid; None for a stack that is gone."""
    in_effect: dict[str, list[tuple[float, ServiceSpec | None]]] = field(default_factory=dict)
    """The same with the number of replicas that an operator asks for, while one does."""
    hidden_until: dict[str, float] = field(default_factory=dict)
    """By service: until when Parameter Store doesn't show its document."""
    garbled_until: dict[str, float] = field(default_factory=dict)
    """By service: until when its document can't be read."""
    other_control_plane_until: float = 0.0
    """Until when another control plane manages all of them."""

    def names(self) -> Sequence[str]:
        return self.gate(
            Call.NAMES, None, lambda: sorted(s for s in self.documents if self._shown(s) is not None)
        )

    def get(self, service: str, *, fresh: bool = False) -> ServiceSpec | None:
        def current() -> ServiceSpec | None:
            if self.scheduler.now < self.other_control_plane_until:
                raise OtherControlPlane(service)
            if self.scheduler.now < self.garbled_until.get(service, 0.0):
                raise UnreadableDocument(service)
            return self._shown(service)

        def stale() -> ServiceSpec | None:
            if fresh:
                return current()
            age_s = self.random.uniform(0, limits.DOCUMENT_CACHE_S)
            # A missing document isn't cached.
            return self.valid(service, self.scheduler.now - age_s) or current()

        return self.gate(Call.GET, service, current, stale=stale)

    def _shown(self, service: str) -> ServiceSpec | None:
        """The document, unless it is hidden."""
        now = self.scheduler.now
        return None if now < self.hidden_until.get(service, 0.0) else self.valid(service, now)

    def valid(self, service: str, time: float) -> ServiceSpec | None:
        """The document that was valid at a time."""
        found = None
        for since, spec in self.documents.get(service, ()):
            if since <= time:
                found = spec
        return found

    def since(self, service: str, since: float) -> list[ServiceSpec]:
        """All documents that were in effect at some time since then."""
        documents = self.in_effect.get(service, [])
        ends = [began for began, _ in documents[1:]] + [float("inf")]
        return [
            spec for (_, spec), end in zip(documents, ends, strict=True) if end >= since and spec is not None
        ]

    def was_removed(self, service: str, since: float, until: float) -> bool:
        """Whether there was no document at some time in between."""
        documents = self.documents.get(service, [])
        ends = [d[0] for d in documents[1:]] + [float("inf")]
        return any(
            spec is None and start <= until and end >= since
            for (start, spec), end in zip(documents, ends, strict=False)
        )


@dataclass(slots=True)
class SimTelemetry:
    """`ports.Telemetry`: records metrics, and reports unexpected errors."""

    checker: Checker
    gate: CallGate

    def count(self, metric: Metric, value: float = 1, *, service: str | None = None) -> None:
        invocation = self.gate.invocation
        invocation.metrics.append(MetricRecord(self.checker.scheduler.now, metric, value, service))

    def send_all(self, service: str) -> None:
        """Nothing: no alarm looks at metrics."""

    def tell(self, alarm: Alarm, *, service: str, lasts: bool, at: datetime) -> None:
        invocation = self.gate.invocation
        if invocation.is_dead:
            raise Killed
        invocation.words.append(Word(service, alarm, lasts, time_of(at)))

    def record(self, event: str, **facts: object) -> None:
        self.gate.tell(event, facts)
        if event == "held_back" and "spotrelay override" in str(facts["remedy"]):
            self.gate.invocation.held_back.append((str(facts["what"]), str(facts["why"])))
        if event == "signals_failed":
            self.checker.note_caught(str(facts["error"]))
