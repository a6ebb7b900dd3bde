"""The rules about launches: which pools are asked, and what follows. See docs/placement.md."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lab.sim.gate import Invocation, at
from lab.sim.rules import Rule, limits
from lab.sim.rules.cooldowns import CooldownChecker
from lab.sim.rules.history import Documents, in_force
from lab.sim.rules.pools import eligible, is_too_dear
from lab.sim.scheduler import Scheduler
from spotrelay.plane.core.instances import Refusal, RefusalKind
from spotrelay.plane.core.pools import CapacityPool, Cause, Offering, PoolMemory, PurchaseOption
from spotrelay.plane.core.ports import Denied, LaunchRequest, LaunchResult, Throttled
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes, LaunchIntent
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import MemoryStore

OF_REQUEST = frozenset({RefusalKind.PERMISSION, RefusalKind.REQUEST})
"""Refusals for what a version asks: an image, a key, or the permission to use one."""

Answer = LaunchResult | Throttled | Denied

GOOD, LOW, COOLING = range(3)
"""How good a pool is by what was known. One that may just have begun to cool is none of these."""


@dataclass(slots=True)
class Order:
    """A launch whose intent an invocation has recorded."""

    intent: LaunchIntent
    rows: tuple[Replica, ...]
    """Its replicas' rows."""
    ranks: Mapping[CapacityPool, int | None] | None = None
    """The pools that it may ask, and how good they were known to be when its first step was decided."""
    asked: frozenset[CapacityPool] = frozenset()
    """The pools that its earlier steps have asked."""
    step: int = 0
    request: LaunchRequest | None = None
    answer: Answer | None = None
    is_closed: bool = False
    was_denied: bool = True
    """Whether all answers of the steps before were about what was asked."""

    @property
    def is_denied(self) -> bool:
        """Whether EC2 refuses what is asked, in all pools: another version may ask for something else."""
        if isinstance(self.answer, LaunchResult):
            kinds = {refusal.kind for refusal in self.answer.refusals}
            return self.was_denied and bool(kinds) and kinds <= OF_REQUEST
        return isinstance(self.answer, Denied)


@dataclass(slots=True)
class InvocationLaunches:
    """The launches of one invocation."""

    orders: dict[str, Order] = field(default_factory=dict)
    """By launch ID."""
    fallbacks: dict[str, set[bool]] = field(default_factory=dict)
    """The services that Spot has just refused, and whether they want fallbacks."""
    called: set[str] = field(default_factory=set)
    """The services for which an extra tick was scheduled since."""


