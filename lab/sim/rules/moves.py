"""The rules about moves: only where all is well, one at a time, never for worse, never by one reading."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.sim.faults import Call
from lab.sim.gate import Commit, Invocation, time_of
from lab.sim.rules import Findings, Rule, limits
from lab.sim.rules.history import History
from lab.sim.rules.invocation_view import InvocationView
from lab.sim.rules.limits import SKEW_S
from lab.sim.rules.pools import eligible, is_too_dear
from lab.world.instances import NEVER
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.pools import PoolMemory, PurchaseOption, Survey
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec

CLEARLY = 1.02
"""A move must come if it would pay at a price that is higher by this: rounding decides nothing."""

MOVED_REASON = re.compile(r"costs |\S+ scores \d+ for Spot")
"""How the reason of one that has moved begins."""


def is_extra(row: Replica, rows: Mapping[int, Replica]) -> bool:
    """Whether it was requested for another to move, and that one needn't go."""
    before = rows.get(row.replaces or 0)
    return row.is_move and before is not None and before.is_counted


@dataclass(slots=True)
class _Try:
    """The last move of a service."""

    at: float = -NEVER
    heirs: set[int] = field(default_factory=set)
    """The two replicas, and what came in their place."""


@dataclass(slots=True)
class MoveChecker:
    """Checks moves at every commit."""

    history: History
    tries: dict[str, _Try] = field(default_factory=dict)
    surveys: dict[str, list[Survey]] = field(default_factory=dict)
    """By service: all that EC2 ever answered, in order. What is kept of them is the code's business."""

    def after_commit(self, invocation: Invocation, commit: Commit) -> None:
        """A commit took effect."""
        changes, before, after = commit.changes, commit.before.replicas, commit.after.replicas
        last = self.tries.setdefault(changes.service, _Try())
        requested = [row for row in changes.create if row.is_move]
        for row in requested:
            self._check_request(invocation, row, before, last)
        if requested:
            last = self.tries[changes.service] = _Try(self.history.scheduler.now)
            last.heirs = {id_ for row in requested for id_ in (row.id, row.replaces or 0)}
        last.heirs |= {row.id for row in changes.create if row.replaces in last.heirs}
        if changes.service in self.history.damaged:
            return
        moving = [r for r in after.values() if r.state.is_active and is_extra(r, after)]
        if requested and len(moving) > 1:
            self._report(Rule.MOVES_SINGLY, f"{[str(r) for r in moving]} come at a time")
        for row in changes.create:
            lost, left = before.get(row.replaces or 0), after.get(row.replaces or 0)
            # One that stays is no loss: another version may take its place.
            if lost and not (left and left.stays) and is_extra(lost, after) and not row.is_move:
                self._report(Rule.MOVES_END, f"{row} replaces {lost}, and {lost.replaces} stays")
        for row in changes.update:
            self._check_departure(row, commit)
            self._check_repeat(row, commit)

    def _check_request(
        self, invocation: Invocation, row: Replica, before: Mapping[int, Replica], last: _Try
    ) -> None:
        """A replica is to move: may it, was none moved just now, and does it pay?"""
        old = before.get(row.replaces or 0)
        if old is None or row.service in self.history.damaged:
            return
        now = self.history.scheduler.now
        if now < last.at + limits.MOVE_AFTER_S - SKEW_S and last.heirs & before.keys():
            self._report(Rule.MOVES_SINGLY, f"{old} is to move, and the last try was at {last.at:.1f} s")
        is_spot = old.purchase_option is PurchaseOption.SPOT and not (old.is_standby or old.is_fallback)
        is_ready = old.state is ReplicaState.READY
        if not (is_spot and is_ready) or now < time_of(old.since) + limits.MOVE_AFTER_S - SKEW_S:
            self._report(Rule.MOVES_ONLY_SPOT, f"{old}, {old.state}, is to move")
        survey = _memory(invocation).survey
        specs = self.history.in_force(invocation, row.service)
        if row.min_score is not None:
            if not any(self._is_better(spec, survey, old, row.min_score) for spec in specs):
                what = f"{old} is to move to a score of {row.min_score}: {survey}"
                self._report(Rule.MOVES_BY_LASTING_SCORES, what)
        elif not any(self._pays(spec, survey, old, row.max_price or NEVER) for spec in specs):
            self._report(Rule.MOVES_PAY, f"{old} is to move to where Spot costs {row.max_price}: {survey}")

    def _pays(self, spec: ServiceSpec, survey: Survey | None, old: Replica, most: float) -> bool:
        """Whether a move saves the share, and within the hour what it costs to run two of them."""
        now = self.history.scheduler.now
        if (
            spec.rebalance_cost is None
            or survey is None
            or survey.asked != spec.asked
            or old.offering is None
        ):
            return False
        if now > time_of(survey.at) + limits.SURVEY_OLD_S + SKEW_S + limits.TIMEOUT_S:
            return False
        price, ready = survey.spot_prices.get(old.offering.pool), old.entered[ReplicaState.READY]
        if price is None or not any(0 < other <= most for other in survey.spot_prices.values()):
            return False
        started = time_of(old.entered.get(ReplicaState.PROVISIONING, ready))
        start_s = min(time_of(ready) - started, spec.initial_delay_s)
        double_s = start_s + limits.unhurried_s(spec) + limits.DEREGISTRATION_LAG_S
        saved = (price - most) * limits.MOVE_PAYS_WITHIN_S
        return most <= price * (1 - spec.rebalance_cost) + 1e-6 and saved >= most * double_s - 0.01

    def _is_better(self, spec: ServiceSpec, survey: Survey | None, old: Replica, least: int) -> bool:
        """Whether another zone scored so much better than the replica's, in each survey of the time."""
        if not spec.move_on_score or survey is None or old.offering is None:
            return False
        now, seen_at = self.history.scheduler.now, time_of(survey.at)
        if now > seen_at + limits.SURVEY_OLD_S + SKEW_S + limits.TIMEOUT_S:
            return False
        readings: list[Survey] = []
        for one in reversed(self.surveys[spec.service]):
            if time_of(one.at) > seen_at:
                continue
            newer = time_of(readings[-1].at) if readings else seen_at
            if one.asked != spec.asked or newer - time_of(one.at) > limits.SURVEY_OLD_S:
                return False
            readings.append(one)
            if seen_at - time_of(one.at) >= limits.SCORES_LAST_S:
                break
        else:
            return False
        own = [one.scores.get(old.offering.pool.zone, 10) for one in readings]
        zones = {zone for one in readings for zone in one.scores}
        best = max(min(one.scores.get(zone, 0) for one in readings) for zone in zones) if zones else 0
        return max(own) <= limits.MOVE_SCORE and max(own) + limits.MOVE_SCORE_GAIN <= least <= best

    def is_due(self, spec: ServiceSpec, memory: PoolMemory, old: Replica) -> bool:
        """Whether there certainly is a better place for it than where it is."""
        survey = memory.survey
        if survey is None or survey.asked != spec.asked or old.offering is None:
            return False
        allowed = [pool for pool in eligible(spec, memory) if not is_too_dear(spec, pool, memory)]
        good = [pool for pool in allowed if survey.scores.get(pool.zone, 10) > limits.LOW_SCORE]
        cheapest = min((survey.spot_prices.get(pool, NEVER) for pool in good), default=NEVER)
        if self._pays(spec, survey, old, CLEARLY * cheapest):
            return True
        zone = old.offering.pool.zone
        least = survey.scores.get(zone, 10) + limits.MOVE_SCORE_GAIN
        # What every survey of the run says, nobody can have read otherwise.
        readings = [one.scores for one in self.surveys[spec.service]]
        is_one_reading = len({scores.get(zone) for scores in readings}) == 1
        is_likelier = any(all(scores.get(p.zone, 0) >= least for scores in readings) for p in good)
        return is_one_reading and is_likelier and self._is_better(spec, survey, old, least)

    def _check_departure(self, row: Replica, commit: Commit) -> None:
        """What has moved goes: is its replacement there?"""
        old = commit.before.replicas.get(row.id)
        if old is None or not old.state.is_active or row.state.is_active:
            return
        successor = commit.after.replicas.get(old.replaced_by or 0)
        has_moved = MOVED_REASON.match(row.reason)
        # It may go in the same commit, if fewer are wanted from now on.
        if has_moved and (successor is None or ReplicaState.READY not in successor.entered):
            self._report(Rule.MOVED_SERVES_FIRST, f"{row} goes, and what comes in its place is {successor}")

    def _check_repeat(self, row: Replica, commit: Commit) -> None:
        """A replica is launched: it was asked for before, so it is no move."""
        intent, old = commit.changes.open_intent, commit.before.replicas.get(row.id)
        if intent is None or commit.changes.window is None or row.id not in intent.replica_ids:
            return
        if old is not None and old.state is ReplicaState.REQUESTED and row.is_move:
            what = f"{row} is launched again for {row.max_price} or a score of {row.min_score}"
            self._report(Rule.MOVES_END, what)

    def _report(self, rule: Rule, what: str) -> None:
        self.history.report(rule, what)


