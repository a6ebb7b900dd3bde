"""What is counted must be what happened: alarms and dashboards go by nothing else.

An invocation's metrics are held against what came back from its calls. Of a call without an answer it knows
nothing, so nothing is to be counted about it either.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lab.sim import promised
from lab.sim.backoffs import is_looping
from lab.sim.cloud import SimCloud
from lab.sim.faults import Call
from lab.sim.gate import Counted, Heard, Invocation, first, time_of
from lab.sim.instances import GOING
from lab.sim.messages import Event
from lab.sim.queues import MAX_SKEW_S
from lab.sim.rules import Rule, Rules
from spotrelay.core.instances import RefusalKind, TargetState
from spotrelay.core.names import Metric
from spotrelay.core.ports import (
    Conflict,
    Denied,
    LaunchRequest,
    LaunchResult,
    OtherControlPlane,
    UnreadableDocument,
)
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Changes, Rows
from spotrelay.core.spec import ServiceSpec

ROUNDED_S = 0.001
"""Times are told in whole microseconds."""

OF_THE_CONTROL_PLANE = frozenset(
    {
        Metric.SIGNALS_RECEIVED,
        Metric.SIGNALS_IGNORED,
        Metric.MESSAGES_MALFORMED,
        Metric.FOREIGN_INSTANCES,
        Metric.CRASH_LOOPING,
        Metric.HELD_BACK,
        Metric.CALLS_DENIED,
    }
)
"""What the alarms watch over all services; the rest is drawn for each."""

DURATIONS = (Metric.WARNING_TO_DEREGISTERED_MS, Metric.WARNING_TO_LAUNCHED_MS)

LASTING = frozenset(
    {
        RefusalKind.MARKET_LIMIT,
        RefusalKind.QUOTA,
        RefusalKind.ADDRESSES,
        RefusalKind.PERMISSION,
        RefusalKind.REQUEST,
    }
)
"""What a person must mend: docs/operating.md."""

_Key = tuple[Metric, str | None]


class Facts:
    """How often each metric must be counted, at least and at most."""

    def __init__(self) -> None:
        self.least: Counter[_Key] = Counter()
        self.most: Counter[_Key] = Counter()

    def add(self, metric: Metric, service: str | None, least: int = 1, most: int | None = None) -> None:
        """It happened so often more: exactly, or between two bounds."""
        if not (least or most):
            return
        key = metric, None if metric in OF_THE_CONTROL_PLANE else service
        self.least[key] += least
        self.most[key] += least if most is None else most


@dataclass(slots=True)
class Counting:
    """Holds metrics against facts."""

    rules: Rules
    cloud: SimCloud

    def check(
        self,
        invocation: Invocation,
        *,
        events: Sequence[Event] = (),
        ignored: int = 0,
        malformed: int = 0,
        is_whole: bool = True,
        is_vouched_for: bool = False,
    ) -> None:
        """An invocation ended, without being killed. `is_whole`: it raised nothing either."""
        facts = Facts()
        facts.add(Metric.SIGNALS_RECEIVED, None, len(events))
        facts.add(Metric.SIGNALS_IGNORED, None, ignored)
        facts.add(Metric.MESSAGES_MALFORMED, None, malformed)
        located = _located(invocation.heard) if events else None
        if events and located is not None:
            facts.add(Metric.FOREIGN_INSTANCES, None, len({e.instance_id for e in events} - located.keys()))
        is_signals = bool(events or ignored)
        _Walk(facts, self.cloud, is_signals=is_signals).through(invocation.heard)
        for error in invocation.errors:
            if isinstance(error.answer, UnreadableDocument | OtherControlPlane):
                facts.add(Metric.HELD_BACK, None)
        if not is_signals:
            self._look_of_tick(invocation, facts, is_whole=is_whole, is_vouched_for=is_vouched_for)
        self._compare(invocation, facts)
        warnings = [e for e in events if located and e.is_warning and e.instance_id in located]
        if located and warnings:
            self._durations(invocation, warnings, located)
        elif any(c.metric in DURATIONS for c in invocation.counted):
            self.rules.broken(Rule.METRICS, f"{invocation.name}: so long after a warning that never came")

    def _compare(self, invocation: Invocation, facts: Facts) -> None:
        totals: dict[_Key, float] = defaultdict(float)
        for counted in invocation.counted:
            if counted.metric not in DURATIONS:
                totals[counted.metric, counted.service] += counted.value
        for key in dict.fromkeys((*facts.least, *facts.most, *totals)):
            least, most, total = facts.least[key], facts.most[key], totals.get(key, 0)
            if not least <= total <= most:
                metric, service = key
                wanted = f"{least}" if least == most else f"{least} to {most}"
                self.rules.broken(
                    Rule.METRICS, f"{invocation.name}: {metric} of {service} is {total:g}, not {wanted}"
                )

    def _look_of_tick(
        self, invocation: Invocation, facts: Facts, *, is_whole: bool, is_vouched_for: bool
    ) -> None:
        """What a tick says of the service as it found it."""
        heard = invocation.heard
        if len(heard) < len((Call.ACQUIRE, Call.LOAD, Call.GET)):
            return
        rows = _last(heard, Call.LOAD)
        service = invocation.ticks_for
        if not isinstance(rows, Rows) or not _has(heard, Call.ACQUIRE):
            return
        got = first(heard, Call.GET)
        is_missing = got is None and _has(heard, Call.GET)
        is_removed = is_missing and rows.removal.told_at is not None
        if is_missing and rows.removal.told_at is None and not is_vouched_for:
            facts.add(Metric.HELD_BACK, None)
        spec = got if isinstance(got, ServiceSpec) else rows.document
        if isinstance(got, ServiceSpec) and rows.document and not is_vouched_for:
            is_moved = got.target_group_arn != rows.document.target_group_arn
            if is_moved and any(r.instance_id for r in rows.replicas.values()):
                facts.add(Metric.HELD_BACK, None)
                spec = rows.document
        if _has(heard, Call.HEALTH) and spec is not None and not is_removed:
            least = 1 if is_whole else 0
            self._of_service(invocation, spec, rows, facts, is_whole=is_whole)
            if is_looping(rows.backoff, spec.version):
                facts.add(Metric.CRASH_LOOPING, service, least, 1)
        if _has(heard, Call.OBSERVE):
            held = self._held(invocation, rows, is_vouched_for=is_vouched_for or is_removed)
            # A service of which nothing is left is forgotten, and what bears its tag is nobody's business.
            is_certain = is_whole and not _has(heard, Call.FORGET)
            facts.add(Metric.HELD_BACK, None, held[0] if is_certain else 0, held[1])

    def _of_service(
        self, invocation: Invocation, spec: ServiceSpec, rows: Rows, facts: Facts, *, is_whole: bool
    ) -> None:
        ready = sum(r.serves for r in rows.replicas.values())
        launched = sum(r.is_counted and r.instance_id is not None for r in rows.replicas.values())
        for metric, value in (
            (Metric.REPLICAS_READY, ready),
            (Metric.REPLICAS_MISSING, max(spec.replicas - ready, 0)),
            (Metric.REPLICAS_UNLAUNCHED, max(spec.replicas - launched, 0)),
        ):
            facts.add(metric, spec.service, value if is_whole else 0, value)
            # A graph of zeros is not the same as one without a value.
            if is_whole and not any(c.metric is metric for c in invocation.counted):
                self.rules.broken(Rule.METRICS, f"{invocation.name}: {metric} isn't counted at all")

    def _held(self, invocation: Invocation, rows: Rows, *, is_vouched_for: bool) -> tuple[int, int]:
        """How much of what the tick saw is certainly not credible, and how much may not be."""
        heard = invocation.heard
        health = _last(heard, Call.HEALTH)
        health = health if isinstance(health, dict) else {}
        shown = {i.id for i in invocation.observed}
        now = heard[0].at
        owned = {r.instance_id for r in rows.replicas.values()}
        strangers = [i for i in invocation.observed if i.id not in owned and i.state not in GOING]
        warned = _last(heard, Call.WARNED)
        marked = warned if isinstance(warned, dict) else {}
        certain = [
            i
            for i in strangers
            if i.id not in marked
            and self.cloud.instances[i.id].is_foreign
            and self.cloud.instances[i.id].warned_at > heard[-1].at
            and now - time_of(i.launched_at) > promised.ORPHANED_AFTER_S + 2 * MAX_SKEW_S
        ]
        unseen = [r for r in rows.replicas.values() if r.state is ReplicaState.READY]
        unseen = [r for r in unseen if r.instance_id not in shown]
        if is_vouched_for:
            return len(certain), len(strangers)
        answering = [
            r
            for r in unseen
            if health.get(r.instance_id) is TargetState.HEALTHY
            and now - time_of(r.entered[ReplicaState.PROVISIONING]) > promised.UNSEEN_S + 2 * MAX_SKEW_S
        ]
        return len(certain) + len(answering), len(strangers) + len(unseen)

    def _durations(
        self, invocation: Invocation, warnings: Sequence[Event], located: dict[str, tuple[str, int]]
    ) -> None:
        """How long after each warning its instance was out of rotation, and something was launched for it."""
        out: dict[str, float] = {}
        launched: dict[str, float] = {}
        is_certain = True
        brought: set[str] = set()
        for heard in invocation.heard:
            if heard.call is Call.DEREGISTER and not heard.is_error and isinstance(heard.about, Collection):
                for instance_id in heard.about:
                    out.setdefault(instance_id, heard.at)
            if isinstance(heard.answer, LaunchResult):
                brought |= {i.id for i in heard.answer.instances}
            if isinstance(changes := heard.about, Changes) and brought:
                is_certain = is_certain and not heard.is_error
                if not heard.is_error and any(r.instance_id in brought for r in changes.update):
                    launched.setdefault(changes.service, heard.at)
        service_of = {e.instance_id: located[e.instance_id][0] for e in warnings}
        happened = {e.instance_id: launched.get(service_of[e.instance_id]) for e in warnings}
        self._told(invocation, Metric.WARNING_TO_DEREGISTERED_MS, warnings, out, is_certain=True)
        told = {i: at for i, at in happened.items() if at is not None}
        self._told(invocation, Metric.WARNING_TO_LAUNCHED_MS, warnings, told, is_certain=is_certain)
        for counted in invocation.counted:
            if counted.metric in DURATIONS and counted.service not in service_of.values():
                self.rules.broken(Rule.METRICS, f"{counted.metric} of {counted.service}, which nobody warned")

    def _told(
        self,
        invocation: Invocation,
        metric: Metric,
        warnings: Sequence[Event],
        happened: dict[str, float],
        *,
        is_certain: bool,
    ) -> None:
        told = [c for c in invocation.counted if c.metric is metric]
        due = [e for e in warnings if e.instance_id in happened]
        for counted in told:
            if not any(_is_true(counted, event, happened[event.instance_id]) for event in due):
                self.rules.broken(Rule.METRICS, f"{invocation.name}: {metric} is {counted.value:g}")
        for event in due if is_certain else ():
            if not any(_is_true(c, event, happened[event.instance_id]) for c in told):
                self.rules.broken(Rule.METRICS, f"{invocation.name}: no {metric} of {event.instance_id}")
        if is_certain and len(told) < len(due):
            self.rules.broken(Rule.METRICS, f"{invocation.name}: {len(told)} {metric} of {len(due)} warnings")


class _Walk:
    """Goes through what an invocation heard, and gathers what it must have counted of it."""

    def __init__(self, facts: Facts, cloud: SimCloud, *, is_signals: bool) -> None:
        self._facts = facts
        self._cloud = cloud
        self._is_signals = is_signals
        self._known: dict[tuple[str, int], Replica] = {}
        self._brought: set[str] = set()
        """The instances that its own launches brought."""
        self._opened: set[str] = set()
        """Its own launch intents."""
        self._out: set[str] = set()

    def through(self, heard: Iterable[Heard]) -> None:
        """Gather it all."""
        for one in heard:
            if isinstance(one.answer, Rows):
                self._known |= {(r.service, r.id): r for r in one.answer.replicas.values()}
            elif isinstance(one.about, Changes):
                self._committed(one.about, one.answer)
            elif isinstance(one.about, LaunchRequest):
                self._launched(one.about.spec.service, one.answer)
            elif one.call is Call.DEREGISTER and isinstance(one.about, Collection) and not one.is_error:
                self._deregistered(one.about)
            elif one.call is Call.TERMINATE and isinstance(one.answer, dict):
                self._facts.add(Metric.CALLS_DENIED, None, len(one.answer))
            if isinstance(one.answer, Denied):
                # What makes its message come again ends there, with an alarm of its own.
                is_noted = one.call in _NOTED or (one.call is Call.COMMIT and not is_mending(one.about))
                self._facts.add(Metric.CALLS_DENIED, None, int(is_noted), 1)

    def _launched(self, service: str, answer: object) -> None:
        if isinstance(answer, LaunchResult):
            self._brought |= {i.id for i in answer.instances}
            self._facts.add(Metric.LAUNCH_REFUSALS, service, len(answer.refusals))
            lasting = {refusal.code for refusal in answer.refusals if refusal.kind in LASTING}
            self._facts.add(Metric.LAUNCHES_BLOCKED, service, len(lasting))
        else:
            self._facts.add(Metric.LAUNCH_ERRORS, service)
            self._facts.add(Metric.LAUNCHES_BLOCKED, service, int(isinstance(answer, Denied)))

    def _deregistered(self, ids: Collection[str]) -> None:
        if not ids:
            return
        service = self._cloud.instances[next(iter(ids))].launched_for
        new = set(ids) - self._out
        self._out |= new
        # A signal's are taken out twice, lest a tick have put them back in between.
        least = len(new) if self._is_signals else len(set(ids))
        self._facts.add(Metric.DEREGISTERED, service, least, len(set(ids)))

    def _committed(self, changes: Changes, answer: object) -> None:
        facts, service = self._facts, changes.service
        is_outcome = bool(self._opened & set(changes.close_intents))
        if isinstance(answer, Conflict):
            if not is_outcome and not (self._is_signals and is_mending(changes)):
                facts.add(Metric.CONFLICTS, service)
            return
        if isinstance(answer, Exception):
            return
        launched = changes.open_intent.replica_ids if changes.open_intent else ()
        if changes.open_intent:
            self._opened.add(changes.open_intent.id)
        for row in (*changes.create, *changes.update):
            self._wrote(row, self._known.get((service, row.id)))
            if row.state is ReplicaState.REQUESTED and row.id not in launched and not is_outcome:
                facts.add(Metric.LAUNCHES_HELD, service)
        self._known |= {(r.service, r.id): r for r in changes.stored}

    def _wrote(self, row: Replica, before: Replica | None) -> None:
        facts, service = self._facts, row.service
        if row.state is ReplicaState.FAILED:
            facts.add(Metric.REPLICAS_FAILED, service)
        if row.warned_at and before and not before.warned_at:
            facts.add(Metric.INTERRUPTION_WARNINGS, service)
        if row.instance_id in self._brought and (before is None or before.instance_id is None):
            facts.add(Metric.REPLICAS_LAUNCHED, service)
        elif row.instance_id and (before is None or before.instance_id is None):
            is_kept = row.state is not ReplicaState.DRAINING
            facts.add(Metric.ORPHANS_ADOPTED if is_kept else Metric.ORPHANS_TERMINATED, service)


_NOTED = frozenset(
    {
        Call.LAUNCH,
        Call.TERMINATE,
        Call.DEREGISTER,
        Call.SCHEDULE_LEAVE,
        Call.RECALL,
        Call.COOL,
        Call.FORGIVE,
        Call.PROBE,
    }
)
"""Calls that are refused without holding up anything else: no one would learn of it but for the metric."""


def is_mending(about: object) -> bool:
    """Whether a commit only mends the highest ID, which belongs to no decision."""
    return isinstance(about, Changes) and not (about.create or about.update or about.close_intents)


def _is_true(counted: Counted, event: Event, happened_at: float) -> bool:
    """Whether it may be how long after the warning something happened."""
    value_s, slack_s = counted.value / 1000, MAX_SKEW_S + ROUNDED_S
    since = time_of(event.at)
    earliest, latest = happened_at - since - slack_s, counted.at - since + slack_s
    return max(earliest, 0.0) <= value_s <= max(latest, 0.0)


def _located(heard: Sequence[Heard]) -> dict[str, tuple[str, int]] | None:
    found = first(heard, Call.LOCATE)
    return found if isinstance(found, dict) else None


def _has(heard: Sequence[Heard], call: Call) -> bool:
    return any(h.call is call and not h.is_error for h in heard)


def _last(heard: Sequence[Heard], call: Call) -> object:
    return first(reversed(heard), call)
