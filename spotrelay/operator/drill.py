"""A drill: Spot replicas are interrupted as EC2 does it, and watched until the fleet is whole again.

What is decided is pure: what to interrupt, why not to, and the verdict. `run` carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from spotrelay.operator.look.watch import NotInTimeError, Snapshot, Watch
from spotrelay.plane.aws.experiments import ExperimentState
from spotrelay.plane.aws.requests import Requests
from spotrelay.plane.core import slots, timing
from spotrelay.plane.core.ports import Denied, PortError
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec
from spotrelay.plane.serving import rollout
from spotrelay.plane.view.losses import Loss, losses, outages

LEEWAY_S = 300.0
"""Beside EC2's two minutes and a replica's start: a refused launch or two, and the last drain."""

STATE_EVERY_S, REQUESTS_EVERY_S = 2.0, 20.0
"""How often FIS is asked for the experiment, and CloudWatch for requests: it learns something each minute."""

WARNED_WITHIN_S = 180.0
"""With two minutes until the end the warning comes at once: seconds, in practice."""


class RefusedError(Exception):
    """No drill now: one line that says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a drill interrupts."""

    spec: ServiceSpec
    """The document in effect."""
    victims: tuple[Replica, ...]
    """All that are on the interrupted instances, by ID."""
    remaining: int
    """So many replicas serve on."""

    @property
    def instance_ids(self) -> tuple[str, ...]:
        """What EC2 takes."""
        return tuple(dict.fromkeys(_host(r) for r in self.victims))

    @property
    def within_s(self) -> float:
        """The fleet should be whole again within this time."""
        return timing.NOTICE_S + self.spec.initial_delay_s + LEEWAY_S


def plan(spec: ServiceSpec, rows: Rows, count: int) -> Plan:
    """Interrupt so many Spot replicas, the oldest first; `spec` is the document in effect.

    Replicas that share an instance go together, so it may be more of them.

    Raises:
        RefusedError: the fleet isn't whole, or hasn't as many on Spot.
    """
    there = [r for r in rows.replicas.values() if not r.stands_by]
    why = next(_why_not(spec, rows, there), None)
    if why:
        raise RefusedError(f"the fleet isn't whole: {why}; no drill now")
    spot = [r for r in there if r.offering and r.offering.purchase_option.has_spot_requests]
    if len(spot) < count:
        raise RefusedError(
            f"{len(spot)} of {len(there)} replicas are on Spot, and {count} should be interrupted"
        )
    by_instance: dict[str, list[Replica]] = {}
    for replica in sorted(spot, key=lambda r: r.id):
        by_instance.setdefault(_host(replica), []).append(replica)
    victims: list[Replica] = []
    # Those with the fewest first: nobody asked for more.
    for sharing in sorted(by_instance.values(), key=len):
        if len(victims) < count:
            victims += sharing
    return Plan(spec, tuple(sorted(victims, key=lambda r: r.id)), len(there) - len(victims))


def _why_not(spec: ServiceSpec, rows: Rows, there: Sequence[Replica]) -> Iterator[str]:
    """Everything that keeps the fleet from being whole, and as it should be."""
    for replica in there:
        if replica.is_warned:
            yield f"EC2 is taking replica {replica.id} back"
        elif replica.state is ReplicaState.DRAINING:
            yield f"replica {replica.id} is draining ({replica.reason})"
        elif replica.is_fallback:
            yield f"replica {replica.id} stands in for what Spot doesn't give"
        elif replica.state is not ReplicaState.READY:
            yield f"replica {replica.id} is {replica.state}"
        elif not replica.serves:
            yield f"replica {replica.id} fails its checks"
    old = rollout.old_ones(spec, rows)
    if old and spec.on_update is not OnUpdate.KEEP:
        yield f"a roll-out is under way: version {spec.version} has {len(old)} replicas still to replace"
    staying = sum(r.stays for r in there)
    if staying != spec.replicas or not staying:
        yield f"{staying} of {spec.replicas} replicas serve"


def _host(replica: Replica) -> str:
    return slots.host(replica.instance_id or "")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a drill went. Durations are of the slowest replica, None for what didn't happen."""

    service: str
    losses: tuple[Loss, ...]
    requests: Requests | None
    """None: nobody can tell."""
    outage_s: float
    """How long nobody was in rotation."""
    problems: tuple[str, ...]

    @property
    def is_pass(self) -> bool:
        """Whether nothing went wrong."""
        return not self.problems

    def slowest(self, name: str) -> float | None:
        """The longest of a duration of `Loss`, by its name."""
        known = [getattr(loss, name) for loss in self.losses]
        return max(known, default=None) if None not in known else None

    def __str__(self) -> str:
        told = [f"{name} {_shown(self.slowest(f'{name}_s'))}" for name in ("out", "launched", "ready")]
        if self.requests is None:
            told.append("requests unknown: no load balancer is known")
        else:
            told.append(f"{self.requests.failed} of {self.requests.total} requests failed")
        told.append(f"outage {_shown(self.outage_s)}" if self.outage_s else "outage 0")
        return f"{'PASS' if self.is_pass else 'FAIL'}: {', '.join(told)}"

    def to_json(self) -> dict[str, Any]:
        """As one JSON object."""
        names = ("out_s", "launched_s", "ready_s", "whole_s")
        requests = self.requests and {"total": self.requests.total, "failed": self.requests.failed}
        return {
            "service": self.service,
            "verdict": "PASS" if self.is_pass else "FAIL",
            "problems": list(self.problems),
            **{name: self.slowest(name) for name in names},
            "outage_s": round(self.outage_s, 3),
            "requests": requests,
            "losses": [loss.to_json() for loss in self.losses],
        }


