"""Controllers with one mistake each. The checker must notice every one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from unittest.mock import patch

from lab.sim.ports import SimFleet, SimServices, SimTelemetry
from lab.sim.rules import Rule
from lab.sim.store import SimStore
from spotrelay.plane import events
from spotrelay.plane.control import intake, performing, reporting
from spotrelay.plane.control import ticks as control_ticks
from spotrelay.plane.control.controller import Controller
from spotrelay.plane.control.gathering import Gatherer
from spotrelay.plane.control.intake import Intake
from spotrelay.plane.control.notifying import Notifier
from spotrelay.plane.control.performing import Outcome, Performer
from spotrelay.plane.control.probing import Probing
from spotrelay.plane.control.reporting import Reporting
from spotrelay.plane.control.ticks import Ticks
from spotrelay.plane.core import rows as core_rows
from spotrelay.plane.core import timing
from spotrelay.plane.core.answers import Answers, BusyEvidence, Work
from spotrelay.plane.core.held import Held, Override
from spotrelay.plane.core.incidents import AlarmState, Incidents
from spotrelay.plane.core.instances import Refusal, TargetState
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import Cooldown, PoolMemory, PurchaseOption, Reading, Scope, Survey
from spotrelay.plane.core.ports import (
    Conflict,
    LaunchRequest,
    LaunchResult,
    OtherControlPlane,
    PortError,
    Unavailable,
)
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes, Rows
from spotrelay.plane.core.scaling import Bounds, Load, OngoingTotal, Scaling
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import ticks
from spotrelay.plane.events.ticks import Tick, TickKind
from spotrelay.plane.memory import MemoryStore
from spotrelay.plane.placement import cooldowns, launching, surveying
from spotrelay.plane.placement import plan as placement
from spotrelay.plane.serving import (
    autoscaling,
    changes,
    failures,
    holding,
    incidents,
    interruption,
    missing,
    moves,
    news,
    observation,
    reconcile,
    replacement,
    rollout,
    silence,
    standby,
    steps,
    strength,
    supersede,
)
from spotrelay.plane.serving.holding import Holding
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.reconcile import Stage
from spotrelay.plane.serving.steps import HoldBack, Step


@dataclass(frozen=True)
class Mistake:
    """A mistake: the code that it replaces, and the promise that it breaks."""

    name: str
    promise: Rule
    replaced: tuple[tuple[Any, str, Any], ...]
    since: int = 0
    """The first seed to look at, for what is rare: tests have minutes, and a campaign a hundred thousand."""
    replicas: int = 5
    """How many a service has: what is alone is rare among five."""

    @contextmanager
    def patched(self) -> Iterator[None]:
        """The production code with the mistake in it."""
        with ExitStack() as stack:
            for owner, name, value in self.replaced:
                stack.enter_context(patch.object(owner, name, value))
            yield


MISTAKES: list[Mistake] = []


def _drain_if_not_shown(spec: ServiceSpec, replica: Replica, seen: Any, now: datetime) -> Iterator[Step]:
    if replica.instance_id and replica.instance_id not in seen.instances and replica.state.is_active:
        yield steps.drain(replica, now, "instance gone")
    else:
        yield from _for_replica(spec, replica, seen, now)


def mistake(owner: Any, name: str, promise: Rule, since: int = 0, replicas: int = 5) -> Callable[[Any], Any]:
    """Decorate the function that replaces `name` of `owner`; its docstring says what is wrong.

    `since` is the first seed to run, for what few of them show.
    """

    def add(function: Any) -> Any:
        replaced = ((owner, name, function),)
        broken = Mistake(function.__name__, promise, replaced, since, replicas)
        MISTAKES.append(broken)
        return function

    return add


def broken_stage(stage: Stage, promise: Rule, since: int = 0) -> Callable[[Any], Any]:
    """Have the function that follows take the place of a stage of the tick. `since`: see `mistake`."""

    def add(function: Any) -> Any:
        stages = tuple(function if known is stage else known for known in reconcile.STAGES)
        MISTAKES.append(Mistake(function.__name__, promise, ((reconcile, "STAGES", stages),), since))
        return function

    return add


def also(owner: Any, name: str) -> Callable[[Any], Any]:
    """Add a second replacement to the mistake before."""

    def add(value: Any) -> Any:
        broken = MISTAKES.pop()
        MISTAKES.append(replace(broken, replaced=(*broken.replaced, (owner, name, value))))
        return value

    return add


_for_replica = reconcile._for_replica
_for_ready = reconcile._for_ready
_enter = Performer._enter
_count = SimTelemetry.count
_price = PoolMemory.price
_publish = Notifier._publish
_tick = Controller.tick
_attempt = Outcome.attempt
_launch_and_tell = Performer._launch_and_tell
_parse_tick = ticks.parse_tick
_parse = events.parse
_take_out = Performer._take_out
_get = SimServices.get
_commit = Performer._commit
_perform = Performer.perform
_store_commit = MemoryStore.commit
_check = MemoryStore._check
_terminate = SimFleet.terminate
_warned = SimFleet.warned
_launch = SimFleet.launch
_signals = Intake.signals
_missing = strength._missing
_is_due = observation.is_due
_cooldown = cooldowns._cooldown
_reconcile = Ticks._reconcile
_about = cooldowns._about
_of_refusals = cooldowns.of_refusals
_drop = strength._drop
_least_missed = strength._least_missed
_derive = core_rows.derive
_read = Controller._read
_decide_load = autoscaling.decide
_surplus = strength._surplus
_with_ongoing = autoscaling.with_ongoing
_note_ongoing = SimStore.note_ongoing
_applied_to = core_rows.Desired.applied_to
_missing = strength._missing
_probe = Probing.probe
_as_it_should_be = standby._as_it_should_be
_stand_by = steps.stand_by
_resume = steps.resume
_replace = steps.replace
_request = steps.request
_joined = changes._joined
_unowned = reconcile.unowned
_lapsed = holding.lapsed
_record = holding.Holding.record
_decided = control_ticks._decided
_to_launch = rollout.to_launch
_proven = rollout.proven
_version = interruption._version
_denied_launch = launching._denied
_surplus = strength._surplus
_incidents_after = incidents.after
_is_zero_due = incidents._is_due


@mistake(MemoryStore, "_check", Rule.LEGAL_TRANSITIONS, since=9)
def rows_without_revisions(kept: Any, changes: Changes) -> None:
    """A row is written although it has changed since it was read."""
    if changes.highest_id and changes.highest_id[0] != kept.highest_id:
        raise Conflict("highest ID")


MISTAKES[-1] = replace(
    MISTAKES[-1], replaced=((MemoryStore, "_check", staticmethod(rows_without_revisions)),)
)


@staticmethod  # type: ignore[misc]  # it stands in for one
def ids_without_condition(kept: Any, changes: Changes) -> None:
    """New rows are written although others took IDs since the highest was read."""
    _check(kept, replace(changes, highest_id=None, create=()))


MISTAKES.append(
    Mistake(
        "ids_without_condition",
        Rule.IDS_IN_ORDER,
        ((MemoryStore, "_check", ids_without_condition),),
        since=4553,
    )
)


@mistake(Performer, "_commit", Rule.INTENT_BEFORE_LAUNCH)
def no_launch_intent(self: Performer, outcome: Any, change: Changes) -> bool:
    """Launches are made without a recorded intent."""
    return _commit(self, outcome, replace(change, open_intent=None))


@mistake(Performer, "perform", Rule.ROW_BEFORE_EFFECT)
def deregisters_first(self: Performer, decision: Any) -> Any:
    """Targets are deregistered before the row is written."""
    if decision.spec:
        self._deregister(decision.spec, [a.takes_out for a in decision.steps if a.takes_out], {})
    return _perform(self, decision)


@mistake(Performer, "_deregister", Rule.TICK_CLEANS_ROTATION)
def most_targets_stay_registered(
    self: Performer, spec: ServiceSpec, instance_ids: Any, ports: Mapping[str, int]
) -> None:
    """Most draining replicas get requests until they are gone."""
    drained = [i for i in instance_ids if i.endswith("0")]
    if drained:
        self._ports.router.deregister(spec, drained, ports)


@mistake(interruption, "may_leave", Rule.WARNED_SERVES_WHILE_NEEDED)
def all_leave_on_the_warning(*args: Any, **kwargs: Any) -> bool:
    """A warned replica leaves at once, even if no other serves."""
    return True


@mistake(interruption, "may_leave", Rule.WARNED_OUT_BEFORE_END, since=20)
def warned_replicas_never_leave(*args: Any, **kwargs: Any) -> bool:
    """A warned replica serves until EC2 ends it."""
    return False


@mistake(interruption, "enough", Rule.WARNED_SERVES_WHILE_NEEDED)
def one_other_is_enough(spec: ServiceSpec) -> int:
    """A large service goes down to one replica."""
    return 1


@mistake(strength, "spare", Rule.NEVER_BELOW_DESIRED, since=93)
def serving_fallbacks_are_dropped(*args: Any) -> int:
    """Surplus fallbacks are removed, even if they are needed."""
    return 99


@mistake(
    changes._Serving,
    "after",
    Rule.WARNED_SERVES_WHILE_NEEDED,
    since=18,
)
def serving_count_is_not_updated(self: Any, commit: Changes) -> None:
    """The last two replicas leave, because each relies on the other."""


@mistake(missing, "found", Rule.NEVER_BELOW_DESIRED, since=19)
def instances_not_shown_are_drained(seen: Any, now: Any) -> set[int]:
    """An empty answer of EC2's is believed: everything that it doesn't show is drained."""
    return set()


also(reconcile, "_for_replica")(_drain_if_not_shown)


@mistake(missing, "_is_too_much", Rule.NOT_BEFORE_TIMEOUT, since=1629, replicas=3)
def an_empty_answer_is_believed(*args: Any) -> str:
    """However many are missing at the same time, all of them are gone."""
    return ""


@mistake(missing, "once_certain", Rule.NOT_BEFORE_TIMEOUT)
def what_is_missing_once_is_gone(replica: Replica, now: datetime) -> Iterator[Step]:
    """A replica that one answer lacks is lost."""
    yield missing._gone(replica, now)


@mistake(missing, "_answers", Rule.LAST_ONE_KEPT, since=55, replicas=1)
def the_last_one_is_gone_if_nobody_shows_it(replica: Replica, seen: Observation) -> str:
    """That nobody else serves doesn't matter."""
    is_healthy = seen.health.get(replica.instance_id or "") is TargetState.HEALTHY
    return "and it answers its checks" if is_healthy else ""


