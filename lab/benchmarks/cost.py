"""What the control plane costs in a month: counted calls times AWS's list prices.

    .venv/bin/python -m lab.benchmarks.cost            # the tables
    .venv/bin/python -m lab.benchmarks.cost --write    # into docs/cost.md

The production controller and its production store run against ports that count: a table of moto's whose every
request is weighed as DynamoDB bills it, and fakes of EC2 and the load balancer, whose calls are free. Alarms,
dashboards and queues are counted in the templates. Nothing here takes account of AWS's free tiers.
"""

from __future__ import annotations

import io
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import boto3
from moto import mock_aws

import stacks  # noqa: F401 - first: it says which Node the CDK's packages start
from lab.benchmarks.scaled import ChargedProber, Situation, Traffic, situations
from lab.benchmarks.world import SUBNETS, MeasuredService, context
from spotrelay.plane.accounting.ledger import Ledger
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.days import DynamoDays
from spotrelay.plane.aws.loads import CloudWatchLoads
from spotrelay.plane.aws.store import DynamoStore
from spotrelay.plane.aws.table import Delete, Key, Put, Table, Update, Values, Write
from spotrelay.plane.aws.telemetry import PowertoolsTelemetry
from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core.held import Override
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.names import TABLE_PARTITION_KEY, TABLE_SORT_KEY
from spotrelay.plane.core.pools import CapacityPool, Image, Survey
from spotrelay.plane.core.ports import Ports
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import HOURS_OF_MONTH, seconds
from spotrelay.plane.events import InterruptionWarning, Signal, StateChange
from spotrelay.plane.memory import (
    MemoryClock,
    MemoryFleet,
    MemoryNotices,
    MemoryRouter,
    MemoryServices,
    MemoryTicker,
)
from spotrelay.plane.placement.surveying import Surveying
from spotrelay.plane.serving.incidents import ZEROS
from stacks.application import CONTROL_PLANE, SERVICE_PREFIX, build
from stacks.control_plane import SIGNAL_MEMORY_MIB, SURVEY_MEMORY_MIB, TICK_MEMORY_MIB
from stacks.prober import MEMORY_MIB as PROBER_MEMORY_MIB
from stacks.settings import AppSettings

if TYPE_CHECKING:
    from datetime import datetime

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "cost.md"
BEGIN, END = "<!-- begin: python -m lab.benchmarks.cost -->", "<!-- end -->"

PRICED_ON = "2026-11-22"
"""When the list prices were looked up, for us-east-1, in USD."""


@dataclass(frozen=True, slots=True)
class Price:
    """Of one unit, in USD."""

    usd: float
    unit: str
    source: str


CLOUDWATCH = "https://aws.amazon.com/cloudwatch/pricing/"
PRICES = {
    "metric": Price(0.30, "custom metric and month", CLOUDWATCH),
    "alarm": Price(0.10, "metric that an alarm looks at, and month", CLOUDWATCH),
    "dashboard": Price(3.00, "dashboard and month", CLOUDWATCH),
    "log": Price(0.50, "GB of log", CLOUDWATCH),
    "scan": Price(0.005, "GB of log that a query reads", CLOUDWATCH),
    "sqs": Price(0.40, "million requests", "https://aws.amazon.com/sqs/pricing/"),
    "invocation": Price(0.20, "million invocations", "https://aws.amazon.com/lambda/pricing/"),
    "gb_s": Price(13.3334, "million GB-seconds, arm64", "https://aws.amazon.com/lambda/pricing/"),
    "asked": Price(0.01, "thousand metrics that GetMetricData is asked for", CLOUDWATCH),
    "read": Price(0.125, "million read units", "https://aws.amazon.com/dynamodb/pricing/on-demand/"),
    "write": Price(0.625, "million write units", "https://aws.amazon.com/dynamodb/pricing/on-demand/"),
}

POLLERS, BOUND_POLLERS, POLL_S = 2, 5, 20.0
"""Lambda asks a queue at rest with as few as two requests at a time, says its guide, and with five where a
maximum concurrency is set. Each waits up to 20 s for a message
(https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html)."""