@dataclass(slots=True)
class LaunchChecker:
    """Checks launches."""

    scheduler: Scheduler
    report: Callable[[Rule, str], None]
    cooldown_checker: CooldownChecker
    documents: Documents
    by: dict[Invocation, InvocationLaunches] = field(default_factory=dict)

    # Commits.

    def after_commit(
        self, invocation: Invocation, changes: Changes, before: Mapping[int, Replica], called_at: float
    ) -> None:
        """The invocation knows that the commit that it made at that time took effect."""
        launching = self.by.setdefault(invocation, InvocationLaunches())
        now = at(called_at + invocation.skew_s)
        following = None
        for intent_id in changes.close_intents:
            order = launching.orders.get(intent_id)
            if order is not None:
                order.is_closed = True
                following = order
                self._check_conclusion(invocation, order, changes, before, now)
        self.cooldown_checker.after_commit(invocation, changes, before, now)
        for row in changes.create:
            self._check_purchase_option(row, before)
        intent = changes.open_intent
        if intent is None:
            return
        named = {row.id for row in changes.stored if row.launch_id == intent.id}
        if named != set(intent.replica_ids):
            self.report(Rule.LAUNCH_MATCHES_ROWS, f"{intent}, and the rows that wait for it are {named}")
        order = launching.orders[intent.id] = Order(intent, changes.to_launch)
        if following is not None:
            order.ranks, order.step = following.ranks, following.step + 1
            order.asked = following.asked.union(following.request.pools if following.request else ())
            order.was_denied = following.is_denied
            return
        turn = [
            r for r in invocation.loaded.values() if _is_refused_fallback(r) and _is_past(r.retry_at, now)
        ]
        for row in order.rows:
            old = before.get(row.id)
            if old is not None and not _is_past(old.retry_at, now) and not turn:
                what = f"{row} is launched at {now}, and waits until {old.retry_at}"
                self.report(Rule.RETRIED_AFTER_BACKOFF, what)

    def _check_purchase_option(self, row: Replica, before: Mapping[int, Replica]) -> None:
        """A replacement has the purchase option of what it replaces, if the service still uses Spot."""
        replaced = before.get(row.replaces or 0)
        specs = self._in_force(row.service)
        if replaced is None or not specs or not all(spec.use_spot for spec in specs):
            return
        if row.purchase_option is not replaced.purchase_option:
            self.report(Rule.LAUNCH_MATCHES_ROWS, f"{row} is {row.purchase_option}, unlike {replaced}")

    def _check_conclusion(
        self,
        invocation: Invocation,
        order: Order,
        changes: Changes,
        before: Mapping[int, Replica],
        now: datetime,
    ) -> None:
        """A launch was answered, or not made: do the rows say so?"""
        rows = {row.id: row for row in changes.update}
        waiting = [rows[r.id] for r in order.rows if r.id in rows]
        if len(waiting) < len(order.rows):
            what = f"{order.intent} is closed, and its rows are {list(rows.values())}"
            self.report(Rule.LAUNCH_RESULT_RECORDED, what)
            return
        if isinstance(order.answer, Throttled):
            self._check_retry(order, waiting, before, now, is_attempt=False)
            return
        if order.answer is None:
            self._check_left_out(invocation, order, changes.service, now)
        answer = order.answer if isinstance(order.answer, LaunchResult) else LaunchResult()
        got = [row for row in waiting if row.instance_id]
        left = [row for row in waiting if row.instance_id is None]
        given = _given(answer, order)[: len(waiting)]
        if sorted(given) != sorted(row.instance_id or "" for row in got):
            what = f"{order.intent} brought {given}, the rows say {waiting}"
            self.report(Rule.LAUNCH_RESULT_RECORDED, what)
        words = [str(order.answer)] if isinstance(order.answer, Denied) else [r.code for r in answer.refusals]
        for row in waiting:
            is_known = order.answer is None and row.is_denied is before[row.id].is_denied
            is_right = is_known or row.is_denied is (row in left and order.is_denied)
            if not (is_right and row.launch and all(word in row.launch for word in words)):
                what = f"{row} says {row.launch!r}, denied: {row.is_denied}; EC2 said {order.answer}"
                self.report(Rule.LAUNCH_RESULT_RECORDED, what)
        opened = changes.open_intent.replica_ids if changes.open_intent else ()
        is_going_on = isinstance(order.answer, LaunchResult) and sorted(opened) == sorted(r.id for r in left)
        if left and is_going_on:
            if any(row.attempts == 1 for row in left):  # another extra tick does no harm
                self.by[invocation].fallbacks.setdefault(changes.service, {True, False})
            return
        self._check_retry(order, left, before, now)
        self._expect_fallbacks(invocation, left, before)

    def _check_left_out(self, invocation: Invocation, order: Order, service: str, now: datetime) -> None:
        """No pool was asked: was there none to ask?"""
        ways = [self._ranks(invocation, order, spec, now) for spec in self._in_force(service)]
        is_any_good = not order.step and all(GOOD in ranks.values() for ranks in ways)
        if order.request is not None or is_any_good:
            self.report(Rule.POOL_ORDER, f"{order.intent} is closed without an answer: {ways}")

    def _check_retry(
        self,
        order: Order,
        rows: Iterable[Replica],
        before: Mapping[int, Replica],
        now: datetime,
        *,
        is_attempt: bool = True,
    ) -> None:
        """The launch failed, or wasn't made: does the next attempt come neither at once nor too late?"""
        for row in rows:
            attempts = before[row.id].attempts + is_attempt
            back_off_s = limits.doubled_s(attempts if is_attempt else 1, *limits.RETRY_S)
            # Where no pool was asked, it waits until one ceases to cool.
            bounds_s = (back_off_s,) * 2 if order.request else (0.0, limits.ALL_COOLING_RETRY_S)
            first, last = (now + seconds(bound_s) for bound_s in bounds_s)
            if row.attempts != attempts or row.retry_at is None or not first <= row.retry_at <= last:
                what = f"{row}: {row.attempts}, {row.retry_at}; {attempts}, {first}, {last}"
                self.report(Rule.RETRIED_AFTER_BACKOFF, what)

    def _expect_fallbacks(
        self, invocation: Invocation, rows: Iterable[Replica], before: Mapping[int, Replica]
    ) -> None:
        """Replicas that were refused for the first time need fallbacks."""
        launching = self.by[invocation]
        for row in rows:
            wants = {s.on_demand_fallback for s in self._in_force(row.service)}
            if row.purchase_option is PurchaseOption.SPOT and not before[row.id].attempts:
                launching.fallbacks[row.service] = wants
                launching.called.discard(row.service)

    # Calls.

    def before_launch(self, invocation: Invocation, request: LaunchRequest) -> None:
        """EC2 is about to be asked."""
        launching = self.by.setdefault(invocation, InvocationLaunches())
        order = launching.orders.get(request.launch_id)
        if order is None:
            return  # never recorded: see `Checker.before_launch`
        order.request = request
        option, spec = request.purchase_option, request.spec
        wanted = len(order.rows), order.intent.highest_id, {row.purchase_option for row in order.rows}
        if (request.count, request.highest_id, {option}) != wanted:
            self.report(Rule.LAUNCH_MATCHES_ROWS, f"{request} for {order.rows}")
        if order.ranks is None:
            now = at(self.scheduler.now + invocation.skew_s)
            order.ranks = self._ranks(invocation, order, spec, now)
        if why := _wrong_pools(request, order, order.ranks):
            what = f"{request.pools} are asked in step {order.step}, {why}: {order.ranks}"
            self.report(Rule.POOL_ORDER, what)
        memory = self.cooldown_checker.of(invocation).memory.get(spec.service, PoolMemory())
        if spec.ordered:
            known = [pool for pool in eligible(spec, memory) if pool in request.pools]
            if known != list(request.pools):
                self.report(Rule.LAUNCH_MATCHES_ROWS, f"{request.pools} are asked, the preference is {known}")
        self._check_price_cap(request, memory)

    def _check_price_cap(self, request: LaunchRequest, memory: PoolMemory) -> None:
        share, caps = request.spec.max_price_share, request.max_prices
        if share is None or request.purchase_option is PurchaseOption.ON_DEMAND:
            if caps:
                self.report(Rule.PRICE_CAP_SENT, f"{caps}, and the service has no cap")
            return
        prices = memory.survey.on_demand_prices if memory.survey else {}
        for type_ in dict.fromkeys(pool.instance_type for pool in request.pools):
            below = share * prices.get(type_, 0.0) - caps.get(type_, float("inf"))
            # EC2 takes four decimals, and prices are rounded down.
            if not -1e-9 < below < 2e-4:
                self.report(Rule.PRICE_CAP_SENT, f"{type_}: {caps}, {share} of {prices}")

    def after_launch(self, invocation: Invocation, request: LaunchRequest, answer: Answer) -> None:
        """EC2 has answered."""
        order = self.by[invocation].orders.get(request.launch_id)
        if order is not None:
            order.answer = answer
        if isinstance(answer, LaunchResult):
            self.cooldown_checker.after_launch(invocation, request, answer)

    def after_start(self, invocation: Invocation, refusals: Collection[Refusal]) -> None:
        """EC2 has answered to starts of standbys."""
        self.cooldown_checker.after_start(invocation, refusals)

    def before_extra_tick(self, invocation: Invocation, service: str, delay_s: float) -> None:
        """An extra tick is scheduled, beside the claimed one."""
        if invocation in self.by and 0 < delay_s <= limits.FALLBACK_S:
            self.by[invocation].called.add(service)

    def after_invocation(self, invocation: Invocation, *, is_undisturbed: bool) -> None:
        """The invocation came to its end."""
        launching = self.by.pop(invocation, None)
        if launching is not None and is_undisturbed:
            for order in launching.orders.values():
                if not order.is_closed:
                    what = f"{order.intent} stays open, the answer was {order.answer}"
                    self.report(Rule.LAUNCH_RESULT_RECORDED, what)
            wanted = {service for service, wants in launching.fallbacks.items() if wants == {True}}
            if wanted - launching.called:
                self.report(Rule.FALLBACKS_IN_SECONDS, f"no tick requests fallbacks of {wanted}")
            self.cooldown_checker.after_invocation(invocation)
        self.cooldown_checker.by.pop(invocation, None)

    def check_progress(self, services: Collection[str], store: MemoryStore, quiet_since: float) -> None:
        """No call fails any more: are refused launches retried?"""
        late = at(self.scheduler.now - limits.PROGRESS_S)
        if self.scheduler.now < quiet_since + limits.PROGRESS_S:
            return
        for service in services:
            rows = store.load(service)
            serving = sum(row.serves for row in rows.replicas.values())
            specs = self.documents(service, self.scheduler.now)
            held = [rows.backoff.until, rows.backoff.fallback_until]
            # A replica that has just become ready ends the back-off after failures. The next tick launches.
            held += [
                r.since for r in rows.replicas.values() if r.state is ReplicaState.READY and r.since > late
            ]
            if serving >= max((s.replicas for s in specs), default=0) or any(held):
                continue  # enough serve, or there is another reason to wait
            for row in rows.replicas.values():
                if row.stands_by:
                    continue  # it waits until as many as desired serve
                is_late = row.retry_at is not None and row.retry_at < late
                if row.state is ReplicaState.REQUESTED and is_late and row.launch_id not in rows.intents:
                    what = f"{row} isn't retried, it was due at {row.retry_at}"
                    self.report(Rule.RETRIED_AFTER_BACKOFF, what)

    # Pools.

    def _in_force(self, service: str) -> Sequence[ServiceSpec]:
        return in_force(self.documents, service, self.scheduler.now)

    def _ranks(
        self, invocation: Invocation, order: Order, spec: ServiceSpec, now: datetime
    ) -> Mapping[CapacityPool, int | None]:
        """The pools that may be asked, and how good each is, by what the invocation was shown."""
        seen, row = self.cooldown_checker.of(invocation), order.rows[0]
        memory = seen.memory.get(spec.service, PoolMemory())
        is_spot = row.purchase_option is PurchaseOption.SPOT
        scores = memory.survey.scores if memory.survey and memory.survey.asked == spec.asked else {}
        ranks: dict[CapacityPool, int | None] = {}
        for pool in eligible(spec, memory):
            offering = Offering(pool, row.purchase_option)
            if is_spot and (is_too_dear(spec, pool, memory) or _is_no_move(spec, order, pool, memory)):
                continue
            if about := [e for e in seen.evidence if e.scope.covers(offering)]:
                # What it saw lost cools at once; of refusals and other services a launch may not know yet.
                lost = [e for e in about if e.cause is Cause.LOSS and e.is_owed and e.service == spec.service]
                ranks[pool] = COOLING if lost else None
            elif _cools_until(memory, offering, now):
                ranks[pool] = COOLING
            else:
                ranks[pool] = LOW if is_spot and scores.get(pool.zone, 10) <= limits.LOW_SCORE else GOOD
        return ranks


