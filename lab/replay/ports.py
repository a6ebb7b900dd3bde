"""The controller's ports on the simulated cloud. Nothing fails here; but calls take time, and time goes on.

The pools of a recording may lie in several regions, and a control plane lives in one. Here all of them are
put into one made-up region, each zone under another letter; production code sees no difference.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from lab.market import RefusalCode
from lab.replay.cloud import NEVER, Machine, ReplayCloud
from lab.replay.result import StandbysFound
from spotrelay.plane.core.answers import Answers
from spotrelay.plane.core.held import Override
from spotrelay.plane.core.instances import Instance, InstanceState, Refusal, RefusalKind, TargetState
from spotrelay.plane.core.names import Alarm, Metric
from spotrelay.plane.core.notices import Notice
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

CHECK_S = 10.0
"""What a target that is registered after it could serve has to wait: two health checks, five seconds apart,
as the service's stack wants them."""


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


@dataclass(slots=True)
class _Seen:
    """An instance, and as it was described last."""

    machine: Machine
    running_at: float
    instance: Instance
    stopped_at: float = NEVER
    """Since when it stops; `NEVER`: it runs, or has ended."""

    def state(self, now: float) -> InstanceState:
        if self.stopped_at <= now:
            is_done = self.stopped_at + STOPPING_S <= now
            return InstanceState.STOPPED if is_done else InstanceState.STOPPING
        if self.machine.ended_at <= now:
            is_gone = self.machine.ended_at + SHUTTING_DOWN_S <= now
            return InstanceState.TERMINATED if is_gone else InstanceState.SHUTTING_DOWN
        return InstanceState.RUNNING if self.running_at <= now else InstanceState.PENDING

    def described(self, now: float) -> Instance:
        state = self.state(now)
        if state is not self.instance.state:
            self.instance = replace(self.instance, state=state)
        return self.instance


Tell = Callable[[Machine, InstanceState, float], None]
"""Has EC2 say at a time that a machine enters a state."""