@mistake(interruption, "may_serve_on", Rule.SOMEBODY_ANSWERS, since=58)
def only_rows_say_who_serves(replica: Replica) -> bool:
    """What is healthy leaves at its warning, if its row says that it starts."""
    return replica.state is ReplicaState.READY


@mistake(interruption, "coming_back", Rule.COMES_BACK, since=18)
def what_has_left_is_left(*args: Any) -> set[int]:
    """Nothing comes back, though nobody serves."""
    return set()


@mistake(interruption, "coming_back", Rule.COMES_BACK, since=21)
def everything_comes_back(
    spec: ServiceSpec, seen: Observation, now: datetime, _: Collection[int]
) -> set[int]:
    """What has left comes back, though others serve."""
    return {r.id for r in seen.rows.replicas.values() if interruption._has_left(r, seen)}


@mistake(Controller, "_asked", Rule.SOMEBODY_ANSWERS, since=495, replicas=1)
def nobody_asks_before_the_last_one_leaves(*args: Any) -> Mapping[str, datetime | None]:
    """The last one leaves at its last moment, though EC2 has taken its warning back."""
    return {}


@mistake(
    observation,
    "known",
    Rule.NEVER_ABOVE_SURGE,
    since=73,
)
def rows_above_the_highest_id_are_ignored(rows: Rows, now: datetime) -> Rows:
    """If the highest ID is lost, all rows above it count as new."""
    return replace(rows, replicas={i: r for i, r in rows.replicas.items() if i <= rows.highest_id})


also(control_ticks, "known")(rows_above_the_highest_id_are_ignored)


@mistake(Gatherer, "_missed", Rule.NEVER_BELOW_DESIRED, since=47)
def a_missing_document_ends_the_service(self: Gatherer, *args: Any, **kwargs: Any) -> Any:
    """A service is removed as soon as its parameter is missing."""
    return None, True


@mistake(reconcile, "_is_ours", Rule.FOREIGN_UNTOUCHED, since=520)
def tag_alone_makes_an_instance_ours(*args: Any) -> bool:
    """An instance with our tag counts as ours, wherever it comes from."""
    return True


@mistake(reconcile, "_is_left_to_ec2", Rule.SETTLES, since=2763)
def spared_instances_are_left_running(replica: Replica, *args: Any) -> bool:
    """A warned instance that EC2 spares runs for ever."""
    return replica.is_warned


@mistake(reconcile, "_terminate", Rule.WARNED_NOT_TERMINATED, since=121)
def terminates_warned_instances(instance: Any, seen: Any, why: str, replica: Replica) -> Iterator[Step]:
    """Drained instances are terminated, even if EC2 is taking them back."""
    if instance.state.is_alive:
        yield steps.terminate(replica, instance.id, why)


also(Replica, "is_warned")(property(lambda _: False))


@mistake(interruption, "_for_draining", Rule.NEVER_ABOVE_SURGE, since=74)
def replaces_for_each_warning(
    replica: Replica, told: Any, spec: Any, staying: int, now: datetime
) -> Step | None:
    """A duplicate counts as another loss."""
    return (
        steps.request(now, 1, "warned again", PurchaseOption.SPOT, replica.version)
        if told.warned_at
        else None
    )


@mistake(reconcile, "_adoptions", Rule.ADOPTED_BEFORE_INTENT_CLOSES, since=10)
def no_adoption(*args: Any) -> dict[int, Any]:
    """An instance from a launch without an answer is never adopted."""
    return {}


@mistake(reconcile, "_for_unowned", Rule.NO_INSTANCE_WITHOUT_ROW, since=19)
def no_end_for_orphans(*args: Any) -> list[Step]:
    """Our instances without a row run on."""
    return []


@mistake(SimFleet, "warned", Rule.TICK_CLEANS_ROTATION, since=431)
def polls_for_the_wrong_codes(self: SimFleet, instance_ids: Collection[str]) -> Mapping[str, Any]:
    """The poll for lost warnings doesn't know the code of a reclaim, and sees none."""
    return {id_: None for id_, at in _warned(self, instance_ids).items() if at is None}


@mistake(Performer, "_commit", Rule.ONE_REPLACEMENT_PER_LOSS, since=45)
def drains_and_replaces_in_two_commits(self: Performer, outcome: Any, change: Changes) -> bool:
    """A replica is drained in one commit, and replaced in another."""
    drained = Changes(change.service, update=change.update, serving=change.serving)
    rest = replace(change, update=(), serving=None)
    return _commit(self, outcome, drained) and _commit(self, outcome, rest)


@mistake(SimFleet, "launch", Rule.INTENT_BEFORE_LAUNCH, since=10)
def launches_again_with_a_new_token(self: SimFleet, request: LaunchRequest) -> LaunchResult:
    """A launch without an answer counts as not made."""
    try:
        return _launch(self, request)
    except Unavailable:
        return _launch(self, replace(request, launch_id=f"{request.launch_id}-again"))


@mistake(MemoryStore, "commit", Rule.NO_OPEN_INTENT)
def intents_are_never_closed(self: MemoryStore, changes: Changes) -> None:
    """Intents stay open after their launch."""
    _store_commit(self, replace(changes, close_intents=()))


@mistake(MemoryStore, "release", Rule.NO_LEASE_HELD)
def leases_are_never_released(self: MemoryStore, service: str, holder: str) -> None:
    """The next tick must wait until it expires."""


@mistake(Intake, "signals", Rule.WARNING_HANDLED, since=17)
def failed_signals_are_dropped(self: Intake, messages: Mapping[str, str]) -> list[str]:
    """Failed messages are deleted from the queue."""
    _signals(self, messages)
    return []


@mistake(strength, "next_look", Rule.SETTLES)
def ticks_never_rest(spec: Any, seen: Any, now: datetime) -> datetime | None:
    """There is a tick every three seconds, for ever."""
    return now + seconds(timing.TICK_IN_TRANSITION_S)


@broken_stage(
    strength.decide,
    Rule.DESIRED_AT_REST,
)
def missing_replicas_are_not_counted(*args: Any) -> list[Step]:
    """Losses are replaced, but missing replicas aren't counted."""
    return []


@mistake(Ticks, "_reconcile", Rule.FOREIGN_UNTOUCHED)
def all_warned_instances_are_terminated(self: Any, *args: Any, **kwargs: Any) -> datetime | None:
    """Warned instances are terminated, even foreign ones."""
    said = self._ports.fleet.warned(list(self._ports.fleet.cloud.instances))
    if going := [id_ for id_, at in said.items() if at]:
        self._ports.fleet.terminate(going)
    return _reconcile(self, *args, **kwargs)


