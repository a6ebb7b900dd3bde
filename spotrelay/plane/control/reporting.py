"""What is said of a decision and of what came of it: log lines and metrics. Nothing here decides anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain, groupby
from typing import TYPE_CHECKING

from spotrelay.plane.core.held import Override
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import OPTIONS, Offering, PoolMemory
from spotrelay.plane.core.ports import OtherControlPlane, Telemetry
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.events import InterruptionWarning, Signal
from spotrelay.plane.placement.plan import eligible_pools
from spotrelay.plane.serving import failures
from spotrelay.plane.serving.observation import (
    Observation,
    launched_count,
    oldest_fallback,
    paid_for,
    ready_count,
)
from spotrelay.plane.serving.steps import Step

if TYPE_CHECKING:  # what only ticks tell of: a warning waits for every import of a cold start
    from spotrelay.plane.core.mending import Finding
    from spotrelay.plane.core.rows import ScaleRequest
    from spotrelay.plane.core.scaling import Load, Ongoing, OngoingTotal
    from spotrelay.plane.serving.holding import Holding
    from spotrelay.plane.serving.news import News
    from spotrelay.plane.serving.standby_count import StandbyCount

SHOWN_UNKNOWN = 10
"""Replicas of which a log line says why their requests are unknown: of hundreds it is the same."""


@dataclass(frozen=True, slots=True)
class Reporting:
    """Says what the controller sees and does."""

    telemetry: Telemetry

    def replicas(self, spec: ServiceSpec, rows: Rows, now: datetime) -> None:
        """How many there are, each time that all of them were read."""
        from spotrelay.plane.serving import incidents  # as above

        telemetry = self.telemetry
        if not spec.alarms:  # of before 2026-11-27: they look at what is counted here
            telemetry.send_all(spec.service)
        ready, launched = ready_count(rows), launched_count(rows)
        telemetry.count(Metric.REPLICAS_READY, ready, service=spec.service)
        # Beside those that are ready, which makes as many as are desired: a metric of its own for these would
        # cost each service another 0.30 USD a month.
        telemetry.count(Metric.REPLICAS_MISSING, max(spec.replicas - ready, 0), service=spec.service)
        telemetry.count(Metric.REPLICAS_UNLAUNCHED, max(spec.replicas - launched, 0), service=spec.service)
        serving = [r.offering.purchase_option for r in rows.replicas.values() if r.serves and r.offering]
        for metric in dict.fromkeys(option.metric for option in OPTIONS.values()):
            bought = sum(option.metric is metric for option in serving)
            telemetry.count(metric, bought, service=spec.service)
        if since := oldest_fallback(rows):
            there_s = max((now - since).total_seconds(), 0.0)
            telemetry.count(Metric.LONGEST_FALLBACK_S, there_s, service=spec.service)
        if spec.may_have_standbys:
            standing_by = sum(r.state is ReplicaState.STANDBY for r in rows.replicas.values())
            telemetry.count(Metric.STANDBYS, standing_by, service=spec.service)
        facts = {"version": spec.version, "failures": rows.backoff.failures}
        if failures.is_crash_looping(spec.version, rows.backoff):
            telemetry.count(Metric.CRASH_LOOPING, service=spec.service)
            telemetry.record("crash_looping", service=spec.service, **facts)
        elif crashing := incidents.crashing(rows):
            telemetry.count(Metric.CRASH_LOOPING, service=spec.service)
            telemetry.record("crashing", service=spec.service, replicas=crashing, **facts)
        if incidents.is_rollout_stopped(spec, rows):
            telemetry.count(Metric.ROLLOUT_STOPPED, service=spec.service)
            telemetry.record("rollout_stopped", service=spec.service, **facts)

    def kept_off(self, service: str, error: OtherControlPlane) -> None:
        """Say that another control plane looks after the service."""
        self.held_back(service, "nothing is touched", str(error), error.remedy)

    def held_back(self, service: str, what: str, why: str, remedy: str = "") -> None:
        """Say what isn't done that would be, if what was seen were credible, and how to let it go on."""
        self.telemetry.count(Metric.HELD_BACK)
        self.telemetry.record(
            "held_back",
            service=service,
            what=what,
            why=why,
            remedy=remedy or f"if that is right: spotrelay override {service}",
        )

    def overridden(self, service: str, holding: Holding) -> None:
        """Say what became of an override, if there is one."""
        if holding.let_go:
            done = [f"{one.what}, because {one.why}" for one in holding.let_go]
            self.telemetry.record("overridden", service=service, no_longer=done)
        if holding.override and holding.why_lapsed:
            given = holding.override
            self.telemetry.record(
                "override_lapsed",
                service=service,
                why=holding.why_lapsed,
                given_at=given.given_at,
                given_for=sorted(one.what for one in given.held),
                remedy=f"look again: spotrelay override {service}",
            )

    def never_heard(self, service: str, override: Override) -> None:
        """Say that an override met another tick each time, and doesn't come again."""
        self.telemetry.record(
            "override_lapsed",
            service=service,
            why="another tick was at work each time",
            given_at=override.given_at,
            given_for=sorted(one.what for one in override.held),
            remedy=f"give it again: spotrelay override {service}",
        )

    def standbys(self, service: str, before: int, wanted: StandbyCount) -> None:
        """Say that another number of standbys pays, and why."""
        self.telemetry.record(
            "standbys", service=service, before=before, count=wanted.count, reason=wanted.reason
        )

    def scaled(self, service: str, before: ScaleRequest, decided: ScaleRequest, load: Load) -> None:
        """Say that the load asks for another number of replicas."""
        if decided.replicas != before.replicas:
            self.telemetry.record(
                "scaled", service=service, before=before.replicas, count=decided.replicas, load=asdict(load)
            )

    def ongoing(self, service: str, told: Ongoing, total: OngoingTotal) -> None:
        """How many requests the replicas have by their own account, and why it isn't known of some."""
        self.telemetry.count(Metric.ONGOING_REQUESTS, total.requests, service=service)
        self.telemetry.count(Metric.ONGOING_UNKNOWN, total.unknown, service=service)
        if told.unknown:
            shown = dict(sorted(told.unknown.items())[:SHOWN_UNKNOWN])
            self.telemetry.record("ongoing_unknown", service=service, replicas=len(told.unknown), why=shown)

    def news(self, service: str, news: News) -> None:
        """What is measured from beginning to end, once that is over."""
        count = self.telemetry.count
        if news.gap_s is not None:
            count(Metric.GAP_S, news.gap_s, service=service)
        for wait_s in news.waits_s:
            count(Metric.WARNING_TO_READY_MS, max(wait_s * 1000, 0.0), service=service)
        for notice in news.notices:
            self.telemetry.record("told", kind=notice.kind.value, **notice.detail)
        if news.dropped:
            dropped = [notice.id for notice in news.dropped[:SHOWN_UNKNOWN]]
            self.telemetry.record("events_dropped", service=service, count=len(news.dropped), ids=dropped)

    def unsent(self, service: str, refused: Mapping[str, str]) -> None:
        """Say which events weren't taken."""
        if refused:
            self.telemetry.count(Metric.EVENTS_UNSENT, len(refused))
            shown = dict(sorted(refused.items())[:SHOWN_UNKNOWN])
            self.telemetry.record("events_unsent", service=service, count=len(refused), why=shown)

    def to_mend(self, service: str, findings: Sequence[Finding]) -> None:
        """What a person must mend, once for each time that it is found: nothing while all is well."""
        if findings:
            self.telemetry.count(Metric.ACTION_REQUIRED, len(findings))
        for finding in findings:
            self.telemetry.record("to_mend", service=service, kind=str(finding.kind), found=finding.words)

    def pools(self, spec: ServiceSpec, memory: PoolMemory, now: datetime) -> None:
        """How many of the eligible pools are left alone, if any is: a calm hour costs nothing."""
        offerings = (Offering(pool, spec.purchase_option) for pool in eligible_pools(spec, memory))
        cooling = sum(memory.cooling(offering, now) is not None for offering in offerings)
        if cooling:
            self.telemetry.count(Metric.POOLS_COOLING, cooling, service=spec.service)

    def costs(self, service: str, seen: Observation, memory: PoolMemory) -> None:
        """What the instances cost, and would cost on demand; nothing where a price is unknown."""
        offerings = paid_for(seen)
        for metric, paid in (
            (Metric.USD_PER_HOUR, offerings),
            (Metric.ON_DEMAND_USD_PER_HOUR, [o.on_demand for o in offerings]),
        ):
            prices = [memory.price(offering) for offering in paid]
            known = [usd for usd in prices if usd is not None]
            if memory.survey and len(known) == len(prices):
                self.telemetry.count(metric, sum(known), service=service)

    def since_warning(
        self, metric: Metric, service: str, signals: Sequence[Signal], happened: Mapping[str, datetime]
    ) -> None:
        """How long after its warning each instance had it happen to it."""
        for signal in signals:
            if isinstance(signal, InterruptionWarning) and signal.instance_id in happened:
                elapsed_ms = (happened[signal.instance_id] - signal.at).total_seconds() * 1000
                self.telemetry.count(metric, max(elapsed_ms, 0), service=service)

    def done(self, service: str, done: Sequence[Step]) -> None:
        """One log line for what is done to a replica for one reason; then how much is done of what counts.

        A batch of ten losses does twenty things: a line for each took a tenth of its time.
        """
        for facts, alike in groupby((s for s in done if not s.holds_back), _facts):
            names = ", ".join(step.name for step in alike)
            self.telemetry.record(names, service=service, **facts)
        for held in (step.holds_back for step in done):
            if held:
                self.held_back(service, held.what, held.why, held.remedy)
        for metric, number in Counter(chain.from_iterable(map(_counts, done))).items():
            self.telemetry.count(metric, number, service=service)


def _facts(step: Step) -> dict[str, object]:
    """What its log line says of a step."""
    replica = step.before
    if replica is None:
        return {**step.says}
    about = {
        "replica": replica.id,
        "instance_id": replica.instance_id,
        "offering": str(replica.offering),
    }
    return {**about, **step.says}


def _counts(step: Step) -> Iterator[Metric]:
    """What a step counts as."""
    if step.before is None:
        for row in step.creates:
            if row.instance_id:
                is_kept = row.state is not ReplicaState.DRAINING
                yield Metric.ORPHANS_ADOPTED if is_kept else Metric.ORPHANS_TERMINATED
        return
    if step.enters(ReplicaState.FAILED):
        yield Metric.REPLICAS_FAILED
    if step.enters(ReplicaState.PROVISIONING):
        yield Metric.ORPHANS_ADOPTED
    if step.is_warning:
        yield Metric.INTERRUPTION_WARNINGS
    if step.is_loss:
        yield Metric.LOSSES_WARNED if step.row.is_warned else Metric.LOSSES_UNWARNED
