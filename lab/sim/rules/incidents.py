"""The rules about what alarms hear of incidents, by what ticks read and by what an alarm makes of it.

The reasons and the waits are those of docs/operations.md, and are here once more because they are checked.
Of two ticks at once one decides, by the table: so only a tick counts whose write took effect, or that needed
none. Where a tick may have gone by either of two numbers, either may be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lab.sim.alarms import MINUTE_S, SimAlarms
from lab.sim.faults import Call
from lab.sim.gate import Invocation, Word, time_of
from lab.sim.rules import Rule
from lab.sim.rules.backoff import has_stopped_short, is_looping
from lab.sim.rules.desired import CLOCKS_S, gone_by, in_effect, rolled_back
from lab.sim.rules.history import History
from lab.sim.rules.limits import SKEW_S
from lab.sim.rules.records import after_release
from lab.world.instances import NEVER
from spotrelay.plane.core.incidents import Incidents
from spotrelay.plane.core.names import Alarm
from spotrelay.plane.core.pools import PoolMemory
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.placement.surveying import better_elsewhere

OUTAGE_S = 60.0
BLOCKED_S = 1200.0
FALLBACK_S = 7200.0
SEEN_SOON_S = 120.0

SLACK_S = 2 * SKEW_S
"""By how much clocks may make a wait seem shorter or longer: two of them, each of a tick of its own."""

OVERLAP_S = 60.0
"""Two ticks at once: one may tell that it lasts after the other has seen that it is over."""

TICKS_UNTIL_HEARD = 3
"""Two of three values may get lost."""

MINUTES_UNTIL_OVER = 5
"""The minute of its end, three in which it is told, and one for a tick that is killed in the fourth."""

CAUSES: Mapping[Alarm, tuple[Alarm, ...]] = {
    Alarm.NOTHING_READY: (),
    Alarm.CRASH_LOOPING: (),
    Alarm.CANNOT_LAUNCH: (Alarm.NOTHING_READY,),
    Alarm.NOT_WHOLE: (Alarm.NOTHING_READY, Alarm.CRASH_LOOPING, Alarm.CANNOT_LAUNCH),
    Alarm.FALLBACK_TOO_LONG: (),
    Alarm.ROLLOUT_STOPPED: (),
    Alarm.BETTER_ELSEWHERE: (),
}
"""By alarm: those that say it already where they ring."""

Perhaps = bool | None
"""None: nobody can tell."""

Times = tuple[float, float]
"""By the replicas that surely count, and by all of them."""


def start_s(spec: ServiceSpec) -> float:
    """How long a start may take: five minutes at least, and a day at most."""
    return min(max(spec.initial_delay_s + 180.0, 300.0), 86_400.0)


def outage_s(spec: ServiceSpec) -> float:
    """How long nothing may be ready: a start where the load may bring the service to zero."""
    sleeps = spec.scaling is not None and spec.scaling.extremes.least == 0
    return start_s(spec) if sleeps else OUTAGE_S


def launched_s(spec: ServiceSpec) -> float:
    """How long replicas may have no instance: a minute for each of the launches, and two more."""
    minutes = -(-spec.most_replicas // max(spec.max_launches_per_minute, 1))
    return 120.0 + 60.0 * max(minutes, 1)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a tick saw of what alarms are about."""

    specs: tuple[ServiceSpec, ...]
    """The documents of which it went by one."""
    serves: Perhaps
    has_served: bool
    """Whether it is on record that as many as desired were ready."""
    is_nothing: Perhaps
    is_missing: Perhaps
    is_unlaunched: Perhaps
    is_looping: Perhaps
    is_stopped: Perhaps
    blocked_at: Times
    fallback_since: float
    is_better: Perhaps


@dataclass(slots=True)
class _Span:
    """Since when it has been so on record."""

    earliest: float | None = None
    """None: it surely isn't so."""
    latest: float | None = None
    """None: perhaps it isn't so."""

    def note(self, is_so: Perhaps, now: float) -> None:
        """A tick put on record whether it is so."""
        if is_so is False:
            self.earliest = self.latest = None
            return
        self.earliest = now if self.earliest is None else self.earliest
        if is_so is None:
            self.latest = None
        elif self.latest is None:
            self.latest = now

    def for_s(self, wait_s: float, now: float) -> tuple[bool, bool]:
        """Whether it may have been so for so long, and whether it surely has."""
        may = self.earliest is not None and now - self.earliest >= wait_s - SLACK_S
        return may, self.latest is not None and now - self.latest >= wait_s + SLACK_S