CALL_S, INVOCATION_S = 0.015, 0.03
"""Assumed, since no fake can tell: a call to AWS from within its region, and what an invocation takes beside
them."""

SURVEY_S = 10.0
"""Assumed: some forty calls, of which the largest gets a megabyte."""

PROBED_S = 0.2
"""Assumed: what the prober takes to read its replicas' metrics, while the tick waits."""

PLATFORM_LOG_B = 900
"""Of Lambda's own lines about each invocation: start, end, report, as JSON."""

REPLICAS = 3
SERVICE = "llama3"
STAYS = Situation("a number that stays", REPLICAS)
BOOTS_IN_S, STARTS_IN_S = 30.0, 100.0
"""From a launch until its instance runs, and until it is healthy."""

SETTLED_WITHIN_S = 420
OVER_WITHIN_S = 600
"""Whole minutes by which a service is at rest: after its deployment, and after an interruption."""

HEARD_WITHIN_S = 60 * (ZEROS + 1)
"""Until each alarm has heard that all is well."""

HOURS_OF_WEEK = 7 * 24

FOLLOWED_S = 300
"""So long takes a round of the looks at the load, one of which looks at more: see `SILENCE_MIN`."""


@dataclass(slots=True)
class Usage:
    """What is billed by use."""

    reads: float = 0
    writes: float = 0
    sqs: float = 0
    invocations: float = 0
    gb_s: float = 0
    log_b: float = 0
    asked: float = 0
    """Metrics, by GetMetricData."""

    def minus(self, other: Usage) -> Usage:
        """What came on top of `other`."""
        return Usage(*(getattr(self, n) - getattr(other, n) for n in Usage.__slots__))

    def times(self, factor: float) -> Usage:
        """So many times as much."""
        return Usage(*(getattr(self, n) * factor for n in Usage.__slots__))

    def plus(self, other: Usage) -> Usage:
        """Both."""
        return Usage(*(getattr(self, n) + getattr(other, n) for n in Usage.__slots__))


class WeighedTable(Table):
    """A table that weighs each request as DynamoDB's on-demand billing does."""

    def __init__(self, clients: Clients, name: str, usage: Usage, calls: Counter[str]) -> None:
        super().__init__(clients, name)
        self._usage = usage
        self._calls = calls

    def get(self, key: Key) -> Values:
        """A read of one item, counted by its size."""
        item = super().get(key)
        self._calls["dynamodb"] += 1
        self._usage.reads += _read_units(_size(item))
        return item

    def get_many(self, keys: Collection[Key]) -> dict[Key, Values]:
        """Reads, counted by the size of each item."""
        found = super().get_many(keys)
        self._calls["dynamodb"] += 1
        self._usage.reads += sum(_read_units(_size(found.get(key, {}))) for key in set(keys))
        return found

    def query(
        self, partition: str, *, start: str = "", newest_first: bool = False, limit: int | None = None
    ) -> list[tuple[Key, Values]]:
        """One read, counted by the size of all items together."""
        found = super().query(partition, start=start, newest_first=newest_first, limit=limit)
        self._calls["dynamodb"] += 1
        self._usage.reads += _read_units(sum(_size(item) for _, item in found))
        return found

    def write(self, write: Write) -> bool:
        """A write, counted by the item's size."""
        self._calls["dynamodb"] += 1
        before = super().get(write.key)
        is_written = super().write(write)
        self._usage.writes += self._weight(write, before)
        return is_written

    def transact(self, writes: Sequence[Write]) -> None:
        """Each write of a transaction is billed twice."""
        self._calls["dynamodb"] += 1
        before = {write.key: super(WeighedTable, self).get(write.key) for write in writes}
        super().transact(writes)
        self._usage.writes += sum(2 * self._weight(write, before[write.key]) for write in writes)

    def _weight(self, write: Write, before: Values) -> int:
        match write:
            case Put(values=values):
                after: Values = values
            case Update(values=values):
                after = {**before, **values}
            case Delete():
                after = {}
        return max(math.ceil(max(_size(before), _size(after)) / 1024), 1)