def verdict(
    plan: Plan,
    replicas: Mapping[int, Replica],
    since: datetime,
    until: datetime,
    requests: Requests | None,
    problems: Sequence[str] = (),
) -> Verdict:
    """Judge the drill by the rows between `since` and `until`; `problems` are those that ended it early."""
    found = _losses_of(plan, replicas)
    outage_s = sum((end - begin).total_seconds() for begin, end in outages(replicas.values(), since, until))
    told = [*problems]
    for victim in plan.victims:
        loss = found.get(victim.id)
        if loss is None and not problems:
            told.append(f"replica {victim.id} wasn't lost: {replicas[victim.id].reason or 'it serves on'}")
        elif loss and not loss.is_warned:
            told.append(f"replica {victim.id} was lost, and no warning arrived")
    if requests and requests.failed:
        told.append(f"{requests.failed} of {requests.total} requests failed")
    if outage_s > 0:
        told.append(f"nobody was in rotation for {_shown(outage_s)}")
    return Verdict(plan.spec.service, tuple(found.values()), requests, outage_s, tuple(dict.fromkeys(told)))


def _losses_of(plan: Plan, replicas: Mapping[int, Replica]) -> dict[int, Loss]:
    ids = {r.id for r in plan.victims}
    return {loss.replica: loss for loss in losses(replicas.values()) if loss.replica in ids}


def is_over(plan: Plan, replicas: Mapping[int, Replica]) -> bool:
    """Whether every interrupted replica is gone, and all that was missing is back."""
    found = _losses_of(plan, replicas)
    are_gone = all(replicas[r.id].state.is_ended for r in plan.victims)
    return are_gone and all(loss.whole_at is not None for loss in found.values())


class Interruptions(Protocol):
    """The part of `OperatorExperiments` that a drill uses."""

    def start(self, instance_ids: Sequence[str], service: str) -> str:
        """The ID of an experiment that interrupts the instances."""
        ...

    def state(self, experiment: str) -> ExperimentState:
        """What became of it so far."""
        ...

    def stop(self, experiment: str) -> None:
        """Send no more interruptions. What was warned is taken all the same."""
        ...


class CountedRequests(Protocol):
    """The part of `ServedRequests` that a drill uses."""

    def between(self, spec: ServiceSpec, since: datetime, until: datetime) -> Requests | None:
        """What the load balancer counted in that time; None if the document names no load balancer."""
        ...