@dataclass(slots=True)
class _Alarm:
    """What is known of one alarm of a service."""

    may_begin: bool = False
    """Whether it may begin to ring, but for what explains it, by what the last tick saw."""
    must_begin: bool = False
    lasts: Perhaps = None
    """Whether its reason lasts, by what the last tick saw."""
    open_since: float | None = None
    """Since when it may ring; None: it mustn't."""
    closed_at: float = -NEVER
    """When it last was surely over."""
    is_unheard: bool = False
    """Whether a tick may have begun it that told nobody."""
    told_since: float | None = None
    """Since when ticks have told that it rings; None: they don't."""
    told_at: float = -NEVER
    """When one last did."""
    over_since: float | None = None
    """When a tick first saw that it may be over, since it was last told to ring."""
    gone_at: float = -NEVER
    """When any tick last saw that its reason may be gone."""
    minutes: set[int] = field(default_factory=set)
    """The minutes in which ticks saw that it is over, since it rang."""
    untold: int = 0
    """How many ticks should have told it to ring, and it doesn't."""


@dataclass(slots=True)
class _Service:
    """What is known of one service."""

    alarms: dict[Alarm, _Alarm] = field(default_factory=lambda: {alarm: _Alarm() for alarm in CAUSES})
    nothing: _Span = field(default_factory=_Span)
    missing: _Span = field(default_factory=_Span)
    unlaunched: _Span = field(default_factory=_Span)
    blocked_at: Times = (-NEVER, -NEVER)
    may_have_served: bool = False
    has_served: bool = False
    seen: _Seen | None = None
    """What the last tick that counts saw."""
    now: float = 0.0
    """When that was."""
    revision: int = 0
    """How often incidents were put on record."""
    noted_at: float = 0.0
    """When that was last, and by whom."""
    noted_by: Invocation | None = None
    is_lost: bool = False
    """The table was emptied or restored: what alarms were told isn't on record any more."""