class ReplayFleet:
    """`ports.Fleet`."""

    def __init__(self, cloud: ReplayCloud, time: Time, zones: Zones, tell: Tell) -> None:
        self._cloud = cloud
        self._time = time
        self._zones = zones
        self._tell = tell
        self._seen: dict[str, _Seen] = {}
        self._first_launched: dict[str, float] = {}
        self._ended: deque[Machine] = deque()

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
        while self._ended and self._ended[0].ended_at + SHUTTING_DOWN_S + SHOWN_S <= now:
            del self._seen[self._ended.popleft().id]
        return [seen.described(now) for seen in self._seen.values()]

    def look_up(self, instance_ids: Collection[str]) -> Sequence[Instance]:
        return [seen for seen in self.observe("") if seen.id in instance_ids]

    def warned(self, instance_ids: Collection[str]) -> Mapping[str, datetime | None]:
        """An answer is as new as it can be."""
        if not instance_ids:
            return {}
        self._time.spend(CALL_S)
        known = [machine for i in instance_ids if (machine := self._cloud.machine(i)) and machine.is_spot]
        return {m.id: moment(m.warned_at) if m.is_warned else None for m in known}

    def start(self, instance_ids: Collection[str]) -> Mapping[str, Refusal]:
        self._time.spend(CALL_S)
        refused = {}
        for instance_id in instance_ids:
            seen, now = self._seen[instance_id], self._cloud.now
            if seen.state(now) is InstanceState.STOPPING:
                code = "IncorrectInstanceState"
                refused[instance_id] = Refusal(RefusalKind.OTHER, code, "it still stops", None)
            elif seen.state(now) is InstanceState.STOPPED:
                machine = self._cloud.resume(seen.machine)
                if machine is None:
                    code = _REFUSED[PurchaseOption.ON_DEMAND]
                    refused[instance_id] = Refusal(RefusalKind.CAPACITY, code, "no room", None)
                else:
                    self._cloud.postpone(machine, NEVER)
                    self._cloud.stopped(-1)
                    seen.machine, seen.stopped_at = machine, NEVER
                    seen.running_at = now + min(BOOT_S, self._cloud.settings.standby_start_s / 2)
                    self._tell(machine, InstanceState.RUNNING, seen.running_at)
        return refused

    def stop(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        """None is refused."""
        self._time.spend(CALL_S)
        for instance_id in instance_ids:
            machine = self._cloud.machine(instance_id)
            if machine is not None:
                self._cloud.terminate(machine)
                self._cloud.stopped(+1)
                self._seen[instance_id].stopped_at = self._cloud.now
                self._tell(machine, InstanceState.STOPPING, self._cloud.now)
                self._tell(machine, InstanceState.STOPPED, self._cloud.now + STOPPING_S)
        return {}

    def answers(self, instance_id: str) -> bool:
        """Whether the service on it would answer a request."""
        seen = self._seen.get(instance_id)
        if seen is None or seen.state(self._cloud.now) is not InstanceState.RUNNING:
            return False
        return self.serves_at(seen.machine) - CHECK_S <= self._cloud.now

    def serves_at(self, machine: Machine) -> float:
        """When it can serve: a cold start after its launch, or sooner if it was resumed.

        That includes the load balancer's checks, so it answers a probe earlier by what they take.
        """
        settings = self._cloud.settings
        is_resumed = machine.launched_at > self._first_launched[machine.id]
        return machine.launched_at + (settings.standby_start_s if is_resumed else settings.cold_start_s)

    def terminate(self, instance_ids: Collection[str]) -> Mapping[str, str]:
        """None is refused."""
        self._time.spend(CALL_S)
        for instance_id in instance_ids:
            seen = self._seen.get(instance_id)
            if seen is not None and seen.stopped_at != NEVER:
                self._cloud.stopped(-1)
                seen.stopped_at, seen.machine.ended_at = NEVER, self._cloud.now
                self.ended(seen.machine)
            machine = self._cloud.machine(instance_id)
            if machine is not None:
                self._cloud.terminate(machine)
                self.ended(machine)
        return {}

    def running(self, instance_id: str) -> Machine | None:
        """The machine, if it runs."""
        seen = self._seen.get(instance_id)
        is_running = seen is not None and seen.state(self._cloud.now) is InstanceState.RUNNING
        return seen.machine if seen is not None and is_running else None

    def ended(self, machine: Machine) -> None:
        """A machine has just ended, for whatever reason."""
        self._ended.append(machine)
        self._tell(machine, InstanceState.SHUTTING_DOWN, self._cloud.now)
        self._tell(machine, InstanceState.TERMINATED, self._cloud.now + SHUTTING_DOWN_S)

    def _begin(self, machine: Machine, request: LaunchRequest) -> Instance:
        self._cloud.postpone(machine, NEVER)  # nobody sends it requests until it is registered
        offering = machine.offering
        instance = Instance(
            machine.id,
            InstanceState.PENDING,
            Offering(self._zones.known_as[offering.pool], offering.purchase_option),
            moment(machine.launched_at),
            machine.launch_id,
            "10.0.0.1",
            request.spec.template(offering.purchase_option).id,
            request.highest_id,
        )
        boot_s = min(BOOT_S, self._cloud.settings.cold_start_s / 2)
        running_at = machine.launched_at + boot_s
        self._seen[machine.id] = _Seen(machine, running_at, instance)
        self._first_launched[machine.id] = machine.launched_at
        self._tell(machine, InstanceState.RUNNING, running_at)
        return instance


@dataclass(slots=True)
class _Target:
    machine: Machine
    gone_at: float = NEVER
    """When it is deregistered for good; while this is known it drains."""


class ReplayRouter:
    """`ports.Router` with one target group."""

    def __init__(self, cloud: ReplayCloud, time: Time, fleet: ReplayFleet) -> None:
        self._cloud = cloud
        self._time = time
        self._fleet = fleet
        self._targets: dict[str, _Target] = {}

    def register(
        self,
        spec: ServiceSpec,  # noqa: ARG002
        instance_ids: Collection[str],
        ports: Mapping[str, int] = NO_PORTS,  # noqa: ARG002
    ) -> frozenset[str]:
        self._time.spend(CALL_S)
        refused = set()
        for instance_id in instance_ids:
            machine = self._fleet.running(instance_id)
            if machine is None:
                refused.add(instance_id)
            elif machine.out_at != NEVER:
                self._targets[instance_id] = _Target(machine)
                self._cloud.readmit(machine, self._cloud.now + CHECK_S)
            elif instance_id not in self._targets or self._targets[instance_id].machine is not machine:
                self._targets[instance_id] = _Target(machine)
                if machine.up_at == NEVER:
                    serves_at = self._fleet.serves_at(machine)
                    self._cloud.postpone(machine, max(serves_at, self._cloud.now + CHECK_S))
        return frozenset(refused)

    def deregister(
        self,
        spec: ServiceSpec,
        instance_ids: Collection[str],
        ports: Mapping[str, int] = NO_PORTS,  # noqa: ARG002
    ) -> None:
        self._time.spend(CALL_S)
        for instance_id in instance_ids:
            target = self._targets.get(instance_id)
            if target is not None and target.gone_at == NEVER:
                target.gone_at = self._cloud.now + spec.deregistration_delay_s
                self._cloud.drain(target.machine)

    def ports(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, int]:  # noqa: ARG002
        return dict.fromkeys(self._targets, spec.port)

    def health(self, spec: ServiceSpec, slots: Collection[str] = ()) -> Mapping[str, TargetState]:  # noqa: ARG002
        self._time.spend(CALL_S)
        now = self._cloud.now
        gone = [id_ for id_, target in self._targets.items() if target.gone_at <= now]
        for id_ in gone:
            del self._targets[id_]
        return {id_: self._state(target, now) for id_, target in self._targets.items()}

    @staticmethod
    def _state(target: _Target, now: float) -> TargetState:
        if target.gone_at != NEVER:
            return TargetState.DRAINING
        if not target.machine.is_alive:
            return TargetState.UNUSED
        return TargetState.HEALTHY if target.machine.up_at <= now else TargetState.INITIAL


class ReplayServices:
    """`ports.Services`: one service, deployed throughout."""

    def __init__(self, spec: ServiceSpec) -> None:
        self._spec = spec

    def names(self) -> Sequence[str]:
        return [self._spec.service]

    def get(self, service: str, *, fresh: bool = False) -> ServiceSpec | None:  # noqa: ARG002
        return self._spec if service == self._spec.service else None


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


class ReplayNotices:
    """`ports.Notices`: nobody listens."""

    def publish(self, notices: Sequence[Notice]) -> Mapping[str, str]:  # noqa: ARG002
        return {}


class ReplayDeadLetters:
    """`ports.DeadLetters`: there are none."""

    def set_aside(self, body: str, why: str, source: str) -> None:
        raise ReplayError(f"{source}: {why}: {body}")


class ReplayError(RuntimeError):
    """The controller did what it never should where nothing fails: a mistake in it, or in the replay."""
