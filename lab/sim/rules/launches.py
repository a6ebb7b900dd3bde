"""The rules about launches: which pools are asked, and what follows. See docs/placement.md."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import combinations

from lab.sim.gate import Invocation, at
from lab.sim.rules import Rule, limits
from lab.sim.rules.checker import Documents, in_force
from lab.sim.rules.cooldowns import CooldownChecker, Evidence
from lab.sim.rules.pools import eligible, is_too_dear
from lab.sim.scheduler import Scheduler
from spotrelay.core.instances import Refusal, RefusalKind
from spotrelay.core.pools import CapacityPool, Offering, PoolMemory, PurchaseOption, Scope
from spotrelay.core.ports import Denied, LaunchRequest, LaunchResult, Throttled
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Changes, LaunchIntent
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.memory import MemoryStore

EXACT_S = 0.01
"""No simulated time passes between an answer and the decision about it."""

OF_REQUEST = frozenset({RefusalKind.PERMISSION, RefusalKind.REQUEST})
"""Refusals for what a version asks: an image, a key, or the permission to use one."""

Plan = tuple[frozenset[CapacityPool], ...]
"""The pools of one launch request after the other."""

Answer = LaunchResult | Throttled | Denied


@dataclass(slots=True)
class Order:
    """A launch whose intent an invocation has recorded."""

    intent: LaunchIntent
    rows: tuple[Replica, ...]
    """Its replicas' rows."""
    is_launched_again: bool
    """Whether any of its replicas was launched or waited before."""
    plans: list[Plan] = field(default_factory=list)
    """All plans that are right; more than one if the invocation's knowledge is ambiguous."""
    eligible: tuple[CapacityPool, ...] = ()
    """All pools that may be asked; the rows name those that were left out."""
    is_certain: bool = True
    """Whether all documents that may apply have the same pools."""
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
    refused_starts: bool = False
    """Whether EC2 refused to start a standby."""
    called: set[str] = field(default_factory=set)
    """The services for which an extra tick was scheduled since."""
    written: dict[int, Replica] = field(default_factory=dict)
    """The rows that the invocation has written, by ID."""


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
        launching.written.update((row.id, row) for row in (*changes.create, *changes.update))
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
        order = Order(intent, changes.to_launch, any(r.id in before for r in changes.to_launch))
        launching.orders[intent.id] = order
        if following is not None:
            order.plans, order.step = following.plans, following.step + 1
            order.was_denied = following.is_denied
            order.eligible = following.eligible
            if abs((intent.created_at - now).total_seconds()) > EXACT_S:
                self.report(
                    Rule.INTENT_OPEN_WHILE_PENDING,
                    f"{intent} was opened at {now}: it would be closed too soon",
                )
            return
        turn = [
            r for r in invocation.loaded.values() if _is_refused_fallback(r) and _is_past(r.retry_at, now)
        ]
        for row in order.rows:
            old = before.get(row.id)
            if old is not None and not _is_past(old.retry_at, now) and not turn:
                self.report(
                    Rule.RETRIED_AFTER_BACKOFF, f"{row} is launched at {now}, and waits until {old.retry_at}"
                )

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
            self.report(
                Rule.LAUNCH_RESULT_RECORDED,
                f"{order.intent} is closed, and its rows are {list(rows.values())}",
            )
            return
        if isinstance(order.answer, Throttled):
            self._check_retry(waiting, before, now, is_attempt=False)
            return
        if order.answer is None:
            # No pool was asked: there must have been none to ask.
            order.plans = self._plans(invocation, order, changes.service, now)
            if () not in order.plans or order.request is not None:
                self.report(Rule.POOL_ORDER, f"{order.intent} is closed without an answer: {order.plans}")
        answer = order.answer if isinstance(order.answer, LaunchResult) else LaunchResult()
        got = [row for row in waiting if row.instance_id]
        left = [row for row in waiting if row.instance_id is None]
        given = _given(answer, order)[: len(waiting)]
        if sorted(given) != sorted(row.instance_id or "" for row in got):
            self.report(
                Rule.LAUNCH_RESULT_RECORDED, f"{order.intent} brought {given}, the rows say {waiting}"
            )
        words = [str(order.answer)] if isinstance(order.answer, Denied) else [r.code for r in answer.refusals]
        for row in waiting:
            is_known = order.answer is None and row.is_denied is before[row.id].is_denied
            if not is_known and row.is_denied is not (row in left and order.is_denied):
                self.report(
                    Rule.LAUNCH_RESULT_RECORDED, f"{row} is denied: {row.is_denied}; EC2 said {order.answer}"
                )
        self._check_launch_note(order, got, [*words, "/"])
        self._check_launch_note(order, left, words)
        if left and self._continues(order, changes, left):
            if any(row.attempts == 1 for row in left):  # another extra tick does no harm
                self.by[invocation].fallbacks.setdefault(changes.service, {True, False})
            return
        self._check_retry(
            left, before, now, self._first_cooldown_end(invocation, order, changes.service, now)
        )
        self._expect_fallbacks(invocation, left, before)

    def _continues(self, order: Order, changes: Changes, left: Sequence[Replica]) -> bool:
        """Whether other pools are asked for replicas that got nothing, as they must be if there are any."""
        follows = {len(plan) > order.step + 1 for plan in order.plans}
        if not isinstance(order.answer, LaunchResult) or follows == {False}:
            return False
        opened = changes.open_intent.replica_ids if changes.open_intent else ()
        continues = sorted(opened) == sorted(row.id for row in left)
        if not continues and follows == {True}:
            self.report(Rule.POOL_ORDER, f"no other pool is asked for {left}, {order.plans} at {order.step}")
        return continues

    def _check_retry(
        self,
        rows: Iterable[Replica],
        before: Mapping[int, Replica],
        now: datetime,
        available: tuple[datetime, datetime] | None = None,
        *,
        is_attempt: bool = True,
    ) -> None:
        """The launch failed, or wasn't made: is the time of the next attempt right?"""
        for row in rows:
            attempts = before[row.id].attempts + is_attempt
            back_off_s = limits.doubled_s(attempts if is_attempt else 1, *limits.RETRY_S)
            due = now + seconds(back_off_s)
            first, last = available or (due, due)
            is_due = row.retry_at is not None and first <= row.retry_at <= last
            if row.attempts != attempts or not is_due:
                self.report(
                    Rule.RETRIED_AFTER_BACKOFF,
                    f"{row}: {row.attempts}, {row.retry_at}; {attempts}, {first}, {last}",
                )

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

    def _check_launch_note(self, order: Order, rows: Iterable[Replica], words: Iterable[str]) -> None:
        """Do the rows say which pools were asked and left out, and what EC2 answered?"""
        for row in rows:
            text = row.launch or ""
            why, _, answer = text.partition("EC2")
            is_right = bool(text) and all(word in answer for word in words)
            if len(order.plans) == 1 and order.is_certain and not isinstance(order.answer, Denied):
                asked = frozenset[CapacityPool]().union(*order.plans[0])
                is_right &= all((str(pool) in why) is (pool not in asked) for pool in order.eligible)
            if not is_right:
                self.report(
                    Rule.LAUNCH_RESULT_RECORDED,
                    f"{row} says {text!r}, EC2 said {order.answer}, of {order.plans}",
                )

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
        if not order.plans:
            now = at(self.scheduler.now + invocation.skew_s)
            order.plans = self._plans(invocation, order, spec.service, now, spec)
        fits = [
            plan
            for plan in order.plans
            if [_fitting(pools, spec, len(order.rows)) for pools in plan[order.step : order.step + 1]]
            == [frozenset(request.pools)]
        ]
        if not fits or len(set(request.pools)) < len(request.pools):
            self.report(Rule.POOL_ORDER, f"{request.pools} are asked in step {order.step} of {order.plans}")
        order.plans = fits
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
        launching = self.by.setdefault(invocation, InvocationLaunches())
        for refusal in refusals:
            launching.refused_starts |= refusal.kind is RefusalKind.CAPACITY

    def before_extra_tick(self, invocation: Invocation, service: str, delay_s: float) -> None:
        """An extra tick is scheduled, beside the claimed one."""
        launching = self.by.get(invocation)
        if launching is None or not 0 < delay_s <= limits.FALLBACK_S:
            return
        launching.called.add(service)
        if True not in launching.fallbacks.get(service, ()) and not launching.refused_starts:
            self.report(
                Rule.FALLBACKS_IN_SECONDS, f"an extra tick of {service} is scheduled, and nothing was refused"
            )

    def after_invocation(self, invocation: Invocation, *, is_undisturbed: bool) -> None:
        """The invocation came to its end."""
        launching = self.by.pop(invocation, None)
        if launching is not None and is_undisturbed:
            self._check_orders(launching)
            self.cooldown_checker.after_invocation(invocation)
        self.cooldown_checker.by.pop(invocation, None)

    def _check_orders(self, launching: InvocationLaunches) -> None:
        for order in launching.orders.values():
            if not order.is_closed:
                self.report(
                    Rule.LAUNCH_RESULT_RECORDED, f"{order.intent} stays open, the answer was {order.answer}"
                )
        wanted = {service for service, wants in launching.fallbacks.items() if wants == {True}}
        if wanted - launching.called:
            self.report(Rule.FALLBACKS_IN_SECONDS, f"no tick requests fallbacks of {wanted}")

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
                    self.report(
                        Rule.RETRIED_AFTER_BACKOFF, f"{row} isn't retried, it was due at {row.retry_at}"
                    )

    # Plans.

    def _in_force(self, service: str) -> Sequence[ServiceSpec]:
        return in_force(self.documents, service, self.scheduler.now)

    def _plans(
        self,
        invocation: Invocation,
        order: Order,
        service: str,
        now: datetime,
        spec: ServiceSpec | None = None,
    ) -> list[Plan]:
        """The plans that are right then, by what the invocation was shown."""
        seen = self.cooldown_checker.of(invocation)
        memory, option = seen.memory.get(service, PoolMemory()), order.rows[0].purchase_option
        # Losses are known by now. Refusals of the launch before may be known, or not.
        fresh = seen.fresh[service]
        lost = [e for e in fresh if not e.words]
        owed = _scopes(e for e in lost if e.is_owed)
        taught = [*_supersets(owed, _scopes(lost)), _scopes(fresh)]
        specs = [spec] if spec else self._in_force(service)
        rows = {**invocation.loaded, **self.by[invocation].written}
        standbys = [r for r in rows.values() if r.is_standby and not r.state.is_ended]
        # Where the highest ID was lost, what lies beyond it counts as only just created.
        highest_id = invocation.rows.highest_id if invocation.rows else 0
        around = [_pools_of(standbys), _pools_of(r for r in standbys if r.id <= highest_id)]
        known = [tuple(eligible(one, memory)) for one in specs]
        order.eligible, order.is_certain = known[-1] if known else (), len(set(known)) <= 1
        plans = [
            _plan(one, option, memory, known, now, order, others, is_last_resort=is_last_resort)
            for one in specs
            for known in taught
            for others in around
            for is_last_resort in self._last_resorts(invocation, one, order)
        ]
        return list(dict.fromkeys(plans))

    def _last_resorts(self, invocation: Invocation, spec: ServiceSpec, order: Order) -> set[bool]:
        """Whether low scores and cooling pools may be asked: only if fallbacks are refused, too."""
        if not spec.on_demand_fallback:
            return {True}
        refused = {r.id for r in invocation.loaded.values() if _is_refused_fallback(r)}
        if not refused:
            return {False}
        others = self.by[invocation].orders.values()
        is_together = any(row.id in refused for other in others for row in other.rows)
        return {True} if is_together and order.is_launched_again else {True, False}

    def _first_cooldown_end(
        self, invocation: Invocation, order: Order, service: str, now: datetime
    ) -> tuple[datetime, datetime] | None:
        """If no pool was asked because all cool: when the first cooldown ends, as an interval."""
        if order.request is not None:
            return None
        seen = self.cooldown_checker.of(invocation)
        memory, latest = seen.memory.get(service, PoolMemory()), now + seconds(limits.ALL_COOLING_RETRY_S)
        offerings = [Offering(pool, order.rows[0].purchase_option) for pool in order.eligible]
        if any(scope.covers(o) for scope in _scopes(seen.fresh[service]) for o in offerings):
            return now, latest  # a cooldown of just now isn't in `memory` yet
        ends = [end for o in offerings if (end := _cools_until(memory, o, now))]
        if len(ends) < len(offerings):
            return None
        available = min(*ends, latest)
        return available, available


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


