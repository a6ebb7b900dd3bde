"""Which incidents a service has: what its alarms are told, and which of them says it where several could.

One message for each incident, and one when it is over. An alarm begins to ring once its reason has lasted
for the time in this table, unless another one explains it. Once it rings, nothing but the reason's end ends
it: what begins to explain it later doesn't.

| alarm           | its reason                                      | for          | explained by            |
|-----------------|-------------------------------------------------|--------------|-------------------------|
| NothingReady    | nothing is ready, something should be, and      | `OUTAGE_S`,  |                         |
|                 | something was within `SERVED_WITHIN_S`          | or a start   |                         |
| CrashLooping    | launches have stopped, or a server keeps ending | at once      |                         |
| CannotLaunch    | EC2 refused until somebody mends the cause,     | at once      | NothingReady            |
|                 | less than `BLOCKED_S` ago                       |              |                         |
|                 | some have no instance, and nothing crash loops  | the launches | NothingReady            |
| NotWhole        | fewer than desired are ready                    | a start      | NothingReady,           |
|                 |                                                 |              | CrashLooping,           |
|                 |                                                 |              | CannotLaunch            |
| FallbackTooLong | a fallback has stood in for `LONG_FALLBACK_S`   | at once      |                         |
| RolloutStopped  | the deployed version was given up               | at once      |                         |
| BetterElsewhere | by the last survey                              | at once      |                         |

What explained it goes on doing so for as long as a start may take after it has ended: the rest of what it
caused is over by then, or a matter of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from spotrelay.plane.core.incidents import AlarmState, Incidents
from spotrelay.plane.core.names import Alarm
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSettings, ServiceSpec
from spotrelay.plane.core.timing import LONG_FALLBACK_S, seconds
from spotrelay.plane.serving import failures, rollout
from spotrelay.plane.serving.observation import launched_count, oldest_fallback, ready_count

OUTAGE_S = 60.0
"""A replica that one tick finds not to answer may answer the next, which comes within a minute."""

SERVED_WITHIN_S = 7 * 86_400.0
"""What wasn't ready for a week, or ever, is only starting: that is no outage."""

STARTED_WITHIN_S = 180.0
"""Beyond the time that a start may take: a minute for the launch and the boot, which `initial_delay_seconds`
doesn't count, one for the health checks, one for the tick that sees them passed."""

START_AT_LEAST_S, START_AT_MOST_S = 300.0, 86_400.0
"""However short a file calls its start, a launch takes minutes; and after a day somebody should look."""

BLOCKED_S = 1200.0
"""After the last refusal it counts as mended. EC2 is asked again after 15 minutes at most: that is a quota's
longest cooldown."""

LAUNCHED_WITHIN_S = 120.0
"""Beyond what the launches take, `max_launches_per_minute` at a time: a request takes seconds, and a fallback
is asked for a second after Spot refuses. Three minutes in all, so that it rings within five."""

SEEN_SOON_S = 120.0
"""What rings within this explains already what comes with it: a refusal is seen at once, that nothing is
ready only after a minute of it."""

ZEROS = 3
"""Minutes in which an alarm hears that its incident is over. Each may get lost, with the invocation or on the
way to CloudWatch; all three hardly."""