def _memory(invocation: Invocation) -> PoolMemory:
    """What a tick that decided knew of pools: it asks once more before it launches.

    One that needed to know nothing asks as it reports.
    """
    answers = (record.answer for record in invocation.calls)
    return next((known for known in answers if isinstance(known, PoolMemory)), PoolMemory())


# Ends of invocations.


def check(view: InvocationView, spec: ServiceSpec, commit: Commit) -> Findings:
    """A tick requests moves: was all well, by what it was shown, and did nothing else go on?"""
    requested = [row for row in commit.changes.create if row.is_move]
    if not requested:
        return
    row = requested[0]
    why = _unrest(view, spec, commit.changes, {r.replaces for r in requested})
    if why:
        yield Rule.MOVES_WHEN_CALM, f"{row} is requested for {row.replaces} to move: {why}"


def _unrest(view: InvocationView, spec: ServiceSpec, changes: Changes, moving: set[int | None]) -> str:
    """What else goes on; empty if nothing does."""
    rows = view.rows
    replicas = [r for r in rows.replicas.values() if not r.stands_by]
    if len(replicas) != spec.replicas:
        return f"{len(replicas)} are there of {spec.replicas}"
    for row in replicas:
        is_warned = row.is_warned or row.instance_id in view.invocation.warned
        is_old = spec.on_update is not OnUpdate.KEEP and row.version != spec.version
        if not row.stays or is_warned or row.is_fallback or is_old:
            return f"{row} {row.state}"
        if view.target(row) is not TargetState.HEALTHY:
            return f"{row} is {view.target(row)}"
    if rows.intents or rows.backoff.failures:
        return f"{rows.intents}, {rows.backoff}"
    written = [str(row) for row in changes.update if row.id not in moving]
    others = [str(row) for row in changes.create if not row.is_move]
    return f"{written} and {others} change, too" if written or others else ""


