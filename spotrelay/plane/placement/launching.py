"""Turns a launch intent into instances, down the fallback order, each step on record before it is taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING

from spotrelay.plane.core import slots, timing
from spotrelay.plane.core.instances import Refusal, RefusalKind
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import Offering, PoolMemory, PurchaseOption
from spotrelay.plane.core.ports import (
    Conflict,
    Denied,
    LaunchRequest,
    LaunchResult,
    PortError,
    Ports,
    Throttled,
    Unavailable,
)
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Changes, LaunchIntent
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.placement import cooldowns
from spotrelay.plane.placement import plan as placement
from spotrelay.plane.placement.plan import Plan, Step

if TYPE_CHECKING:
    from spotrelay.plane.core.quotas import Quota

FALLBACK_DELAY_S = 1.0
"""Until the tick that asks for fallbacks: this one may have to end first, since it holds the lease."""


@dataclass(frozen=True, slots=True)
class _Order:
    """What is being launched."""

    spec: ServiceSpec
    plan: Plan
    memory: PoolMemory
    option: PurchaseOption
    taken_back: tuple[Offering, ...] = ()
    """What EC2 takes back of the service: until its end it counts in quotas."""
    peers: str | None = None


def launch(
    ports: Ports, spec: ServiceSpec, ordered: Changes, memory: PoolMemory, replicas: Iterable[Replica]
) -> int:
    """Launch what a commit ordered, beside the service's `replicas`; how many instances are on record then.

    What no pool gives stays REQUESTED and falls due again after a back-off; what got no clear answer keeps
    its intent, and the tick finds out. Neither raises: repeating the signals at once would mend neither.
    """
    # Perhaps an older one than is deployed, see `serving.rollout`.
    spec = spec.in_version(ordered.to_launch[0].version)
    order = _order(spec, ordered, memory, replicas, ports.clock.now())
    if not order.plan.steps:
        _nowhere(ports, order, ordered)
        return 0
    launched, is_denied = 0, True
    steps = order.plan.steps
    for step, next_step in zip_longest(steps, steps[1:]):
        intent, waiting = ordered.open_intent, ordered.to_launch
        if intent is None:
            break
        answer = _ask(ports, order, intent, step, waiting)
        now = ports.clock.now()
        waiting = _noted(waiting, _lasting(answer, order), now)
        match answer:
            case LaunchResult():
                is_denied &= bool(answer.refusals) and all(r.kind.is_of_request for r in answer.refusals)
                filled, rest = _assign(spec, waiting, order.plan, step, answer, now)
                rest = tuple(replace(r, is_denied=is_denied) for r in rest)
                ordered = _after(ports, order, intent, filled, rest, next_step, now)
            case Throttled():
                filled, ordered = (), _postponed(spec, intent, waiting, now)
            case Denied():
                filled, ordered = (), _denied(spec, intent, waiting, answer, now)
            case Unavailable():
                break
        if not _is_committed(ports, ordered):
            break
        launched += len(filled)
        ports.telemetry.count(Metric.REPLICAS_LAUNCHED, len(filled), service=spec.service)
        if isinstance(answer, LaunchResult | Denied):
            given = answer if isinstance(answer, LaunchResult) else LaunchResult()
            _conclude(ports, order, given, ordered.update)
    return launched


def resume(ports: Ports, spec: ServiceSpec, instance_ids: Collection[str], rows: Sequence[Replica]) -> None:
    """Start the instances of standbys; `rows` are the replicas that have them, as last written.

    One for which EC2 has no room is noted on its row, and the tick looks at once for another. One that it
    refuses for no reason that lasts, as it still stops, the tick asks for again.

    Raises:
        PortError: nobody knows whether they start, and the tick finds out; or what is known of pools.
    """
    service = spec.service
    # EC2 names an instance, and the row knows where it is.
    offerings = {row.instance_id: row.offering for row in rows}
    answers = {
        id_: replace(refusal, offering=offerings.get(id_, refusal.offering))
        for id_, refusal in ports.fleet.start(instance_ids).items()
    }
    now = ports.clock.now()
    ports.telemetry.record(
        "resume",
        service=service,
        instances=sorted(instance_ids),
        refused={id_: refusal.words for id_, refusal in answers.items()},
    )
    refused = {id_: r for id_, r in answers.items() if r.kind is not RefusalKind.OTHER}
    if not refused:
        return
    ports.telemetry.count(Metric.LAUNCH_REFUSALS, len(refused), service=service)
    lasting = {id_ for id_, refusal in refused.items() if refusal.kind.is_lasting}
    for refusal in {refused[id_].code: refused[id_] for id_ in sorted(lasting)}.values():
        _tell_blocked(ports, service, spec.steady_option, refusal.code, refusal.message, refusal.remedy)
    noted = tuple(
        replace(
            r,
            attempts=r.attempts + 1,
            retry_at=now + seconds(timing.STANDBY_RETRY_S),
            blocked_at=now if r.instance_id in lasting else r.blocked_at,
            launch=f"{r.launch}; refused: {refused[r.instance_id].words}",
        )
        for r in rows
        if r.instance_id and r.instance_id in refused
    )
    if noted and _is_committed(ports, Changes(service, update=noted)):
        ports.ticker.schedule(service, delay_s=FALLBACK_DELAY_S)
    memory = ports.store.recall(service, spec.region, now)
    lessons = cooldowns.of_refusals(refused.values(), spec.region, spec.steady_option, memory, now)
    if lessons:
        try:
            ports.store.cool(lessons)
        except PortError as error:
            note_lost(ports, service, error)


def _order(
    spec: ServiceSpec, ordered: Changes, memory: PoolMemory, replicas: Iterable[Replica], now: datetime
) -> _Order:
    waiting = ordered.to_launch
    standbys = [r.offering.pool for r in replicas if r.is_standby and r.offering]
    option = waiting[0].purchase_option
    plan = placement.plan(
        spec,
        option,
        memory,
        now,
        is_return=spec.on_demand_fallback and all(r.attempts % timing.LOW_SCORE_EVERY for r in waiting),
        is_last_resort=ordered.is_last_resort or not spec.on_demand_fallback,
        standbys=standbys if waiting[0].is_standby else None,
        max_price=waiting[0].max_price,
        min_score=waiting[0].min_score,
    )
    taken_back = tuple(r.offering for r in replicas if r.is_warned and r.offering)
    return _Order(spec, plan, memory, option, taken_back, _peers(spec, replicas) if spec.peers else None)


def _peers(spec: ServiceSpec, replicas: Iterable[Replica]) -> str:
    from spotrelay.plane.placement import peers  # no launch without waits for this

    return peers.named(spec, replicas)


def _nowhere(ports: Ports, order: _Order, ordered: Changes) -> None:
    """There is no pool worth asking: wait until the first has rested."""
    spec, now = order.spec, ports.clock.now()
    words = f"no pool to ask; left out: {placement.shown(order.plan.left_out)}"
    _record(ports, order, ordered.to_launch, {"why_these": words})
    replicas = (replace(r, launch=words, launch_id=None) for r in ordered.to_launch)
    rested = placement.first_rest(spec, order.option, order.memory, now)
    waiting = tuple(_refused(r, now, rested) for r in replicas)
    closed = (ordered.open_intent.id,) if ordered.open_intent else ()
    if _is_committed(ports, Changes(spec.service, update=waiting, close_intents=closed)):
        _conclude(ports, order, LaunchResult(), waiting)


def _is_committed(ports: Ports, outcome: Changes) -> bool:
    """Put the outcome on record; False if somebody else looks after these replicas now.

    The instances, if any, bear our tag and the intent's ID: the tick gives them to whom they are for, or
    terminates them.
    """
    try:
        ports.store.commit(outcome)
    except Conflict as conflict:
        ports.telemetry.record("launch_overtaken", service=outcome.service, detail=str(conflict))
        return False
    return True


def _ask(
    ports: Ports, order: _Order, intent: LaunchIntent, step: Step, waiting: Sequence[Replica]
) -> LaunchResult | Throttled | Unavailable | Denied:
    """One launch request, with a log line that says everything that led to it and what EC2 answered."""
    spec = order.spec
    types = slots.fitting([pool.instance_type for pool in step.pools], spec.slots, len(waiting))
    request = LaunchRequest(
        intent.id,
        spec,
        step.purchase_option,
        tuple(pool for pool in step.pools if pool.instance_type in types),
        len(waiting),
        max_prices=order.plan.max_prices,
        highest_id=intent.highest_id,
        peers=order.peers,
    )
    answer: LaunchResult | Throttled | Unavailable | Denied
    try:
        answer = ports.fleet.launch(request)
    except (Throttled, Unavailable, Denied) as error:
        answer = error
    facts: dict[str, object] = {
        "launch": intent.id,
        "pools": [str(p) for p in request.pools],
        "why_these": step.why,
    }
    if isinstance(answer, LaunchResult):
        facts["instances"] = {i.id: str(i.offering) for i in answer.instances}
        facts["refusals"] = [f"{r.code}: {r.offering or r.message}" for r in answer.refusals]
        if answer.refusals:
            ports.telemetry.count(Metric.LAUNCH_REFUSALS, len(answer.refusals), service=spec.service)
    else:
        facts["error"] = repr(answer)
        ports.telemetry.count(Metric.LAUNCH_ERRORS, service=spec.service)
        count_denied(ports, answer)
        if isinstance(answer, Denied):
            ports.telemetry.record("denied", step="launch", service=spec.service, error=str(answer))
    for code, (words, remedy) in _lasting(answer, order).items():
        _tell_blocked(ports, spec.service, order.option, code, words, remedy)
    _record(ports, order, waiting, facts)
    return answer


def _noted(waiting: tuple[Replica, ...], lasting: Collection[str], now: datetime) -> tuple[Replica, ...]:
    """The replicas with what EC2 refuses until a person mends it on record: ticks tell an alarm."""
    return tuple(r.but(blocked_at=now) for r in waiting) if lasting else waiting


def _lasting(
    answer: LaunchResult | Throttled | Unavailable | Denied, order: _Order
) -> dict[str, tuple[str, str]]:
    """What a person must mend of it: EC2's code, and its words and the remedy."""
    match answer:
        case LaunchResult():
            return {r.code: (r.message, r.remedy) for r in answer.refusals if _is_lasting(r, order)}
        case Denied():
            return {answer.code: (str(answer), answer.remedy)}
        case _:
            return {}


