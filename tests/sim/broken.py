"""Controllers with one mistake each: what the checker must notice, or it isn't worth its seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from unittest.mock import patch

from lab.sim.ports import SimFleet, SimServices, SimTelemetry
from lab.sim.rules import Rule
from spotrelay import events
from spotrelay.control import controller, intake
from spotrelay.control.controller import Controller
from spotrelay.control.intake import Intake
from spotrelay.core import timing
from spotrelay.core.instances import Refusal
from spotrelay.core.names import Metric
from spotrelay.core.pools import Cooldown, PoolMemory, PurchaseOption, Scope
from spotrelay.core.ports import (
    Conflict,
    LaunchRequest,
    LaunchResult,
    OtherControlPlane,
    PortError,
    Unavailable,
)
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Changes, Rows
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.events import ticks
from spotrelay.events.ticks import Tick, TickKind
from spotrelay.memory import MemoryStore
from spotrelay.placement import cooldowns, launching
from spotrelay.placement import plan as placement
from spotrelay.serving import (
    changes,
    failures,
    interruption,
    observation,
    rebalance,
    reconcile,
    rotation,
    strength,
)
from spotrelay.serving.actions import Action, CloseIntent, Drain, Request, Terminate


@dataclass(frozen=True)
class Broken:
    """A mistake: what is replaced by what, and the rules of which one must notice."""

    name: str
    rules: frozenset[Rule]
    replaced: tuple[tuple[Any, str, Any], ...]

    @contextmanager
    def made(self) -> Iterator[None]:
        """The production code with the mistake in it."""
        with ExitStack() as stack:
            for owner, name, value in self.replaced:
                stack.enter_context(patch.object(owner, name, value))
            yield


BROKEN: list[Broken] = []


def _believing(spec: ServiceSpec, replica: Replica, seen: Any, now: datetime) -> Iterator[Action]:
    if replica.instance_id and replica.instance_id not in seen.instances and replica.state.is_active:
        yield Drain(replica, "instance gone")
    else:
        yield from _for_replica(spec, replica, seen, now)


def mistake(owner: Any, name: str, *rules: Rule) -> Callable[[Any], Any]:
    """Have the function that follows stand in for `owner.name`; its docstring says what is wrong with it."""

    def add(function: Any) -> Any:
        BROKEN.append(Broken(function.__name__, frozenset(rules), ((owner, name, function),)))
        return function

    return add


def also(owner: Any, name: str) -> Callable[[Any], Any]:
    """A second part of the mistake before."""

    def add(value: Any) -> Any:
        broken = BROKEN.pop()
        BROKEN.append(replace(broken, replaced=(*broken.replaced, (owner, name, value))))
        return value

    return add


_for_replica = reconcile._for_replica
_count = SimTelemetry.count
_tick = Controller.tick
_attempt = Controller._attempt
_launch_and_tell = Controller._launch_and_tell
_parse_tick = ticks.parse_tick
_parse = events.parse
_take_out = Controller._take_out
_get = SimServices.get
_commit = Controller._commit
_perform = Controller._perform
_store_commit = MemoryStore.commit
_terminate = SimFleet.terminate
_warned = SimFleet.warned
_launch = SimFleet.launch
_signals = Intake.signals
_rebalance = rebalance.decide
_missing = strength._missing
_requested = changes._requested
_is_due = strength._is_due
_cooldown = cooldowns._cooldown
_reconcile = Controller._reconcile
_about = cooldowns._about
_of_refusals = cooldowns.of_refusals
_with_replacement = changes._with_replacement
_drop = strength._drop
_least_missed = strength._least_missed


@mistake(MemoryStore, "_check", Rule.LEGAL_TRANSITIONS)
def rows_without_revisions(kept: Any, changes: Changes) -> None:
    """A row is written whatever became of it since it was read."""
    if changes.highest_id and changes.highest_id[0] != kept.highest_id:
        raise Conflict("highest ID")


BROKEN[-1] = replace(BROKEN[-1], replaced=((MemoryStore, "_check", staticmethod(rows_without_revisions)),))


@staticmethod  # type: ignore[misc]  # it stands in for one
def ids_without_condition(kept: Any, changes: Changes) -> None:
    """New rows are written whoever gave IDs since the highest was read."""
    for row in changes.update:
        stored = kept.replicas.get(row.id)
        if stored is None or stored.revision != row.revision:
            raise Conflict("revision")


BROKEN.append(
    Broken(
        "ids_without_condition",
        frozenset({Rule.IDS_IN_ORDER}),
        ((MemoryStore, "_check", ids_without_condition),),
    )
)


@mistake(Controller, "_commit", Rule.INTENT_BEFORE_LAUNCH)
def no_launch_intent(self: Controller, outcome: Any, change: Changes) -> bool:
    """Launches are made without a trace before."""
    return _commit(self, outcome, replace(change, open_intent=None))


@mistake(Controller, "_perform", Rule.ROW_BEFORE_EFFECT)
def deregisters_first(self: Controller, decision: Any) -> Any:
    """The load balancer hears of it before anybody knows whether the row may be written."""
    if decision.spec:
        self._deregister(decision.spec, [a.takes_out for a in decision.actions if a.takes_out])
    return _perform(self, decision)


@mistake(Controller, "_deregister", Rule.TICK_CLEANS_ROTATION, Rule.WARNING_HANDLED, Rule.STEPS_INDEPENDENT)
def the_load_balancer_is_never_told(self: Controller, spec: ServiceSpec, instance_ids: Any) -> None:
    """What drains gets requests until it is gone."""
    drained = [i for i in instance_ids if i.endswith("0")]
    if drained:
        self._ports.router.deregister(spec, drained)


@mistake(rotation, "may_leave", Rule.WARNED_SERVES_WHILE_NEEDED)
def all_leave_on_the_warning(*args: Any, **kwargs: Any) -> bool:
    """Whoever is warned goes at once, also where nobody else serves."""
    return True


@mistake(rotation, "may_leave", Rule.WARNED_OUT_BEFORE_END, Rule.TICK_CLEANS_ROTATION)
def nobody_leaves_in_time(spec: Any, warned_at: Any, staying: int, now: Any, *, is_last: bool) -> bool:
    """A warned replica serves on until EC2 takes it."""
    return False


@mistake(rotation, "enough", Rule.WARNED_SERVES_WHILE_NEEDED)
def one_other_is_enough(spec: ServiceSpec) -> int:
    """A large service goes down to one replica."""
    return 1


@mistake(strength, "spare", Rule.NEVER_BELOW_DESIRED)
def serving_fallbacks_are_dropped(*args: Any) -> int:
    """What is too many goes, whoever serves in its place."""
    return 99


@mistake(
    changes._Serving,
    "after",
    Rule.WARNED_SERVES_WHILE_NEEDED,
    Rule.SERVING_COUNT_EXACT,
    Rule.NEVER_BELOW_DESIRED,
)
def nobody_counts_who_serves(self: Any, commit: Changes) -> None:
    """Two of the last ones leave, because each relies on the other."""


@mistake(reconcile, "_missing", Rule.NEVER_BELOW_DESIRED, Rule.WARNED_NOT_TERMINATED, Rule.ONLY_PORT_ERRORS)
def what_is_not_shown_is_gone(seen: Any, now: Any) -> set[int]:
    """An empty answer of EC2's is believed: whatever it doesn't show is drained."""
    return set()


also(reconcile, "_for_replica")(_believing)


@mistake(
    observation,
    "known",
    Rule.NEVER_ABOVE_SURGE,
    Rule.NEVER_BELOW_DESIRED,
    Rule.DEREGISTERED_BEFORE_TERMINATED,
    Rule.ONLY_PORT_ERRORS,
    Rule.METRICS_EXACT,
)
def what_is_not_on_record_is_not_there(rows: Rows, now: datetime) -> Rows:
    """Rows above a highest ID that got lost are taken for newborn."""
    return replace(rows, replicas={i: r for i, r in rows.replicas.items() if i <= rows.highest_id})


also(controller, "known")(what_is_not_on_record_is_not_there)


@mistake(Controller, "_missed", Rule.NEVER_BELOW_DESIRED)
def a_missing_document_ends_the_service(self: Controller, *args: Any, **kwargs: Any) -> Any:
    """Parameter Store doesn't know it: so its stack is gone."""
    return None, True