def check_after_tick(view: InvocationView, spec: ServiceSpec, checker: MoveChecker) -> Findings:
    """After an undisturbed tick: does no move wait, and was one requested that pays?"""
    yield from _check_due(view, spec, checker)
    for row in view.unchanged_rows():
        is_waiting = row.state is ReplicaState.REQUESTED and row.launch_id not in view.rows.intents
        is_left = is_waiting and is_extra(row, view.rows.replicas) and is_extra(row, view.now.replicas)
        if is_left and not view.now.intents:
            yield Rule.MOVES_END, f"{row} waits, and {row.replaces} stays"


def _check_due(view: InvocationView, spec: ServiceSpec, checker: MoveChecker) -> Findings:
    """All is well, and one would certainly be better off elsewhere: does it move?"""
    invocation = view.invocation
    may_move = spec.move_on_score or spec.rebalance_cost is not None
    if not (may_move and spec.surge > 0) or invocation.commits or view.service in view.history.damaged:
        return
    memory, last = _memory(invocation), checker.tries.get(view.service, _Try()).at
    tried = any(r.move_tried_at for r in view.rows.replicas.values())
    # At the hour everything depends on whose clock it is.
    was_lately = invocation.loaded_at < last + limits.MOVE_AFTER_S + SKEW_S
    # What no row knows is taken in, or held back for somebody to look at, and so is what EC2 doesn't show.
    # Until then no move need come.
    is_unclear = view.instances.keys() != {row.instance_id for row in view.rows.replicas.values()}
    # A standby's instance that isn't what its row says is started or stopped once more.
    is_mended = any(c.call in (Call.START, Call.STOP) for c in invocation.calls)
    if memory.cooldowns or tried or was_lately or is_unclear or is_mended:
        return
    if _unrest(view, spec, Changes(view.service), set()):
        return
    for row in view.rows.replicas.values():
        is_spot = row.offering is not None and row.offering.purchase_option is row.purchase_option
        is_spot = is_spot and row.purchase_option is PurchaseOption.SPOT and not row.stands_by
        if is_spot and view.is_over(row.since, limits.MOVE_AFTER_S) and checker.is_due(spec, memory, row):
            yield Rule.MOVES_DUE, f"{row} in {row.offering} stays: {memory.survey}"