def _size(item: Values) -> int:
    """An item's bytes: names and values."""
    return sum(len(name) + len(str(value).encode()) for name, value in item.items() if value is not None)


def _read_units(size: int) -> int:
    """Of a strongly consistent read."""
    return max(math.ceil(size / 4096), 1)


class Called:
    """A port whose calls are counted."""

    def __init__(self, port: object, calls: Counter[str]) -> None:
        self._port = port
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._port, name)


@dataclass
class Queue:
    """`ports.Ticker`: a queue whose messages come when they are due."""

    clock: MemoryClock
    usage: Usage
    waiting: list[tuple[datetime, str, datetime | None]] = field(default_factory=list)

    def schedule(self, service: str, due: datetime | None = None, delay_s: float = 0) -> None:
        """A message, counted."""
        self.usage.sqs += 1
        self.waiting.append((self.clock.now() + seconds(delay_s), service, due))

    def schedule_leave(self, service: str, delay_s: float) -> None:
        """Counted as a tick, which calls more."""
        self.schedule(service, None, delay_s)

    def schedule_override(self, service: str, override: Override, delay_s: float) -> None:
        """Nothing is held back in these situations, so nobody overrides."""
        raise AssertionError(f"{service} is overridden in {delay_s} s: {override}")


class DeployedService:
    """The control plane with one service, in simulated time."""

    def __init__(self, clients: Clients, situation: Situation = STAYS) -> None:
        self.usage = Usage()
        self.metrics: set[str] = set()
        self._waited_s = 0.0
        self._calls: Counter[str] = Counter()
        self._clock = MemoryClock()
        self._fleet = MemoryFleet(self._clock)
        self._router = MemoryRouter(self._fleet)
        self._queue = Queue(self._clock, self.usage)
        self._spec = situation.of(MeasuredService(SERVICE, REPLICAS).spec)
        _make_table(clients)
        table = WeighedTable(clients, TABLE, self.usage, self._calls)
        start = self._clock.now()

        def elapsed_s() -> float:
            return (self._clock.now() - start).total_seconds()

        self._store = DynamoStore(table, elapsed_s)
        seen = cast("Clients", _Seen(Traffic(situation, self._ask)))
        self._days = DynamoDays(table)
        self._services = MemoryServices(self._spec)
        self._telemetry = PowertoolsTelemetry()
        numbers = count(1)
        ports = Ports(
            store=self._store,
            fleet=cast("Any", Called(self._fleet, self._calls)),
            router=cast("Any", Called(self._router, self._calls)),
            prober=ChargedProber(self._probe),
            loads=CloudWatchLoads(seen, elapsed_s),
            ticker=self._queue,
            notices=cast("Any", Called(MemoryNotices(), self._calls)),
            services=cast("Any", Called(self._services, self._calls)),
            telemetry=self._telemetry,
            clock=self._clock,
            new_id=lambda: f"{next(numbers):032x}",
        )
        self._controller = Controller(ports)
        self._signals: list[tuple[datetime, Signal]] = []
        self._since_minute_s = 60.0
        self._ends: tuple[datetime, str] | None = None

    def run(self, duration_s: int) -> None:
        """Let time pass, a second at a time, with a schedule's tick each minute."""
        for _ in range(duration_s):
            self._clock.advance(1)
            self._since_minute_s += 1
            self._let_instances_start()
            now = self._clock.now()
            due = [signal for at, signal in self._signals if at <= now]
            self._signals = [(at, signal) for at, signal in self._signals if at > now]
            if due:
                self.usage.sqs += len(due)
                self._invoke(SIGNAL_MEMORY_MIB, len(due), partial(self._controller.handle, due))
            if self._since_minute_s >= 60:
                self._since_minute_s = 0
                self.usage.sqs += 1
                self._invoke(TICK_MEMORY_MIB, 1, self._controller.tick_all)
            ticks = [tick for tick in self._queue.waiting if tick[0] <= now]
            self._queue.waiting = [tick for tick in self._queue.waiting if tick[0] > now]
            for _, service, serving in ticks:
                self._invoke(TICK_MEMORY_MIB, 1, partial(self._controller.tick, service, serving))

    def survey(self) -> None:
        """What happens each hour."""
        zones = sorted(set(SUBNETS.values()))
        pools = tuple(CapacityPool("us-east-1", z, t) for t in self._spec.instance_types for z in zones)
        found = Survey(
            SERVICE,
            self._spec.asked,
            self._clock.now(),
            pools,
            dict.fromkeys(self._spec.instance_types, 1.23456),
            dict.fromkeys(pools, 0.456789),
            dict.fromkeys(zones, 7),
        )
        prices = _SpotPrices({pool: [(self._clock.now(), 0.456789)] for pool in pools})
        ledger = Ledger(self._services, self._store, self._days, prices, self._telemetry, self._clock)
        surveying = Surveying(
            self._services,
            _Found(found),
            self._store,
            MemoryTicker(),
            self._telemetry,
            self._clock,
            ledger.written_until,
        )

        def survey() -> None:
            surveying.survey([SERVICE])
            ledger.write([SERVICE])

        self._invoke(SURVEY_MEMORY_MIB, 0, survey, SURVEY_S)

    def interrupt(self) -> None:
        """EC2 warns a replica, and takes it two minutes later; each of its events comes."""
        victim = next(i for i in self._fleet.instances.values() if i.state is InstanceState.RUNNING)
        now = self._clock.now()
        ends = now + seconds(120)
        self._fleet.interrupted[victim.id] = now
        self._signals += [
            (now, InterruptionWarning(victim.id, now, "terminate")),
            (ends, StateChange(victim.id, ends, InstanceState.SHUTTING_DOWN)),
            (ends + seconds(30), StateChange(victim.id, ends, InstanceState.TERMINATED)),
        ]
        self._ends = (ends + seconds(30), victim.id)

    def is_whole(self) -> bool:
        """Whether all replicas serve, and nobody looks for anything."""
        states = list(self._router.health(self._spec).values())
        return states == [TargetState.HEALTHY] * self._spec.replicas and not self._queue.waiting

    def _ask(self, metrics: int) -> None:
        self.usage.asked += metrics
        self._calls["cloudwatch"] += 1

    def _probe(self) -> None:
        self.usage.invocations += 1
        self.usage.gb_s += PROBER_MEMORY_MIB / 1024 * PROBED_S
        self.usage.log_b += PLATFORM_LOG_B
        self._calls["lambda"] += 1
        self._waited_s += PROBED_S

    def _let_instances_start(self) -> None:
        now = self._clock.now()
        if self._ends and self._ends[0] <= now:
            self._fleet.interrupted.pop(self._ends[1])
            self._fleet.enter(InstanceState.TERMINATED, [self._ends[1]])
            self._ends = None
        ages = {i.id: (now - i.launched_at).total_seconds() for i in self._fleet.instances.values()}
        for instance in list(self._fleet.instances.values()):
            if instance.state is InstanceState.PENDING and ages[instance.id] >= BOOTS_IN_S:
                self._fleet.enter(InstanceState.RUNNING, [instance.id])
                self._signals.append((now, StateChange(instance.id, now, InstanceState.RUNNING)))
        health = self._router.health(self._spec)
        initial = [id_ for id_, state in health.items() if state is TargetState.INITIAL]
        if all(ages[id_] >= STARTS_IN_S for id_ in initial):
            self._router.pass_checks()

    def _invoke(
        self, memory_mib: int, messages: int, act: Callable[[], object], beside_s: float = INVOCATION_S
    ) -> None:
        """One invocation; each message that brought it is deleted from its queue afterwards."""
        self._calls.clear()
        self._waited_s = 0
        log = io.StringIO()
        with redirect_stdout(log), self._telemetry.invocation(context()):
            act()
        lasted_s = beside_s + CALL_S * self._calls.total() + self._waited_s
        self.usage.sqs += messages
        self.usage.invocations += 1
        self.usage.gb_s += memory_mib / 1024 * lasted_s
        self.usage.log_b += len(log.getvalue().encode()) + PLATFORM_LOG_B
        self.metrics |= set(_metrics(log.getvalue()))