@mistake(reconcile, "_is_ours", Rule.FOREIGN_UNTOUCHED)
def whatever_bears_our_tag_is_ours(*args: Any) -> bool:
    """Anybody can set a tag."""
    return True


@mistake(reconcile, "_is_left_to_ec2", Rule.SETTLES, Rule.DESIRED_AT_REST)
def what_ec2_spares_is_left_running(replica: Replica, *args: Any) -> bool:
    """A warned instance is EC2's to end, for ever."""
    return replica.is_warned


@mistake(reconcile, "_terminate", Rule.WARNED_NOT_TERMINATED, Rule.METRICS_EXACT)
def terminates_warned_instances(instance: Any, seen: Any, why: str, replica: Replica) -> Iterator[Terminate]:
    """What is drained is terminated, whoever takes it anyway."""
    if instance.state.is_alive:
        yield Terminate(instance.id, why, replica)


also(Replica, "is_warned")(property(lambda _: False))


@mistake(interruption, "_for_draining", Rule.NEVER_ABOVE_SURGE)
def replaces_for_each_warning(replica: Replica, told: Any) -> Action | None:
    """A duplicate counts as another loss."""
    return Request(1, "warned again", PurchaseOption.SPOT) if told.warned_at else None


@mistake(reconcile, "_adoptions", Rule.ADOPTED_BEFORE_INTENT_CLOSES)
def no_adoption(seen: Any, now: Any) -> dict[int, Any]:
    """What a launch brought without an answer stays nobody's."""
    return {}


