"""The rules about cooldowns: what starts one, how long it lasts, and what ends it. See docs/placement.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lab.sim.gate import Invocation, at
from lab.sim.rules import Rule, limits
from lab.sim.scheduler import Scheduler
from spotrelay.plane.core.instances import Refusal, RefusalKind
from spotrelay.plane.core.pools import Cause, Cooldown, PoolMemory, PurchaseOption, Scope, quota_of
from spotrelay.plane.core.ports import LaunchRequest, LaunchResult
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.timing import seconds

MIN_GAIN = 0.05
"""A cooldown is written if it makes the present one longer by at least this share of its own length."""

LAUNCH_CAUSES = (Cause.REFUSAL, Cause.LIMIT)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something happened that starts a cooldown."""

    service: str
    scope: Scope
    cause: Cause
    at: datetime
    words: str = ""
    """What the cooldown's reason must say."""
    is_owed: bool = True
    """Whether the cooldown must be recorded, or only may be."""
    is_blind: bool = False
    """Whether it is judged without what is known of the pools, though that may have been read."""


@dataclass(slots=True)
class InvocationEvidence:
    """The evidence that one invocation saw, and the cooldowns that it recorded."""

    evidence: list[Evidence] = field(default_factory=list)
    memory: dict[str, PoolMemory] = field(default_factory=dict)
    """By service: the table's last answer."""
    fresh: dict[str, list[Evidence]] = field(default_factory=lambda: defaultdict(list))
    """By service: evidence since that answer, or just before."""
    unread: list[Evidence] = field(default_factory=list)
    """Evidence since the last answer."""
    recorded: set[tuple[Scope, Cause]] = field(default_factory=set)
    must_end: set[Scope] = field(default_factory=set)
    """Scopes whose cooldowns must end, because a launch succeeded there."""
    may_end: set[Scope] = field(default_factory=set)
    """These, and the scopes whose cooldowns may end."""
    ended: set[Scope] = field(default_factory=set)

    def known(self, service: str, scope: Scope, cause: Cause) -> Cooldown | None:
        """The cooldown that the table knew."""
        memory = self.memory.get(service, PoolMemory())
        return next((c for c in memory.cooldowns if c.scope == scope and c.cause is cause), None)


@dataclass(slots=True)
class CooldownChecker:
    """Checks cooldowns."""

    scheduler: Scheduler
    report: Callable[[Rule, str], None]
    is_intact: Callable[[str, float], bool]
    """Service and time → whether its document was there, and its rows whole, ever since."""
    by: dict[Invocation, InvocationEvidence] = field(default_factory=dict)

    def of(self, invocation: Invocation) -> InvocationEvidence:
        """The evidence of an invocation."""
        return self.by.setdefault(invocation, InvocationEvidence())

    def after_commit(
        self, invocation: Invocation, changes: Changes, before: Mapping[int, Replica], now: datetime
    ) -> None:
        """The invocation knows that its commit took effect: what do its rows give evidence of?"""
        for row in changes.update:
            is_intact = self.is_intact(row.service, invocation.began_at)
            # Rows that were restored meanwhile may have the revision that it read, and not what it read.
            old = before.get(row.id) if is_intact else invocation.loaded.get(row.id, before.get(row.id))
            if old is None or row.offering is None:
                continue
            for cause, is_new in _evidence_in(row, old):
                seen, scope = self.of(invocation), Scope.of(row.offering)
                is_owed = is_new and is_intact
                evidence = Evidence(row.service, scope, cause, now, is_owed=is_owed)
                seen.evidence.append(evidence)
                seen.unread.append(evidence)

    def after_recall(self, invocation: Invocation, service: str, memory: PoolMemory) -> None:
        """The table answered which cooldowns it has."""
        seen = self.of(invocation)
        seen.memory[service] = memory
        seen.fresh[service] = [e for e in seen.unread if e.service == service]
        seen.unread = [e for e in seen.unread if e.service != service]

    def after_launch(self, invocation: Invocation, request: LaunchRequest, result: LaunchResult) -> None:
        """EC2 answered a launch."""
        seen, spec = self.of(invocation), request.spec
        now = at(self.scheduler.now + invocation.skew_s)
        fresh = [e for e in seen.fresh[spec.service] if e.cause not in LAUNCH_CAUSES]
        own = {e.scope for e in fresh if _is_news(e, seen)}
        # Evidence that needn't be recorded hides no refusal.
        owed = {e.scope for e in fresh if e.is_owed and e.scope in own}
        refused = [
            Evidence(spec.service, *about, now, refusal.code)
            for refusal in result.refusals
            if (about := _scope_and_cause(refusal, spec.region, request.purchase_option))
        ]
        given = {instance.offering for instance in result.instances}
        known = seen.memory.get(spec.service, PoolMemory()).cooldowns
        covered = {c.scope for c in known if c.cause in LAUNCH_CAUSES and any(map(c.scope.covers, given))}
        covered -= {e.scope for e in refused}
        seen.must_end |= covered - own
        seen.may_end |= covered - owed
        seen.evidence += refused
        seen.fresh[spec.service] += refused

    def after_start(self, invocation: Invocation, refusals: Iterable[Refusal]) -> None:
        """EC2 answered to starts of standbys: what it refused for lack of capacity cools."""
        now = at(self.scheduler.now + invocation.skew_s)
        self.of(invocation).evidence += [
            Evidence(invocation.tick_service, *about, now, refusal.code, is_blind=True)
            for refusal in refusals
            if refusal.offering
            and (about := _scope_and_cause(refusal, refusal.offering.pool.region, PurchaseOption.ON_DEMAND))
        ]

    def before_cool(self, invocation: Invocation, cooldowns: Collection[Cooldown]) -> None:
        """Cooldowns are about to be written."""
        seen = self.of(invocation)
        now = at(self.scheduler.now + invocation.skew_s)
        if not cooldowns:
            self.report(Rule.COOLDOWN_RECORDED, "no cooldown is written")
        for cooldown in cooldowns:
            causes = [e for e in seen.evidence if (e.scope, e.cause) == (cooldown.scope, cooldown.cause)]
            seen.recorded.add((cooldown.scope, cooldown.cause))
            if not causes:
                what = f"{cooldown.scope} cools for {cooldown.cause}, without a cause"
                self.report(Rule.COOLDOWN_HAS_CAUSE, what)
            elif not any(_fits(cooldown, e, seen) and cooldown.since <= now for e in causes):
                known = seen.known(causes[-1].service, cooldown.scope, cooldown.cause)
                self.report(Rule.COOLDOWN_RECORDED, f"{cooldown} for {causes}, known was {known}")
            elif not any(_is_worth_it(cooldown, e, seen) for e in causes):
                self.report(Rule.COOLDOWN_RECORDED, f"{cooldown} adds nothing to the known one")

    def before_forgive(self, invocation: Invocation, scopes: Collection[Scope]) -> None:
        """Cooldowns are about to be ended."""
        seen = self.of(invocation)
        seen.ended.update(scopes)
        wrongly = [str(scope) for scope in seen.ended - seen.may_end]
        if wrongly:
            self.report(Rule.LAUNCH_ENDS_REFUSALS, f"{wrongly} no longer cool, and brought no instance")

    def after_invocation(self, invocation: Invocation) -> None:
        """An undisturbed invocation ended: are all its cooldowns recorded?"""
        seen = self.by.get(invocation)
        if seen is None:
            return
        for evidence in seen.evidence:
            is_recorded = (evidence.scope, evidence.cause) in seen.recorded
            # What it knew to cool already may have been lost with the table while it ran.
            is_owed = evidence.is_owed and self.is_intact(evidence.service, invocation.began_at)
            if is_owed and not is_recorded and _is_news(evidence, seen):
                self.report(Rule.COOLDOWN_RECORDED, f"no cooldown for {evidence}")
        missed = [str(scope) for scope in seen.must_end - seen.ended]
        if missed:
            self.report(Rule.LAUNCH_ENDS_REFUSALS, f"{missed} brought an instance, and still cool")


