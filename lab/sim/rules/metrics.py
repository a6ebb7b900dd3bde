"""The rule about metrics: they count what happened, because alarms and dashboards use nothing else.

An invocation's metrics are compared with the answers to its calls. Without an answer it can't know whether a
call took effect, so it must count nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lab.sim.cloud import SimCloud
from lab.sim.faults import Call
from lab.sim.gate import CallRecord, Invocation, MetricRecord, first, time_of
from lab.sim.odd_messages import SimSignal
from lab.sim.queues import MAX_SKEW_S
from lab.sim.rules import Rule, limits
from lab.sim.rules.backoff import has_stopped_short, is_looping
from lab.sim.rules.desired import CLOCKS_S, gone_by, in_effect, rolled_back
from lab.sim.rules.history import History
from lab.sim.rules.load import requests_told
from lab.sim.rules.pools import eligible
from lab.sim.rules.records import TriedCommit, after_release, commits, has, is_mending, last
from lab.sim.rules.standby_rows import got_instance_of_another
from spotrelay.plane.core.instances import InstanceState, Refusal, RefusalKind
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import Offering, PoolMemory, PurchaseOption
from spotrelay.plane.core.ports import (
    Conflict,
    Denied,
    LaunchRequest,
    LaunchResult,
    OtherControlPlane,
    UnreadableDocument,
)
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes, Rows, Told
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import ServiceSpec

ROUNDED_S = 0.001
"""Times are rounded to microseconds."""

CONTROL_PLANE_METRICS = frozenset(
    {
        Metric.SIGNALS_RECEIVED,
        Metric.SIGNALS_IGNORED,
        Metric.MESSAGES_MALFORMED,
        Metric.TICKS_MALFORMED,
        Metric.FOREIGN_INSTANCES,
        Metric.HELD_BACK,
        Metric.CALLS_DENIED,
        Metric.ACTION_REQUIRED,
        Metric.EVENTS_UNSENT,
    }
)
"""Counted over all services, for alarms. All others are counted per service."""

DURATIONS = (Metric.WARNING_TO_DEREGISTERED_MS, Metric.WARNING_TO_LAUNCHED_MS)

MEASURED = frozenset(
    {
        *DURATIONS,
        Metric.WARNING_TO_READY_MS,
        Metric.GAP_S,
        Metric.LONGEST_FALLBACK_S,
        Metric.USD_PER_HOUR,
        Metric.ON_DEMAND_USD_PER_HOUR,
    }
)
"""Values that are no sums: each is checked by itself."""

COSTS = (Metric.USD_PER_HOUR, Metric.ON_DEMAND_USD_PER_HOUR)

RUNNING_STATES = frozenset({ReplicaState.PROVISIONING, ReplicaState.STARTING, ReplicaState.READY})

GONE = "instance "
"""How the reason begins of a replica whose instance ended, or isn't shown any more."""

LASTING_REFUSALS = frozenset(
    {
        RefusalKind.MARKET_LIMIT,
        RefusalKind.QUOTA,
        RefusalKind.ADDRESSES,
        RefusalKind.PERMISSION,
        RefusalKind.REQUEST,
    }
)
"""Refusals that a person must fix: docs/operations.md."""

SILENT_AFTER_S = 3 * 3600.0
"""Without a survey for so long, or a day written: three in a row."""

LATE_LEAVE_S = 5.0
"""A tick may be so much faster than a look at who leaves, and no look is late."""

_Key = tuple[Metric, str | None]


class MetricBounds:
    """How much each metric must count, at least and at most."""

    def __init__(self) -> None:
        self.least: defaultdict[_Key, float] = defaultdict(float)
        self.most: defaultdict[_Key, float] = defaultdict(float)

    def add(self, metric: Metric, service: str | None, least: float = 1, most: float | None = None) -> None:
        """Add to both bounds: the same number, or one for each. What is denied, a person must mend."""
        if not (least or most):
            return
        if metric is Metric.CALLS_DENIED:
            self.add(Metric.ACTION_REQUIRED, None, least, most)
        key = metric, None if metric in CONTROL_PLANE_METRICS else service
        self.least[key] += least
        self.most[key] += least if most is None else most