@mistake(reconcile, "_for_unowned", Rule.NO_INSTANCE_WITHOUT_ROW)
def no_end_for_orphans(*args: Any) -> list[Action]:
    """Instances of ours that nobody knows live on."""
    return []


@mistake(SimFleet, "warned", Rule.TICK_CLEANS_ROTATION)
def tick_ignores_warnings(self: SimFleet) -> Mapping[str, datetime]:
    """The tick looks, and sees nothing."""
    _warned(self)
    return {}


@mistake(Controller, "_commit", Rule.ONE_REPLACEMENT_PER_LOSS, Rule.ONLY_PORT_ERRORS)
def drains_and_replaces_in_two_commits(self: Controller, outcome: Any, change: Changes) -> bool:
    """Between the two anything may happen."""
    drained = Changes(change.service, update=change.update, serving=change.serving)
    rest = replace(change, update=(), serving=None)
    return _commit(self, outcome, drained) and _commit(self, outcome, rest)


@mistake(SimFleet, "launch", Rule.INTENT_BEFORE_LAUNCH)
def launches_again_with_a_new_token(self: SimFleet, request: LaunchRequest) -> LaunchResult:
    """No answer is taken for no launch."""
    try:
        return _launch(self, request)
    except Unavailable:
        return _launch(self, replace(request, launch_id=f"{request.launch_id}-again"))


@mistake(MemoryStore, "commit", Rule.NO_OPEN_INTENT, Rule.SETTLES, Rule.INTENT_BEFORE_LAUNCH)
def intents_are_never_closed(self: MemoryStore, changes: Changes) -> None:
    """What is done stays on the list."""
    _store_commit(self, replace(changes, close_intents=()))


@mistake(MemoryStore, "release", Rule.NO_LEASE_HELD)
def leases_are_never_released(self: MemoryStore, service: str, holder: str) -> None:
    """The next tick must wait until it expires."""


@mistake(Intake, "signals", Rule.WARNING_HANDLED, Rule.REDELIVERED_ON_FAILURE)
def failed_signals_are_dropped(self: Intake, messages: Mapping[str, str]) -> list[str]:
    """What failed is deleted from the queue."""
    _signals(self, messages)
    return []


@mistake(strength, "next_look", Rule.SETTLES, Rule.NEXT_TICK_IN_TIME)
def ticks_never_rest(spec: Any, seen: Any, now: datetime) -> datetime | None:
    """A tick every three seconds for ever."""
    return now + seconds(timing.TICK_IN_TRANSITION_S)


@mistake(
    strength,
    "decide",
    Rule.DESIRED_AT_REST,
    Rule.SETTLES,
    Rule.TICK_COMPLETE,
    Rule.FALLBACKS_MATCH_NEED,
    Rule.LAUNCHED_WHEN_DUE,
)
def nobody_counts(*args: Any) -> list[Action]:
    """Losses are replaced, but nobody looks whether there are as many as wanted."""
    return []


@mistake(Controller, "_reconcile", Rule.FOREIGN_UNTOUCHED, Rule.WARNED_NOT_TERMINATED)
def ends_whatever_is_warned(self: Controller, *args: Any, **kwargs: Any) -> datetime | None:
    """The account has others' instances, too."""
    if going := self._ports.fleet.warned():
        self._ports.fleet.terminate(going)
    return _reconcile(self, *args, **kwargs)


