"""The controller's ports on the simulated cloud. Nothing fails here; but calls take time, and time goes on.

The pools of a recording may lie in several regions, and a control plane lives in one. Here all of them are
put into one made-up region, each zone under another letter; production code sees no difference.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lab.market import RefusalCode
from lab.replay.cloud import Machine, ReplayCloud
from lab.replay.result import StandbysFound
from lab.world import targets
from lab.world.instances import NEVER, Change, Ec2Instance, Since, course
from lab.world.targets import CHECK_S, Target, TargetGroup
from spotrelay.plane.core.answers import Answers
from spotrelay.plane.core.held import Override
from spotrelay.plane.core.instances import Instance, InstanceState, Refusal, RefusalKind, TargetState
from spotrelay.plane.core.names import Alarm, Metric
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.ports import NO_PORTS, LaunchRequest, LaunchResult
from spotrelay.plane.core.scaling import Ongoing, OngoingTarget
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events.ticks import Tick, TickKind
from spotrelay.plane.memory import EPOCH

REGION = "replay-1"
"""The made-up region."""

CREATE_FLEET_S = 1.5
"""Until EC2 answers an instant fleet: one or two seconds when it has capacity."""

CALL_S = 0.2
"""Any other call of EC2 or the load balancer: a tenth to a third of a second."""

BOOT_S = 20.0
"""From EC2's answer until the instance runs; 10 to 40 s are common. At most half of the cold start."""

STOPPING_S = 30.0
"""From stopping to stopped: half a minute is common. Until then it can't be started."""

SHUTTING_DOWN_S = 30.0
"""From shutting-down to terminated: half a minute is common."""

SHOWN_S = 3600.0
"""DescribeInstances shows a terminated instance for about an hour."""

_REFUSED = {
    PurchaseOption.SPOT: RefusalCode.UNFULFILLABLE_CAPACITY.value,
    PurchaseOption.ON_DEMAND: RefusalCode.INSUFFICIENT_INSTANCE_CAPACITY.value,
}
"""What EC2 says if there is none."""


def moment(time: float) -> datetime:
    """A time of the replay, in seconds, as production code sees it."""
    return EPOCH + seconds(time)


class Time:
    """The clock of all ports: what a call takes passes in the cloud."""

    def __init__(self, cloud: ReplayCloud, advance: Callable[[float], None]) -> None:
        self._cloud = cloud
        self._advance = advance

    def now(self) -> datetime:
        return moment(self._cloud.now)

    def spend(self, duration_s: float) -> None:
        """A call takes that long; what happens meanwhile happens first."""
        self._advance(self._cloud.now + duration_s)


class Zones:
    """The recording's pools, and the names under which production code knows them."""

    def __init__(self, pools: Sequence[CapacityPool]) -> None:
        names = {
            zone: f"{REGION}{chr(ord('a') + number)}"
            for number, zone in enumerate(dict.fromkeys(p.zone for p in pools))
        }
        self.names = tuple(names.values())
        self.known_as = {p: CapacityPool(REGION, names[p.zone], p.instance_type) for p in pools}
        self.real = {known: real for real, known in self.known_as.items()}


@dataclass(slots=True, kw_only=True)
class ReplayInstance(Ec2Instance):
    """An instance, as EC2 shows it to the controller."""

    machine: Machine
    """What is paid for: another one each time it is resumed."""
    serves_at: float
    """When it can serve: a cold start after its launch, or sooner if it was resumed.

    That includes the load balancer's checks, so it answers a probe earlier by what they take.
    """


Tell = Callable[[str, Sequence[Since]], None]
"""Has EC2 say that an instance enters states, each at its time."""