def _is_lasting(refusal: Refusal, order: _Order) -> bool:
    """Whether a person must mend it: a quota that what EC2 takes back still fills has room in two minutes."""
    from spotrelay.plane.core.quotas import quota_for  # no launch waits for this

    def counted_by(offering: Offering) -> Quota | None:
        return quota_for(offering.pool.instance_type, offering.purchase_option)

    has_room_soon = refusal.kind is RefusalKind.QUOTA and any(
        refusal.offering and counted_by(offering) == counted_by(refusal.offering)
        for offering in order.taken_back
    )
    return refusal.kind.is_lasting and not has_room_soon


def _tell_blocked(
    ports: Ports, service: str, option: PurchaseOption, code: str, words: str, remedy: str
) -> None:
    """No retry mends it, so a person must hear of it: EC2's words, and what to do."""
    ports.telemetry.count(Metric.LAUNCHES_BLOCKED, service=service)
    ports.telemetry.record(
        "launch_blocked",
        service=service,
        purchase_option=str(option),
        code=code,
        error=words,
        remedy=remedy,
    )


def _record(ports: Ports, order: _Order, waiting: Sequence[Replica], facts: dict[str, object]) -> None:
    ports.telemetry.record(
        "launch",
        service=order.spec.service,
        replicas=[r.id for r in waiting],
        purchase_option=str(order.option),
        eligible=len(order.plan.eligible),
        left_out={str(pool): why for pool, why in order.plan.left_out.items()},
        **facts,
    )