@mistake(rebalance, "decide", Rule.NEVER_ABOVE_SURGE)
def supersedes_all_at_once(spec: ServiceSpec, *args: Any) -> Iterator[Action]:
    """Every recommendation is followed at the same time."""
    return _rebalance(replace(spec, surge=99), *args)


@mistake(changes._Brake, "passes", Rule.LAUNCH_RATE_LIMITED)
def launches_without_a_brake(self: Any, wanted: int) -> int:
    """As many as wanted, at once."""
    return wanted


@mistake(
    reconcile,
    "_for_intents",
    Rule.INTENT_OPEN_WHILE_PENDING,
    Rule.ADOPTED_BEFORE_INTENT_CLOSES,
    Rule.NO_INSTANCE_WITHOUT_ROW,
)
def intents_are_given_up_at_once(seen: Any, adopted: Any, now: Any) -> list[Action]:
    """A launch that isn't recorded by the next tick is taken for failed."""
    return [CloseIntent(intent) for intent in seen.rows.intents]


@mistake(reconcile, "_one_for_each", Rule.ONLY_PORT_ERRORS)
def a_row_is_written_twice(actions: Sequence[Action]) -> list[Action]:
    """Two actions about one replica in one commit."""
    return list(actions)


@mistake(Intake, "_set_aside", Rule.DEAD_LETTERS_EXACT, Rule.MALFORMED_SET_ASIDE)
def malformed_messages_vanish(self: Intake, body: str, error: Exception) -> None:
    """What can't be read is nobody's business."""


@mistake(reconcile, "_for_draining", Rule.NO_INSTANCE_WITHOUT_ROW, Rule.SETTLES, Rule.TICK_COMPLETE)
def drained_instances_are_left_running(*args: Any) -> list[Action]:
    """Somebody else will end them."""
    return []


@mistake(strength, "_idle_fallbacks", Rule.DESIRED_AT_REST, Rule.SETTLES, Rule.FALLBACKS_MATCH_NEED)
def fallbacks_stay_for_ever(*args: Any) -> list[Replica]:
    """On-demand goes on being paid for when Spot is back."""
    return []


@mistake(strength, "_missing", Rule.ONE_FALLBACK_PER_REPLICA, Rule.NEVER_ABOVE_SURGE)
def two_fallbacks_for_one(spec: ServiceSpec, *args: Any) -> int:
    """What is missing is counted twice."""
    return 2 * _missing(spec, *args)


@mistake(strength, "_missing", Rule.ONE_FALLBACK_PER_REPLICA)
def fallbacks_that_nobody_wants(spec: ServiceSpec, *args: Any) -> int:
    """A service that would rather wait for Spot buys on-demand all the same."""
    return _missing(replace(spec, on_demand_fallback=True), *args)


@mistake(strength, "_missing", Rule.ONE_FALLBACK_PER_REPLICA)
def fallbacks_for_whatever_is_not_there(spec: Any, regular: Any, there: int, seen: Any) -> int:
    """Also what is bought on-demand anyway gets one, and what drains."""
    return sum(r.state is not ReplicaState.READY for r in seen.rows.replicas.values() if not r.is_fallback)


def _replaced(action: Action, rows: Rows) -> Action:
    """A fallback that goes gets another, as if it were one of the regular ones."""
    if isinstance(action, Drain) and (action.replica.superseded_in(rows) or action.replica.is_warned):
        return replace(action, replace=False)
    return action


BROKEN.append(
    Broken(
        "fallbacks_are_replaced",
        frozenset({Rule.ONE_FALLBACK_PER_REPLICA}),
        ((reconcile, "unreplaced", _replaced), (interruption, "unreplaced", _replaced)),
    )
)


@mistake(changes, "_requested", Rule.NEVER_ABOVE_SURGE, Rule.DESIRED_AT_REST, Rule.SETTLES)
def fallbacks_are_taken_for_regular_ones(*args: Any) -> Replica:
    """Nobody knows afterwards that they stand in for somebody."""
    return replace(_requested(*args), is_fallback=False)