class ReplayFleet:
    """`ports.Fleet`."""

    def __init__(self, cloud: ReplayCloud, time: Time, zones: Zones, tell: Tell) -> None:
        self._cloud = cloud
        self._time = time
        self._zones = zones
        self._tell = tell
        self.instances: dict[str, ReplayInstance] = {}
        """By ID, while they are described."""
        self._ended: deque[ReplayInstance] = deque()

    def launch(self, request: LaunchRequest) -> LaunchResult:
        """No request is repeated where none gets lost."""
        self._time.spend(CREATE_FLEET_S)
        option, real = request.purchase_option, self._zones.real
        asked = [real[pool] for pool in request.pools if pool in real]
        # Not every type of the recording is in every zone.
        refusals = [
            Refusal(RefusalKind.UNSUPPORTED, "InvalidFleetConfiguration", "not there", Offering(pool, option))
            for pool in request.pools
            if pool not in real
        ]
        machines: list[Machine] = []
        if asked:
            machines, dry = self._cloud.launch(option, request.count, asked, request.launch_id)
            refusals += [
                Refusal(
                    RefusalKind.CAPACITY,
                    _REFUSED[option],
                    "no capacity",
                    Offering(self._zones.known_as[pool], option),
                )
                for pool in dry
            ]
        return LaunchResult(tuple(self._begin(machine, request) for machine in machines), tuple(refusals))

    def observe(self, service: str) -> Sequence[Instance]:  # noqa: ARG002 - there is one service
        self._time.spend(CALL_S)
        now = self._cloud.now
        while self._ended and self._ended[0].shown_until(SHOWN_S) <= now:
            del self.instances[self._ended.popleft().id]
        return [instance.described(now) for instance in self.instances.values()]

    def look_up(self, instance_ids: Collection[str]) -> Sequence[Instance]:
        return [instance for instance in self.observe("") if instance.id in instance_ids]

    def warned(self, instance_ids: Collection[str]) -> Mapping[str, datetime | None]:
        """An answer is as new as it can be."""
        if not instance_ids:
            return {}
        self._time.spend(CALL_S)
        known = [machine for i in instance_ids if (machine := self._cloud.machine(i)) and machine.is_spot]
        return {m.id: moment(m.warned_at) if m.is_warned else None for m in known}

    def console(self, instance_id: str) -> str:  # noqa: ARG002 - no machine says anything
        """Nobody looks where a replay's starts spend their time: they last as long as is asked for."""
        return ""

    def start(self, instance_ids: Collection[str]) -> Mapping[str, Refusal]:
        self._time.spend(CALL_S)
        refused = {}
        now, start_s = self._cloud.now, self._cloud.settings.standby_start_s
        for instance in (self.instances[id_] for id_ in instance_ids):
            refusal = instance.refusal_to_start(now)
            if instance.may(Change.START, now):
                machine = self._cloud.resume(instance.machine)
                if machine is None:
                    code = _REFUSED[PurchaseOption.ON_DEMAND]
                    refusal = Refusal(RefusalKind.CAPACITY, code, "no room", None)
                else:
                    self._cloud.postpone(machine, NEVER)
                    self._cloud.stopped(-1)
                    instance.machine, instance.serves_at = machine, now + start_s
                    entered = instance.enter(Change.START, now, now + min(BOOT_S, start_s / 2))
                    self._tell(instance.id, entered[1:])
            if refusal:
                refused[instance.id] = refusal
        return refused

    def stop(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        """None is refused."""
        self._time.spend(CALL_S)
        now = self._cloud.now
        for instance in filter(None, map(self.instances.get, instance_ids)):
            if instance.may(Change.STOP, now):
                self._cloud.terminate(instance.machine)
                self._cloud.stopped(+1)
                self._tell(instance.id, instance.enter(Change.STOP, now, now + STOPPING_S))
        return {}

    def answers(self, instance_id: str) -> bool:
        """Whether the service on it would answer a request."""
        instance, now = self.instances.get(instance_id), self._cloud.now
        if instance is None or instance.state(now) is not InstanceState.RUNNING:
            return False
        return instance.serves_at - CHECK_S <= now

    def terminate(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        """None is refused."""
        self._time.spend(CALL_S)
        now = self._cloud.now
        for instance in filter(None, map(self.instances.get, instance_ids)):
            if instance.machine.is_alive:
                self._cloud.terminate(instance.machine)
                self.ended(instance.machine)
            elif instance.may(Change.TERMINATE, now):
                self._cloud.stopped(-1)
                instance.machine.ended_at = now
                self.ended(instance.machine)
        return {}

    def ended(self, machine: Machine) -> None:
        """A machine has just ended, for whatever reason."""
        instance, now = self.instances[machine.id], self._cloud.now
        self._ended.append(instance)
        instance.enter(Change.TERMINATE, machine.ended_at, machine.ended_at + SHUTTING_DOWN_S)
        self._tell(machine.id, course(Change.TERMINATE, now, now + SHUTTING_DOWN_S))

    def _begin(self, machine: Machine, request: LaunchRequest) -> Instance:
        self._cloud.postpone(machine, NEVER)  # nobody sends it requests until it is registered
        offering, now, start_s = machine.offering, machine.launched_at, self._cloud.settings.cold_start_s
        instance = self.instances[machine.id] = ReplayInstance(
            id=machine.id,
            offering=Offering(self._zones.known_as[offering.pool], offering.purchase_option),
            launched_at=now,
            states=course(Change.LAUNCH, now, now + min(BOOT_S, start_s / 2)),
            launch_id=machine.launch_id,
            template=request.spec.template(offering.purchase_option).id,
            highest_id=request.highest_id,
            machine=machine,
            serves_at=now + start_s,
        )
        self._tell(machine.id, instance.states[1:])
        return instance.described(now)


class ReplayRouter:
    """`ports.Router` with one target group."""

    def __init__(self, cloud: ReplayCloud, time: Time, fleet: ReplayFleet) -> None:
        self._cloud = cloud
        self._time = time
        self._fleet = fleet
        self._targets: TargetGroup = {}

    def register(
        self,
        spec: ServiceSpec,  # noqa: ARG002
        instance_ids: Collection[str],
        ports: Mapping[str, int] = NO_PORTS,  # noqa: ARG002
    ) -> frozenset[str]:
        self._time.spend(CALL_S)
        now, refused = self._cloud.now, set()
        for instance_id in instance_ids:
            instance = self._fleet.instances.get(instance_id)
            if instance is None or instance.state(now) is not InstanceState.RUNNING:
                refused.add(instance_id)
                continue
            machine = instance.machine
            is_new = targets.register(self._targets, instance_id, now)
            if is_new and machine.out_at != NEVER:
                self._cloud.readmit(machine, now + CHECK_S)
            elif machine.up_at == NEVER:
                self._cloud.postpone(machine, max(instance.serves_at, now + CHECK_S))
        return frozenset(refused)

    def deregister(
        self,
        spec: ServiceSpec,
        instance_ids: Collection[str],
        ports: Mapping[str, int] = NO_PORTS,  # noqa: ARG002
    ) -> None:
        self._time.spend(CALL_S)
        now, delay_s = self._cloud.now, spec.deregistration_delay_s
        for instance_id in instance_ids:
            is_in = targets.deregister(self._targets, instance_id, now, delay_s)
            instance = self._fleet.instances.get(instance_id)
            if is_in and instance is not None:
                self._cloud.drain(instance.machine)

    def ports(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, int]:  # noqa: ARG002
        return dict.fromkeys(self._targets, spec.port)

    def health(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, TargetState]:  # noqa: ARG002
        self._time.spend(CALL_S)
        now = self._cloud.now
        for id_ in [id_ for id_, target in self._targets.items() if not target.is_shown(now)]:
            del self._targets[id_]
        return {id_: self._state(id_, target, now) for id_, target in self._targets.items()}

    def _state(self, id_: str, target: Target, now: float) -> TargetState:
        """No server fails here; and what ends is unused at once."""
        instance = self._fleet.instances.get(id_)
        if instance is None or not instance.machine.is_alive:
            return target.state(now, InstanceState.TERMINATED, NEVER)
        return target.state(now, InstanceState.RUNNING, instance.machine.up_at)


class ReplayProber:
    """`ports.Prober`: what has loaded its model answers at once. Only a service with standbys has a probe."""

    def __init__(self, time: Time, fleet: ReplayFleet) -> None:
        self._time = time
        self._fleet = fleet

    def ask(
        self,
        spec: ServiceSpec,  # noqa: ARG002
        addresses: Mapping[str, str],
        serving: Collection[str] = (),  # noqa: ARG002
    ) -> Answers:
        """What still loads refuses at once: no server listens there yet."""
        self._time.spend(CALL_S)
        answering = frozenset(i for i in addresses if self._fleet.answers(i))
        return Answers(answering, frozenset(addresses.keys() - answering))

    def ongoing(
        self,
        service: str,  # noqa: ARG002
        target: OngoingTarget,  # noqa: ARG002
        addresses: Mapping[str, tuple[str, int]],
    ) -> Ongoing:
        """Nothing: a replay's load is requests a second."""
        return Ongoing(unknown=dict.fromkeys(addresses, "nobody counts"))


class ReplayTicker:
    """`ports.Ticker`."""

    def __init__(self, send: Callable[[str, float], None]) -> None:
        self._send = send

    def schedule(self, service: str, due: datetime | None = None, delay_s: float = 0) -> None:
        """SQS delays by whole seconds."""
        self._send(Tick(service, due).to_json(), math.ceil(delay_s))

    def schedule_leave(self, service: str, delay_s: float) -> None:
        self._send(Tick(service, kind=TickKind.LEAVE).to_json(), math.ceil(delay_s))

    def schedule_override(self, service: str, override: Override, delay_s: float) -> None:
        self._send(Tick(service, kind=TickKind.OVERRIDE, override=override).to_json(), math.ceil(delay_s))


@dataclass(slots=True)
class ReplayTelemetry:
    """`ports.Telemetry`: keeps the counts, and takes for a mistake what production would survive."""

    cloud: ReplayCloud
    counts: Counter[Metric] = field(default_factory=Counter)
    standbys: list[StandbysFound] = field(default_factory=list)

    def count(self, metric: Metric, value: float = 1, *, service: str | None = None) -> None:  # noqa: ARG002
        self.counts[metric] += int(value)

    def send_all(self, service: str) -> None:
        """Nothing: no alarm looks at metrics."""

    def tell(self, alarm: Alarm, *, service: str, lasts: bool, at: datetime) -> None:
        """Nothing: a replay has no alarms."""

    def record(self, event: str, **facts: object) -> None:
        if event in _FAILURES:
            raise ReplayError(f"{event}: {facts}")
        if event == "standbys":
            self.standbys.append(
                StandbysFound(self.cloud.now, int(str(facts["count"])), str(facts["reason"]))
            )


_FAILURES = frozenset({"signals_failed", "batch_failed", "malformed_message"})


class ReplayDeadLetters:
    """`ports.DeadLetters`: there are none."""

    def set_aside(self, body: str, why: str, source: str) -> None:
        raise ReplayError(f"{source}: {why}: {body}")


class ReplayError(RuntimeError):
    """The controller did what it never should where nothing fails: a mistake in it, or in the replay."""