@dataclass(slots=True)
class IncidentChecker:
    """Checks what each tick tells alarms, and what those make of it."""

    history: History
    alarms: SimAlarms
    services: dict[str, _Service] = field(default_factory=dict)

    def after_note(
        self, invocation: Invocation, service: str, incidents: Incidents, called_at: float
    ) -> None:
        """Incidents were put on record, by a call that was made then."""
        known = self.services.setdefault(service, _Service())
        known.is_lost |= incidents.revision != known.revision
        known.revision, known.noted_at = incidents.revision + 1, self.history.scheduler.now
        known.noted_by = invocation
        seen = _seen(invocation)
        if seen is not None:
            self._note(known, seen, called_at)
        if self.history.scheduler.task is not invocation:
            _note_unheard(known)  # its caller has gone on without it

    def check(self, invocation: Invocation, *, came_to_end: bool) -> None:
        """An invocation has ended, or was killed; alarms have heard what they hear of it."""
        service, rows, seen = invocation.tick_service, invocation.rows, _seen(invocation)
        if self.history.violations or rows is None or seen is None:
            return
        known = self.services.setdefault(service, _Service())
        is_clean = came_to_end and not any(invocation.noted)
        is_older = invocation.loaded_at < known.noted_at
        known.is_lost |= not is_older and rows.incidents.revision != known.revision
        is_overtaken = known.noted_by is not invocation if invocation.noted else is_older
        if not is_clean:
            _note_unheard(known)
        elif not (invocation.noted or is_overtaken or _is_missing(invocation)):
            self._note(known, seen, invocation.loaded_at)
        if self._is_beyond(service, known):
            return
        # One that had read before that was on record knows nothing of it.
        as_read = _Service() if is_older else known
        for alarm, one in known.alarms.items():
            if self._lasts(alarm, as_read, seen, invocation.began_at) is not True:
                one.gone_at = self.history.scheduler.now
        for word in invocation.words:
            self._check_word(invocation, known, word)
        if is_clean and not is_overtaken:
            for name in seen.specs[0].alarms:
                self._check_state(invocation, known, Alarm(name), seen.specs[0])

    def is_settled(self) -> bool:
        """Whether every alarm says how it is, and none is about to ring."""
        return all(
            known.seen is None
            or self._is_beyond(service, known)
            or all(self._is_right(service, known, Alarm(name)) for name in known.seen.specs[0].alarms)
            for service, known in self.services.items()
        )

    def _is_beyond(self, service: str, known: _Service) -> bool:
        """Whether its alarms or what they were told were deleted: nobody can tell what they hear then."""
        return known.is_lost or self.history.was_removed(service, 0.0, self.history.scheduler.now)

    # What ticks see.

    def _note(self, known: _Service, seen: _Seen, now: float) -> None:
        """A tick saw it, and that is on record."""
        known.seen, known.now = seen, now
        known.nothing.note(seen.is_nothing, now)
        known.missing.note(seen.is_missing, now)
        known.unlaunched.note(seen.is_unlaunched, now)
        known.blocked_at = _later(known, seen)
        known.may_have_served |= seen.serves is not False or seen.has_served
        known.has_served |= seen.serves is True
        for alarm, one in known.alarms.items():
            one.lasts = self._lasts(alarm, known, seen, now)
            one.may_begin, one.must_begin = self._begins(alarm, known, seen, now)
            if one.may_begin and one.open_since is None:
                one.open_since = now
            if one.lasts is False:
                if one.open_since is not None:
                    one.open_since, one.closed_at = None, now
                one.is_unheard = False
            if one.lasts is not True and one.over_since is None:
                one.over_since = now

    def _begins(self, alarm: Alarm, known: _Service, seen: _Seen, now: float) -> tuple[bool, bool]:
        """Whether it may ring by now, and whether it must, unless something explains it."""
        match alarm:
            case Alarm.NOTHING_READY:
                may, must = _waited(known.nothing, map(outage_s, seen.specs), now)
                return may and known.may_have_served, must and known.has_served
            case Alarm.CANNOT_LAUNCH:
                may, must = _waited(known.unlaunched, map(launched_s, seen.specs), now)
                may, must = may and seen.is_looping is not True, must and seen.is_looping is False
                blocked = _is_blocked(known.blocked_at, now)
                return may or blocked is not False, must or blocked is True
            case Alarm.NOT_WHOLE:
                return _waited(known.missing, map(start_s, seen.specs), now)
            case _:
                is_so = self._lasts(alarm, known, seen, now)
                if alarm is Alarm.BETTER_ELSEWHERE:
                    return seen.is_better is True, seen.is_better is True
                return is_so is not False, is_so is True

    def _lasts(self, alarm: Alarm, known: _Service, seen: _Seen, now: float) -> Perhaps:
        """Whether there still is a reason to ring."""
        match alarm:
            case Alarm.NOTHING_READY:
                return seen.is_nothing
            case Alarm.CRASH_LOOPING:
                return seen.is_looping
            case Alarm.CANNOT_LAUNCH:
                blocked = _is_blocked(_later(known, seen), now)
                waits = None if seen.is_looping is None else False if seen.is_looping else seen.is_unlaunched
                return True if True in (blocked, waits) else None if None in (blocked, waits) else False
            case Alarm.NOT_WHOLE:
                return seen.is_missing
            case Alarm.FALLBACK_TOO_LONG:
                young = _within(seen.fallback_since, FALLBACK_S, now)
                return False if seen.fallback_since == NEVER else None if young is None else not young
            case Alarm.ROLLOUT_STOPPED:
                return seen.is_stopped
            case _:
                return seen.is_better

    def _may_be_explained(self, alarm: Alarm, known: _Service, spec: ServiceSpec) -> bool:
        """Whether another alarm may ring for it, have done so until a start ago, or be about to."""
        causes = [known.alarms[cause] for cause in CAUSES[alarm]]
        is_soon = Alarm.NOTHING_READY in CAUSES[alarm] and known.nothing.earliest is not None
        until = max((one.closed_at for one in causes), default=-NEVER) + start_s(spec) + SLACK_S
        return is_soon or any(one.open_since is not None for one in causes) or known.now < until

    # What they tell.

    def _check_word(self, invocation: Invocation, known: _Service, word: Word) -> None:
        """Is it told to ring when it may?"""
        one = known.alarms[word.alarm]
        if not word.lasts:
            is_late = one.told_since is not None and one.told_since > invocation.loaded_at
            if is_late and word.at // MINUTE_S == one.told_at // MINUTE_S:
                return  # a tick that looked later has told it to ring, and a minute's maximum counts
            one.told_since = None
            self._check_cleared(invocation, one, word)
            return
        if one.over_since is not None and one.over_since > invocation.loaded_at:
            return  # somebody else has seen since that it is over, and tells that
        if one.open_since is None and one.closed_at > invocation.loaded_at:
            return  # its reason has gone since, and so says the next tick
        if one.told_since is None:
            one.told_since = word.at
            self._check_begun(invocation, known, word)
        one.told_at, one.over_since = word.at, None

    def _check_begun(self, invocation: Invocation, known: _Service, word: Word) -> None:
        """It begins to ring: is it time, and does nothing else ring for the same?"""
        one, name = known.alarms[word.alarm], f"{word.service}: {word.alarm}"
        if one.open_since is None:
            what = f"{name} begins to ring, and nothing on record is a reason"
            self._report(invocation, Rule.INCIDENT_WAITS, what)
        if one.is_unheard or known.seen is None:
            return
        least_s = min(map(start_s, known.seen.specs)) - SLACK_S
        for cause in CAUSES[word.alarm]:
            other = known.alarms[cause]
            if other.over_since is None:
                is_beside = other.told_since is not None and other.told_since < word.at - SLACK_S
            else:
                is_beside = other.told_at > -NEVER and word.at - other.over_since < least_s
            if is_beside:
                self._report(invocation, Rule.INCIDENT_ONCE, f"{name} rings beside {cause}")
        if word.alarm is Alarm.NOTHING_READY:
            self._check_foreseen(invocation, known, word)

    def _check_foreseen(self, invocation: Invocation, known: _Service, word: Word) -> None:
        """Nothing is ready, and that rings: did what comes with it wait for it?"""
        assert known.seen is not None  # noqa: S101 - the caller has looked
        wait_s = max(max(map(outage_s, known.seen.specs)) - SEEN_SOON_S, 0.0)
        since = known.nothing.latest
        for alarm, causes in CAUSES.items():
            told = known.alarms[alarm].told_since
            if Alarm.NOTHING_READY not in causes or told is None or since is None:
                continue
            if told - since > wait_s + SLACK_S and told < word.at - SLACK_S:
                what = (
                    f"{word.service}: {alarm} rings since {told:.1f} s, nothing is ready since {since:.1f} s"
                )
                self._report(invocation, Rule.INCIDENT_ONCE, what)

    def _check_cleared(self, invocation: Invocation, one: _Alarm, word: Word) -> None:
        """It is told that it is over: has anybody seen that?"""
        if one.told_at > -NEVER and one.gone_at < one.told_at - OVERLAP_S:
            what = f"{word.service}: {word.alarm} clears, and lasts by all that ticks have seen"
            self._report(invocation, Rule.INCIDENT_LASTS, what)

    def _check_state(self, invocation: Invocation, known: _Service, alarm: Alarm, spec: ServiceSpec) -> None:
        """A tick has told what it must: does the alarm say so, after some of them?"""
        one, rings = known.alarms[alarm], self.alarms.rings(spec.service, alarm)
        if rings is False or one.lasts is True:
            one.minutes.clear()
        elif one.lasts is False:
            one.minutes.add(int((known.now + invocation.skew_s) // MINUTE_S))
            if len(one.minutes) >= MINUTES_UNTIL_OVER and not self.alarms.is_deaf(spec.service, alarm):
                is_what = "rings" if rings else "has no state"
                what = f"{spec.service}: {alarm} {is_what}, and has no reason for {len(one.minutes)} minutes"
                self._report(invocation, Rule.INCIDENT_OVER, what)
        is_due = one.must_begin and not rings and not self._may_be_explained(alarm, known, spec)
        one.untold = one.untold + 1 if is_due else 0
        if one.untold >= TICKS_UNTIL_HEARD:
            self._report(invocation, Rule.INCIDENT_TOLD, f"{spec.service}: {alarm} doesn't ring")

    def _is_right(self, service: str, known: _Service, alarm: Alarm) -> bool:
        """Whether an alarm says how it is, by what the last tick saw, and needn't say something else soon."""
        one, rings = known.alarms[alarm], self.alarms.rings(service, alarm)
        is_timed = known.seen is not None and known.seen.is_unlaunched is False
        if one.lasts is False or (alarm is Alarm.CANNOT_LAUNCH and is_timed):
            return rings is False or self.alarms.is_deaf(service, alarm)  # it will be over
        is_explained = any(known.alarms[cause].open_since is not None for cause in CAUSES[alarm])
        return one.lasts is None or bool(rings) or (one.may_begin and is_explained)

    def _report(self, invocation: Invocation, rule: Rule, what: str) -> None:
        self.history.report(rule, f"{invocation.name}: {what}")


def _note_unheard(known: _Service) -> None:
    """Perhaps nobody heard of what is on record."""
    for one in known.alarms.values():
        one.is_unheard |= one.may_begin


def _waited(span: _Span, waits: Iterable[float], now: float) -> tuple[bool, bool]:
    """Whether it may have been so for the shortest of them, and surely has for the longest."""
    both = [span.for_s(wait_s, now) for wait_s in waits]
    return any(may for may, _ in both), all(must for _, must in both)


def _within(since: float, limit_s: float, now: float) -> Perhaps:
    """Whether it was so lately; None: clocks may say either."""
    age_s = now - since
    return None if abs(age_s - limit_s) <= SLACK_S else age_s < limit_s


def _is_missing(invocation: Invocation) -> bool:
    """Whether there was no document, so that perhaps nobody was told."""
    return any(c.call is Call.GET and c.answer is None for c in invocation.calls)


def _seen(invocation: Invocation) -> _Seen | None:
    """What a tick saw; None if it didn't come so far as to tell alarms."""
    rows = invocation.rows
    if rows is None or invocation.observed_at is None or invocation.health is None:
        return None
    specs = _specs(invocation, rows)
    if not specs:
        return None
    # What was created while the rows were read is left to the next tick, unless the highest ID got lost.
    all_ = list(rows.replicas.values())
    some = [r for r in all_ if r.id <= rows.highest_id]
    ways = [(spec, replicas) for spec in specs for replicas in (some, all_)]
    return _Seen(
        specs,
        serves=_same(_ready(there) > 0 for _, there in ways),
        has_served=rows.told.whole_at > 0,
        is_nothing=_same(_ready(there) == 0 < spec.replicas for spec, there in ways),
        is_missing=_same(_ready(there) < spec.replicas for spec, there in ways),
        is_unlaunched=_same(len(_launched(there)) < spec.replicas for spec, there in ways),
        is_looping=_same(
            is_looping(rows.backoff, spec.version) or any(r.is_crashing and r.state.is_active for r in there)
            for spec, there in ways
        ),
        is_stopped=_same(has_stopped_short(spec, rows) for spec in specs),
        blocked_at=(_blocked_at(some), _blocked_at(all_)),
        fallback_since=min(
            (time_of(r.entered[ReplicaState.PROVISIONING]) for r in _launched(all_) if r.is_fallback),
            default=NEVER,
        ),
        is_better=_better(invocation, specs[0]),
    )


def _specs(invocation: Invocation, rows: Rows) -> tuple[ServiceSpec, ...]:
    """The documents of which it went by one."""
    got = invocation.specs.get(invocation.tick_service)
    is_moved = got and rows.document and got.target_group_arn != rows.document.target_group_arn
    deployed = [got, rows.document] if is_moved else [got or rows.document]
    requests = gone_by(invocation, rows)
    # A request may end while it looks: what is wanted counts from when it has seen all.
    times = (invocation.loaded_at - CLOCKS_S, (invocation.observed_at or invocation.loaded_at) + CLOCKS_S)
    found = (in_effect(rolled_back(spec, rows), requests, at) for spec in deployed if spec for at in times)
    unique: list[ServiceSpec] = []
    for spec in found:
        if spec not in unique:
            unique.append(spec)
    return tuple(unique)


def _better(invocation: Invocation, spec: ServiceSpec) -> Perhaps:
    """Whether Spot is clearly better to be had elsewhere; None: it didn't look."""
    recalled = after_release(invocation.calls, Call.RECALL)
    memory = recalled.answer if recalled else None
    survey = memory.survey if isinstance(memory, PoolMemory) else None
    return bool(better_elsewhere(survey, spec.region)) if survey and invocation.is_minutes else None


def _ready(replicas: Iterable[Replica]) -> int:
    return sum(r.serves for r in replicas)


def _blocked_at(replicas: Iterable[Replica]) -> float:
    return max((time_of(r.blocked_at) for r in replicas if r.blocked_at), default=-NEVER)


def _launched(replicas: Iterable[Replica]) -> list[Replica]:
    return [r for r in replicas if r.is_counted and r.instance_id]


def _later(known: _Service, seen: _Seen) -> Times:
    """When a launch was last refused for good."""
    return max(known.blocked_at[0], seen.blocked_at[0]), max(known.blocked_at[1], seen.blocked_at[1])


def _is_blocked(times: Times, now: float) -> Perhaps:
    """Whether that was lately."""
    return _same(_within(at, BLOCKED_S, now) for at in times)


def _same(values: Iterable[Perhaps]) -> Perhaps:
    """What they all say; None if they don't say the same."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