@dataclass(slots=True)
class MetricChecker:
    """Compares metrics with what happened."""

    history: History
    cloud: SimCloud

    def check(
        self,
        invocation: Invocation,
        *,
        events: Sequence[SimSignal] = (),
        ignored: int = 0,
        malformed: int = 0,
        malformed_ticks: int = 0,
        is_whole: bool = True,
    ) -> None:
        """Check an invocation that ended without being killed. `is_whole`: it raised nothing either."""
        bounds = MetricBounds()
        bounds.add(Metric.SIGNALS_RECEIVED, None, len(events))
        bounds.add(Metric.SIGNALS_IGNORED, None, ignored)
        bounds.add(Metric.MESSAGES_MALFORMED, None, malformed)
        bounds.add(Metric.TICKS_MALFORMED, None, malformed_ticks)
        located = _located(invocation.calls) if events else None
        if events and located is not None:
            bounds.add(Metric.FOREIGN_INSTANCES, None, len({e.instance_id for e in events} - located.keys()))
        is_signals = bool(events or ignored)
        _CallWalk(bounds, self.cloud, is_signals=is_signals).through(invocation.calls)
        refused = sum(isinstance(error, Denied) for error in invocation.noted)
        bounds.add(Metric.CALLS_DENIED, None, refused)
        for error in invocation.errors:
            if isinstance(error.answer, UnreadableDocument | OtherControlPlane):
                # What a signal holds back depends on the document on record: unread, nobody can say.
                least = int(not any(e.call is Call.DOCUMENT for e in invocation.errors))
                bounds.add(Metric.HELD_BACK, None, least, 1)
        if counted := requests_told(invocation):
            bounds.add(Metric.ONGOING_REQUESTS, invocation.tick_service, counted.requests)
            bounds.add(Metric.ONGOING_UNKNOWN, invocation.tick_service, counted.unknown)
        if not is_signals:
            self._add_tick(invocation, bounds, is_whole=is_whole)
            self._add_told(invocation, bounds)
        self._compare(invocation, bounds)
        # A warning is one of each replica that the instance hosts.
        warnings = [
            replace(e, instance_id=slot)
            for e in events
            if e.is_warning
            for slot in located or ()
            if host(slot) == e.instance_id
        ]
        if located and warnings:
            self._check_durations(invocation, warnings, located)
        elif any(c.metric in DURATIONS for c in invocation.metrics):
            self._report(invocation, "a duration is counted, and no warning came")

    def _compare(self, invocation: Invocation, bounds: MetricBounds) -> None:
        totals: dict[_Key, float] = defaultdict(float)
        for counted in invocation.metrics:
            if counted.metric not in MEASURED:
                totals[counted.metric, counted.service] += counted.value
            # `_check_durations` looks at those of warnings.
            elif counted.metric not in DURATIONS and counted.service != invocation.tick_service:
                self._report(invocation, f"{counted.metric} is of {counted.service}")
        for key in dict.fromkeys((*bounds.least, *bounds.most, *totals)):
            least, most, total = bounds.least[key], bounds.most[key], totals.get(key, 0)
            if not least <= total <= most:
                metric, service = key
                wanted = f"{least}" if least == most else f"{least} to {most}"
                self._report(invocation, f"{metric} of {service} is {total:g}, not {wanted}")

    def _add_tick(self, invocation: Invocation, bounds: MetricBounds, *, is_whole: bool) -> None:
        """Add what a tick must count of the service as it found it."""
        records = invocation.calls
        if len(records) < len((Call.ACQUIRE, Call.LOAD, Call.GET)):
            return
        rows = last(records, Call.LOAD)
        service = invocation.tick_service
        if not isinstance(rows, Rows) or not has(records, Call.ACQUIRE):
            return
        got = first(records, Call.GET)
        is_missing = got is None and has(records, Call.GET)
        is_removed = is_missing and rows.removal.told_at is not None
        spec = got if isinstance(got, ServiceSpec) else rows.document
        if isinstance(got, ServiceSpec) and rows.document:
            is_moved = got.target_group_arn != rows.document.target_group_arn
            if is_moved and any(r.instance_id for r in rows.replicas.values()):
                spec = rows.document
        spec = rolled_back(spec, rows)
        if has(records, Call.HEALTH) and spec is not None and not is_removed:
            least = 1 if is_whole else 0
            self._add_service(invocation, spec, rows, bounds, is_whole=is_whole)
            late = self._late_leaves(spec, rows, self.history.scheduler.now)
            bounds.add(Metric.ACTION_REQUIRED, None, 0, late)
            is_told = any(r.is_crashing and r.state.is_active for r in rows.replicas.values())
            if is_told or is_looping(rows.backoff, spec.version):
                bounds.add(Metric.CRASH_LOOPING, service, least, 1)
            if has_stopped_short(spec, rows):
                bounds.add(Metric.ROLLOUT_STOPPED, service, least, 1)
        # What no override lets go on is held back beside these, and said in the log alone.
        held = len(invocation.held_back) if is_whole and not has(records, Call.FORGET) else 0
        bounds.add(Metric.HELD_BACK, None, held, len(records) + len(invocation.observed))

    def _add_service(
        self, invocation: Invocation, spec: ServiceSpec, rows: Rows, bounds: MetricBounds, *, is_whole: bool
    ) -> None:
        # If a request ends meanwhile, it may have been counted by either number.
        times = (invocation.began_at - CLOCKS_S, self.history.scheduler.now + CLOCKS_S)
        numbers = {in_effect(spec, gone_by(invocation, rows), time).replicas for time in times}
        ready = sum(r.serves for r in rows.replicas.values())
        standing_by = sum(r.state is ReplicaState.STANDBY for r in rows.replicas.values())
        there = [r for r in rows.replicas.values() if r.is_counted and r.instance_id is not None]
        # A standby that was resumed while the rows were read may be left to the next tick.
        launched = {len(there), sum(r.id <= rows.highest_id or not r.is_standby for r in there)}
        bought = Counter(
            r.offering.purchase_option for r in rows.replicas.values() if r.serves and r.offering
        )
        for metric, values in (
            (Metric.REPLICAS_READY, {ready}),
            (Metric.REPLICAS_MISSING, {max(number - ready, 0) for number in numbers}),
            (Metric.REPLICAS_UNLAUNCHED, {max(n - known, 0) for n in numbers for known in launched}),
            (Metric.REPLICAS_SPOT, {bought[PurchaseOption.SPOT]}),
            (Metric.REPLICAS_ON_DEMAND, {bought[PurchaseOption.ON_DEMAND]}),
            *([(Metric.STANDBYS, {standing_by})] if spec.may_have_standbys else []),
        ):
            bounds.add(metric, spec.service, min(values) if is_whole else 0, max(values))
            # A graph needs zeros, too.
            if is_whole and not any(c.metric is metric for c in invocation.metrics):
                self._report(invocation, f"{metric} isn't counted at all")

        self._check_fallback_age(invocation, rows)

    def _check_fallback_age(self, invocation: Invocation, rows: Rows) -> None:
        """The age of the oldest fallback that has an instance; nothing without one."""
        launched = [
            time_of(r.entered[ReplicaState.PROVISIONING])
            for r in rows.replicas.values()
            if r.is_fallback and r.instance_id and r.state in RUNNING_STATES and r.is_counted
        ]
        values = [c for c in invocation.metrics if c.metric is Metric.LONGEST_FALLBACK_S]
        if not launched and values:
            self._report(invocation, f"the oldest fallback is {values[0].value:g} s old, and there is none")
        for counted in values if launched else ():
            least = invocation.began_at - min(launched) - MAX_SKEW_S
            if not max(least, 0.0) <= counted.value <= max(counted.at - min(launched) + MAX_SKEW_S, 0.0):
                self._report(invocation, f"the oldest fallback is {counted.value:g} s old, not {least:g}")

    def _add_told(self, invocation: Invocation, bounds: MetricBounds) -> None:
        """Add what a tick must count when it tells what happened, and what instances cost."""
        records, rows = invocation.calls, last(invocation.calls, Call.LOAD)
        for record in records:
            if record.call is Call.PUBLISH and isinstance(record.about, list | tuple):
                refused = record.answer if isinstance(record.answer, dict) else record.about
                bounds.add(Metric.EVENTS_UNSENT, None, len(refused))
        recalled = after_release(records, Call.RECALL)
        memory = recalled.answer if recalled else None
        specs = [s for s in self._specs(invocation, rows) if isinstance(rows, Rows)]
        if isinstance(rows, Rows) and specs:
            self._check_told(invocation, rows)
        if recalled and isinstance(memory, PoolMemory) and isinstance(rows, Rows) and specs:
            counts = [
                self._cooling(spec, memory, recalled.at + slack_s)
                for spec in specs
                for slack_s in (-MAX_SKEW_S, MAX_SKEW_S)
            ]
            bounds.add(Metric.POOLS_COOLING, specs[0].service, min(counts), max(counts))
            self._check_costs(invocation, rows, memory)
            found = [_to_mend(rows, memory, recalled.at + slack_s) for slack_s in (-MAX_SKEW_S, MAX_SKEW_S)]
            bounds.add(Metric.ACTION_REQUIRED, None, min(found), max(found))
        elif any(c.metric in COSTS for c in invocation.metrics):
            self._report(invocation, "a cost is counted, and nobody knows a price")

    def _late_leaves(self, spec: ServiceSpec, rows: Rows, time: float) -> int:
        """How many warned replicas still serve so long after they should have left that it may be told."""
        serving = (r for r in rows.replicas.values() if r.serves and r.warned_at)
        latest = limits.WARNING_S - spec.drain_s - limits.DEREGISTRATION_LAG_S + LATE_LEAVE_S - MAX_SKEW_S
        return sum(bool(r.warned_at and time > time_of(r.warned_at) + latest) for r in serving)

    def _specs(self, invocation: Invocation, rows: object) -> list[ServiceSpec]:
        """The documents of which one was in effect."""
        got = first(invocation.calls, Call.GET)
        kept = rows.document if isinstance(rows, Rows) else None
        return [spec for spec in (got, kept) if isinstance(spec, ServiceSpec)]

    def _cooling(self, spec: ServiceSpec, memory: PoolMemory, time: float) -> int:
        """How many of the eligible pools are left alone at a time."""
        option = PurchaseOption.SPOT if spec.use_spot else PurchaseOption.ON_DEMAND
        return sum(
            any(time_of(c.until) > time and c.scope.covers(Offering(p, option)) for c in memory.cooldowns)
            for p in eligible(spec, memory)
        )

    def _check_costs(self, invocation: Invocation, rows: Rows, memory: PoolMemory) -> None:
        """The sum of the prices of the instances that it saw run; nothing if one of them is unknown."""
        shown = {i.id: i.state for i in invocation.observed}
        paid = {
            r.id: (host(r.instance_id or ""), r.offering)
            for r in rows.replicas.values()
            if r.offering
            and (
                shown[r.instance_id] in (InstanceState.PENDING, InstanceState.RUNNING)
                if r.instance_id in shown
                else r.state in RUNNING_STATES
            )
        }
        # What was created while the rows were read is left to the next tick, unless the highest ID got lost.
        known = dict(instance for id_, instance in paid.items() if id_ <= rows.highest_id)
        for metric in COSTS:
            values = [c.value for c in invocation.metrics if c.metric is metric]
            # An instance costs the same however many replicas it hosts.
            wanted = [
                _sum_of_prices(list(some.values()), metric, memory) for some in (known, dict(paid.values()))
            ]
            if not any(_is_told(values, usd) for usd in wanted):
                self._report(invocation, f"{metric} is {values}, not {wanted[0]}")

    def _check_told(self, invocation: Invocation, rows: Rows) -> None:
        """What is measured from beginning to end, once it is on record that it was told."""
        noted = next((c for c in invocation.calls if c.call is Call.NOTE_TOLD and not c.is_error), None)
        before = rows.told
        gaps = [c.value for c in invocation.metrics if c.metric is Metric.GAP_S]
        waits = sorted(c.value for c in invocation.metrics if c.metric is Metric.WARNING_TO_READY_MS)
        if not (before.revision and noted and isinstance(noted.about, Told)):
            if gaps or waits:
                self._report(invocation, f"gaps {gaps} and waits {waits} are counted, and not on record")
            return
        is_over = before.gap_since is not None and noted.about.gap_since is None
        if len(gaps) != is_over:
            self._report(invocation, f"{len(gaps)} gaps are counted, {is_over:d} ended")
        since = time_of(before.gap_since) if before.gap_since else 0.0
        if not all(0 <= gap_s <= noted.at - since + 2 * MAX_SKEW_S for gap_s in gaps):
            self._report(invocation, f"gaps {gaps} since {since:g}")
        ended = last(invocation.calls, Call.ENDED)
        there = [*(ended if isinstance(ended, list) else ()), *rows.replicas.values()]
        # A row that was lost and restored may come back after ticks that knew nothing of it.
        damaged = {r.id for r in there if r.service in self.history.damaged}
        unknown = {id_ for id_ in damaged if id_ not in before.replicas and id_ <= before.highest_id}
        # As they were when they were told lost: a warning may come later.
        lost = {**{r.id: r for r in there if r.lost_at and r.id not in unknown}, **before.lost}
        came = [
            (time_of(r.entered[ReplicaState.READY]), lost[r.replaces].warned_at)
            for r in there
            if ReplicaState.READY in r.entered
            and (r.id > before.highest_id or before.replicas.get(r.id) is False)
            and r.replaces in lost
        ]
        wanted = sorted(max((ready - time_of(at)) * 1000, 0.0) for ready, at in came if at)
        if len(waits) != len(wanted) or any(abs(a - b) > 1 for a, b in zip(waits, wanted, strict=True)):
            self._report(invocation, f"replacements came after {waits} ms, not {wanted}")

    def _check_durations(
        self, invocation: Invocation, warnings: Sequence[SimSignal], located: dict[str, tuple[str, int]]
    ) -> None:
        """Check the time from each warning to the deregistration, and to the launch of a replacement."""
        out: dict[str, float] = {}
        launched: dict[str, float] = {}
        launched_ids: set[str] = set()
        for record in invocation.calls:
            if isinstance(record.answer, LaunchResult):
                launched_ids |= {i.id for i in record.answer.instances}
            if record.is_error:
                continue
            if record.call is Call.DEREGISTER and isinstance(record.about, Collection):
                out = dict.fromkeys(record.about, record.at) | out
            elif isinstance(changes := record.about, Changes) and any(
                host(r.instance_id or "") in launched_ids for r in changes.update
            ):
                launched.setdefault(changes.service, record.at)
        is_lost = bool(launched_ids) and any(c.call is Call.COMMIT and c.is_error for c in invocation.calls)
        launches = {e.instance_id: launched.get(located[e.instance_id][0]) for e in warnings}
        for metric, happened, is_certain in (
            (Metric.WARNING_TO_DEREGISTERED_MS, out, True),
            (Metric.WARNING_TO_LAUNCHED_MS, launches, not is_lost),
        ):
            values = [c for c in invocation.metrics if c.metric is metric]
            due = [(e, at) for e in warnings if (at := happened.get(e.instance_id)) is not None]
            is_right = all(any(_is_true(c, *one) for one in due) for c in values)
            is_right &= not is_certain or (
                len(values) >= len(due) and all(any(_is_true(c, *one) for c in values) for one in due)
            )
            if not is_right:
                what = f"{metric} is {[c.value for c in values]} of {[e.instance_id for e, _ in due]}"
                self._report(invocation, what)

    def _report(self, invocation: Invocation, what: str) -> None:
        self.history.report(Rule.METRICS_EXACT, f"{invocation.name}: {what}")


