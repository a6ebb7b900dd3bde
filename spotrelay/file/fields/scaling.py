"""The fields about a number of replicas that follows the load: SkyServe's, and what it has no place for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from spotrelay.file.instance import gpu
from spotrelay.file.values.candidate import Fields
from spotrelay.file.values.parsing import Finding, parse_accelerators, rejected
from spotrelay.messages import shown
from spotrelay.plane.core.instance_types import InstanceType
from spotrelay.plane.core.requirements import Accelerators
from spotrelay.plane.core.scaling import MAX_REPLICAS, MetricTarget, OngoingTarget, Scaling, Schedule
from spotrelay.plane.core.schedules import Cron, CronError

MAX_SCHEDULES = 20
"""Each is looked at in every tick, and is some 100 of the runtime document's 8,192 characters."""

MAX_ONGOING_METRICS = 10
"""Of one server. vLLM's requests are two; a handful of servers behind one port may have some each."""

VLLM_METRICS = ("vllm:num_requests_running", "vllm:num_requests_waiting")

_METRIC_NAME = r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"
"""As the Prometheus text format has it, without labels: all of them are summed."""

MetricNames = list[Annotated[str, Field(pattern=_METRIC_NAME, max_length=200)]]

METRICS_PATH = Field(
    default="/metrics", pattern=r"^/[\x21-\x7e]*$", max_length=1024, description="a path such as /metrics"
)

_REPLICAS = f"a whole number from 0 to {MAX_REPLICAS}"


class _Range(Fields):
    min_replicas: int = Field(ge=0, le=MAX_REPLICAS, description=_REPLICAS)
    max_replicas: int | None = Field(default=None, ge=0, le=MAX_REPLICAS, description=_REPLICAS)

    @property
    def most(self) -> int:
        """The most replicas that there may be: the fewest, where the file says nothing else."""
        return self.min_replicas if self.max_replicas is None else self.max_replicas

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.most < self.min_replicas:
            message = f"expected min_replicas, {self.min_replicas}, or more, got {self.most}"
            raise rejected(Finding(("max_replicas",), message))
        return self


def _qps(value: Any) -> Any:
    """A number, or one for each accelerator."""
    if isinstance(value, dict) and value:
        wrong = [name for name, qps in value.items() if not _is_positive(qps)]
        if not wrong:
            return {name: float(qps) for name, qps in value.items()}
        findings = [
            Finding((name,), f"expected a number more than 0, got {shown(value[name])}") for name in wrong
        ]
        raise rejected(*findings)
    if not _is_positive(value):
        raise rejected(Finding((), f"expected {_QPS}, got {shown(value)}"))
    return float(value)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


_QPS = "requests a second, more than 0, or a mapping of accelerators to them"


class ReplicaPolicy(_Range):
    """A number of replicas that follows the load, in SkyServe's format; see `dialect` for the fallbacks."""

    target_qps_per_replica: Annotated[float | dict[str, float] | None, BeforeValidator(_qps)] = Field(
        default=None, description=_QPS
    )
    upscale_delay_seconds: int = Field(
        default=300, ge=0, le=86_400, description="whole seconds from 0 to 86400"
    )
    downscale_delay_seconds: int = Field(
        default=1200, ge=0, le=86_400, description="whole seconds from 0 to 86400"
    )
    num_overprovision: int = Field(default=0, ge=0, le=MAX_REPLICAS, description=_REPLICAS)
    spot_placer: str | None = Field(
        default=None, pattern="^dynamic_fallback$", description="dynamic_fallback"
    )


