"""The production controller as a policy of the replay: what the functions run, from their messages on.

Events reach it a second after they happened, calls take time, ticks come as production asks for them and each
minute. One invocation runs at a time. In production they run side by side, so this is a little slower.

**Minutes that are skipped.** A tick decides on the rows, on what EC2 and the load balancer show, and on the
time. If every replica is READY on Spot and none is warned, there are as many as wanted, no launch is open, no
message waits, and the last tick saw just this and changed nothing, then the next one sees the same but for
the time; and nothing that production does to such a fleet depends on that: cooldowns, back-offs and retries
are looked at when there is something to launch, hysteresis when there is a fallback, drain deadlines when a
warned replica serves on. So the minute's ticks stop until something happens, an unheard warning included, and
go on at the next full minute. In any other state each one runs; and where replicas move to cheaper Spot, in
this one, too: they do so after a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import NamedTuple

from lab.replay.cloud import ADVISED, LOST, NEVER, WARNED, ReplayCloud
from lab.replay.ports import (
    ReplayDeadLetters,
    ReplayFleet,
    ReplayProber,
    ReplayRouter,
    ReplayTelemetry,
    ReplayTicker,
    Time,
    Zones,
    moment,
)
from lab.replay.result import StandbysFound
from lab.replay.settings import ReplaySettings
from lab.world.events import rebalance, state_change, warning
from lab.world.instances import Since
from spotrelay.plane.control.controller import Controller
from spotrelay.plane.control.intake import Intake
from spotrelay.plane.core.names import service_parameter
from spotrelay.plane.core.pools import PurchaseOption, Survey
from spotrelay.plane.core.ports import Ports
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.spec import ReadinessProbe, ServiceSpec
from spotrelay.plane.memory import MemoryLoads, MemoryNotices, MemoryServices, MemoryStore

SERVICE = "replayed"

EVENT_S = (0.5, 1.5)
"""From EC2's event to the function: EventBridge takes about half a second, SQS and polling the rest."""

QUEUE_S = 0.1
"""From a message's due time to the function: a long poll answers at once."""

INVOKE_S = 0.2
"""What an invocation takes beside its calls of EC2 and the load balancer: its start, and a few reads and
writes of the table at ten milliseconds each."""

BATCH = 10
"""Signals that a function takes at a time, as the stack sets it."""

SCHEDULE_S = 60.0
"""EventBridge's schedule of ticks."""

SURVEY_S = 3600.0
"""Between surveys of what Spot costs, as the control plane's stack has it."""

SCHEDULE_EVENT = '{"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}'

DEPLOYED_EVENT = f'{{"source": "aws.ssm", "detail": {{"name": "{service_parameter(SERVICE)}"}}}}'


def spec_of(settings: ReplaySettings, zones: Zones) -> ServiceSpec:
    """The runtime document of a service that may use every pool of the recording."""
    return ServiceSpec(
        service=SERVICE,
        version=1,
        replicas=settings.replicas,
        use_spot=True,
        instance_types=tuple(dict.fromkeys(pool.instance_type for pool in zones.real)),
        ordered=False,
        subnets={f"subnet-{zone}": zone for zone in zones.names},
        launch_template_id="lt-replayed",
        target_group_arn="arn:replayed",
        port=8000,
        on_demand_fallback=True,
        drain_s=settings.drain_s,
        on_warning=settings.on_warning,
        on_rebalance=settings.on_rebalance,
        # No replica fails to start here: late enough that none is given up.
        initial_delay_s=600 + 3 * settings.cold_start_s,
        # A standby must show that it is prepared; without standbys the health check is all there is.
        readiness_probe=PROBE if settings.standby else None,
        standby=settings.replicas if settings.standby == "auto" else settings.standby,
        standby_auto=settings.standby == "auto",
        rebalance_cost=settings.rebalance_cost,
    )


PROBE = ReadinessProbe("/", {}, timeout_s=2)
"""Refused at once while the model loads, as a server that doesn't listen yet does."""


class _Message(NamedTuple):
    at: float
    number: int
    body: str
    is_tick: bool