def _to_mend(rows: Rows, memory: PoolMemory, time: float) -> int:
    """How much a person must mend by the last survey: what it found, and that it was hours ago."""
    survey = memory.survey
    known = [time_of(min(r.entered.values())) for r in rows.replicas.values()]
    surveyed = time_of(survey.at) if survey else min(known, default=time)
    written = time_of(survey.accounted_at) if survey and survey.accounted_at else time
    found = len(survey.findings) if survey else 0
    return found + sum(time - at > SILENT_AFTER_S for at in (surveyed, written))


def _came_back_warned(row: Replica) -> bool:
    """Whether it came back after its warning, or was warned as it came back."""
    if row.warned_at is None:
        return False
    started_at = row.entered.get(ReplicaState.STARTING)
    return row.lost_at is None or (started_at is not None and started_at > row.warned_at)


class _CallWalk:
    """Goes through an invocation's calls, and adds up what it must have counted."""

    def __init__(self, bounds: MetricBounds, cloud: SimCloud, *, is_signals: bool) -> None:
        self._bounds = bounds
        self._cloud = cloud
        self._is_signals = is_signals
        self._launched_ids: set[str] = set()
        """The instances of its own launches."""
        self._out: set[str] = set()
        self._service: str | None = None
        """The service whose calls these are."""

    def through(self, records: Sequence[CallRecord]) -> None:
        """Add up all calls."""
        for record in records:
            if isinstance(record.answer, Rows):
                self._service = next((r.service for r in record.answer.replicas.values()), self._service)
            elif isinstance(record.about, LaunchRequest):
                self._launched(record.about.spec.service, record.answer)
            elif (
                record.call is Call.DEREGISTER
                and isinstance(record.about, Collection)
                and not record.is_error
            ):
                self._deregistered(record.about)
            elif record.call is Call.START and isinstance(record.answer, dict):
                self._refused(list(record.answer.values()))
            elif record.call in (Call.TERMINATE, Call.STOP) and isinstance(record.answer, dict):
                self._bounds.add(Metric.CALLS_DENIED, None, len(record.answer))
            if isinstance(record.answer, Denied):
                # Otherwise its message is redelivered, and ends as a dead letter, which has its own alarm.
                must_count = record.call in _COUNTED_DENIALS or (
                    record.call is Call.COMMIT and not is_mending(record.about)
                )
                self._bounds.add(Metric.CALLS_DENIED, None, int(must_count), 1)
        for tried in commits(records):
            self._committed(tried)

    def _refused(self, refusals: Sequence[Refusal]) -> None:
        """Starts of standbys were refused. What only waits for a stop to be over may count, too."""
        least = sum(r.kind is not RefusalKind.OTHER for r in refusals)
        self._bounds.add(Metric.LAUNCH_REFUSALS, self._service, least, len(refusals))

    def _launched(self, service: str, answer: object) -> None:
        if isinstance(answer, LaunchResult):
            self._launched_ids |= {i.id for i in answer.instances}
            self._bounds.add(Metric.LAUNCH_REFUSALS, service, len(answer.refusals))
            lasting = [refusal for refusal in answer.refusals if refusal.kind in LASTING_REFUSALS]
            # What EC2 takes back fills a quota for two minutes more, which nobody needs to hear of.
            certain = {refusal.code for refusal in lasting if refusal.kind is not RefusalKind.QUOTA}
            codes = {refusal.code for refusal in lasting}
            self._bounds.add(Metric.LAUNCHES_BLOCKED, service, len(certain), len(codes))
        else:
            self._bounds.add(Metric.LAUNCH_ERRORS, service)
            self._bounds.add(Metric.LAUNCHES_BLOCKED, service, int(isinstance(answer, Denied)))

    def _deregistered(self, ids: Collection[str]) -> None:
        if not ids:
            return
        service = self._cloud.instances[next(iter(ids))].launched_for
        new = set(ids) - self._out
        self._out |= new
        # Signals deregister twice, because a tick may have registered the target in between.
        least = len(new) if self._is_signals else len(set(ids))
        self._bounds.add(Metric.DEREGISTERED, service, least, len(set(ids)))

    def _committed(self, tried: TriedCommit) -> None:
        bounds, changes, answer = self._bounds, tried.changes, tried.record.answer
        if isinstance(answer, Conflict):
            # To mend the highest ID is no decision, but may be all that a tick's decision does.
            mends = is_mending(changes)
            if not tried.is_outcome and not (self._is_signals and mends):
                bounds.add(Metric.CONFLICTS, changes.service, 0 if mends else 1, 1)
        if tried.record.is_error:
            return
        launched = changes.open_intent.replica_ids if changes.open_intent else ()
        for row in (*changes.create, *changes.update):
            self._wrote(row, tried.known.get((row.service, row.id)))
            if row.state is ReplicaState.REQUESTED and row.id not in launched and not tried.is_outcome:
                bounds.add(Metric.LAUNCHES_HELD, changes.service)

    def _wrote(self, row: Replica, before: Replica | None) -> None:
        bounds, service = self._bounds, row.service
        if row.state is ReplicaState.FAILED:
            bounds.add(Metric.REPLICAS_FAILED, service)
        if row.warned_at and before and not before.warned_at:
            bounds.add(Metric.INTERRUPTION_WARNINGS, service)
        was_leaving = before is None or before.state is ReplicaState.DRAINING or row.stands_by
        # One that comes back is nobody's loss until it is ready, which may be in the same tick.
        is_back = before is not None and before.comes_back
        is_warned = before is not None and not before.warned_at and row.warned_at is not None
        is_gone = row.state is ReplicaState.DRAINING and row.reason.startswith(GONE)
        if not was_leaving and (is_warned or (is_gone and before is not None and not before.warned_at)):
            bounds.add(Metric.LOSSES_WARNED if is_warned else Metric.LOSSES_UNWARNED, service, 1 - is_back, 1)
        elif not was_leaving and before and _came_back_warned(before) and row.state is ReplicaState.DRAINING:
            # One that was warned out of rotation was nobody's loss; now that it has served again it is.
            bounds.add(Metric.LOSSES_WARNED, service, 0, 1)
        had_none = before is None or before.instance_id is None
        if host(row.instance_id or "") in self._launched_ids and had_none:
            bounds.add(Metric.REPLICAS_LAUNCHED, service)
        elif row.instance_id and not got_instance_of_another(row) and had_none:
            is_adopted = row.state is not ReplicaState.DRAINING
            bounds.add(Metric.ORPHANS_ADOPTED if is_adopted else Metric.ORPHANS_TERMINATED, service)


