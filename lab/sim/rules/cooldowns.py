"""The rules about cooldowns: what starts one, and what ends it. See docs/placement.md.

They are judged by what the table says once an undisturbed invocation has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lab.sim.faults import Call
from lab.sim.gate import Invocation, at, time_of
from lab.sim.rules import Rule, limits
from lab.sim.scheduler import Scheduler
from lab.world.instances import NEVER
from spotrelay.plane.core.instances import Refusal, RefusalKind
from spotrelay.plane.core.pools import Cause, Cooldown, Offering, PoolMemory, PurchaseOption, Scope, quota_of
from spotrelay.plane.core.ports import LaunchRequest, LaunchResult
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes

LAUNCH_CAUSES = (Cause.REFUSAL, Cause.LIMIT)

ROUNDED_S = 0.01

FROM_ROWS = (Cause.LOSS, Cause.FAILURE, Cause.REBALANCE)

MIN_GAIN = 0.05
"""A cooldown is written if it makes the present one longer by at least this share of its own length."""

FORGIVEN_S = 120.0
"""A cooldown that another launch ended so lately says nothing: its end may take effect late."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something happened that starts a cooldown."""

    service: str
    scope: Scope
    cause: Cause
    at: datetime
    is_owed: bool = True
    """Whether the cooldown must be recorded, or only may be."""


@dataclass(slots=True)
class InvocationEvidence:
    """The evidence that one invocation saw, and what it knew of cooldowns."""

    evidence: list[Evidence] = field(default_factory=list)
    memory: dict[str, PoolMemory] = field(default_factory=dict)
    """By service: the table's last answer before standbys were started."""
    later: dict[str, PoolMemory] = field(default_factory=dict)
    """The same once they were: no launch goes by it."""
    given: set[Offering] = field(default_factory=set)
    """Where its launches brought instances."""
    must_end: dict[Cooldown, str] = field(default_factory=dict)
    """The cooldowns that a launch ends, with its service."""