@broken_stage(supersede.decide, Rule.NEVER_ABOVE_SURGE, since=6)
def supersedes_all_at_once(spec: ServiceSpec, *args: Any) -> Iterator[Step]:
    """All unhealthy or old replicas are replaced at the same time."""
    return supersede.decide(replace(spec, surge=99), *args)


@mistake(supersede, "is_silent", Rule.REPLACED_BEFORE_DRAINED, since=31)
def silence_counts_at_once(spec: ServiceSpec, replica: Replica, now: datetime) -> bool:
    """A replica that doesn't answer its readiness probe once is replaced."""
    return replica.silent_since is not None


@mistake(supersede, "is_silent", Rule.REPLACED_BEFORE_DRAINED, since=31)
def silence_is_never_enough(*args: Any) -> bool:
    """A replica that answers no probe any more serves for ever."""
    return False


@mistake(silence, "heard", Rule.ROWS_MATCH_OBSERVATION, since=31)
def who_is_silent_once_stays_so(spec: ServiceSpec, rows: Rows, answers: Answers, now: datetime) -> list[Step]:
    """That a replica answers its probe again is noted nowhere, and silence anew each time."""
    silent = [r for r in rows.replicas.values() if r.stays and r.instance_id not in answers.answering]
    return [steps.note_silence(replica, now) for replica in silent]


@broken_stage(silence.take_out, Rule.REFUSING_LEAVES, since=131)
def who_refuses_stays(*args: Any) -> Iterator[Step]:
    """A replica that refuses every request keeps the most of them until its successor serves."""
    return iter(())


@mistake(silence, "enough", Rule.REFUSING_LEAVES, since=172)
def all_who_refuse_leave(spec: ServiceSpec) -> int:
    """Where the probe is wrong for all of them, the rotation is emptied."""
    return 0


@mistake(silence, "_is_busy", Rule.BUSY_STAYS, since=86)
def the_busy_are_replaced(*args: Any) -> bool:
    """What a replica tells of its work is no reason to wait."""
    return False


@mistake(silence, "_is_busy", Rule.BUSY_STAYS, since=255)
def busy_is_believed_for_ever(busy: BusyEvidence, replica: Replica, work: Work, now: datetime) -> bool:
    """A replica may say for as long as it likes that it is only busy."""
    has_worked = replica.finished is not None and work.finished > replica.finished
    return has_worked and work.ongoing >= busy.limit


@mistake(silence, "_is_busy", Rule.BUSY_STAYS, since=32)
def who_finishes_nothing_is_busy(busy: BusyEvidence, replica: Replica, work: Work, now: datetime) -> bool:
    """A replica is taken for busy while its queue is full, though its engine is dead."""
    since = replica.busy_since or replica.silent_since or now
    return work.ongoing >= busy.limit and now - since < seconds(busy.longest_s)


@broken_stage(supersede.decide, Rule.REPLACED_BEFORE_DRAINED, since=218)
def recommended_ones_queue(spec: ServiceSpec, seen: Observation, now: datetime) -> Iterator[Step]:
    """Of the replicas that EC2 recommends to leave only one at a time is replaced."""
    is_busy = any(r.superseded_in(seen.rows) for r in seen.rows.replicas.values())
    for action in supersede.decide(spec, seen, now):
        if action.name == "Replace" and action.reason == supersede.RECOMMENDED:
            if is_busy:
                continue
            is_busy = True
        yield action


@mistake(rollout, "proven", Rule.VERSION_CORRECT, since=45)
def losses_try_the_new_version(spec: ServiceSpec, *args: Any) -> int:
    """A lost replica is replaced with a version that has never served."""
    return spec.version


@mistake(rollout, "is_stopped", Rule.REPLACED_BEFORE_DRAINED, since=1672)
def bad_versions_roll_out(*args: Any) -> bool:
    """A version that fails is tried again and again."""
    return False


@mistake(rollout, "is_next", Rule.ROLLED_OUT, since=23)
def nothing_rolls_out(*args: Any) -> bool:
    """A new version is deployed, and the old replicas stay."""
    return False


@mistake(changes._Brake, "passes", Rule.LAUNCH_RATE_LIMITED)
def launch_rate_is_not_limited(self: Any, wanted: int) -> int:
    """The limit of launches per minute is ignored."""
    return wanted


@mistake(
    reconcile,
    "_for_intents",
    Rule.INTENT_OPEN_WHILE_PENDING,
)
def intents_are_given_up_at_once(seen: Any, adopted: Any, now: Any) -> list[Step]:
    """A launch that isn't recorded by the next tick counts as failed."""
    return [steps.close_intent(intent) for intent in seen.rows.intents]


@mistake(changes, "_joined", Rule.ONLY_PORT_ERRORS)
def a_row_is_written_twice(decided: Iterable[Step]) -> list[Step]:
    """Each step of a replica writes its row by itself."""
    return list(decided)


@mistake(Reporting, "to_mend", Rule.METRICS_EXACT)
def what_is_to_be_mended_is_kept_quiet(self: Reporting, *args: Any) -> None:
    """What surveys found isn't counted."""


@mistake(Intake, "_set_aside", Rule.DEAD_LETTERS_EXACT)
def malformed_messages_vanish(self: Intake, *args: Any) -> None:
    """Malformed messages aren't set aside."""


@mistake(reconcile, "_for_draining", Rule.NO_INSTANCE_WITHOUT_ROW)
def drained_instances_are_left_running(*args: Any) -> list[Step]:
    """Drained instances aren't terminated."""
    return []


@mistake(strength, "_idle_fallbacks", Rule.DESIRED_AT_REST)
def fallbacks_stay_for_ever(*args: Any) -> list[Replica]:
    """Fallbacks stay when Spot is back."""
    return []


@mistake(strength, "_missing", Rule.ONE_FALLBACK_PER_REPLICA, since=19)
def two_fallbacks_for_one(spec: ServiceSpec, *args: Any) -> int:
    """Missing replicas are counted twice."""
    return 2 * _missing(spec, *args)


@mistake(strength, "_missing", Rule.ONE_FALLBACK_PER_REPLICA)
def fallbacks_without_the_setting(spec: ServiceSpec, *args: Any) -> int:
    """A service without fallbacks gets some."""
    return _missing(replace(spec, on_demand_fallback=True), *args)


@mistake(strength, "_missing", Rule.ONE_FALLBACK_PER_REPLICA)
def fallbacks_for_every_unready_replica(spec: Any, regular: Any, there: int, seen: Any) -> int:
    """On-demand and draining replicas get fallbacks, too."""
    return sum(r.state is not ReplicaState.READY for r in seen.rows.replicas.values() if not r.is_fallback)


@mistake(interruption, "is_missed", Rule.ONE_FALLBACK_PER_REPLICA, since=428)
def fallbacks_are_replaced(replica: Replica, rows: Rows) -> bool:
    """A fallback that goes is replaced like a regular replica."""
    return not (replica.is_warned or replica.superseded_in(rows))


also(replacement, "is_missed")(fallbacks_are_replaced)


@mistake(steps, "request", Rule.NEVER_ABOVE_SURGE, since=28)
def fallbacks_are_taken_for_regular_ones(*args: Any, is_fallback: bool = False, **kwargs: Any) -> Step:
    """Their rows don't say that they are fallbacks."""
    return _request(*args, **kwargs)


@mistake(changes, "_packed", Rule.DESIRED_AT_REST, since=10)
def one_launch_for_both_purchase_options(*args: Any) -> list[list[Any]]:
    """On-demand and Spot replicas share a launch."""
    all_ = list(changes.written(*args))
    return [all_[start : start + 8] for start in range(0, len(all_), 8)]


@mistake(strength, "is_due", Rule.SETTLES)
def refused_launches_are_never_retried(replica: Replica, seen: Any, now: datetime) -> bool:
    """A replica that was refused once is never launched again."""
    return replica.attempts == 0 and _is_due(replica, seen, now)


@mistake(cooldowns, "_cooldown", Rule.COOLDOWN_RECORDED)
def pools_cool_for_ever(*args: Any) -> Cooldown:
    """After a refusal or a loss, a pool is never asked again."""
    cooldown = _cooldown(*args)
    return replace(cooldown, until=cooldown.until + seconds(1e6))


@mistake(SimTelemetry, "count", Rule.METRICS_EXACT)
def conflicts_are_not_counted(self: SimTelemetry, metric: Metric, *args: Any, **kwargs: Any) -> None:
    """Lost races don't count."""
    if metric is not Metric.CONFLICTS:
        _count(self, metric, *args, **kwargs)