def _conclude(ports: Ports, order: _Order, answer: LaunchResult, waiting: Sequence[Replica]) -> None:
    """What follows from an answer, after the record: it may get lost, no instance or launch must."""
    try:
        _learn(ports, order, answer)
        _call_fallbacks(ports, order, waiting)
    except PortError as error:
        note_lost(ports, order.spec.service, error)


def note_lost(ports: Ports, service: str, error: PortError) -> None:
    """Say that what was learned of pools, or who was to hear of it, got lost: nothing else depends on it."""
    note_failed(ports, "lessons_lost", service, error)


def note_failed(ports: Ports, event: str, service: str, error: PortError) -> None:
    """Log a call that failed where nothing else fails with it, and count it if AWS refuses it."""
    ports.telemetry.record(event, service=service, error=repr(error))
    count_denied(ports, error)


def count_denied(ports: Ports, error: Exception) -> None:
    """Count a call that AWS refuses, which a person must mend: nobody else says so."""
    if isinstance(error, Denied):
        ports.telemetry.count(Metric.CALLS_DENIED)
        ports.telemetry.count(Metric.ACTION_REQUIRED)


def _learn(ports: Ports, order: _Order, answer: LaunchResult) -> None:
    now = ports.clock.now()
    lessons = cooldowns.of_refusals(answer.refusals, order.spec.region, order.option, order.memory, now)
    if lessons:
        ports.store.cool(lessons)
    # What gave a part and refused the rest is empty now, whatever it is forgiven.
    learned = {lesson.scope for lesson in lessons}
    given = {i.offering for i in answer.instances}
    forgiven = [scope for scope in cooldowns.forgiven(given, order.memory) if scope not in learned]
    if forgiven:
        ports.store.forgive(forgiven)