def _wrong_pools(request: LaunchRequest, order: Order, ranks: Mapping[CapacityPool, int | None]) -> str:
    """What is wrong with the pools that a launch asks at this step; empty: nothing."""
    asked = frozenset(request.pools)
    if len(asked) < len(request.pools) or asked & order.asked:
        return "one of them twice"
    if not asked <= ranks.keys():
        return "one of which mustn't be"
    of_step = {rank for pool in asked if (rank := ranks[pool]) is not None}
    if len(of_step) > 1:
        return "good ones and others at once"
    for rank in of_step:
        if rank > GOOD and not order.step and GOOD in ranks.values():
            return "before better ones"
        # A standby goes to where the fewest of the others are.
        together = asked.union(pool for pool, other in ranks.items() if other == rank)
        if asked != _fitting(together, request.spec, len(order.rows)) and not order.rows[0].stands_by:
            return "and not all of them at once"
    return ""


def _fitting(pools: frozenset[CapacityPool], spec: ServiceSpec, wanted: int) -> frozenset[CapacityPool]:
    """Those whose instances host no more replicas than are wanted, unless all do."""
    fitting = frozenset(pool for pool in pools if spec.slots.get(pool.instance_type, 1) <= wanted)
    return fitting or pools


def _given(answer: LaunchResult, order: Order) -> list[str]:
    """What a launch brought, in the order in which replicas get it: those that host most are filled first."""
    if order.request is None:
        return []
    spec = order.request.spec
    hosted = [(spec.slots.get(i.offering.pool.instance_type, 1), i.id) for i in answer.instances]
    return [
        f"{id_}:{spec.port + number}" if number else id_
        for count, id_ in sorted(hosted, key=lambda one: -one[0])
        for number in range(count)
    ]


def _is_no_move(spec: ServiceSpec, order: Order, pool: CapacityPool, memory: PoolMemory) -> bool:
    """Whether it is a move that is launched, and the pool isn't known to be cheap or to score high enough."""
    most, least, survey = order.rows[0].max_price, order.rows[0].min_score, memory.survey
    price = survey.spot_prices.get(pool) if survey else None
    is_answer = survey is not None and survey.asked == spec.asked  # scores of other types say nothing
    readings = [survey.scores, *(one.scores for one in survey.earlier)] if survey and is_answer else [{}]
    is_low = least is not None and any(scores.get(pool.zone, 0) < least for scores in readings)
    return is_low or (most is not None and (price is None or price > most))


def _cools_until(memory: PoolMemory, offering: Offering, now: datetime) -> datetime | None:
    """When the offering's cooldown ends; None if it doesn't cool."""
    ends = [c.until for c in memory.cooldowns if c.until > now and c.scope.covers(offering)]
    return max(ends, default=None)


def _is_refused_fallback(row: Replica) -> bool:
    return row.is_fallback and row.state is ReplicaState.REQUESTED and row.attempts > 0


def _is_past(due: datetime | None, now: datetime) -> bool:
    return due is None or due <= now