@mistake(SimTelemetry, "count", Rule.METRICS_EXACT)
def durations_are_in_seconds(
    self: SimTelemetry, metric: Metric, value: float = 1, *, service: str | None = None
) -> None:
    """Durations are counted in seconds instead of milliseconds."""
    _count(self, metric, value / 1000 if metric.value.endswith("Ms") else value, service=service)


def _losing(wrong: Callable[..., bool]) -> None:
    """A mistake: another idea of what a loss is."""
    patched = ((steps, "_is_lost", wrong),)
    MISTAKES.append(Mistake(wrong.__name__, Rule.METRICS_EXACT, patched))


@_losing
def only_warned_losses_count(row: Replica, warned_at: datetime | None, *, is_gone: bool) -> bool:
    """What ends or vanishes without a warning is no loss."""
    return warned_at is not None and not row.is_warned


@_losing
def every_drain_is_a_loss(row: Replica, warned_at: datetime | None, *, is_gone: bool) -> bool:
    """What we end ourselves counts as lost."""
    return row.lost_at is None


def _uncounted(lost: Metric) -> None:
    """A mistake: nobody counts the metric."""

    def count(self: SimTelemetry, metric: Metric, *args: Any, **kwargs: Any) -> None:
        if metric is not lost:
            _count(self, metric, *args, **kwargs)

    count.__name__ = f"{lost.name.lower()}_is_not_counted"
    mistake(SimTelemetry, "count", Rule.METRICS_EXACT)(count)


for _metric in (Metric.REPLICAS_SPOT, Metric.REPLICAS_ON_DEMAND, Metric.GAP_S, Metric.WARNING_TO_READY_MS):
    _uncounted(_metric)


@mistake(reporting, "paid_for", Rule.METRICS_EXACT)
def what_has_ended_is_paid_for(seen: Observation) -> Any:
    """The instances of all rows count, whether they run or not."""
    return [r.offering for r in seen.read.replicas.values() if r.offering]


@mistake(PoolMemory, "price", Rule.METRICS_EXACT)
def unknown_prices_are_none(self: PoolMemory, offering: Any) -> float:
    """What a sum lacks is taken for nothing."""
    return _price(self, offering) or 0.0


@mistake(reporting, "eligible_pools", Rule.METRICS_EXACT)
def pools_cool_for_each_cooldown(spec: ServiceSpec, memory: PoolMemory) -> Any:
    """Pools count as cooling once for each cooldown that there is."""
    return [pool for _ in memory.cooldowns for pool in spec.pools]


@mistake(reporting, "oldest_fallback", Rule.METRICS_EXACT)
def the_newest_fallback_counts(rows: Rows) -> Any:
    """Of several fallbacks the newest is taken for the oldest."""
    launched = (r.entered.get(ReplicaState.PROVISIONING) for r in rows.replicas.values() if r.is_fallback)
    return max((at for at in launched if at), default=None)


@mistake(news, "unaccounted", Rule.NEWS_TOLD, since=37)
def who_ended_meanwhile_is_forgotten(rows: Rows) -> list[int]:
    """A replica that was lost and ended between two ticks is never told of."""
    return []


@mistake(Notifier, "_publish", Rule.NEWS_TOLD, since=246)
def events_are_sent_once(self: Notifier, service: str, notices: Any) -> Any:
    """What EventBridge didn't take isn't tried again."""
    _publish(self, service, notices)
    return ()


@mistake(news.News, "begins_gap", Rule.NEWS_TOLD, since=50)
def a_gap_is_told_before_it_is_on_record(self: Any, before: Any) -> bool:
    """Who dies over telling that a gap began leaves nobody who knows that it ends."""
    return False


@mistake(news, "_turned_at", Rule.NEWS_TRUE)
def gaps_begin_and_end_with_ticks(replicas: Any, ready: int, enough: int, now: datetime) -> datetime:
    """A gap is as long as ticks have known of it."""
    return now


@mistake(Performer, "_take_out", Rule.METRICS_EXACT, since=51)
def failed_deregistrations_are_counted(
    self: Performer, outcome: Any, spec: ServiceSpec, instance_ids: Sequence[str], ports: Any, out: Any
) -> bool:
    """Deregistrations count even if the load balancer doesn't answer."""
    is_done: bool = outcome.attempt("deregister", lambda: self._deregister(spec, instance_ids, ports))
    out |= dict.fromkeys(instance_ids, self._ports.clock.now())
    return is_done


@mistake(Controller, "tick", Rule.REDELIVERED_ON_FAILURE)
def failed_ticks_are_deleted(self: Controller, *args: Any, **kwargs: Any) -> None:
    """A failed tick's message is deleted."""
    with suppress(PortError):
        _tick(self, *args, **kwargs)


@mistake(Intake, "_signal", Rule.MALFORMED_SET_ASIDE)
def malformed_message_fails_its_batch(self: Intake, body: str) -> Any:
    """A malformed message fails its whole batch."""
    return _parse(json.loads(body))


@mistake(intake, "parse_tick", Rule.TICK_MESSAGE_OBEYED)
def every_message_is_a_tick(body: str) -> Tick:
    """Other messages of the tick queue are handled as ticks."""
    return replace(_parse_tick(body), kind=TickKind.TICK)


@mistake(Outcome, "attempt", Rule.STEPS_INDEPENDENT, since=92)
def one_failure_ends_the_decision(self: Outcome, step: str, act: Any) -> bool:
    """If the load balancer doesn't answer, no replacement is launched."""
    return not self.troubles and _attempt(self, step, act)


@mistake(Performer, "_take_out", Rule.DEREGISTERED_BEFORE_LAUNCH)
def deregisters_after_the_launch(self: Performer, outcome: Any, *args: Any) -> None:
    """Targets are deregistered only after the launch."""
    self._late = (outcome, *args)  # type: ignore[attr-defined]


@also(Performer, "_launch_and_tell")
def _launch_then_take_out(self: Performer, *args: Any) -> None:
    _launch_and_tell(self, *args)
    outcome, *rest = self._late  # type: ignore[attr-defined]
    _take_out(self, outcome, *rest)


@mistake(cooldowns, "with_lessons", Rule.POOL_ORDER)
def launches_where_it_just_lost(memory: Any, _lessons: Any) -> Any:
    """A launch asks a pool that the same invocation has seen lost."""
    return memory


@mistake(performing, "takewhile", Rule.NO_WRITE_AFTER_CONFLICT, since=89)
def writes_after_a_lost_commit(predicate: Any, wanted: Iterable[Changes]) -> Iterator[Changes]:
    """The rest of a decision is written after one of its commits was lost."""
    return filter(predicate, wanted)


@mistake(Gatherer, "_missed", Rule.REMOVAL_NEEDS_TWO_SIGNS)
def one_sign_of_a_removal_is_enough(self: Gatherer, service: str, rows: Rows, *_: Any) -> Any:
    """A deletion event ends a service, even if its parameter exists again."""
    return (None, True) if rows.removal.told_at else (rows.document, False)


@mistake(Performer, "announce", Rule.TICK_AFTER_CHANGE)
def no_tick_after_a_change(self: Performer, *args: Any) -> None:
    """No tick follows a change before the schedule's."""


@mistake(SimServices, "get", Rule.OTHER_CONTROL_PLANE_RESPECTED, since=150)
def other_control_planes_are_ignored(
    self: SimServices, service: str, *, fresh: bool = False
) -> ServiceSpec | None:
    """Services of another control plane are changed."""
    try:
        return _get(self, service, fresh=fresh)
    except OtherControlPlane:
        return self.valid(service, self.scheduler.now)


@mistake(placement, "eligible_pools", Rule.POOL_ORDER)
def zones_without_a_subnet_are_asked(spec: ServiceSpec, memory: PoolMemory) -> Any:
    """All surveyed pools are asked, even in zones without a subnet."""
    return memory.survey.pools if memory.survey and memory.survey.pools else spec.pools


@mistake(autoscaling, "decide", Rule.UNKNOWN_LOAD_HOLDS, since=89)
def unknown_load_is_none(wanted: Any, before: Any, load: Load, *args: Any) -> Any:
    """What wasn't measured counts as no load at all."""
    return _decide_load(wanted, before, Load(load.requests_per_s or 0.0), *args)


@mistake(autoscaling, "decide", Rule.SCALED_AFTER_DELAY)
def the_load_is_followed_at_once(wanted: Any, *args: Any) -> Any:
    """Each change of the load changes the number of replicas."""
    return _decide_load(replace(wanted, upscale_delay_s=0.0, downscale_delay_s=0.0), *args)