def _call_fallbacks(ports: Ports, order: _Order, waiting: Sequence[Replica]) -> None:
    """Have the tick that requests fallbacks come at once for what was just refused."""
    is_new = any(r.instance_id is None and r.attempts == 1 for r in waiting)
    if is_new and order.option.fallback and order.spec.on_demand_fallback:
        ports.ticker.schedule(order.spec.service, delay_s=FALLBACK_DELAY_S)


def _assign(
    spec: ServiceSpec,
    waiting: Sequence[Replica],
    plan: Plan,
    step: Step,
    answer: LaunchResult,
    now: datetime,
) -> tuple[tuple[Replica, ...], tuple[Replica, ...]]:
    """(replicas that got an instance, replicas that still wait), lowest ID first."""
    refused = ", ".join(sorted({r.code: r.words for r in answer.refusals}.values()))

    def words(given: str) -> str:
        answered = f"{given}; refused elsewhere: {refused}" if refused and given else given or refused
        return placement.in_words(plan, step, answered)

    # Where EC2 gives room for more than wait, the largest instances are filled first: the last one that has
    # no replica is ended.
    largest_first = sorted(answer.instances, key=lambda i: -spec.hosted_by(i.offering.pool.instance_type))
    given = [slot for instance in largest_first for slot in slots.of(instance, spec)]
    filled = tuple(
        r.provisioned(i, now, launch=words(str(i.offering))) for r, i in zip(waiting, given, strict=False)
    )
    return filled, tuple(replace(r, launch=words("")) for r in waiting[len(filled) :])


def _after(
    ports: Ports,
    order: _Order,
    intent: LaunchIntent,
    filled: tuple[Replica, ...],
    rest: tuple[Replica, ...],
    next_step: Step | None,
    now: datetime,
) -> Changes:
    """What to record of an answer: the instances, and an intent for the next step or a later try."""
    service = order.spec.service
    if rest and next_step:
        ids = tuple(r.id for r in rest)
        next_intent = replace(intent, id=ports.new_id(), replica_ids=ids, created_at=now)
        rest = tuple(replace(r, launch_id=next_intent.id) for r in rest)
    else:
        next_intent = None
        rest = tuple(_refused(r, now) for r in rest)
    return Changes(service, update=(*filled, *rest), open_intent=next_intent, close_intents=(intent.id,))


def _refused(replica: Replica, now: datetime, rested: datetime | None = None) -> Replica:
    attempts, retry_at = after_refusal(replica, now)
    if rested:
        retry_at = min(rested, now + seconds(timing.RETRY_RESTING_S))
    return replace(replica, attempts=attempts, retry_at=retry_at)


def _denied(
    spec: ServiceSpec, intent: LaunchIntent, waiting: Sequence[Replica], error: Denied, now: datetime
) -> Changes:
    """Nothing was launched, nor will be before a person mends the cause. It is tried again all the same."""
    replicas = (replace(r, launch=f"EC2 refuses the request: {error}", is_denied=True) for r in waiting)
    return Changes(spec.service, update=tuple(_refused(r, now) for r in replicas), close_intents=(intent.id,))


def _postponed(spec: ServiceSpec, intent: LaunchIntent, waiting: Sequence[Replica], now: datetime) -> Changes:
    """A throttled request was never made, so it counts as no attempt."""
    retry_at = now + seconds(timing.RETRY_FIRST_S)
    later = tuple(replace(r, retry_at=retry_at) for r in waiting)
    return Changes(spec.service, update=later, close_intents=(intent.id,))


def after_refusal(replica: Replica, now: datetime) -> tuple[int, datetime]:
    """(attempts, retry_at) of a replica that no pool had room for."""
    attempts = replica.attempts + 1
    return attempts, now + seconds(timing.backoff_s(attempts, timing.RETRY_FIRST_S, timing.RETRY_MAX_S))
