"""The rules about what is learned: what cools, how long, and what is forgiven. See docs/placement.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lab.sim.gate import Invocation, at
from lab.sim.rules import Rule, limits
from lab.sim.scheduler import Scheduler
from spotrelay.core.instances import Refusal, RefusalKind
from spotrelay.core.pools import Cause, Cooldown, PoolMemory, PurchaseOption, Scope, quota_of
from spotrelay.core.ports import LaunchRequest, LaunchResult
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Changes
from spotrelay.core.timing import seconds

MIN_GAIN = 0.05
"""What a loss adds to a cooldown that lasts anyway is worth writing from this share of its length on."""

FORGIVABLE = (Cause.REFUSAL, Cause.LIMIT)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something happened that teaches to leave something alone."""

    service: str
    scope: Scope
    cause: Cause
    at: datetime
    words: str = ""
    """What the lesson must say."""
    is_owed: bool = True
    """Whether somebody who knows it must learn from it."""


@dataclass(slots=True)
class InvocationLessons:
    """What one invocation was taught about pools, and what it made of it."""

    evidence: list[Evidence] = field(default_factory=list)
    memory: dict[str, PoolMemory] = field(default_factory=dict)
    """By service, as the table said last."""
    fresh: dict[str, list[Evidence]] = field(default_factory=lambda: defaultdict(list))
    """By service, what was taught since the table was asked, or just before."""
    unread: list[Evidence] = field(default_factory=list)
    """What was taught since the table was asked."""
    recorded: set[tuple[Scope, Cause]] = field(default_factory=set)
    given: set[Scope] = field(default_factory=set)
    """What an instance has forgiven."""
    forgivable: set[Scope] = field(default_factory=set)
    """The same, and what it may forgive or not."""
    forgiven: set[Scope] = field(default_factory=set)

    def known(self, service: str, scope: Scope, cause: Cause) -> Cooldown | None:
        """What the table said about it."""
        memory = self.memory.get(service, PoolMemory())
        return next((c for c in memory.cooldowns if c.scope == scope and c.cause is cause), None)


@dataclass(slots=True)
class CooldownChecker:
    """Watches what the production code learns."""

    scheduler: Scheduler
    broken: Callable[[Rule, str], None]
    is_intact: Callable[[str, float], bool]
    """Service and time → whether its document was there, and its rows whole, ever since."""
    by: dict[Invocation, InvocationLessons] = field(default_factory=dict)

    def of(self, invocation: Invocation) -> InvocationLessons:
        """What an invocation was taught."""
        return self.by.setdefault(invocation, InvocationLessons())

    def after_commit(
        self, invocation: Invocation, changes: Changes, before: Mapping[int, Replica], now: datetime
    ) -> None:
        """The invocation knows that its commit, of then, took effect: what do its rows teach?"""
        for row in changes.update:
            old = before.get(row.id)
            if old is None or row.offering is None:
                continue
            for cause, is_new in _evidence_in(row, old):
                learned, scope = self.of(invocation), Scope.of(row.offering)
                is_owed = is_new and self.is_intact(row.service, invocation.began_at)
                evidence = Evidence(row.service, scope, cause, now, is_owed=is_owed)
                learned.evidence.append(evidence)
                learned.unread.append(evidence)

    def after_recall(self, invocation: Invocation, service: str, memory: PoolMemory) -> None:
        """The invocation was recorded what the table remembers."""
        learned = self.of(invocation)
        learned.memory[service] = memory
        learned.fresh[service] = [e for e in learned.unread if e.service == service]
        learned.unread = [e for e in learned.unread if e.service != service]

    def after_launch(self, invocation: Invocation, request: LaunchRequest, result: LaunchResult) -> None:
        """EC2 has answered a launch."""
        learned, spec = self.of(invocation), request.spec
        now = at(self.scheduler.now + invocation.skew_s)
        fresh = [e for e in learned.fresh[spec.service] if e.cause not in FORGIVABLE]
        own = {e.scope for e in fresh if _is_news(e, learned)}
        # What it needn't teach hides no refusal from it.
        owed = {e.scope for e in fresh if e.is_owed and e.scope in own}
        refused = [
            Evidence(spec.service, *about, now, refusal.code)
            for refusal in result.refusals
            if (about := _scope_and_cause(refusal, spec.region, request.purchase_option))
        ]
        given = {instance.offering for instance in result.instances}
        known = learned.memory.get(spec.service, PoolMemory()).cooldowns
        covered = {c.scope for c in known if c.cause in FORGIVABLE and any(map(c.scope.covers, given))}
        covered -= {e.scope for e in refused}
        learned.given |= covered - own
        learned.forgivable |= covered - owed
        learned.evidence += refused
        learned.fresh[spec.service] += refused

    def before_cool(self, invocation: Invocation, cooldowns: Collection[Cooldown]) -> None:
        """The table is about to be recorded what to leave alone."""
        learned = self.of(invocation)
        now = at(self.scheduler.now + invocation.skew_s)
        if not cooldowns:
            self.broken(Rule.COOLDOWN_RECORDED, "the table is written for nothing")
        for cooldown in cooldowns:
            causes = [e for e in learned.evidence if (e.scope, e.cause) == (cooldown.scope, cooldown.cause)]
            learned.recorded.add((cooldown.scope, cooldown.cause))
            if not causes:
                self.broken(
                    Rule.COOLDOWN_HAS_CAUSE,
                    f"{cooldown.scope} cools for {cooldown.cause}, and there was none",
                )
            elif not any(_fits(cooldown, e, learned) and cooldown.since <= now for e in causes):
                known = learned.known(causes[-1].service, cooldown.scope, cooldown.cause)
                self.broken(Rule.COOLDOWN_RECORDED, f"{cooldown} for {causes}, known was {known}")
            elif not any(_is_worth_it(cooldown, e, learned) for e in causes):
                self.broken(Rule.COOLDOWN_RECORDED, f"{cooldown} adds nothing to what the table knows")

    def before_forgive(self, invocation: Invocation, scopes: Collection[Scope]) -> None:
        """The table is about to be recorded to forget cooldowns."""
        learned = self.of(invocation)
        learned.forgiven.update(scopes)
        wrongly = [str(scope) for scope in learned.forgiven - learned.forgivable]
        if wrongly:
            self.broken(Rule.LAUNCH_ENDS_REFUSALS, f"{wrongly} are forgiven, and gave nothing")

    def after_invocation(self, invocation: Invocation) -> None:
        """The invocation came to its end, and nothing disturbed it: is all that it was taught on record?"""
        learned = self.by.get(invocation)
        if learned is None:
            return
        for evidence in learned.evidence:
            is_told = (evidence.scope, evidence.cause) in learned.recorded
            if evidence.is_owed and not is_told and _is_news(evidence, learned):
                self.broken(Rule.COOLDOWN_RECORDED, f"nobody was recorded of {evidence}")
        missed = [str(scope) for scope in learned.given - learned.forgiven]
        if missed:
            self.broken(Rule.LAUNCH_ENDS_REFUSALS, f"{missed} gave an instance, and aren't forgiven")