@dataclass(frozen=True, slots=True)
class _Seen:
    """Clients, of which only CloudWatch's is asked."""

    cloudwatch: Traffic


@dataclass(frozen=True, slots=True)
class _Found:
    """A surveyor that finds what it is told to."""

    survey_: Survey

    def survey(self, spec: ServiceSpec, now: datetime) -> Survey:  # noqa: ARG002
        """What it was told to find."""
        return self.survey_

    def images(self, spec: ServiceSpec, versions: Collection[int]) -> Mapping[int, Image]:  # noqa: ARG002
        """One image for all versions."""
        return {version: Image("ami-0123456789abcdef0", self.survey_.at) for version in versions}

    def announced(self) -> Mapping[str, str]:
        """Nothing."""
        return {}


@dataclass(frozen=True)
class _SpotPrices:
    """Prices that don't change."""

    changes: Mapping[CapacityPool, Sequence[tuple[datetime, float]]]

    def spot_since(
        self,
        region: str,  # noqa: ARG002
        types: Collection[str],  # noqa: ARG002
        start: datetime,  # noqa: ARG002
    ) -> Mapping[CapacityPool, Sequence[tuple[datetime, float]]]:
        """The changes that were given."""
        return self.changes

    def on_demand(self, region: str, instance_type: str) -> float | None:
        """Not asked for: the survey knows all types."""
        raise AssertionError(f"nobody need ask for {instance_type} in {region}")