@dataclass(slots=True)
class CooldownChecker:
    """Checks cooldowns."""

    scheduler: Scheduler
    report: Callable[[Rule, str], None]
    is_intact: Callable[[str, float], bool]
    """Service and time → whether its document was there, and its rows whole, ever since."""
    recall: Callable[[str, str, datetime], PoolMemory]
    """Service, region and time → what the table knows."""
    by: dict[Invocation, InvocationEvidence] = field(default_factory=dict)
    forgiven: dict[Scope, float] = field(default_factory=dict)
    """When a launch last ended a scope's cooldown."""

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
            scope = Scope.of(row.offering)
            self.of(invocation).evidence += [
                Evidence(row.service, scope, cause, now, is_owed=is_new and is_intact)
                for cause, is_new in _evidence_in(row, old)
            ]

    def after_recall(self, invocation: Invocation, service: str, memory: PoolMemory) -> None:
        """The table answered which cooldowns it has."""
        seen = self.of(invocation)
        has_started = any(record.call is Call.START for record in invocation.calls)
        (seen.later if has_started else seen.memory)[service] = memory

    def after_launch(self, invocation: Invocation, request: LaunchRequest, result: LaunchResult) -> None:
        """EC2 answered a launch."""
        seen, spec = self.of(invocation), request.spec
        option, given = request.purchase_option, {instance.offering for instance in result.instances}
        self._note_refusals(seen, spec.service, spec.region, option, result.refusals, invocation.skew_s)
        seen.given |= given
        known = seen.memory.get(spec.service, PoolMemory()).cooldowns
        ended = [c for c in known if c.cause in LAUNCH_CAUSES and any(map(c.scope.covers, given))]
        seen.must_end |= dict.fromkeys(ended, spec.service)

    def after_start(self, invocation: Invocation, refusals: Iterable[Refusal]) -> None:
        """EC2 answered to starts of standbys: what it refused for lack of capacity cools."""
        seen, option = self.of(invocation), PurchaseOption.ON_DEMAND
        for refusal in refusals:
            if refusal.offering:
                region = refusal.offering.pool.region
                self._note_refusals(
                    seen, invocation.tick_service, region, option, [refusal], invocation.skew_s
                )

    def _note_refusals(
        self,
        seen: InvocationEvidence,
        service: str,
        region: str,
        option: PurchaseOption,
        refusals: Iterable[Refusal],
        skew_s: float,
    ) -> None:
        now = at(self.scheduler.now + skew_s)
        found = (_scope_and_cause(refusal, region, option) for refusal in refusals)
        seen.evidence += [Evidence(service, *about, now) for about in found if about]

    def before_cool(self, invocation: Invocation, cooldowns: Collection[Cooldown]) -> None:
        """Cooldowns are about to be written."""
        seen = self.of(invocation)
        known = {(e.scope, e.cause) for e in seen.evidence}
        memories = (*seen.memory.values(), *seen.later.values())
        cooling = {(c.scope, c.cause): c for m in memories for c in m.cooldowns}
        for cooldown in cooldowns:
            if (cooldown.scope, cooldown.cause) not in known:
                what = f"{cooldown.scope} cools for {cooldown.cause}, without a cause"
                self.report(Rule.COOLDOWN_HAS_CAUSE, what)
            length_s = (cooldown.until - cooldown.since).total_seconds()
            if abs(length_s - limits.cooldown_s(cooldown.cause, cooldown.strikes)) > ROUNDED_S:
                self.report(Rule.COOLDOWN_RECORDED, f"{cooldown} lasts {length_s} s")
            before = cooling.get((cooldown.scope, cooldown.cause))
            until = before.until if before else cooldown.since
            # Of one scope the longest is kept: another cause may have taken its place.
            is_same = all(e.cause is cooldown.cause for e in seen.evidence if e.scope == cooldown.scope)
            is_again = is_same and before and until < cooldown.since < before.remembered_until
            if before and is_again and cooldown.strikes != before.strikes + 1:
                self.report(Rule.COOLDOWN_RECORDED, f"{cooldown} comes after {before}")
            gain_s = (cooldown.until - until).total_seconds()
            if cooldown.cause in FROM_ROWS and gain_s <= MIN_GAIN * length_s:
                self.report(Rule.COOLDOWN_RECORDED, f"{cooldown} adds nothing to what cools until {until}")

    def before_forgive(self, invocation: Invocation, scopes: Collection[Scope]) -> None:
        """Cooldowns are about to be ended."""
        seen = self.of(invocation)
        ended = {c.scope for c in seen.must_end}
        self.forgiven |= dict.fromkeys(scopes, self.scheduler.now)
        if wrongly := [str(scope) for scope in scopes if scope not in ended]:
            self.report(Rule.LAUNCH_ENDS_REFUSALS, f"{wrongly} no longer cool, and brought no instance")

    def after_invocation(self, invocation: Invocation) -> None:
        """An undisturbed invocation ended: does what it taught cool, and nothing that brought an instance?"""
        seen = self.by.get(invocation)
        if seen is None:
            return
        latest = self.scheduler.now - FORGIVEN_S
        for one in seen.evidence:
            there = self._there(one.service, one.scope, one.at)
            is_certain = one.is_owed and self.is_intact(one.service, invocation.began_at)
            is_certain = is_certain and self.forgiven.get(one.scope, -NEVER) < latest
            if is_certain and not any(time_of(c.until) > time_of(one.at) for c in there):
                self.report(Rule.COOLDOWN_RECORDED, f"no cooldown for {one}")
        for cooldown, service in seen.must_end.items():
            is_there = cooldown in self._there(service, cooldown.scope, cooldown.since)
            if is_there and self.is_intact(service, invocation.began_at):
                what = f"{cooldown.scope} brought an instance, and still cools"
                self.report(Rule.LAUNCH_ENDS_REFUSALS, what)

    def _there(self, service: str, scope: Scope, now: datetime) -> list[Cooldown]:
        return [c for c in self.recall(service, scope.region, now).cooldowns if c.scope == scope]


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