_COUNTED_DENIALS = frozenset(
    {
        Call.ENDED,
        Call.NOTE_TOLD,
        Call.PUBLISH,
        Call.LAUNCH,
        Call.TERMINATE,
        Call.START,
        Call.STOP,
        Call.DEREGISTER,
        Call.SCHEDULE_LEAVE,
        Call.RECALL,
        Call.COOL,
        Call.FORGIVE,
        Call.PROBE,
        Call.OBSERVE_LOAD,
        Call.ONGOING,
        Call.NOTE_ONGOING,
        Call.NOTE_REQUEST,
    }
)
"""Calls whose refusal stops nothing else: only the metric shows it."""


def _sum_of_prices(offerings: Sequence[Offering], metric: Metric, memory: PoolMemory) -> float | None:
    """What they cost, or would cost on demand; None if one of the prices is unknown."""
    survey = memory.survey
    if survey is None:
        return None
    prices = [
        survey.spot_prices.get(offering.pool)
        if metric is Metric.USD_PER_HOUR and offering.purchase_option is PurchaseOption.SPOT
        else survey.on_demand_prices.get(offering.pool.instance_type)
        for offering in offerings
    ]
    return None if None in prices else sum(usd for usd in prices if usd is not None)


def _is_told(values: Sequence[float], usd: float | None) -> bool:
    """Whether this one value was counted, or none where it is unknown."""
    wanted = [] if usd is None else [usd]
    return len(values) == len(wanted) and all(abs(value - wanted[0]) < 1e-9 for value in values)


def _is_true(counted: MetricRecord, event: SimSignal, happened_at: float) -> bool:
    """Whether it is the time from the warning until then, as far as clocks allow."""
    value_s, slack_s = counted.value / 1000, MAX_SKEW_S + ROUNDED_S
    since = time_of(event.at)
    earliest, latest = happened_at - since - slack_s, counted.at - since + slack_s
    return max(earliest, 0.0) <= value_s <= max(latest, 0.0)


def _located(records: Sequence[CallRecord]) -> dict[str, tuple[str, int]] | None:
    found = first(records, Call.LOCATE)
    return found if isinstance(found, dict) else None