TABLE = "spotrelay"


def _make_table(clients: Clients) -> None:
    keys = {TABLE_PARTITION_KEY: "HASH", TABLE_SORT_KEY: "RANGE"}
    clients.dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
        KeySchema=[{"AttributeName": n, "KeyType": cast("Any", kind)} for n, kind in keys.items()],
    )


def _metrics(log: str) -> Iterator[str]:
    """Each of CloudWatch's metrics that log lines carry: name and dimensions."""
    for line in log.splitlines():
        written = json.loads(line)
        for group in written.get("_aws", {}).get("CloudWatchMetrics", []):
            for names in group["Dimensions"]:
                dimensions = ",".join(str(written[name]) for name in names)
                yield from (f"{metric['Name']} of {dimensions}" for metric in group["Metrics"])


@dataclass(frozen=True, slots=True)
class Followed:
    """What a service costs more in a situation if its number of replicas follows its load."""

    situation: Situation
    minute: Usage
    metrics: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Everything that the prices are for."""

    minute: Usage
    """Of a service at rest, the schedule's own tick included."""
    schedule: Usage
    """Of a minute without any service."""
    hour: Usage
    """A service's survey."""
    interruption: Usage
    metrics_at_rest: int
    """Of one service."""
    metrics_of_interruptions: int
    """That come with them, in every hour that has one."""
    alarms: int
    """Metrics that the control plane's alarms look at: an alarm on metric math has several."""
    service_alarms: int
    """The same of a service's."""
    alarms_heard: int
    """A service's alarms that hear once a week that all is well: each has its own metric for that hour."""
    dashboards: int
    """The control plane's: a service has none."""
    queries: int
    """Of logs, whenever somebody looks at the dashboard."""
    pollers: int
    """Requests with which Lambda asks the queues, all the time."""
    followed: Sequence[Followed]