class ReplayDeployment:
    """A deployed control plane with one service, its queues and its functions."""

    def __init__(self, cloud: ReplayCloud) -> None:
        self.cloud = cloud
        self.store = MemoryStore()
        self.telemetry = ReplayTelemetry(cloud)
        self._queue: list[_Message] = []
        self._numbers = count()
        self._zones = Zones(cloud.pools)
        self._survey_at = NEVER if cloud.settings.rebalance_cost is None else 0.0
        self._random = Random(f"{cloud.settings.seed} delivery")  # noqa: S311 - to be repeated
        self.spec = spec_of(cloud.settings, self._zones)
        time = Time(cloud, self._advance)
        self._spend = time.spend
        self.fleet = ReplayFleet(cloud, time, self._zones, self._tell)
        launches = count(1)
        ports = Ports(
            store=self.store,
            fleet=self.fleet,
            router=ReplayRouter(cloud, time, self.fleet),
            prober=ReplayProber(time, self.fleet),
            loads=MemoryLoads(),
            ticker=ReplayTicker(lambda body, delay_s: self._send(body, delay_s + QUEUE_S, is_tick=True)),
            notices=MemoryNotices(),
            services=MemoryServices(self.spec),
            telemetry=self.telemetry,
            clock=time,
            new_id=lambda: f"id-{next(launches):08d}",
        )
        self.intake = Intake(Controller(ports), ReplayDeadLetters(), self.telemetry)
        self.ticks = 0
        """Messages of the tick queue that were handled."""
        self._minute = self._first_minute = self._random.uniform(0, SCHEDULE_S)
        self._seen_last: tuple[object, ...] | None = None
        """The rows as the last scheduled tick found them."""
        self._send(DEPLOYED_EVENT, 0.0, is_tick=True)

    def run(self, until: float, progress: Callable[[float], None] | None = None) -> None:
        """Let everything happen that is due before that time."""
        cloud, queue = self.cloud, self._queue
        while True:
            due = min(queue[0].at if queue else NEVER, self._minute)
            at = min(due, self._survey_at, cloud.next_event_at())
            if at >= until:
                return
            self._advance(at)
            if self._survey_at <= cloud.now:
                self._survey()
            if due <= cloud.now:
                if queue and queue[0].at <= cloud.now:
                    self._invoke()
                else:
                    self._schedule()
            if self._minute == NEVER and (queue or cloud.warned()):
                self._minute = self._next_minute()
            if progress is not None:
                progress(cloud.now)

    def _advance(self, to: float) -> None:
        """Let time pass in the cloud; what EC2 has to say is put on the bus."""
        for at, kind, machine in self.cloud.advance(max(to, self.cloud.now)):
            if kind is WARNED:
                self._say(warning(machine.id, moment(at), "terminate"), at)
            elif kind is ADVISED:
                self._say(rebalance(machine.id, moment(at)), at)
            elif kind is LOST:
                self.fleet.ended(machine)

    def _invoke(self) -> None:
        """The function behind the queue whose message is first takes what is due."""
        queue, now = self._queue, self.cloud.now
        self._spend(INVOKE_S)
        if queue[0].is_tick:
            self.ticks += 1
            self.intake.tick(heappop(queue).body)
            return
        batch: dict[str, str] = {}
        while queue and queue[0].at <= now and not queue[0].is_tick and len(batch) < BATCH:
            message = heappop(queue)
            batch[str(message.number)] = message.body
        self._handle(batch)

    def _handle(self, batch: Mapping[str, str]) -> None:
        again = self.intake.signals(batch)
        assert not again, f"nothing fails here, but {again} of {batch} did"  # noqa: S101

    def _schedule(self) -> None:
        """A minute is over."""
        rows = self._rows()
        if rows is not None and rows == self._seen_last and not self._queue and not self.cloud.warned():
            self._minute = NEVER  # see the module's docstring
            return
        self._seen_last = rows
        self._minute = self._next_minute()
        self._spend(INVOKE_S)
        self.ticks += 1
        self.intake.tick(SCHEDULE_EVENT)

    def _survey(self) -> None:
        """Put on record what Spot costs now: nothing else that a survey finds out is in a recording."""
        cloud = self.cloud
        prices = {known: cloud.price(pool) for known, pool in self._zones.real.items()}
        survey = Survey(SERVICE, self.spec.asked, moment(cloud.now), tuple(prices), spot_prices=prices)
        self.store.note_survey(survey)
        self._survey_at += SURVEY_S

    def _next_minute(self) -> float:
        passed = (self.cloud.now - self._first_minute) // SCHEDULE_S
        minute = self._first_minute + (passed + 1) * SCHEDULE_S
        # Rounding may put a full minute just before itself.
        return minute if minute > self.cloud.now else minute + SCHEDULE_S

    def _rows(self) -> tuple[object, ...] | None:
        """The rows' revisions if the fleet is at rest, None if anything about it may depend on the time."""
        rows = self.store.load(SERVICE)
        standbys = [r for r in rows.replicas.values() if r.state is ReplicaState.STANDBY]
        replicas = [r for r in rows.replicas.values() if r.state is not ReplicaState.STANDBY]
        is_at_rest = (
            self.spec.rebalance_cost is None
            and len(replicas) == self.spec.replicas
            and len(standbys) == (rows.document or self.spec).standby
            and all(r.resume_s is not None for r in standbys)
            and not rows.intents
            and all(
                r.stays
                # Whether it is replaced may depend on the time.
                and r.rebalance_at is None
                and r.offering is not None
                and r.offering.purchase_option is PurchaseOption.SPOT
                for r in replicas
            )
        )
        return tuple((r.id, r.revision) for r in rows.replicas.values()) if is_at_rest else None

    def _tell(self, instance_id: str, states: Sequence[Since]) -> None:
        """EC2 says that the instance enters the states, each at its time."""
        for at, state in states:
            self._say(state_change(instance_id, moment(at), state), at)

    def _say(self, event: str, at: float) -> None:
        self._send(event, at - self.cloud.now + self._random.uniform(*EVENT_S), is_tick=False)

    def _send(self, body: str, delay_s: float, *, is_tick: bool) -> None:
        heappush(self._queue, _Message(self.cloud.now + delay_s, next(self._numbers), body, is_tick))


def drive(
    cloud: ReplayCloud, until: float, progress: Callable[[float], None] | None = None
) -> Sequence[StandbysFound]:
    """Run the production code in the cloud until that time; which numbers of standbys it found to pay."""
    deployment = ReplayDeployment(cloud)
    deployment.run(until, progress)
    return deployment.telemetry.standbys