CAUSES: Mapping[Alarm, tuple[Alarm, ...]] = {
    Alarm.NOTHING_READY: (),
    Alarm.CRASH_LOOPING: (),
    Alarm.CANNOT_LAUNCH: (Alarm.NOTHING_READY,),
    Alarm.NOT_WHOLE: (Alarm.NOTHING_READY, Alarm.CRASH_LOOPING, Alarm.CANNOT_LAUNCH),
    Alarm.FALLBACK_TOO_LONG: (),
    Alarm.ROLLOUT_STOPPED: (),
    Alarm.BETTER_ELSEWHERE: (),
}
"""The alarms that ticks feed, each after those that explain it."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a tick saw that alarms are about."""

    desired: int
    ready: int
    has_served: bool
    """Whether as many as desired have ever been ready, as far as is known."""
    launched: int
    """Replicas that have an instance."""
    blocked_at: datetime | None = None
    """When EC2 last refused a launch for one of the replicas until a person mends the cause."""
    fallback_since: datetime | None = None
    """Since when the oldest fallback has its instance."""
    is_crash_looping: bool = False
    is_rollout_stopped: bool = False
    is_better_elsewhere: bool | None = None
    """Whether Spot is clearly better to be had elsewhere; None: this tick didn't look."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a tick tells alarms."""

    record: Incidents
    """What is on record once they have heard it."""
    heard: Mapping[Alarm, bool]
    """Whether the incident lasts. Those that aren't named hear nothing."""


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why an alarm rings: whether it may begin to, and whether it may go on."""

    begins: bool
    lasts: bool


def situation(spec: ServiceSpec, rows: Rows, *, is_better_elsewhere: bool | None) -> Situation:
    """What the rows say that alarms are about."""
    replicas = rows.replicas.values()
    return Situation(
        desired=spec.replicas,
        ready=ready_count(rows),
        has_served=rows.told.whole_at > 0,
        launched=launched_count(rows),
        blocked_at=max((r.blocked_at for r in replicas if r.blocked_at), default=None),
        fallback_since=oldest_fallback(rows),
        is_crash_looping=is_crash_looping(spec, rows),
        is_rollout_stopped=is_rollout_stopped(spec, rows),
        is_better_elsewhere=is_better_elsewhere,
    )


def is_crash_looping(spec: ServiceSpec, rows: Rows) -> bool:
    """Whether launches have stopped because the version never starts, or a replica tells that it doesn't."""
    return failures.is_crash_looping(spec.version, rows.backoff) or bool(crashing(rows))


def crashing(rows: Rows) -> list[int]:
    """The replicas that tell that their server keeps ending."""
    return [r.id for r in rows.replicas.values() if r.is_crashing and r.state.is_active]


def is_rollout_stopped(spec: ServiceSpec, rows: Rows) -> bool:
    """Whether the deployed version was given up while an earlier one serves on."""
    return rollout.has_failed(spec, rows) and bool(rollout.old_ones(spec, rows))


def start_s(spec: ServiceSettings) -> float:
    """How long what is missing may take to be ready."""
    return min(max(spec.initial_delay_s + STARTED_WITHIN_S, START_AT_LEAST_S), START_AT_MOST_S)


def outage_s(spec: ServiceSettings) -> float:
    """How long nothing may be ready. Where the load may bring a service to zero, a start each time."""
    sleeps = spec.scaling is not None and spec.scaling.extremes.least == 0
    return start_s(spec) if sleeps else OUTAGE_S