def counted() -> Counts:
    """Count it all."""
    with _quiet_aws() as clients:
        idle = DeployedService(clients)
        idle._services.specs.clear()
        idle.run(120)
        schedule = idle.usage.times(1 / 2)
    with _quiet_aws() as clients:
        one = DeployedService(clients)
        one.run(SETTLED_WITHIN_S)
        assert one.is_whole(), "the service isn't at rest"
        one.survey()  # a new service is surveyed at once: then it is known what instances cost
        one.run(HEARD_WITHIN_S)
        one.metrics.clear()
        minute = _of(one, lambda: one.run(300)).times(1 / 5)
        hour = _of(one, one.survey)
        at_rest = set(one.metrics)
        one.interrupt()
        interruption = _of(one, lambda: one.run(OVER_WITHIN_S)).minus(minute.times(OVER_WITHIN_S / 60))
        assert one.is_whole(), "the interruption isn't over"
    control_plane, service = _templates()
    return Counts(
        minute=minute,
        schedule=schedule,
        hour=hour,
        interruption=interruption,
        metrics_at_rest=len(at_rest),
        metrics_of_interruptions=len(one.metrics - at_rest),
        alarms=control_plane[ALARM_METRICS],
        service_alarms=service[ALARM_METRICS],
        alarms_heard=len(one._spec.alarms),
        dashboards=control_plane["AWS::CloudWatch::Dashboard"],
        queries=control_plane[QUERIES],
        pollers=control_plane[QUEUE_POLLERS],
        followed=[_followed(situation) for situation in situations(REPLICAS)],
    )


def _followed(situation: Situation) -> Followed:
    """Beyond what the same service costs whose number of replicas stays."""
    usage, metrics = _at_rest(situation)
    usage_before, metrics_before = _at_rest_before(situation.replicas)
    return Followed(situation, usage.minus(usage_before), metrics - metrics_before)


@cache
def _at_rest_before(replicas: int) -> tuple[Usage, int]:
    return _at_rest(replace(STAYS, replicas=replicas))


def _at_rest(situation: Situation) -> tuple[Usage, int]:
    """Its minute, and how many metrics it has."""
    with _quiet_aws() as clients:
        service = DeployedService(clients, situation)
        service.run(SETTLED_WITHIN_S)
        assert service.is_whole(), f"{situation.name}: it isn't at rest"
        service.metrics.clear()
        usage = _of(service, partial(service.run, FOLLOWED_S)).times(60 / FOLLOWED_S)
        return usage, len(service.metrics)


def _of(deployment: DeployedService, act: Callable[[], None]) -> Usage:
    before = deployment.usage.times(1)
    act()
    return deployment.usage.minus(before)


@contextmanager
def _quiet_aws() -> Iterator[Clients]:
    with mock_aws():
        yield Clients(boto3.Session("testing", "testing", region_name="us-east-1"))


ALARM_METRICS, QUEUE_POLLERS, QUERIES = "metrics of alarms", "pollers of queues", "queries of dashboards"
"""Counted beside the types of resources."""

LOG_WIDGET = r"""{\"type\":\"log\","""
"""How one begins in a template: a board's body is JSON in a JSON string."""


def _templates() -> tuple[Counter[str], Counter[str]]:
    """How many resources of each type the control plane's stack has, and a service's; and what they make."""
    import aws_cdk as cdk

    with tempfile.TemporaryDirectory() as directory:
        app = cdk.App(outdir=directory)
        build(app, AppSettings(services=(ROOT / "services" / f"{SERVICE}.yaml",)))
        app.synth()
        return _types(Path(directory), CONTROL_PLANE), _types(Path(directory), SERVICE_PREFIX + SERVICE)


def _types(assembly: Path, stack: str) -> Counter[str]:
    template = json.loads((assembly / f"{stack}.template.json").read_text(encoding="utf-8"))
    resources = template["Resources"].values()
    found = Counter(resource["Type"] for resource in resources)
    for resource in resources:
        if resource["Type"] == "AWS::CloudWatch::Alarm":
            queries = resource["Properties"].get("Metrics", [{"MetricStat": {}}])
            found[ALARM_METRICS] += sum("MetricStat" in query for query in queries)
        elif resource["Type"] == "AWS::Lambda::EventSourceMapping":
            found[QUEUE_POLLERS] += BOUND_POLLERS if "ScalingConfig" in resource["Properties"] else POLLERS
        elif resource["Type"] == "AWS::CloudWatch::Dashboard":
            found[QUERIES] += json.dumps(resource["Properties"]["DashboardBody"]).count(LOG_WIDGET)
    return found