def _evidence_in(row: Replica, old: Replica) -> Iterator[tuple[Cause, bool]]:
    """The causes that a written row gives, and whether their cooldown must be recorded."""
    is_spot = row.offering is not None and row.offering.purchase_option is PurchaseOption.SPOT
    was_there = old.state.is_active or row.state.is_active  # or it comes back, as nobody else serves
    if row.state is ReplicaState.FAILED:
        yield Cause.FAILURE, True
    is_leaving = row.state is not old.state
    if is_spot and was_there and row.is_warned and (is_leaving or not old.is_warned):
        # Another warning, as it leaves, is the same loss.
        yield Cause.LOSS, not old.is_warned
    elif is_spot and was_there and not row.state.is_active and "Server.SpotInstance" in row.reason:
        yield Cause.LOSS, True  # without a warning; EC2 says afterwards that it took it
    if is_spot and row.rebalance_at and not old.rebalance_at:
        yield Cause.REBALANCE, True


def _scope_and_cause(refusal: Refusal, region: str, option: PurchaseOption) -> tuple[Scope, Cause] | None:
    """The scope and cause of a refusal, by docs/placement.md; None if EC2 doesn't say."""
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


def _strikes(evidence: Evidence, since: datetime, seen: InvocationEvidence) -> set[int]:
    """How many times in a row it may have happened: once more after a cooldown that isn't long past."""
    if evidence.is_blind:
        return {1}
    known = seen.known(evidence.service, evidence.scope, evidence.cause)
    others = (e for e in seen.fresh[evidence.service] if e.cause is not evidence.cause)
    # The table has one cooldown per scope: another cause may have replaced it a moment before.
    hidden = {1} if any(e.scope == evidence.scope for e in others) else set()
    if known is None or known.until + (known.until - known.since) <= since:
        return {1}
    return hidden | {known.strikes if known.until > since else known.strikes + 1}


def _fits(cooldown: Cooldown, evidence: Evidence, seen: InvocationEvidence) -> bool:
    """Whether it is the right cooldown for the evidence."""
    length_s = (cooldown.until - cooldown.since).total_seconds()
    return (
        cooldown.since >= evidence.at
        and cooldown.strikes in _strikes(evidence, cooldown.since, seen)
        and abs(length_s - limits.cooldown_s(cooldown.cause, cooldown.strikes)) < 0.01
        and evidence.words in cooldown.reason
        and bool(cooldown.reason)
    )


def _gain_s(until: datetime, evidence: Evidence, seen: InvocationEvidence) -> float:
    """How much longer the scope cools than without it."""
    known = seen.known(evidence.service, evidence.scope, evidence.cause)
    return (until - max(known.until if known else evidence.at, evidence.at)).total_seconds()


def _is_worth_it(cooldown: Cooldown, evidence: Evidence, seen: InvocationEvidence) -> bool:
    """Whether it is worth a write; a refusal's always is."""
    length_s = (cooldown.until - cooldown.since).total_seconds()
    return bool(evidence.words) or _gain_s(cooldown.until, evidence, seen) > MIN_GAIN * length_s


def _is_news(evidence: Evidence, seen: InvocationEvidence) -> bool:
    """Whether the cooldown must be written."""
    length_s = limits.cooldown_s(evidence.cause, min(_strikes(evidence, evidence.at, seen)))
    until = evidence.at + seconds(length_s)
    return bool(evidence.words) or _gain_s(until, evidence, seen) > MIN_GAIN * length_s
