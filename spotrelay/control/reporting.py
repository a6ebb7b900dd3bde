"""What is said of a decision and of what came of it: log lines and metrics. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from spotrelay.core.desired import ScaleRequest
from spotrelay.core.names import Metric
from spotrelay.core.ports import OtherControlPlane, Telemetry
from spotrelay.core.replica import ReplicaState
from spotrelay.core.rows import Rows
from spotrelay.core.scaling import Load, Ongoing
from spotrelay.core.spec import ServiceSpec
from spotrelay.events import InterruptionWarning, Signal
from spotrelay.serving import failures, rollout
from spotrelay.serving.actions import Action, Adopt, Drain, Fail, HoldBack, NoteWarning, ServeOn, TakeIn
from spotrelay.serving.observation import launched_count, ready_count
from spotrelay.serving.standby_count import StandbyCount

_COUNTED = {
    Fail: Metric.REPLICAS_FAILED,
    Adopt: Metric.ORPHANS_ADOPTED,
}

_FACTS = ("reason", "instance_id", "count")
"""Of an action's fields, those that its log line has beside the replica's."""

SHOWN_UNKNOWN = 10
"""Replicas of which a log line says why their requests are unknown: of hundreds it is the same."""


@dataclass(frozen=True, slots=True)
class Reporting:
    """Says what the controller sees and does."""

    telemetry: Telemetry

    def replicas(self, spec: ServiceSpec, rows: Rows) -> None:
        """How many there are, each time that all of them were read."""
        telemetry = self.telemetry
        ready, launched = ready_count(rows), launched_count(rows)
        telemetry.count(Metric.REPLICAS_READY, ready, service=spec.service)
        # Beside those that are ready, which makes as many as are desired: a metric of its own for these would
        # cost each service another 0.30 USD a month.
        telemetry.count(Metric.REPLICAS_MISSING, max(spec.replicas - ready, 0), service=spec.service)
        telemetry.count(Metric.REPLICAS_UNLAUNCHED, max(spec.replicas - launched, 0), service=spec.service)
        if spec.may_have_standbys:
            standing_by = sum(r.state is ReplicaState.STANDBY for r in rows.replicas.values())
            telemetry.count(Metric.STANDBYS, standing_by, service=spec.service)
        facts = {"version": spec.version, "failures": rows.backoff.failures}
        if failures.is_crash_looping(spec.version, rows.backoff):
            telemetry.count(Metric.CRASH_LOOPING)
            telemetry.record("crash_looping", service=spec.service, **facts)
        if rollout.has_failed(spec, rows) and rollout.old_ones(spec, rows):
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

    def ongoing(self, service: str, told: Ongoing, replicas: int) -> None:
        """How many requests so many replicas have by their own account, for a later tick."""
        self.telemetry.count(Metric.ONGOING_REQUESTS, sum(told.requests.values()), service=service)
        self.telemetry.count(Metric.ONGOING_UNKNOWN, replicas - len(told.requests), service=service)
        if told.unknown:
            shown = dict(sorted(told.unknown.items())[:SHOWN_UNKNOWN])
            self.telemetry.record("ongoing_unknown", service=service, replicas=len(told.unknown), why=shown)

    def since_warning(
        self, metric: Metric, service: str, signals: Sequence[Signal], happened: Mapping[str, datetime]
    ) -> None:
        """How long after its warning each instance had it happen to it."""
        for signal in signals:
            if isinstance(signal, InterruptionWarning) and signal.instance_id in happened:
                elapsed_ms = (happened[signal.instance_id] - signal.at).total_seconds() * 1000
                self.telemetry.count(metric, max(elapsed_ms, 0), service=service)

    def done(self, service: str, action: Action) -> None:
        """One log line per thing done, and what is counted about it."""
        if isinstance(action, HoldBack):
            self.held_back(service, action.what, action.why, action.remedy)
            return
        facts: dict[str, object] = {"service": service}
        if replica := action.about:
            facts |= {
                "replica": replica.id,
                "instance_id": replica.instance_id,
                "offering": str(replica.offering),
            }
        for name in _FACTS:
            if value := getattr(action, name, None):
                facts[name] = value
        metric = _COUNTED.get(type(action))
        if (
            isinstance(action, Drain | ServeOn | NoteWarning)
            and action.warned_at
            and not action.replica.is_warned
        ):
            metric = Metric.INTERRUPTION_WARNINGS
        if isinstance(action, TakeIn):
            is_kept = action.state is not ReplicaState.DRAINING
            metric = Metric.ORPHANS_ADOPTED if is_kept else Metric.ORPHANS_TERMINATED
            facts["instance_id"] = action.instance.id
        self.telemetry.record(type(action).__name__, **facts)
        if metric:
            self.telemetry.count(metric, service=service)