SHOWN_H = 12
"""What the dashboard shows unless somebody chooses another time."""

FLEETS = (1, 10, 100)
INTERRUPTIONS = 1000


def rows(counts: Counts) -> list[tuple[str, str, list[float]]]:
    """What a month costs, item by item: what it is, its count, and USD for each of `FLEETS`, then for
    `INTERRUPTIONS` more."""
    minutes = HOURS_OF_MONTH * 60

    def at_rest(services: int) -> Usage:
        own = counts.minute.minus(counts.schedule).times(minutes).plus(counts.hour.times(HOURS_OF_MONTH))
        return counts.schedule.times(minutes).plus(own.times(services))

    usages = [at_rest(services) for services in FLEETS] + [counts.interruption.times(INTERRUPTIONS)]

    def used(name: str, unit: float, price: str) -> list[float]:
        return [getattr(usage, name) / unit * PRICES[price].usd for usage in usages]

    def each(price: str, fixed: float, per_service: float = 0, interrupted: float = 0) -> list[float]:
        owned = [fixed + per_service * services for services in FLEETS]
        return [PRICES[price].usd * number for number in (*owned, interrupted)]

    polls = counts.pollers * HOURS_OF_MONTH * 3600 / POLL_S
    rest = counts.minute.minus(counts.schedule)
    lambda_usd = [
        a + b for a, b in zip(used("invocations", 1e6, "invocation"), used("gb_s", 1e6, "gb_s"), strict=True)
    ]
    return [
        ("Dashboards", str(counts.dashboards), each("dashboard", counts.dashboards)),
        ("Alarms of the control plane", f"{counts.alarms} metrics", each("alarm", counts.alarms)),
        ("Alarms of each service", f"{counts.service_alarms} metrics each",
         each("alarm", 0, counts.service_alarms)),
        ("Metrics", f"{counts.metrics_at_rest} each, and of {counts.alarms_heard} alarms an hour a week;"
         f" {counts.metrics_of_interruptions} in an hour with an interruption",
         each("metric", 0, counts.metrics_at_rest + counts.alarms_heard / HOURS_OF_WEEK,
              counts.metrics_of_interruptions)),
        ("SQS: Lambda asks the queues", f"{counts.pollers} pollers, {polls / 1e6:.2f} million requests", [
            *[polls / 1e6 * PRICES["sqs"].usd] * len(FLEETS), 0]),
        ("SQS: messages", f"{rest.sqs:.1f} requests per minute and service", used("sqs", 1e6, "sqs")),
        ("Lambda", f"{rest.invocations:.1f} invocations per minute and service, one for all, one"
         " survey per hour and service", lambda_usd),
        ("DynamoDB: reads", f"{rest.reads:.1f} units per minute and service", used("reads", 1e6, "read")),
        ("DynamoDB: writes", f"{rest.writes:.1f} units per minute and service", used("writes", 1e6, "write")),
        ("Logs", f"{rest.log_b / 1024:.1f} KiB per minute and service", used("log_b", 1e9, "log")),
    ]  # fmt: skip