@mistake(autoscaling, "decide", Rule.LOAD_AT_REST)
def the_load_is_never_followed(_wanted: Any, before: Any, *args: Any) -> Any:
    """The number of replicas stays, whatever the load."""
    return before


@mistake(Scaling, "bounds", Rule.SCALED_WITHIN_BOUNDS, since=24)
def the_load_knows_no_bounds(self: Scaling, _now: datetime) -> Bounds:
    """As many replicas as the load asks for, and none without one."""
    return Bounds(0, 999)


@mistake(autoscaling, "with_ongoing", Rule.UNKNOWN_LOAD_HOLDS)
def who_tells_nothing_has_nothing(*args: Any) -> Load:
    """Replicas that don't tell how many requests they have count as idle."""
    return replace(_with_ongoing(*args), is_ongoing_partial=False)


@mistake(SimStore, "note_ongoing", Rule.REQUESTS_COUNTED)
def all_replicas_have_told(self: SimStore, service: str, total: OngoingTotal) -> None:
    """It isn't on record how many replicas didn't tell."""
    _note_ongoing(self, service, replace(total, unknown=0))


@mistake(autoscaling, "begun", Rule.UNKNOWN_LOAD_HOLDS)
def what_is_there_is_forgotten(spec: ServiceSpec, _rows: Rows) -> Any:
    """Where the number on record is lost, the file's number counts, however many serve."""
    return core_rows.ScaleRequest(spec.replicas - 3, None)


@mistake(core_rows.Desired, "applied_to", Rule.DESIRED_AT_REST)
def nothing_is_overprovisioned(self: Any, spec: ServiceSpec) -> ServiceSpec:
    """The service file's replicas beyond the number are ignored."""
    return _applied_to(self, replace(spec, overprovision=0))


@mistake(strength, "_missing", Rule.NOTHING_BOUGHT_BEYOND, since=560)
def what_is_beyond_is_bought(spec: ServiceSpec, *args: Any) -> int:
    """Overprovisioned replicas that Spot doesn't give are bought on-demand."""
    return _missing(replace(spec, overprovision=0), *args)


MISTAKES += [Mistake("low_scores_are_as_good_as_high_ones", Rule.POOL_ORDER, ((timing, "LOW_SCORE", 0),))]


@mistake(placement, "_too_dear", Rule.POOL_ORDER, since=19)
def pools_above_the_cap_are_asked(*args: Any) -> None:
    """Pools above the cap are asked, and EC2 refuses them."""


@mistake(PoolMemory, "cooling", Rule.POOL_ORDER)
def nothing_cools(*args: Any) -> None:
    """A replacement is launched in the pool of the loss."""


@mistake(SimFleet, "launch", Rule.PRICE_CAP_SENT, since=16)
def the_cap_is_not_sent(self: SimFleet, request: LaunchRequest) -> LaunchResult:
    """The request has no price cap."""
    return _launch(self, replace(request, max_prices={}))


@mistake(SimFleet, "launch", Rule.LAUNCH_MATCHES_ROWS)
def one_is_launched_at_a_time(self: SimFleet, request: LaunchRequest) -> LaunchResult:
    """Of several waiting replicas, one is launched."""
    return _launch(self, replace(request, count=1))


@mistake(steps, "replace", Rule.LAUNCH_MATCHES_ROWS)
def replacements_are_bought_on_demand(*args: Any, **kwargs: Any) -> Step:
    """A Spot replica is replaced on-demand."""
    step = _replace(*args, **kwargs)
    bought = (replace(row, purchase_option=PurchaseOption.ON_DEMAND) for row in step.creates)
    return replace(step, creates=tuple(bought))


@mistake(placement, "in_words", Rule.LAUNCH_RESULT_RECORDED)
def rows_lack_the_launch_result(*args: Any) -> str:
    """Rows don't say why a pool was chosen, or what EC2 answered."""
    return ""


@mistake(launching, "after_refusal", Rule.RETRIED_AFTER_BACKOFF)
def refused_launches_are_retried_at_once(replica: Replica, now: datetime) -> tuple[int, datetime]:
    """A refused launch is retried every second."""
    return replica.attempts + 1, now + seconds(1)


@mistake(strength, "is_due", Rule.RETRIED_AFTER_BACKOFF)
def back_offs_are_ignored(replica: Replica, *args: Any) -> bool:
    """Waiting replicas are launched before they are due."""
    return _is_due(replace(replica, retry_at=None), *args)


@mistake(launching, "_call_fallbacks", Rule.FALLBACKS_IN_SECONDS, since=17)
def fallbacks_wait_for_a_tick(*args: Any) -> None:
    """After Spot refuses, no extra tick is scheduled."""


@mistake(cooldowns, "of_refusals", Rule.COOLDOWN_RECORDED, since=18)
def one_cooldown_per_answer(*args: Any) -> list[Cooldown]:
    """Of several refusals, only the last one starts a cooldown."""
    return _of_refusals(*args)[-1:]


@mistake(changes, "lessons", Rule.COOLDOWN_RECORDED)
def losses_start_no_cooldown(*args: Any) -> list[Cooldown]:
    """Losses start no cooldowns."""
    return []


@mistake(cooldowns, "_about", Rule.COOLDOWN_HAS_CAUSE)
def a_quota_stops_everything(refusal: Refusal, region: str, option: PurchaseOption) -> Any:
    """A refusal by one family's quota cools the whole region."""
    about = _about(refusal, region, option)
    return about and (replace(about[0], quota=""), about[1])


@mistake(cooldowns, "forgiven", Rule.LAUNCH_ENDS_REFUSALS)
def a_launch_ends_all_cooldowns(offerings: Any, memory: PoolMemory) -> list[Scope]:
    """A launched instance ends all cooldowns."""
    return [cooldown.scope for cooldown in memory.cooldowns]


@mistake(cooldowns, "forgiven", Rule.LAUNCH_ENDS_REFUSALS, since=42)
def a_launch_ends_no_cooldown(*args: Any) -> list[Scope]:
    """A launched instance ends no cooldown."""
    return []


@mistake(strength, "_drop", Rule.ROWS_MATCH_OBSERVATION)
def reasons_are_wrong(replica: Replica, now: datetime, reason: str, seen: Any) -> Iterator[Step]:
    """The reason in a row is wrong."""
    return _drop(replica, now, "Spot is back", seen)


@mistake(interruption, "finishes_within_s", Rule.NOT_BEFORE_TIMEOUT)
def all_leave_in_a_hurry(spec: ServiceSpec, replica: Replica) -> float:
    """A replica that nobody takes away gets no more time for its requests than a warned one."""
    return spec.drain_s


@mistake(reconcile, "is_overdue", Rule.NOT_BEFORE_TIMEOUT)
def no_time_to_start(*args: Any) -> bool:
    """A replica that isn't healthy at its first check counts as failed."""
    return True


@mistake(reconcile, "_for_ready", Rule.TICK_COMPLETE)
def health_is_never_noted(*args: Any) -> list[Step]:
    """A ready replica's health is never recorded."""
    return []


@mistake(reconcile, "_for_ready", Rule.ROWS_MATCH_OBSERVATION, since=20)
def what_is_unknown_counts_as_unhealthy(
    replica: Replica, health: Any, seen: Observation, now: datetime
) -> Iterator[Step]:
    """A load balancer that doesn't know a target's health is taken to say that it doesn't answer."""
    known = TargetState.UNHEALTHY if health is TargetState.UNAVAILABLE else health
    yield from _for_ready(replica, known, seen, now)


@mistake(reconcile, "_for_ready", Rule.LONE_FALLBACK_STAYS, since=747)
def the_lone_fallback_is_drained(
    replica: Replica, health: Any, seen: Observation, now: datetime
) -> Iterator[Step]:
    """An unhealthy fallback goes after three minutes, though nobody else answers."""
    if strength.is_given_up(replica, now) and health is TargetState.UNHEALTHY:
        yield steps.drain(replica, now, "unhealthy for 180 s")
    else:
        yield from _for_ready(replica, health, seen, now)


@mistake(Performer, "_enter", Rule.PROBED_BEFORE_ENTRY)
def what_runs_enters_unasked(
    self: Performer,
    outcome: Any,
    decision: Any,
    spec: ServiceSpec,
    done: Any,
    leaving: Any,
    ports: Any,
    won: Any,
) -> None:
    """A replica is registered when its instance runs, long before anything listens there."""
    _enter(self, outcome, decision, spec, done, leaving, ports, won)
    starting = [a.replica.instance_id for a in done if a.name == "Start" and not a.replica.stands_by]
    if starting:
        self._ports.router.register(spec, [i for i in starting if i], ports)