@mistake(changes, "_packed", Rule.DESIRED_AT_REST, Rule.LAUNCH_MATCHES_ROWS)
def one_launch_for_both_ways_to_buy(deltas: Iterable[Any]) -> list[list[Any]]:
    """What is to be bought on-demand is launched with Spot, or the other way round."""
    all_ = list(deltas)
    return [all_[start : start + 8] for start in range(0, len(all_), 8)]


@mistake(strength, "_is_due", Rule.SETTLES, Rule.DESIRED_AT_REST, Rule.LAUNCHED_WHEN_DUE)
def refused_once_is_never_asked_again(replica: Replica, seen: Any, now: datetime) -> bool:
    """Who has a fallback needs no other."""
    return replica.attempts == 0 and _is_due(replica, seen, now)


@mistake(cooldowns, "_cooldown", Rule.COOLDOWN_RECORDED)
def pools_cool_for_ever(*args: Any) -> Cooldown:
    """What was refused, or lost, once is never tried again."""
    cooldown = _cooldown(*args)
    return replace(cooldown, until=cooldown.until + seconds(1e6))


@mistake(SimTelemetry, "count", Rule.METRICS_EXACT)
def conflicts_are_not_counted(self: SimTelemetry, metric: Metric, *args: Any, **kwargs: Any) -> None:
    """An alarm would never ring, and nobody would miss it."""
    if metric is not Metric.CONFLICTS:
        _count(self, metric, *args, **kwargs)


@mistake(SimTelemetry, "count", Rule.METRICS_EXACT)
def seconds_are_called_milliseconds(
    self: SimTelemetry, metric: Metric, value: float = 1, *, service: str | None = None
) -> None:
    """The dashboard shows a fast path that isn't."""
    _count(self, metric, value / 1000 if metric.value.endswith("Ms") else value, service=service)


@mistake(Controller, "_take_out", Rule.METRICS_EXACT)
def whatever_is_tried_is_counted(
    self: Controller, outcome: Any, spec: ServiceSpec, instance_ids: Sequence[str], out: dict[str, datetime]
) -> bool:
    """A load balancer that doesn't answer has taken out as many as one that does."""
    is_done = self._attempt(outcome, "deregister", lambda: self._deregister(spec, instance_ids))
    out |= dict.fromkeys(instance_ids, self._ports.clock.now())
    return is_done


@mistake(Controller, "tick", Rule.REDELIVERED_ON_FAILURE)
def failed_ticks_are_done_with(self: Controller, *args: Any, **kwargs: Any) -> None:
    """The next one will come at some time."""
    with suppress(PortError):
        _tick(self, *args, **kwargs)


@mistake(Intake, "_signal", Rule.MALFORMED_SET_ASIDE, Rule.ONLY_PORT_ERRORS)
def one_bad_message_costs_its_batch(self: Intake, body: str) -> Any:
    """What can't be read is an error like any other."""
    return _parse(json.loads(body))


@mistake(intake, "parse_tick", Rule.TICK_MESSAGE_OBEYED)
def every_message_is_a_tick(body: str) -> Tick:
    """Nobody looks who must leave, and nobody hears of a removal."""
    return replace(_parse_tick(body), kind=TickKind.TICK)


@mistake(Controller, "_attempt", Rule.STEPS_INDEPENDENT)
def one_failure_ends_the_decision(self: Controller, outcome: Any, step: str, act: Any) -> bool:
    """A load balancer that doesn't answer keeps the replacement from being launched."""
    return not outcome.troubles and _attempt(self, outcome, step, act)


@mistake(Controller, "_take_out", Rule.DEREGISTERED_BEFORE_LAUNCH, Rule.STEPS_INDEPENDENT)
def requests_go_on_until_the_replacement_is_there(
    self: Controller, outcome: Any, spec: ServiceSpec, instance_ids: Sequence[str], out: dict[str, datetime]
) -> None:
    """What has left by its row is taken out only after the launch."""
    self._late = (outcome, spec, instance_ids, out)  # type: ignore[attr-defined]


@also(Controller, "_launch_and_tell")
def _takes_out_then(self: Controller, *args: Any) -> None:
    _launch_and_tell(self, *args)
    outcome, spec, instance_ids, out = self._late  # type: ignore[attr-defined]
    _take_out(self, outcome, spec, instance_ids, out)


@mistake(controller, "takewhile", Rule.NO_WRITE_AFTER_CONFLICT)
def a_lost_commit_keeps_no_other_back(predicate: Any, wanted: Iterable[Changes]) -> Iterator[Changes]:
    """The rest was decided together with it, and fits by chance at most."""
    return filter(predicate, wanted)