class MetricSection(Fields):
    """A CloudWatch metric."""

    namespace: str = Field(min_length=1, max_length=255, description="a namespace such as AWS/SQS")
    name: str = Field(min_length=1, max_length=255, description="the metric's name")
    dimensions: dict[str, str] = Field(default_factory=dict, max_length=30, description="names and values")
    statistic: str = Field(
        default="Average",
        pattern=r"^(Average|Sum|Minimum|Maximum|SampleCount|p[0-9]{1,2}(\.[0-9]+)?)$",
        description="Average, Sum, Minimum, Maximum, SampleCount or a percentile such as p90",
    )
    target_value: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="the average to keep, more than 0"
    )
    target_per_replica: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="a replica's part of the total, more than 0"
    )

    @model_validator(mode="after")
    def _one_target(self) -> MetricSection:
        if (self.target_value is None) == (self.target_per_replica is None):
            message = (
                "expected one of target_value (an average that is to stay, such as a utilisation) and"
                " target_per_replica (a replica's part of a total, such as a queue's length)"
            )
            raise rejected(Finding((), message))
        return self

    @property
    def compiled(self) -> MetricTarget:
        """As the controller reads it."""
        target = self.target_value or self.target_per_replica or 0.0
        return MetricTarget(
            namespace=self.namespace,
            name=self.name,
            target=target,
            dimensions=self.dimensions,
            statistic=self.statistic,
            is_total=self.target_per_replica is not None,
        )


def _cron(value: Any) -> Any:
    try:
        Cron.parse(value if isinstance(value, str) else "")
    except CronError as error:
        raise rejected(Finding((), f"expected a cron expression such as 0 8 * * MON-FRI: {error}")) from error
    return value


def _time_zone(value: Any) -> Any:
    try:
        ZoneInfo(value)
    # OSError: a directory of the database. TypeError: no text. KeyError: ZoneInfoNotFoundError is one.
    except (KeyError, ValueError, OSError, TypeError) as error:
        message = f"expected a time zone such as Europe/Berlin, got {shown(value)}"
        raise rejected(Finding((), message)) from error
    return value


class ScheduleSection(_Range):
    """Other bounds from a time on."""

    cron: Annotated[str, BeforeValidator(_cron)] = Field(description="a cron expression")
    time_zone: Annotated[str, BeforeValidator(_time_zone)] = Field(default="UTC", description="a time zone")

    @property
    def compiled(self) -> Schedule:
        """As the controller reads it."""
        return Schedule(
            cron=self.cron,
            min_replicas=self.min_replicas,
            max_replicas=self.most,
            time_zone=self.time_zone,
        )


class OngoingSection(Fields):
    """Requests in progress or waiting, as each replica's own server counts them."""

    target_per_replica: float = Field(
        gt=0, allow_inf_nan=False, description="how many requests a replica is to have, more than 0"
    )
    metric: MetricNames = Field(
        default_factory=lambda: [*VLLM_METRICS],
        min_length=1,
        max_length=MAX_ONGOING_METRICS,
        description=f"a list of 1 to {MAX_ONGOING_METRICS} names of the server's metrics, without labels",
    )
    path: str = METRICS_PATH

    @property
    def compiled(self) -> OngoingTarget:
        """As the controller reads it."""
        # One that is named twice would count twice.
        return OngoingTarget(
            target=self.target_per_replica, metrics=tuple(dict.fromkeys(self.metric)), path=self.path
        )


class ScalingSection(Fields):
    """What SkyServe's `replica_policy` has no place for."""

    metric: MetricSection | None = Field(default=None, description="fields (namespace, name …)")
    ongoing: OngoingSection | None = Field(default=None, description="fields (target_per_replica, metric …)")
    gpu_utilization: float | None = Field(
        default=None, gt=0, le=100, allow_inf_nan=False, description="percent, more than 0 and at most 100"
    )
    schedules: list[ScheduleSection] = Field(
        default_factory=list,
        max_length=MAX_SCHEDULES,
        description="a list of schedules (cron, min_replicas …)",
    )

    @property
    def has_target(self) -> bool:
        """Whether it says what the number follows."""
        return any(one is not None for one in (self.metric, self.ongoing, self.gpu_utilization))