@mistake(reconcile, "trusted", Rule.PROBED_BEFORE_ENTRY, since=153)
def a_prober_that_fails_lets_all_in(_spec: ServiceSpec, _seen: Any, unasked: Any, _now: datetime) -> set[str]:
    """What the prober couldn't ask is registered, though others are healthy."""
    return set(unasked)


@mistake(strength, "is_given_up", Rule.LONE_FALLBACK_STAYS, since=127)
def nothing_comes_beside_the_lone_fallback(*args: Any) -> bool:
    """An unhealthy fallback counts for as long as it is there, so that no other one is requested."""
    return False


@mistake(interruption, "_for_draining", Rule.EVENTS_RECORDED)
def events_of_draining_replicas_are_ignored(*args: Any) -> None:
    """Events about draining replicas are ignored."""


@mistake(Performer, "_call_back", Rule.LAST_MOMENT_CHECKED)
def no_check_of_warned_replicas(*args: Any) -> None:
    """No check of a warned replica is scheduled."""


@mistake(strength, "next_look", Rule.NEXT_TICK_IN_TIME)
def starting_replicas_wait_for_the_schedule(*args: Any) -> None:
    """Starting replicas are checked only by the schedule's ticks."""


@mistake(supersede, "_is_settled", Rule.NEW_VERSION_STAYS, since=54)
def new_versions_are_relied_on_at_once(*args: Any) -> bool:
    """An old replica leaves as soon as one of the new version is ready."""
    return True


@mistake(supersede, "_unanswered", Rule.SETTLES, since=82_035_758, replicas=1)
def two_that_do_not_answer_stay(*_: Any) -> list[Replica]:
    """A replica and its replacement that both don't answer are in each other's way for ever."""
    return []


@mistake(rollout, "is_under_way", Rule.ILL_VERSION_GIVEN_UP, since=46)
def ill_versions_are_tried_on(*args: Any) -> bool:
    """A version that turns ill while it rolls out isn't given up."""
    return False


@mistake(strength, "_surplus", Rule.WEAKEST_GOES, since=300)
def the_dearest_goes_although_it_is_strong(spec: ServiceSpec, *args: Any) -> Any:
    """Scaling in doesn't ask how much a replica can do."""
    return _surplus(replace(spec, scaling=None), *args)


@mistake(strength, "_least_missed", Rule.SCALE_IN_ORDER)
def the_oldest_go_first(replica: Replica) -> tuple[int, bool, int]:
    """Scaling in removes the oldest replicas first."""
    distance, serves, age = _least_missed(replica)
    return distance, serves, -age


@mistake(strength, "stays_from", Rule.FALLBACK_STAYS_FOR_SPOT, since=16)
def spot_is_trusted_at_once(replica: Replica, _: float = 0.0) -> datetime:
    """Fallbacks go as soon as Spot is ready."""
    return replica.entered[ReplicaState.READY]


@mistake(strength, "_is_missing", Rule.FALLBACKS_MATCH_NEED)
def a_first_start_gets_fallbacks(replica: Replica, *args: Any, **kwargs: Any) -> bool:
    """Every Spot replica that isn't ready gets a fallback."""
    return replica.purchase_option is PurchaseOption.SPOT and replica.state is not ReplicaState.READY


@mistake(replacement, "counted", Rule.LOSS_REPLACED_IF_NEEDED, since=17)
def every_loss_is_replaced(_: Rows) -> list[Replica]:
    """A loss is replaced even if as many as desired are left."""
    return []


@mistake(strength, "_base", Rule.PURCHASE_OPTION_CORRECT)
def no_on_demand_base(spec: ServiceSpec) -> int:
    """All regular replicas are bought on Spot, in spite of the base."""
    return 0 if spec.use_spot else spec.replicas


@mistake(failures, "is_held", Rule.FAILURE_BACKOFF, since=66)
def failures_have_no_backoff(*args: Any, **kwargs: Any) -> bool:
    """Replicas that never become ready are launched again at once."""
    return False


@mistake(rollout, "as_desired", Rule.TICK_COMPLETE)
def requests_are_ignored(spec: ServiceSpec, *args: Any) -> ServiceSpec:
    """The service file's number counts, whatever an operator asks for."""
    return spec


@mistake(core_rows, "derive", Rule.DESIRED_AT_REST, since=26)
def requests_never_end(spec: ServiceSpec, requests: Any, now: datetime) -> Any:
    """An operator's number counts on when its time is over."""
    return _derive(spec, requests, min([now, *(r.until - seconds(1) for r in requests.values() if r.until)]))


@mistake(Controller, "_read", Rule.TICK_COMPLETE, since=581)
def warnings_go_by_the_service_file(self: Controller, *args: Any) -> Rows:
    """The fast path doesn't know what an operator asks for."""
    return replace(_read(self, *args), requests={})


@mistake(standby, "bridge", Rule.STANDBY_RESUMED)
def standbys_are_never_resumed(*args: Any, **kwargs: Any) -> list[Step]:
    """A missing replica is no reason to resume a standby."""
    return []


@mistake(standby, "is_coming", Rule.ONE_ROW_PER_INSTANCE, since=16)
def a_standby_is_resumed_twice(*args: Any) -> bool:
    """What was resumed isn't known to come, and the standby stays one beside it."""
    return False


@also(steps, "resume")
def _its_row_goes_on(*args: Any) -> Step:
    """The standby is there beside it."""
    step = _resume(*args)
    return replace(step, after=step.before)


@mistake(standby, "_as_it_should_be", Rule.NOTHING_SERVING_STOPPED, since=22)
def what_was_resumed_is_stopped(replica: Replica, seen: Any, now: datetime) -> Iterator[Step]:
    """A standby's instance that runs is stopped, even if it was resumed and serves."""
    if replica.state is ReplicaState.READY:
        yield steps.stop_instance(replica)
    yield from _as_it_should_be(replica, seen, now)


@mistake(reconcile, "unowned", Rule.ONE_ROW_PER_INSTANCE, since=18)
def stopped_instances_count_as_orphans(seen: Any, now: datetime) -> list[Any]:
    """A standby's stopped instance is ended as an orphan."""
    standbys = {r.instance_id for r in seen.rows.replicas.values() if r.state is ReplicaState.STANDBY}
    return [*_unowned(seen, now), *(i for i in seen.instances.values() if i.id in standbys)]


@mistake(steps, "request", Rule.STANDBYS_PREPARED_SINGLY, since=16)
def two_standbys_are_prepared_at_once(*args: Any, is_standby: bool = False, **kwargs: Any) -> Step:
    """Standbys are prepared in pairs."""
    step = _request(*args, is_standby=is_standby, **kwargs)
    return replace(step, creates=step.creates * 2) if is_standby else step


@mistake(standby, "_may_be_tried", Rule.STANDBY_TRIED, since=16)
def standbys_are_relied_on_at_once(*args: Any) -> bool:
    """None is tried out."""
    return False


@mistake(steps, "stand_by", Rule.SETTLES, since=16)
def a_trial_is_forgotten(row: Replica, now: datetime) -> Step:
    """So it is repeated for ever."""
    step = _stand_by(row, now)
    return replace(step, after=replace(step.row, resume_s=row.resume_s))


@mistake(standby, "returns", Rule.STANDBY_KEPT, since=16)
def what_has_served_is_terminated(*args: Any) -> bool:
    """A standby that was resumed never stands by again."""
    return False


@mistake(standby, "staying_count", Rule.STANDBYS_PREPARED_SINGLY, since=16)
def standbys_come_before_replicas(rows: Rows) -> int:
    """Standbys are prepared while replicas are missing."""
    return 999


@mistake(strength, "_idle_fallbacks", Rule.RESUMED_KEPT, since=639)
def cold_and_resumed_fallbacks_take_turns(
    fallbacks: Sequence[Replica], missing: int, regular: Sequence[Replica], now: datetime
) -> list[Replica]:
    """Of those that don't serve yet the newest goes, which is the one that is being resumed."""
    surplus = sorted(fallbacks, key=strength._least_missed)[: max(len(fallbacks) - missing, 0)]
    return [r for r in surplus if not r.serves]


@mistake(Gatherer, "standbys", Rule.STANDBYS_COUNTED, since=18)
def standbys_are_never_counted(self: Gatherer, outcome: Any, deployed: Any, spec: ServiceSpec, _: Any) -> int:
    """Whatever the starts and losses, the first number of standbys stays."""
    return spec.standby