@mistake(Controller, "_missed", Rule.REMOVAL_NEEDS_TWO_SIGNS)
def one_sign_of_a_removal_is_enough(self: Controller, service: str, rows: Rows, **_: Any) -> Any:
    """A parameter that is deleted and made again at once was a deployment."""
    return (None, True) if rows.removal.told_at else (rows.document, False)


@mistake(Controller, "_announce_tick", Rule.TICK_AFTER_CHANGE)
def the_minute_s_tick_will_do(self: Controller, *args: Any) -> None:
    """What moves is looked at once a minute."""


@mistake(SimServices, "get", Rule.OTHER_CONTROL_PLANE_RESPECTED)
def two_control_planes_share(self: SimServices, service: str, *, fresh: bool = False) -> ServiceSpec | None:
    """Who is in charge makes no difference."""
    try:
        return _get(self, service, fresh=fresh)
    except OtherControlPlane:
        return self.valid(service, self.scheduler.now)


@mistake(placement, "_eligible", Rule.POOL_ORDER)
def zones_without_a_subnet_are_asked(spec: ServiceSpec, memory: PoolMemory) -> Any:
    """Whatever a survey finds is a place to launch in."""
    return memory.survey.pools if memory.survey and memory.survey.pools else spec.pools


BROKEN += [
    Broken("low_scores_are_as_good_as_high_ones", frozenset({Rule.POOL_ORDER}), ((timing, "LOW_SCORE", 0),))
]


@mistake(placement, "_too_dear", Rule.POOL_ORDER)
def dear_pools_are_asked(*args: Any) -> None:
    """The cap goes with the request, so EC2 may refuse what everybody knows to be too dear."""


@mistake(PoolMemory, "cooling", Rule.POOL_ORDER)
def nothing_cools(*args: Any) -> None:
    """The replacement is asked for where the loss was."""


@mistake(SimFleet, "launch", Rule.PRICE_CAP_SENT)
def the_cap_is_not_sent(self: SimFleet, request: LaunchRequest) -> LaunchResult:
    """What has become dearer since the survey is bought all the same."""
    return _launch(self, replace(request, max_prices={}))


@mistake(SimFleet, "launch", Rule.LAUNCH_MATCHES_ROWS)
def one_is_launched_at_a_time(self: SimFleet, request: LaunchRequest) -> LaunchResult:
    """The others have to wait."""
    return _launch(self, replace(request, count=1))


@mistake(changes, "_with_replacement", Rule.LAUNCH_MATCHES_ROWS)
def replacements_are_bought_on_demand(spec: Any, action: Any, ids: Iterator[int], now: datetime) -> Any:
    """A warning costs three times as much from then on."""
    delta = _with_replacement(spec, action, ids, now)
    bought = (replace(row, purchase_option=PurchaseOption.ON_DEMAND) for row in delta.create)
    return replace(delta, create=tuple(bought))


@mistake(placement, "in_words", Rule.LAUNCH_RESULT_RECORDED)
def rows_say_nothing_of_their_launch(*args: Any) -> str:
    """Why there, and what EC2 answered, is in the log alone."""
    return ""


@mistake(launching, "after_refusal", Rule.RETRIED_AFTER_BACKOFF)
def refused_is_tried_again_at_once(replica: Replica, now: datetime) -> tuple[int, datetime]:
    """EC2 is asked every second."""
    return replica.attempts + 1, now + seconds(1)


@mistake(strength, "_is_due", Rule.RETRIED_AFTER_BACKOFF)
def back_offs_are_ignored(replica: Replica, *args: Any) -> bool:
    """Each tick launches what has none."""
    return _is_due(replace(replica, retry_at=None), *args)


@mistake(launching, "_call_fallbacks", Rule.FALLBACKS_IN_SECONDS)
def fallbacks_wait_for_a_tick(*args: Any) -> None:
    """What Spot has refused is nobody's business before the next tick."""


@mistake(cooldowns, "of_refusals", Rule.COOLDOWN_RECORDED)
def one_lesson_of_an_answer(*args: Any) -> list[Cooldown]:
    """Of several refusals the last one counts."""
    return _of_refusals(*args)[-1:]


@mistake(changes, "lessons", Rule.COOLDOWN_RECORDED)
def losses_teach_nothing(*args: Any) -> list[Cooldown]:
    """A pool that has just lost an instance is as good as any."""
    return []