@dataclass(slots=True)
class Drill:
    """Carries a plan out."""

    plan: Plan
    watch: Watch
    experiments: Interruptions
    requests: CountedRequests
    say: Callable[[str], None]
    goes_on: bool = False
    """Whether failed requests don't end it."""
    _experiment: str = ""
    _started: Snapshot | None = None
    _requests: Requests | None = None
    _problem: str | None = None
    _asked_at: dict[str, datetime] = field(default_factory=dict)
    _told: set[tuple[int, str]] = field(default_factory=set)

    def run(self) -> Verdict:
        """Interrupt, and watch until all is well again, or something fails.

        Raises:
            PortError: the experiment couldn't be started, or a permission is missing meanwhile.
        """
        self._started = seen = self.watch.look()
        ids = self.plan.instance_ids
        self._experiment = experiment = self.experiments.start(ids, self.plan.spec.service)
        self.say(f"experiment {experiment} interrupts {', '.join(ids)}")
        try:
            seen = self.watch.until(self._is_done, "the fleet whole again", self.plan.within_s)
        except NotInTimeError as error:
            self._problem = str(error)
            seen = self.watch.look()
        except BaseException:
            self.experiments.stop(experiment)
            raise
        if self._problem:
            self.experiments.stop(experiment)
        self._count(seen.at)
        problems = [self._problem] if self._problem else []
        return verdict(self.plan, seen.replicas, self._since, seen.at, self._requests, problems)

    @property
    def _since(self) -> datetime:
        assert self._started is not None  # noqa: S101 - `run` begins with it
        return self._started.at

    def _is_done(self, seen: Snapshot) -> bool:
        self._tell(seen)
        if self._is_due("state", seen.at, STATE_EVERY_S):
            self._look_at_experiment(seen)
        if self._is_due("requests", seen.at, REQUESTS_EVERY_S):
            self._count(seen.at)
            if self._requests and self._requests.failed and not self.goes_on:
                self._problem = "stopped because requests fail"
        return self._problem is not None or is_over(self.plan, seen.replicas)

    def _is_due(self, what: str, now: datetime, every_s: float) -> bool:
        last = self._asked_at.get(what)
        if last is not None and (now - last).total_seconds() < every_s:
            return False
        self._asked_at[what] = now
        return True

    def _look_at_experiment(self, seen: Snapshot) -> None:
        try:
            state = self.experiments.state(self._experiment)
        except Denied:
            raise
        except PortError:
            return  # throttled or unavailable: the next look tells
        if state.has_failed:
            self._problem = f"experiment {self._experiment} {state.status}: {state.reason}"
            return
        unwarned = [r.id for r in self.plan.victims if r.id not in _losses_of(self.plan, seen.replicas)]
        if unwarned and (seen.at - self._since).total_seconds() > WARNED_WITHIN_S:
            self._problem = f"no warning of replica {unwarned[0]} arrived within {WARNED_WITHIN_S:.0f} s"

    def _count(self, now: datetime) -> None:
        try:
            self._requests = self.requests.between(self.plan.spec, self._since, now)
        except Denied:
            raise
        except PortError:
            return

    def _tell(self, seen: Snapshot) -> None:
        """Say what is new of each loss, once."""
        for loss in _losses_of(self.plan, seen.replicas).values():
            for what, line in _news(loss):
                if (loss.replica, what) not in self._told:
                    self._told.add((loss.replica, what))
                    self.say(line)


def _news(loss: Loss) -> Iterator[tuple[str, str]]:
    name = f"replica {loss.replica}"
    yield "warned", f"{name} is warned" if loss.is_warned else f"{name} is lost without a warning"
    if loss.out_s is not None:
        yield "out", f"{name} is out of rotation after {_shown(loss.out_s)}"
    if loss.restored_by and loss.launched_s is not None:
        yield "launched", f"replica {loss.restored_by} is launched after {_shown(loss.launched_s)}"
    if loss.restored_by and loss.ready_s is not None:
        yield "ready", f"replica {loss.restored_by} serves after {_shown(loss.ready_s)}"
    if loss.taken_at is not None:
        yield "taken", f"{name} is gone"


def _shown(duration_s: float | None) -> str:
    if duration_s is None:
        return "never"
    return f"{duration_s:.1f} s" if duration_s < 10 else f"{duration_s:.0f} s"