@mistake(Probing, "probe", Rule.STANDBY_OUT_OF_ROTATION, since=16)
def standbys_are_registered(self: Probing, spec: ServiceSpec, seen: Any, *args: Any) -> Any:
    """A standby that is prepared comes into rotation."""
    rising = (r for r in seen.rows.replicas.values() if r.stands_by and r.state is ReplicaState.STARTING)
    if ids := [r.instance_id for r in rising if r.instance_id]:
        self._ports.router.register(spec, ids)
    return _probe(self, spec, seen, *args)


@mistake(rollout, "admitted", Rule.CHANGED_AT_ONCE, since=89)
def new_ones_enter_as_they_come(_spec: ServiceSpec, _rows: Rows, answering: Iterable[Replica]) -> Any:
    """Clients meet both versions while the new one comes up."""
    return list(answering)


@mistake(rollout, "changes_at_once", Rule.CHANGED_AT_ONCE, since=89)
def old_ones_leave_one_by_one(spec: ServiceSpec) -> bool:
    """New ones enter, and old ones leave, as where versions roll."""
    return False


@mistake(
    rollout,
    "ports",
    Rule.TICK_CLEANS_ROTATION,
    since=18,
)
def every_version_has_the_deployed_port(_spec: ServiceSpec, rows: Rows) -> dict[str, int]:
    """Replicas of before are taken out at a port that they don't have."""
    return {r.instance_id: _spec.port for r in rows.replicas.values() if r.instance_id}


@mistake(rollout, "has_failed", Rule.REPLACED_BEFORE_DRAINED, since=552)
def a_failed_version_goes_on(_spec: ServiceSpec, _rows: Rows) -> bool:
    """However often a version fails, replicas make place for it."""
    return False


@mistake(rollout, "proven", Rule.VERSION_CORRECT, since=45)
def a_loss_tries_the_new_version(spec: ServiceSpec, _rows: Rows, _lost: Any = None) -> int:
    """What is lost is replaced with what was never seen to serve."""
    return spec.version


@broken_stage(moves.decide, Rule.MOVES_SINGLY, since=26)
def two_move_at_once(spec: ServiceSpec, seen: Any, now: datetime) -> Iterator[Step]:
    """Beside the replica that moves goes another."""
    for move in moves.decide(spec, seen, now):
        others = (r for r in seen.rows.replicas.values() if r.id != move.replica.id)
        on_spot = [r for r in others if r.purchase_option is PurchaseOption.SPOT]
        yield move
        (new,) = move.creates
        limits: Any = {"max_price": new.max_price, "min_score": new.min_score}
        yield from (_replace(replica, now, move.reason, new.version, **limits) for replica in on_spot[:1])


@mistake(moves, "_is_calm", Rule.MOVES_WHEN_CALM, since=17)
def moves_while_something_is_missing(spec: ServiceSpec, seen: Any, now: datetime) -> bool:
    """A move doesn't wait until as many as desired serve."""
    return not any(moves._was_just_tried(r, now) for r in seen.rows.replicas.values())


@broken_stage(moves.decide, Rule.MOVED_SERVES_FIRST, since=495)
def what_moves_drains_first(spec: ServiceSpec, seen: Any, now: datetime) -> Iterator[Step]:
    """The old replica goes when the new one is launched, not when it is ready."""
    rising = (ReplicaState.PROVISIONING, ReplicaState.STARTING)
    successors = [r for r in seen.rows.replicas.values() if r.state in rising and r.moves_in(seen.rows)]
    yield from (steps.drain(seen.rows.replicas[r.replaces or 0], now, r.reason) for r in successors)
    yield from moves.decide(spec, seen, now)


@mistake(moves, "may_move", Rule.MOVES_DUE, since=49)
def prices_alone_move_nothing(spec: ServiceSpec) -> bool:
    """A service whose replicas are to move by price, and not by score, keeps them where they are."""
    return spec.move_on_score


@mistake(moves, "_was_just_tried", Rule.MOVES_SINGLY, since=26)
def moves_follow_each_other(*args: Any) -> bool:
    """One replica moves after the other, whatever became of the last."""
    return False


@broken_stage(moves.decide, Rule.MOVES_ONLY_SPOT, since=18)
def standbys_and_on_demand_replicas_move(spec: ServiceSpec, seen: Any, now: datetime) -> Iterator[Step]:
    """Whatever moves to Spot, it saves."""
    if spec.rebalance_cost is not None and moves._is_calm(spec, seen, now):
        there = (r for r in seen.rows.replicas.values() if r.purchase_option is PurchaseOption.ON_DEMAND)
        for replica in [r for r in there if r.id in seen.read.replicas][:1]:
            yield steps.replace(replica, now, "costs too much", replica.version, max_price=1.0)


@mistake(moves, "worth", Rule.MOVES_PAY, since=26)
def any_saving_is_worth_a_move(spec: Any, share: float, replica: Any, price: float) -> float:
    """A replica moves wherever Spot isn't dearer."""
    return price


@broken_stage(moves.decide, Rule.MOVES_SINGLY, since=47)
def a_fallen_zone_is_left_at_once(spec: ServiceSpec, seen: Any, now: datetime) -> Iterator[Step]:
    """All that is where the score has fallen moves together."""
    if spec.move_on_score and moves._is_calm(spec, seen, now):
        yield from moves._by_score(spec, seen, now)


@broken_stage(moves.decide, Rule.MOVED_SERVES_FIRST, since=47)
def what_leaves_a_fallen_zone_drains_first(spec: ServiceSpec, seen: Any, now: datetime) -> Iterator[Step]:
    """The score is so low that the old replica needn't serve until the new one is ready."""
    replicas = seen.rows.replicas
    going = [r for r in replicas.values() if r.min_score is not None and r.moves_in(seen.rows)]
    yield from (
        steps.drain(replicas[r.replaces or 0], now, r.reason) for r in going if r.instance_id and not r.serves
    )
    yield from moves.decide(spec, seen, now)


@mistake(Survey, "lasting", Rule.MOVES_BY_LASTING_SCORES, since=57)
def one_reading_is_enough(self: Survey, zone: str, _for_s: float) -> tuple[int, int] | None:
    """A replica moves by what the last survey alone has found."""
    score = self.scores.get(zone)
    return None if score is None else (score, score)


@mistake(surveying, "following", Rule.MOVES_BY_LASTING_SCORES, since=57)
def a_deployment_brings_a_second_reading(survey: Survey, last: Survey | None) -> Survey:
    """Whenever the last survey was, it counts as one of an hour ago."""
    if last is None:
        return survey
    return replace(survey, earlier=(Reading(survey.at - seconds(3600), last.scores),))


@broken_stage(moves.give_up, Rule.MOVES_END, since=977)
def refused_moves_wait(*args: Any) -> list[Step]:
    """A move that EC2 refused is tried again and again."""
    return []


@mistake(holding, "lapsed", Rule.OVERRIDE_BOUND, since=86)
def an_override_vouches_for_all_that_its_tick_sees(*_: object) -> str:
    """Whatever is held back goes on, whoever was shown what."""
    return ""


@mistake(holding, "lapsed", Rule.OVERRIDE_BOUND, since=576)
def an_override_that_says_nothing_is_for_everything(
    override: Override, before: Held, held: Sequence[HoldBack]
) -> str:
    """A command of before, which doesn't say what it is given for, vouches for all as it did then."""
    return _lapsed(override, before, held) if override.held else ""


@mistake(holding, "lapsed", Rule.OVERRIDE_BOUND, since=212)
def an_override_outlives_its_matter(override: Override, before: Held, held: Sequence[HoldBack]) -> str:
    """What looks the same as what was shown is taken for it, also if it was over in between."""
    shown = {(one.what, one.why) for one in override.held}
    return "" if shown >= {(one.what, one.why) for one in held} else _lapsed(override, before, held)


@mistake(control_ticks, "_decided", Rule.OVERRIDE_BOUND, since=200)
def an_override_is_carried_out_among_others(
    spec: ServiceSpec | None, seen: Observation, now: datetime, ruling: Holding
) -> Sequence[Step]:
    """More is held back than was shown: what was shown goes on all the same."""
    held = holding.overridable(_decided(spec, seen, now, Holding(ruling.before)))
    shown = {one.what for one in ruling.override.held} if ruling.override else set()
    its = [one for one in held if one.what in shown and holding._on_record(one, ruling.before)]
    is_more = 0 < len(its) < len(held)
    return _decided(spec, replace(seen, vouched=its) if is_more else seen, now, ruling)


@mistake(holding, "lapsed", Rule.OVERRIDE_BOUND, since=19)
def no_override_is_carried_out(*_: object) -> str:
    """Everything is held back, whoever says that it is true."""
    return "nobody is believed"