def _evidence_in(row: Replica, old: Replica) -> Iterator[tuple[Cause, bool]]:
    """What a row that was written teaches about its pool, and whether that must be learned."""
    is_spot = row.offering is not None and row.offering.purchase_option is PurchaseOption.SPOT
    was_there = old.state.is_active
    if row.state is ReplicaState.FAILED:
        yield Cause.FAILURE, True
    is_leaving = row.state is not old.state
    if is_spot and was_there and row.is_warned and (is_leaving or not old.is_warned):
        # Another warning, as it leaves, is the same loss.
        yield Cause.LOSS, not old.is_warned
    elif is_spot and was_there and not row.state.is_active and "Server.SpotInstance" in row.reason:
        yield Cause.LOSS, True  # nobody warned, and EC2 says afterwards that it took it
    if is_spot and row.rebalance_at and not old.rebalance_at:
        yield Cause.REBALANCE, True


def _scope_and_cause(refusal: Refusal, region: str, option: PurchaseOption) -> tuple[Scope, Cause] | None:
    """What EC2's "no" is about, by docs/placement.md; None if it doesn't say."""
    offering, market = refusal.offering, Scope(region, purchase_option=option)
    if offering is None:
        is_all = refusal.kind in (RefusalKind.QUOTA, RefusalKind.MARKET_LIMIT)
        return (market, Cause.LIMIT) if is_all else None
    family = quota_of(offering.pool.instance_type)
    return {
        RefusalKind.CAPACITY: (Scope.of(offering), Cause.REFUSAL),
        RefusalKind.UNSUPPORTED: (Scope.of(offering), Cause.UNSUPPORTED),
        RefusalKind.QUOTA: (Scope(region, quota=family, purchase_option=option), Cause.LIMIT),
        RefusalKind.MARKET_LIMIT: (market, Cause.LIMIT),
        RefusalKind.ADDRESSES: (Scope(region, zone=offering.pool.zone), Cause.LIMIT),
    }.get(refusal.kind)


def _strikes(evidence: Evidence, since: datetime, learned: InvocationLessons) -> set[int]:
    """How often in a row it has happened: once more if it has rested, and isn't forgotten."""
    known = learned.known(evidence.service, evidence.scope, evidence.cause)
    others = (e for e in learned.fresh[evidence.service] if e.cause is not evidence.cause)
    # Of one scope the table keeps one cooldown: what was taught a moment before may have taken its place.
    hidden = {1} if any(e.scope == evidence.scope for e in others) else set()
    if known is None or known.until + (known.until - known.since) <= since:
        return {1}
    return hidden | {known.strikes if known.until > since else known.strikes + 1}


def _fits(cooldown: Cooldown, evidence: Evidence, learned: InvocationLessons) -> bool:
    """Whether it is what the evidence teaches."""
    length_s = (cooldown.until - cooldown.since).total_seconds()
    return (
        cooldown.since >= evidence.at
        and cooldown.strikes in _strikes(evidence, cooldown.since, learned)
        and abs(length_s - limits.cooldown_s(cooldown.cause, cooldown.strikes)) < 0.01
        and evidence.words in cooldown.reason
        and bool(cooldown.reason)
    )


def _gain_s(until: datetime, evidence: Evidence, learned: InvocationLessons) -> float:
    """How much longer it rests than it would anyway."""
    known = learned.known(evidence.service, evidence.scope, evidence.cause)
    return (until - max(known.until if known else evidence.at, evidence.at)).total_seconds()


def _is_worth_it(cooldown: Cooldown, evidence: Evidence, learned: InvocationLessons) -> bool:
    """Whether the table should be written for it; a refusal's lesson always is."""
    length_s = (cooldown.until - cooldown.since).total_seconds()
    return bool(evidence.words) or _gain_s(cooldown.until, evidence, learned) > MIN_GAIN * length_s


def _is_news(evidence: Evidence, learned: InvocationLessons) -> bool:
    """Whether the table must come to know of it."""
    length_s = limits.cooldown_s(evidence.cause, min(_strikes(evidence, evidence.at, learned)))
    until = evidence.at + seconds(length_s)
    return bool(evidence.words) or _gain_s(until, evidence, learned) > MIN_GAIN * length_s
