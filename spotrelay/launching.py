"""Turns a launch intent into instances, down the fallback order, each step on record before it is taken."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest

from spotrelay.model import Changes, Cooldown, LaunchIntent, Replica, ServiceSpec, seconds
from spotrelay.names import Metric
from spotrelay.policy import failures, placement, timing
from spotrelay.policy.changes import provisioned
from spotrelay.policy.placement import Step
from spotrelay.ports import Conflict, LaunchRequest, LaunchResult, Ports, Throttled, Unavailable


def launch(ports: Ports, spec: ServiceSpec, ordered: Changes) -> int:
    """Launch what a commit ordered; how many instances are on record afterwards.

    What no pool gives stays REQUESTED and falls due again after a back-off; what got no clear answer keeps
    its intent, and the tick finds out. Neither raises: repeating the signals at once would mend neither.
    """
    cooling = ports.store.cooling(spec.region, ports.clock.now())
    steps = placement.plan(spec, cooling)
    launched = 0
    for step, next_step in zip_longest(steps, steps[1:]):
        intent, waiting = ordered.open_intent, ordered.to_launch
        if intent is None or not waiting:
            break
        answer = _ask(ports, spec, intent, step, waiting, cooling)
        now = ports.clock.now()
        match answer:
            case LaunchResult():
                filled, rest = _assign(waiting, answer, now)
                ordered = _after(ports, spec, intent, filled, rest, next_step, now)
            case Throttled():
                filled, ordered = (), _postponed(spec, intent, waiting, now)
            case Unavailable():
                break
        try:
            ports.store.commit(ordered)
        except Conflict as conflict:
            # Somebody else looks after these replicas now. The instances bear our tag and this intent's ID:
            # the tick gives them to whom they are for, or terminates them.
            ports.telemetry.record("launch_overtaken", service=spec.service, detail=str(conflict))
            break
        launched += len(filled)
        # After the record: what a refusal teaches may get lost, an instance mustn't.
        _learn(ports, answer)
    ports.telemetry.count(Metric.REPLICAS_LAUNCHED, launched, service=spec.service)
    return launched


def _ask(
    ports: Ports,
    spec: ServiceSpec,
    intent: LaunchIntent,
    step: Step,
    waiting: Sequence[Replica],
    cooling: Collection[Cooldown],
) -> LaunchResult | Throttled | Unavailable:
    """One launch request, with a log line that says everything that led to it and what EC2 answered."""
    request = LaunchRequest(intent.id, spec, step.purchase_option, step.pools, len(waiting))
    answer: LaunchResult | Throttled | Unavailable
    try:
        answer = ports.fleet.launch(request)
    except (Throttled, Unavailable) as error:
        answer = error
    facts: dict[str, object] = {
        "service": spec.service,
        "launch": intent.id,
        "replicas": [r.id for r in waiting],
        "purchase_option": str(step.purchase_option),
        "pools": [str(p) for p in step.pools],
        "why_these": step.why,
        "cooling": {str(c.offering): f"{c.reason} until {c.until:%H:%M:%S}" for c in cooling},
    }
    if isinstance(answer, LaunchResult):
        facts["instances"] = {i.id: str(i.offering) for i in answer.instances}
        facts["refusals"] = [f"{r.code}: {r.offering or r.message}" for r in answer.refusals]
        if answer.refusals:
            ports.telemetry.count(Metric.LAUNCH_REFUSALS, len(answer.refusals), service=spec.service)
    else:
        facts["error"] = repr(answer)
        ports.telemetry.count(Metric.LAUNCH_ERRORS, service=spec.service)
    ports.telemetry.record("launch", **facts)
    return answer


def _learn(ports: Ports, answer: LaunchResult | Throttled) -> None:
    if isinstance(answer, LaunchResult):
        now = ports.clock.now()
        lessons = [c for r in answer.refusals if (c := placement.cooldown_of(r, now)) is not None]
        if lessons:
            ports.store.cool(lessons)


def _assign(
    waiting: Sequence[Replica], result: LaunchResult, now: datetime
) -> tuple[tuple[Replica, ...], tuple[Replica, ...]]:
    """(replicas that got an instance, replicas that still wait), lowest ID first."""
    filled = tuple(provisioned(r, i, now) for r, i in zip(waiting, result.instances, strict=False))
    return filled, tuple(waiting[len(filled) :])


def _after(
    ports: Ports,
    spec: ServiceSpec,
    intent: LaunchIntent,
    filled: tuple[Replica, ...],
    rest: tuple[Replica, ...],
    next_step: Step | None,
    now: datetime,
) -> Changes:
    """What to record of an answer: the instances, and an intent for the next step or a later try."""
    if rest and next_step:
        next_intent = LaunchIntent(ports.new_id(), spec.service, tuple(r.id for r in rest), now)
        rest = tuple(replace(r, launch_id=next_intent.id) for r in rest)
    else:
        next_intent = None
        rest = tuple(_refused(r, now) for r in rest)
    return Changes(spec.service, update=(*filled, *rest), open_intent=next_intent, close_intents=(intent.id,))


def _refused(replica: Replica, now: datetime) -> Replica:
    attempts, retry_at = failures.after_refusal(replica, now)
    return replace(replica, attempts=attempts, retry_at=retry_at)


def _postponed(spec: ServiceSpec, intent: LaunchIntent, waiting: Sequence[Replica], now: datetime) -> Changes:
    """A throttled request was never made, so it counts as no attempt."""
    retry_at = now + seconds(timing.RETRY_FIRST_S)
    later = tuple(replace(r, retry_at=retry_at) for r in waiting)
    return Changes(spec.service, update=later, close_intents=(intent.id,))