def followed_rows(counts: Counts) -> list[tuple[str, str, list[float]]]:
    """What it costs more a month that a number follows the load, as `rows`, for each situation."""
    minutes = HOURS_OF_MONTH * 60
    usages = [one.minute.times(minutes) for one in counts.followed]
    asked = ", ".join(f"{one.minute.asked:.1f}" for one in counts.followed)

    def used(**prices: float) -> list[float]:
        return [sum(getattr(usage, name) * usd for name, usd in prices.items()) for usage in usages]

    million = {name: PRICES[name].usd / 1e6 for name in ("invocation", "gb_s", "read", "write")}
    return [
        ("CloudWatch is asked", f"{asked} metrics per minute", used(asked=PRICES["asked"].usd / 1e3)),
        ("Metrics", f"{', '.join(str(one.metrics) for one in counts.followed)}",
         [PRICES["metric"].usd * one.metrics for one in counts.followed]),
        ("Lambda", "a call of CloudWatch, or of the prober, per minute",
         used(invocations=million["invocation"], gb_s=million["gb_s"])),
        ("DynamoDB", "a write per minute for `ongoing`",
         used(reads=million["read"], writes=million["write"])),
        ("Logs", "the prober's", used(log_b=PRICES["log"].usd / 1e9)),
    ]  # fmt: skip


def total(table: Sequence[tuple[str, str, Sequence[float]]]) -> list[float]:
    """The sums of the columns."""
    return [sum(column) for column in zip(*(usd for _, _, usd in table), strict=True)]


def report(counts: Counts) -> str:
    """The tables as docs/cost.md has them."""
    table = rows(counts)
    heads = ["1 service", *(f"{services} services" for services in FLEETS[1:])]
    lines = [
        f"| | counted | {' | '.join(heads)} | {INTERRUPTIONS:,} interruptions |",
        f"|---|---|{'---:|' * (len(FLEETS) + 1)}",
        *(f"| {what} | {how_many} | {_usd(usd)} |" for what, how_many, usd in table),
        f"| **Total** | | {_usd(total(table), bold=True)} |",
        "",
        f"USD for a month of {HOURS_OF_MONTH} hours in us-east-1. One interruption took"
        f" {counts.interruption.invocations:.0f} invocations, {counts.interruption.reads:.0f} read and"
        f" {counts.interruption.writes:.0f} write units and {counts.interruption.sqs:.0f} SQS requests beyond"
        " those of the service at rest.",
        "",
        *_followed_table(counts),
        f"The dashboard costs something besides when somebody looks: {counts.queries} queries read the log of"
        f" {SHOWN_H} hours, {_scanned_gb(counts) * 1000:.0f} MB with one service at rest, for"
        f" {_scanned_gb(counts) * PRICES['scan'].usd:.4f} USD, and as much more with each further one.",
        "",
        f"| list price on {PRICED_ON} | USD | per | |",
        "|---|---:|---|---|",
        *(
            f"| {name} | {price.usd:g} | {price.unit} | [source]({price.source}) |"
            for name, price in PRICES.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _followed_table(counts: Counts) -> Iterator[str]:
    names = (one.situation.name for one in counts.followed)
    table = followed_rows(counts)
    yield f"| a number that follows the load: more | counted | {' | '.join(names)} |"
    yield f"|---|---|{'---:|' * len(counts.followed)}"
    yield from (f"| {what} | {how_many} | {_usd(usd)} |" for what, how_many, usd in table)
    yield f"| **Total** | | {_usd(total(table), bold=True)} |"


def _scanned_gb(counts: Counts) -> float:
    """What one look at the dashboard reads: each of its queries all of the log that it shows."""
    per_hour = counts.minute.times(60).plus(counts.hour)
    return counts.queries * SHOWN_H * per_hour.log_b / 1e9


def _usd(amounts: Sequence[float], *, bold: bool = False) -> str:
    return " | ".join(f"**{amount:.2f}**" if bold else f"{amount:.2f}" for amount in amounts)


def in_document(text: str) -> str:
    """The part of docs/cost.md that this writes."""
    return text.partition(BEGIN + "\n")[2].partition(END)[0]


def main(arguments: Sequence[str]) -> int:
    """Print the tables, or write them."""
    tables = report(counted())
    if "--write" in arguments:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN + "\n")
        after = rest.partition(END)[2]
        DOCUMENT.write_text("".join((before, BEGIN, "\n", tables, END, after)), encoding="utf-8")
    else:
        sys.stdout.write(tables)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
