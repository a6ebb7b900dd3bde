"""What a service file says about a number of replicas that follows the load, and what is seen of the load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from spotrelay.plane.core import schedules

LOAD_KNOWN_S = 300
"""What was measured longer ago, or told by replicas, is as good as unknown: it is no reason for fewer."""

MAX_REPLICAS = 1000
"""Of a service: the targets of one Application Load Balancer (default quota)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTarget:
    """A CloudWatch metric that is to stay at a value."""

    namespace: str
    name: str
    target: float
    """More than 0, in the metric's own unit."""
    dimensions: Mapping[str, str] = field(default_factory=dict)
    statistic: str = "Average"
    """Of a minute's values."""
    is_total: bool = False
    """Whether it counts what all replicas share, such as a queue's length: then `target` is one replica's
    part of it. Otherwise it is the average of the replicas, such as their utilisation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingTarget:
    """So many requests that a replica is to have, in progress or waiting, as its own server counts them."""

    target: float
    """More than 0."""
    metrics: tuple[str, ...]
    """Of the server, in the Prometheus text format. Their sum over all labels is its requests."""
    path: str = "/metrics"
    """Where the server publishes them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", tuple(self.metrics))  # JSON has lists alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """From each of its times on, until a schedule's next, these bounds count instead of the service's own."""

    cron: str
    min_replicas: int
    max_replicas: int
    time_zone: str = "UTC"
    """As IANA names it: `Europe/Berlin`."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fewest and the most replicas."""

    least: int
    most: int

    def clip(self, replicas: int) -> int:
        """The nearest number that is allowed."""
        return min(max(replicas, self.least), self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How many replicas a service has, by its load. With several targets the highest number counts."""

    min_replicas: int
    max_replicas: int
    target_qps_per_replica: float | None = None
    """Requests a second that a replica is to have. Where it depends on the accelerator: the least of these,
    for what `qps_by_instance_type` doesn't name."""
    qps_by_instance_type: Mapping[str, float] = field(default_factory=dict)
    metric: MetricTarget | None = None
    ongoing: OngoingTarget | None = None
    upscale_delay_s: float = 300
    """So long must the load ask for more before there are more."""
    downscale_delay_s: float = 1200
    """So long must the load ask for fewer before there are fewer."""
    schedules: tuple[Schedule, ...] = ()

    @property
    def extremes(self) -> Bounds:
        """The fewest and the most that there can ever be."""
        least = min([self.min_replicas, *(s.min_replicas for s in self.schedules)])
        most = max([self.max_replicas, *(s.max_replicas for s in self.schedules)])
        return Bounds(least, most)

    @property
    def counts_requests(self) -> bool:
        """Whether requests matter: as a target, or because they wake a service that has no replica."""
        return self.target_qps_per_replica is not None or self.extremes.least == 0

    def qps(self, instance_type: str) -> float:
        """Requests a second that a replica of the type is to have; 0: no target is of requests."""
        return self.qps_by_instance_type.get(instance_type, self.target_qps_per_replica or 0.0)

    def schedule(self, now: datetime) -> Schedule | None:
        """The schedule that fired last (of those at once the last one); None: none has yet.

        Raises:
            zoneinfo.ZoneInfoNotFoundError: this machine doesn't know a schedule's time zone.
        """
        from zoneinfo import ZoneInfo  # few services have schedules, and every warning waits for imports

        latest: Schedule | None = None
        at: datetime | None = None
        for schedule in self.schedules:
            fired = schedules.parsed(schedule.cron).last_fired(ZoneInfo(schedule.time_zone), now)
            if fired is not None and (at is None or fired >= at):
                latest, at = schedule, fired
        return latest

    def bounds(self, now: datetime) -> Bounds:
        """What the schedule in force says; without one, the file.

        Raises:
            zoneinfo.ZoneInfoNotFoundError: see `schedule`.
        """
        said = self.schedule(now) or self
        return Bounds(said.min_replicas, said.max_replicas)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scaling:
        """What `dataclasses.asdict` made of one. Fields that this version doesn't know are left out.

        Raises:
            KeyError, TypeError, ValueError: it isn't that.
        """
        known = _known(cls, values)
        metric = values.get("metric")
        known["metric"] = MetricTarget(**_known(MetricTarget, metric)) if metric else None
        ongoing = values.get("ongoing")
        known["ongoing"] = OngoingTarget(**_known(OngoingTarget, ongoing)) if ongoing else None
        known["schedules"] = tuple(Schedule(**_known(Schedule, s)) for s in values.get("schedules", ()))
        return cls(**known)


def _known(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: values[f.name] for f in fields(cls) if f.name in values}


@dataclass(frozen=True, slots=True)
class Load:
    """What a service had to do lately. None is what nobody could find out: not the same as nothing."""

    requests_per_s: float | None = None
    """In the last minute that was measured, those that found no replica among them."""
    is_rate_partial: bool = False
    """Whether no whole minute was measured lately: then there are at least as many."""
    is_silence_presumed: bool = False
    """Whether it is partial only because nobody asked about minutes without requests (`Needed.silence`): no
    sign that anything can't be measured."""
    metric: float | None = None
    """The value of `Scaling.metric`."""
    ongoing: float | None = None
    """Requests in progress or waiting, of all replicas that told theirs."""
    is_ongoing_partial: bool = False
    """Whether a replica that serves didn't tell: then there are at least as many."""


@dataclass(frozen=True, slots=True)
class Needed:
    """What has to be known of a service's requests: CloudWatch charges each metric that it is asked for."""

    routed: bool = True
    """Those for which there was a replica."""
    unserved: bool = True
    """Those for which there was none."""
    silence: bool = True
    """Whether a minute without requests must be told from one that CloudWatch doesn't know (yet)."""


@dataclass(frozen=True, slots=True)
class Ongoing:
    """How many requests replicas have in progress or waiting, by their own account."""

    requests: Mapping[str, float] = field(default_factory=dict)
    """By instance."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why it isn't known of the others that were asked."""


@dataclass(frozen=True, slots=True)
class OngoingTotal:
    """What came of asking the replicas that serve."""

    at: datetime
    requests: float
    """Of all that told theirs."""
    unknown: int
    """How many didn't tell."""