def _pools_of(replicas: Iterable[Replica]) -> list[CapacityPool]:
    return [r.offering.pool for r in replicas if r.offering]


def _plan(
    spec: ServiceSpec,
    option: PurchaseOption,
    memory: PoolMemory,
    taught: Collection[Scope],
    now: datetime,
    order: Order,
    standbys: Sequence[CapacityPool],
    *,
    is_last_resort: bool,
) -> Plan:
    """Which pools are asked in turn: available ones, low scores, cooling ones.

    A standby goes to the available zone with the fewest of the others, and there to the pool with the fewest.
    """
    available, low, cooling = set(), set(), set()
    is_spot = option is PurchaseOption.SPOT
    survey = memory.survey
    scores = survey.scores if survey and survey.asked == spec.asked else {}
    for pool in eligible(spec, memory):
        offering = Offering(pool, option)
        if is_spot and (is_too_dear(spec, pool, memory) or _is_no_move(spec, order, pool, memory)):
            continue
        if _cools_until(memory, offering, now) or any(scope.covers(offering) for scope in taught):
            cooling.add(pool)
        elif is_spot and scores.get(pool.zone, 10) <= limits.LOW_SCORE:
            low.add(pool)
        else:
            available.add(pool)
    is_return = spec.on_demand_fallback and all(row.attempts % limits.LOW_SCORE_EVERY for row in order.rows)
    if order.rows[0].is_move:  # what moves serves where it is
        is_return, is_last_resort = True, False
    steps = [available]
    if order.rows[0].stands_by and available:
        in_zone = {p: sum(p.zone == other.zone for other in standbys) for p in available}
        best = {p for p in available if in_zone[p] == min(in_zone.values())}
        apart = {p for p in best if standbys.count(p) == min(map(standbys.count, best))}
        steps = [apart, available - apart]
    if not is_return or is_last_resort:
        steps.append(low)
    if not is_spot or is_last_resort:
        steps.append(cooling)
    return tuple(frozenset(step) for step in steps if step)


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


def _supersets(least: set[Scope], most: set[Scope]) -> Iterator[set[Scope]]:
    """Every set between the two: of what may be known, any part may be."""
    optional = most - least
    for count in range(len(optional) + 1):
        for some in combinations(optional, count):
            yield least | set(some)


def _scopes(evidence: Iterable[Evidence]) -> set[Scope]:
    return {e.scope for e in evidence}


def _is_refused_fallback(row: Replica) -> bool:
    return row.is_fallback and row.state is ReplicaState.REQUESTED and row.attempts > 0


def _is_past(due: datetime | None, now: datetime) -> bool:
    return due is None or due <= now