def launched_within_s(spec: ServiceSettings) -> float:
    """How long what is missing may take to have an instance."""
    minutes = -(-spec.most_replicas // max(spec.max_launches_per_minute, 1))
    return LAUNCHED_WITHIN_S + 60.0 * max(minutes, 1)


def after(before: Incidents, spec: ServiceSpec, seen: Situation, now: datetime) -> Told:
    """What is on record then, and what alarms hear with it."""
    record = _since(before, seen, now)
    states: dict[Alarm, AlarmState] = {}
    heard: dict[Alarm, bool] = {}
    for alarm in CAUSES:
        if alarm.value not in spec.alarms:
            continue
        state = before.alarms.get(alarm, AlarmState(zeros=ZEROS))
        if before.version != spec.version and not state.rings:
            state = replace(state, zeros=ZEROS)
        reason = _reason(alarm, record, spec, seen, now)
        if state.rings and not reason.lasts:
            state = AlarmState(since=now, zeros=ZEROS, minute=_minute(now))
        elif reason.begins and not state.rings and not _is_explained(alarm, states, record, spec, now):
            state = AlarmState(rings=True, since=now)
        if state.rings:
            heard[alarm] = True
        elif _is_due(state, reason, now):
            state = replace(state, zeros=state.zeros - 1, minute=_minute(now))
            heard[alarm] = False
        elif _is_time_of(alarm, now):
            heard[alarm] = False
        states[alarm] = state
    return Told(replace(record, version=spec.version, alarms=states), heard)


def _is_due(state: AlarmState, reason: _Reason, now: datetime) -> bool:
    """Whether it is to hear a 0. Not yet if it has heard nothing: it may ring for a reason that goes on."""
    if state.minute is None:
        return state.zeros > 0 and not reason.lasts
    return state.zeros > 0 and _minute(now) > state.minute


def _is_time_of(alarm: Alarm, now: datetime) -> bool:
    """Once a week each alarm hears how it is, if it doesn't ring; each on another day.

    So one that was set by hand, or left ringing by a table that was lost, doesn't ring for ever; and a search
    for the metric finds every service. It costs an hour of one metric a day.
    """
    is_its_day = now.toordinal() % len(CAUSES) == list(CAUSES).index(alarm)
    return is_its_day and now.hour == 0 and now.minute < ZEROS


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _since(before: Incidents, seen: Situation, now: datetime) -> Incidents:
    """Since when it has been as it is."""

    def begun(is_so: bool, since: datetime | None) -> datetime | None:
        return (since or now) if is_so else None

    serves = seen.ready > 0
    ceases = before.serves or (before.revision == 0 and seen.has_served)
    known = [at for at in (before.blocked_at, seen.blocked_at) if at]
    return replace(
        before,
        serves=serves,
        served_until=None if serves else now if ceases else before.served_until,
        nothing_since=begun(not serves and seen.desired > 0, before.nothing_since),
        missing_since=begun(seen.ready < seen.desired, before.missing_since),
        unlaunched_since=begun(seen.launched < seen.desired, before.unlaunched_since),
        blocked_at=max(known, default=None),
    )


def _reason(alarm: Alarm, record: Incidents, spec: ServiceSpec, seen: Situation, now: datetime) -> _Reason:
    """What speaks for an alarm."""

    def for_s(since: datetime | None, wait_s: float) -> bool:
        return since is not None and now - since >= seconds(wait_s)

    def at_once(is_so: bool) -> _Reason:
        return _Reason(is_so, is_so)

    match alarm:
        case Alarm.NOTHING_READY:
            is_outage = for_s(record.nothing_since, outage_s(spec)) and _served_lately(record, now)
            return _Reason(is_outage, record.nothing_since is not None)
        case Alarm.CRASH_LOOPING:
            return at_once(seen.is_crash_looping)
        case Alarm.CANNOT_LAUNCH:
            is_blocked = record.blocked_at is not None and now - record.blocked_at <= seconds(BLOCKED_S)
            since = None if seen.is_crash_looping else record.unlaunched_since
            return _Reason(
                is_blocked or for_s(since, launched_within_s(spec)), is_blocked or since is not None
            )
        case Alarm.NOT_WHOLE:
            return _Reason(for_s(record.missing_since, start_s(spec)), record.missing_since is not None)
        case Alarm.FALLBACK_TOO_LONG:
            return at_once(for_s(seen.fallback_since, LONG_FALLBACK_S))
        case Alarm.ROLLOUT_STOPPED:
            return at_once(seen.is_rollout_stopped)
        case Alarm.BETTER_ELSEWHERE:
            is_better = seen.is_better_elsewhere
            return _Reason(begins=is_better is True, lasts=is_better is not False)
    raise AssertionError(f"ticks don't feed {alarm}")


def _served_lately(record: Incidents, now: datetime) -> bool:
    return record.served_until is not None and now - record.served_until <= seconds(SERVED_WITHIN_S)


def _is_explained(
    alarm: Alarm, states: Mapping[Alarm, AlarmState], record: Incidents, spec: ServiceSpec, now: datetime
) -> bool:
    """Whether another one rings for the same, did until a start ago, or is about to."""
    causes = CAUSES[alarm]
    if Alarm.NOTHING_READY in causes and _is_outage_soon(record, spec, now):
        return True
    return any(_explains(states[cause], spec, now) for cause in causes if cause in states)


def _explains(cause: AlarmState, spec: ServiceSpec, now: datetime) -> bool:
    return cause.since is not None and (cause.rings or now - cause.since < seconds(start_s(spec)))


def _is_outage_soon(record: Incidents, spec: ServiceSpec, now: datetime) -> bool:
    since = record.nothing_since
    return (
        since is not None
        and _served_lately(record, now)
        and now - since >= seconds(outage_s(spec) - SEEN_SOON_S)
    )