@mistake(holding.Holding, "record", Rule.HELD_ON_RECORD)
def what_was_held_back_stays_on_record(self: Holding, now: datetime) -> Held:
    """An operator is shown what was over long ago."""
    held = _record(self, now)
    return replace(held, back=tuple({*self.before.back, *held.back}))


@mistake(holding, "_on_record", Rule.HELD_ON_RECORD)
def what_is_held_back_is_new_at_each_tick(*_: object) -> None:
    """It isn't known since when: each tick writes it again, and no override finds what it is given for."""


MISTAKES += [
    Mistake(
        "all_return_at_once",
        Rule.GRADUAL_RETURN_TO_SPOT,
        ((strength, "RETURN_LEAST", 99),),
        since=93,
    ),
    Mistake(
        "scores_that_waver_move_replicas",
        Rule.MOVES_BY_LASTING_SCORES,
        ((timing, "MOVE_SCORE_GAIN", 1),),
        since=47,
    ),
    Mistake(
        "zones_that_score_well_are_left",
        Rule.MOVES_BY_LASTING_SCORES,
        ((timing, "MOVE_SCORE", 6),),
        since=970,
    ),
    Mistake(
        "no_time_to_recover",
        Rule.REPLACED_BEFORE_DRAINED,
        ((timing, "UNHEALTHY_REPLACED_S", 0.0),),
    ),
]


@mistake(rollout, "to_launch", Rule.LAUNCHED_AS_DEPLOYED)
def what_waits_keeps_its_version(spec: ServiceSpec, rows: Rows, waiting: Replica) -> int:
    """What EC2 refuses is asked for again and again, whatever is deployed meanwhile."""
    if spec.on_update is OnUpdate.KEEP:
        return spec.version
    served = _proven(spec, rows, waiting)
    is_taken_back = waiting.version > spec.version
    return served if is_taken_back or rollout.is_stopped(spec, rows) else max(waiting.version, served)


@mistake(rollout, "to_launch", Rule.LAUNCHED_AS_DEPLOYED, since=45)
def whatever_waits_is_launched_as_deployed(spec: ServiceSpec, rows: Rows, waiting: Replica) -> int:
    """A lost replica for which there was no room tries a version that has never served."""
    return _to_launch(spec, rows, waiting) if rollout.is_stopped(spec, rows) else spec.version


@mistake(rollout, "to_launch", Rule.LAUNCHED_AS_DEPLOYED)
def a_version_that_served_is_launched_though_ec2_refuses_it(
    spec: ServiceSpec, rows: Rows, waiting: Replica
) -> int:
    """Its image is gone, and a fallback of it serves: so nothing else is ever asked for."""
    return _to_launch(spec, rows, replace(waiting, is_denied=False))


@mistake(steps, "replace", Rule.LAUNCHED_AS_DEPLOYED)
def it_is_forgotten_what_had_served(*args: Any, **kwargs: Any) -> Step:
    """Once all of a version are gone, what comes in their place tries the deployed one."""
    step = _replace(*args, **kwargs)
    return replace(step, creates=tuple(replace(row, is_proven=False) for row in step.creates))


@mistake(launching, "_denied", Rule.LAUNCH_RESULT_RECORDED, since=93)
def a_request_that_is_denied_counts_as_a_lack_of_capacity(*args: Any) -> Changes:
    """The row doesn't say that another version may help."""
    denied = _denied_launch(*args)
    return replace(denied, update=tuple(replace(row, is_denied=False) for row in denied.update))


@mistake(rollout, "is_taken_back", Rule.ROLLED_BACK, since=891)
def what_was_taken_back_goes_on(*args: Any) -> bool:
    """What still starts when an operator goes back takes the place of what serves."""
    return False


@mistake(rollout, "in_effect", Rule.ROLLED_BACK, since=47)
def a_rollback_is_ignored(spec: ServiceSpec, rows: Rows, now: datetime) -> ServiceSpec:
    """The deployed version is launched, though an operator gave it up."""
    return core_rows.as_desired(spec, rows.requests, now)


@mistake(interruption, "_version", Rule.ROLLED_BACK, since=1844)
def a_signal_knows_no_rollback(spec: ServiceSpec, rows: Rows, lost: Replica) -> int:
    """What is lost of the version that was given up is replaced with the same."""
    return _version(spec, replace(rows, rollback=None), lost)


@mistake(interruption, "unconfirmed", Rule.SOMEBODY_ANSWERS, since=168, replicas=3)
def a_row_vouches_for_the_dead(seen: Observation) -> set[int]:
    """What was just seen to be gone is a reason to take out what still answers."""
    return set()


@mistake(strength, "_surplus", Rule.SOMEBODY_ANSWERS, since=30110997, replicas=2)
def what_ec2_does_not_show_stays(
    spec: ServiceSpec, regular: Sequence[Replica], count: int, seen: Observation
) -> list[Replica]:
    """Scaling in takes the newest of those that start, though EC2 doesn't show the other one."""
    shown: Any = dict.fromkeys(r.instance_id for r in regular)
    return _surplus(spec, regular, count, replace(seen, instances=shown))


@mistake(incidents, "_is_due", Rule.INCIDENT_OVER, since=5)
def zeros_come_too_early(state: AlarmState, reason: Any, now: datetime) -> bool:
    """That it is over is told in the minute of the last 1 only, and that is the maximum."""
    if state.since is None:
        return _is_zero_due(state, reason, now)
    return state.zeros > 0 and incidents._minute(now) == incidents._minute(state.since)


@mistake(incidents, "_is_due", Rule.INCIDENT_OVER, since=5)
def nobody_tells_that_it_is_over(state: AlarmState, reason: Any, now: datetime) -> bool:
    """What rang once rings for ever."""
    return state.since is None and _is_zero_due(state, reason, now)


@mistake(Notifier, "alarm", Rule.INCIDENT_WAITS, since=42)
def an_incident_is_told_before_it_is_on_record(
    self: Notifier, spec: ServiceSpec, rows: Rows, memory: PoolMemory | None
) -> None:
    """Where it isn't put on record, nobody knows that an alarm rings that was told to."""
    now = self._ports.clock.now()
    survey = memory.survey if memory else None
    better = bool(surveying.better_elsewhere(survey, spec.region)) if survey else None
    seen = incidents.situation(spec, rows, is_better_elsewhere=better)
    told = incidents.after(rows.incidents, spec, seen, now)
    for alarm, lasts in told.heard.items():
        self._ports.telemetry.tell(alarm, service=spec.service, lasts=lasts, at=now)
    try:
        if told.record != rows.incidents:
            self._ports.store.note_incidents(spec.service, told.record)
    except Conflict:
        return
    except PortError as error:
        launching.note_failed(self._ports, "alarms_not_told", spec.service, error)


@mistake(incidents, "_is_explained", Rule.INCIDENT_ONCE, since=5)
def two_alarms_ring_for_one_incident(*_: object) -> bool:
    """Where nothing is ready, that replicas are missing is told, too."""
    return False


@mistake(incidents, "_is_outage_soon", Rule.INCIDENT_ONCE, since=337, replicas=1)
def a_refusal_is_told_a_minute_before_the_outage(*_: object) -> bool:
    """What rings at once doesn't wait for what rings a minute later, and says all of it."""
    return False


@mistake(incidents, "_explains", Rule.INCIDENT_ONCE, since=122, replicas=2)
def what_rang_explains_nothing_more(cause: AlarmState, spec: ServiceSpec, now: datetime) -> bool:
    """What starts at last, after an outage, is told to be missing."""
    return cause.rings


@mistake(incidents, "after", Rule.INCIDENT_LASTS, since=5)
def an_alarm_clears_by_itself(before: Incidents, *args: Any) -> incidents.Told:
    """After two minutes it is told to be over, whatever is missing."""
    told = _incidents_after(before, *args)
    now = args[-1]
    heard = {
        alarm: lasts and now - (told.record.alarms[alarm].since or now) < seconds(120)
        for alarm, lasts in told.heard.items()
    }
    return replace(told, heard=heard)


@mistake(incidents, "after", Rule.INCIDENT_TOLD, since=28)
def it_is_told_once_that_it_rings(before: Incidents, *args: Any) -> incidents.Told:
    """Where that gets lost, the alarm never rings."""
    told = _incidents_after(before, *args)
    heard = {a: lasts for a, lasts in told.heard.items() if not (lasts and a in before.ringing)}
    return replace(told, heard=heard)


MISTAKES.append(
    Mistake(
        "an_outage_is_told_at_once",
        Rule.INCIDENT_WAITS,
        ((incidents, "OUTAGE_S", 0.0),),
        since=5,
    )
)