@mistake(cooldowns, "_about", Rule.COOLDOWN_HAS_CAUSE)
def a_quota_stops_everything(refusal: Refusal, region: str, option: PurchaseOption) -> Any:
    """What one family's quota refuses cools the whole region."""
    about = _about(refusal, region, option)
    return about and (replace(about[0], quota=""), about[1])


@mistake(cooldowns, "forgiven", Rule.LAUNCH_ENDS_REFUSALS)
def an_instance_forgives_everything(offerings: Any, memory: PoolMemory) -> list[Scope]:
    """Losses, and refusals of elsewhere, too."""
    return [cooldown.scope for cooldown in memory.cooldowns]


@mistake(cooldowns, "forgiven", Rule.LAUNCH_ENDS_REFUSALS)
def nothing_is_forgiven(*args: Any) -> list[Scope]:
    """Who has an instance again goes on cooling longer each time."""
    return []


@mistake(strength, "_drop", Rule.ROWS_MATCH_OBSERVATION)
def whatever_goes_goes_for_spot(replica: Replica, reason: str, seen: Any) -> Iterator[Action]:
    """A row says why its replica went, and it isn't so."""
    return _drop(replica, "Spot is back", seen)


@mistake(reconcile, "is_overdue", Rule.NOT_BEFORE_TIMEOUT)
def no_time_to_start(*args: Any) -> bool:
    """What isn't healthy at its first check has failed."""
    return True


@mistake(reconcile, "_for_ready", Rule.TICK_COMPLETE)
def health_is_never_noted(*args: Any) -> list[Action]:
    """What was ready once is ready for ever."""
    return []


@mistake(interruption, "_for_draining", Rule.EVENTS_RECORDED)
def the_end_is_not_news(*args: Any) -> None:
    """What drains needs no events."""


@mistake(Controller, "_call_back", Rule.LAST_MOMENT_CHECKED, Rule.STEPS_INDEPENDENT)
def nobody_is_called_back(*args: Any) -> None:
    """Some tick will look in time."""


@mistake(strength, "next_look", Rule.NEXT_TICK_IN_TIME)
def the_minute_will_do(*args: Any) -> None:
    """What starts is looked at when the schedule has it."""


@mistake(strength, "_least_missed", Rule.SCALE_IN_ORDER)
def the_oldest_go_first(replica: Replica) -> tuple[int, bool, int]:
    """Of too many those go that have served longest."""
    distance, serves, age = _least_missed(replica)
    return distance, serves, -age


@mistake(strength, "_stable_from", Rule.FALLBACK_STAYS_FOR_SPOT)
def spot_is_trusted_at_once(replica: Replica) -> datetime:
    """Fallbacks go as soon as Spot is ready."""
    return replica.entered[ReplicaState.READY]


@mistake(strength, "_is_missing", Rule.FALLBACKS_MATCH_NEED)
def a_first_start_gets_fallbacks(replica: Replica, *args: Any, **kwargs: Any) -> bool:
    """Whatever isn't ready is stood in for."""
    return replica.purchase_option is PurchaseOption.SPOT and replica.state is not ReplicaState.READY


@mistake(strength, "without_needless", Rule.LOSS_REPLACED_IF_NEEDED)
def every_loss_is_replaced(_spec: Any, _seen: Any, decided: Sequence[Action]) -> list[Action]:
    """Also those that leave as many as wanted."""
    return list(decided)


@mistake(strength, "_base", Rule.PURCHASE_OPTION_CORRECT)
def no_on_demand_base(spec: ServiceSpec) -> int:
    """All regular replicas are bought on Spot, and nobody looks at the floor."""
    return 0 if spec.use_spot else spec.replicas


@mistake(failures, "is_held", Rule.FAILURE_BACKOFF)
def failures_teach_nothing(*args: Any) -> bool:
    """What never becomes ready is launched again at once, for ever."""
    return False


BROKEN += [
    Broken("all_return_at_once", frozenset({Rule.GRADUAL_RETURN_TO_SPOT}), ((strength, "RETURN_LEAST", 99),)),
    Broken(
        "no_time_to_recover",
        frozenset({Rule.REPLACED_BEFORE_DRAINED}),
        ((timing, "UNHEALTHY_REPLACED_S", 0.0),),
    ),
]