def findings(
    policy: ReplicaPolicy | None, extra: ScalingSection | None, types: Iterable[InstanceType]
) -> list[Finding]:
    """What is wrong with these together, each at its place in the whole file."""
    found: list[Finding] = []
    if extra and extra.gpu_utilization is not None:
        found += [*_gpu_findings(extra, types)]
    if policy is None and extra and extra.has_target:
        message = (
            "without service.replica_policy nothing says between which numbers: give it min_replicas and"
            " max_replicas instead of service.replicas"
        )
        found.append(Finding(("spotrelay", "scaling"), message))
    if (extra and extra.has_target) or (policy and policy.target_qps_per_replica is not None):
        return found
    if policy and policy.most > policy.min_replicas:
        message = (
            "missing: between min_replicas and max_replicas the number follows the load, so say how many"
            " requests a second one replica is to have"
        )
        found.append(Finding(("service", "replica_policy", "target_qps_per_replica"), message))
    for index, one in enumerate(extra.schedules if extra else []):
        if one.most > one.min_replicas:
            message = (
                f"is {one.most} and min_replicas is {one.min_replicas}, and nothing says what decides in"
                " between: add service.replica_policy.target_qps_per_replica, or make the two equal"
            )
            found.append(Finding(("spotrelay", "scaling", "schedules", index, "max_replicas"), message))
    return found


def _gpu_findings(extra: ScalingSection, types: Iterable[InstanceType]) -> Iterator[Finding]:
    at = ("spotrelay", "scaling", "gpu_utilization")
    if extra.metric is not None:
        yield Finding(at, "is a metric itself, and spotrelay.scaling.metric another: keep one of the two")
    if without := next((t for t in types if not t.is_nvidia), None):
        yield Finding(
            at,
            f"is NVIDIA's, and {without.name} may be launched, which has none: name resources.accelerators",
        )


def compiled(
    name: str,
    replicas: int,
    policy: ReplicaPolicy | None,
    extra: ScalingSection | None,
    types: Sequence[InstanceType],
) -> Scaling | None:
    """As the controller reads it; None if the number is fixed."""
    section = extra or ScalingSection()
    if (policy is None or policy.most == policy.min_replicas) and not section.schedules:
        return None
    qps = policy.target_qps_per_replica if policy else None
    return Scaling(
        min_replicas=policy.min_replicas if policy else replicas,
        max_replicas=policy.most if policy else replicas,
        target_qps_per_replica=min(qps.values()) if isinstance(qps, Mapping) else qps,
        qps_by_instance_type=_by_type(qps, types) if isinstance(qps, Mapping) else {},
        metric=_metric(name, section),
        ongoing=section.ongoing.compiled if section.ongoing else None,
        upscale_delay_s=policy.upscale_delay_seconds if policy else 300,
        downscale_delay_s=policy.downscale_delay_seconds if policy else 1200,
        schedules=tuple(schedule.compiled for schedule in section.schedules),
    )


def _metric(service: str, section: ScalingSection) -> MetricTarget | None:
    if section.gpu_utilization is not None:
        return gpu.target(service, section.gpu_utilization)
    return section.metric.compiled if section.metric else None


def without_effect(policy: ReplicaPolicy | None, types: Sequence[InstanceType]) -> Iterator[Finding]:
    """Figures for accelerators that none of the instance types has."""
    qps = policy.target_qps_per_replica if policy else None
    for name in qps if isinstance(qps, Mapping) else ():
        if not any(these.are_on(type_) for these in _accelerators(name) for type_ in types):
            message = f"no instance type of this service has {name}: its figure has no effect"
            yield Finding(("service", "replica_policy", "target_qps_per_replica"), message)


def _by_type(qps: Mapping[str, float], types: Sequence[InstanceType]) -> dict[str, float]:
    """What types are to have that aren't to have the least. One that the survey finds later has the least."""
    wanted = [(these, value) for name, value in qps.items() for these in _accelerators(name)]
    least = min(qps.values())
    named = ((t.name, next((value for these, value in wanted if these.are_on(t)), least)) for t in types)
    return {name: value for name, value in named if value > least}


def _accelerators(name: str) -> tuple[Accelerators, ...]:
    """What a key names; nothing where AWS lacks it, as SkyServe's files often name all there are."""
    try:
        return parse_accelerators(name).accelerators
    except PydanticCustomError:
        return ()
