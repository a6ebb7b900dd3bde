"""Pool memory: what losses, recommendations and refusals teach about what to leave alone, and for how long.

Each cause has its own length. A cause that comes again after its cooldown doubles it, up to a ceiling; while
the cooldown lasts it is the same one, seen again. An instance forgives the refusals of where it came from;
a loss is forgotten once the pool was quiet for as long as it cooled (`Cooldown.remembered_until`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import Refusal, RefusalKind
from spotrelay.plane.core.pools import Cause, Cooldown, Offering, PoolMemory, PurchaseOption, Scope, quota_of
from spotrelay.plane.core.timing import seconds


@dataclass(frozen=True, slots=True)
class _Length:
    first_s: float
    longest_s: float


_LENGTHS = {
    Cause.LOSS: _Length(timing.LOSS_COOLDOWN_S, timing.LOSS_COOLDOWN_MAX_S),
    Cause.FAILURE: _Length(timing.FAILURE_COOLDOWN_S, timing.FAILURE_COOLDOWN_MAX_S),
    Cause.REBALANCE: _Length(timing.REBALANCE_COOLDOWN_S, timing.REBALANCE_COOLDOWN_S),
    Cause.REFUSAL: _Length(timing.REFUSAL_COOLDOWN_S, timing.REFUSAL_COOLDOWN_MAX_S),
    Cause.UNSUPPORTED: _Length(timing.UNSUPPORTED_COOLDOWN_S, timing.UNSUPPORTED_COOLDOWN_S),
    Cause.LIMIT: _Length(timing.LIMIT_COOLDOWN_S, timing.LIMIT_COOLDOWN_MAX_S),
}


def of_loss(offering: Offering, reason: str, memory: PoolMemory, now: datetime) -> Cooldown:
    """What an instance that EC2 takes back teaches about its pool."""
    return _cooldown(Scope.of(offering), Cause.LOSS, reason, memory, now)


def of_failure(offering: Offering, memory: PoolMemory, now: datetime) -> Cooldown:
    """What an instance that never became ready teaches about where it came from."""
    return _cooldown(Scope.of(offering), Cause.FAILURE, "never became ready", memory, now)


def of_rebalance(offering: Offering, memory: PoolMemory, now: datetime) -> Cooldown:
    """What a recommendation to leave an instance teaches about its pool."""
    return _cooldown(Scope.of(offering), Cause.REBALANCE, "rebalance recommendation", memory, now)


def of_refusals(
    refusals: Iterable[Refusal], region: str, option: PurchaseOption, memory: PoolMemory, now: datetime
) -> list[Cooldown]:
    """What the refusals of one launch teach, each about its own: a pool, a subnet, a quota, a market."""
    lessons: dict[Scope, Cooldown] = {}
    for refusal in refusals:
        about = _about(refusal, region, option)
        if about is not None:
            scope, cause = about
            lessons[scope] = _cooldown(scope, cause, refusal.code, memory, now)
    return list(lessons.values())


def forgiven(offerings: Collection[Offering], memory: PoolMemory) -> list[Scope]:
    """The scopes whose refusals no longer count, since EC2 has just given instances there."""
    return [
        c.scope
        for c in memory.cooldowns
        if c.cause in (Cause.REFUSAL, Cause.LIMIT) and any(c.scope.covers(o) for o in offerings)
    ]


def news(lessons: Iterable[Cooldown], memory: PoolMemory) -> list[Cooldown]:
    """The lessons worth keeping: those by which something rests noticeably longer than it would anyway."""
    resting = {(c.scope, c.cause): c.until for c in memory.cooldowns}

    def is_news(lesson: Cooldown) -> bool:
        until = resting.get((lesson.scope, lesson.cause), lesson.since)
        return lesson.until - until > timing.LESSON_WORTH * (lesson.until - lesson.since)

    return [lesson for lesson in lessons if is_news(lesson)]


def with_lessons(memory: PoolMemory, lessons: Iterable[Cooldown]) -> PoolMemory:
    """The memory as it is once the lessons are stored."""
    by_scope = {c.scope: c for c in memory.cooldowns}
    for lesson in lessons:
        known = by_scope.get(lesson.scope)
        if known is None or known.until < lesson.until:
            by_scope[lesson.scope] = lesson
    return replace(memory, cooldowns=tuple(by_scope.values()))


def _about(refusal: Refusal, region: str, option: PurchaseOption) -> tuple[Scope, Cause] | None:
    """What is to be left alone; None if the refusal doesn't say."""
    offering = refusal.offering
    match refusal.kind:
        case RefusalKind.MARKET_LIMIT:
            return Scope(region, purchase_option=option), Cause.LIMIT
        case RefusalKind.CAPACITY if offering:
            return Scope.of(offering), Cause.REFUSAL
        case RefusalKind.UNSUPPORTED if offering:
            return Scope.of(offering), Cause.UNSUPPORTED
        case RefusalKind.QUOTA if offering:
            quota = quota_of(offering.pool.instance_type)
            return Scope(region, quota=quota, purchase_option=option), Cause.LIMIT
        # Without an offering the fleet as a whole met the quota: every pool that it asked for.
        case RefusalKind.QUOTA:
            return Scope(region, purchase_option=option), Cause.LIMIT
        case RefusalKind.ADDRESSES if offering:
            return Scope(region, zone=offering.pool.zone), Cause.LIMIT
        case _:
            return None


def _cooldown(scope: Scope, cause: Cause, reason: str, memory: PoolMemory, now: datetime) -> Cooldown:
    known = next((c for c in memory.cooldowns if c.scope == scope and c.cause is cause), None)
    if known is None or known.remembered_until <= now:
        strikes = 1
    elif known.until > now:
        strikes = known.strikes
    else:
        strikes = known.strikes + 1
    length = _LENGTHS[cause]
    length_s = timing.backoff_s(strikes, length.first_s, length.longest_s)
    return Cooldown(scope, cause, now, now + seconds(length_s), reason, strikes)
