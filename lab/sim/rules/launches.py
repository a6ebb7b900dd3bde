"""The rules about launches: which pools are asked, and what becomes of the answer. See docs/placement.md."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lab.sim.gate import Invocation, at
from lab.sim.rules import Rule, limits
from lab.sim.rules.checker import Documents, in_force
from lab.sim.rules.cooldowns import CooldownChecker, Evidence
from lab.sim.scheduler import Scheduler
from spotrelay.core.pools import CapacityPool, Offering, PoolMemory, PurchaseOption, Scope
from spotrelay.core.ports import Denied, LaunchRequest, LaunchResult, Throttled
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Changes, LaunchIntent
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.memory import MemoryStore

EXACT_S = 0.01
"""Nothing takes time between an answer and what is made of it."""

Plan = tuple[frozenset[CapacityPool], ...]
"""The pools of one launch request after the other."""

Answer = LaunchResult | Throttled | Denied


@dataclass(slots=True)
class Order:
    """A launch that an invocation has put on record."""

    intent: LaunchIntent
    rows: tuple[Replica, ...]
    """Of the replicas that it is for."""
    is_launched_again: bool
    """Whether there are such that waited for their turn."""
    plans: list[Plan] = field(default_factory=list)
    """In which ways it may be made, all told; more than one where what is known leaves room."""
    eligible: tuple[CapacityPool, ...] = ()
    """What may be asked at all; who is left out of that is told."""
    is_certain: bool = True
    """Whether every document that it may go by comes to the same."""
    step: int = 0
    request: LaunchRequest | None = None
    answer: Answer | None = None
    is_closed: bool = False


@dataclass(slots=True)
class InvocationLaunches:
    """What one invocation launches."""

    orders: dict[str, Order] = field(default_factory=dict)
    """By launch ID."""
    fallbacks: dict[str, set[bool]] = field(default_factory=dict)
    """The services of which Spot has just refused something, and whether they want fallbacks."""
    called: set[str] = field(default_factory=set)
    """The services that a tick was called for since, at once."""


@dataclass(slots=True)
class LaunchChecker:
    """Watches what the production code launches."""

    scheduler: Scheduler
    broken: Callable[[Rule, str], None]
    cooldown_checker: CooldownChecker
    documents: Documents
    by: dict[Invocation, InvocationLaunches] = field(default_factory=dict)

    # What was written.

    def after_commit(
        self, invocation: Invocation, changes: Changes, before: Mapping[int, Replica], called_at: float
    ) -> None:
        """The invocation knows that its commit took effect, and made it at that time."""
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
            self.broken(Rule.LAUNCH_MATCHES_ROWS, f"{intent}, and it is {named} that wait for it")
        order = Order(intent, changes.to_launch, any(r.id in before for r in changes.to_launch))
        launching.orders[intent.id] = order
        if following is not None:
            order.plans, order.step = following.plans, following.step + 1
            order.eligible = following.eligible
            if abs((intent.created_at - now).total_seconds()) > EXACT_S:
                self.broken(
                    Rule.INTENT_OPEN_WHILE_PENDING, f"{intent} is of {now}: it would be given up too soon"
                )
            return
        turn = [
            r for r in invocation.loaded.values() if _is_refused_fallback(r) and _is_past(r.retry_at, now)
        ]
        for row in order.rows:
            old = before.get(row.id)
            if old is not None and not _is_past(old.retry_at, now) and not turn:
                self.broken(
                    Rule.RETRIED_AFTER_BACKOFF, f"{row} is launched at {now}, and waits until {old.retry_at}"
                )

    def _check_purchase_option(self, row: Replica, before: Mapping[int, Replica]) -> None:
        """A new replica is bought as the one that it replaces, or as the service wants it by now."""
        replaced = before.get(row.replaces or 0)
        specs = self._in_force(row.service)
        if replaced is None or not specs or not all(spec.use_spot for spec in specs):
            return
        if row.purchase_option is not replaced.purchase_option:
            self.broken(Rule.LAUNCH_MATCHES_ROWS, f"{row} is bought {row.purchase_option}, unlike {replaced}")

    def _check_conclusion(
        self,
        invocation: Invocation,
        order: Order,
        changes: Changes,
        before: Mapping[int, Replica],
        now: datetime,
    ) -> None:
        """A launch was answered, or was none: do the rows say so?"""
        rows = {row.id: row for row in changes.update}
        waiting = [rows[r.id] for r in order.rows if r.id in rows]
        if len(waiting) < len(order.rows):
            self.broken(
                Rule.LAUNCH_RESULT_RECORDED,
                f"{order.intent} is closed, and its rows are {list(rows.values())}",
            )
            return
        if isinstance(order.answer, Throttled):
            self._check_retry(waiting, before, now, is_attempt=False)
            return
        if order.answer is None:
            # Nobody was asked: there must have been nobody to ask.
            order.plans = self._plans(invocation, order, changes.service, now)
            if () not in order.plans or order.request is not None:
                self.broken(Rule.POOL_ORDER, f"{order.intent} is closed, nobody answered: {order.plans}")
        answer = order.answer if isinstance(order.answer, LaunchResult) else LaunchResult()
        got = [row for row in waiting if row.instance_id]
        left = [row for row in waiting if row.instance_id is None]
        given = [instance.id for instance in answer.instances][: len(waiting)]
        if sorted(given) != sorted(row.instance_id or "" for row in got):
            self.broken(
                Rule.LAUNCH_RESULT_RECORDED, f"{given} came for {order.intent}, the rows say {waiting}"
            )
        words = [str(order.answer)] if isinstance(order.answer, Denied) else [r.code for r in answer.refusals]
        self._check_launch_note(order, got, [*words, "/"])
        self._check_launch_note(order, left, words)
        if left and self._continues(order, changes, left):
            if any(row.attempts == 1 for row in left):  # another call for fallbacks does no harm
                self.by[invocation].fallbacks.setdefault(changes.service, {True, False})
            return
        self._check_retry(left, before, now, self._rest_end(invocation, order, changes.service, now))
        self._expect_fallbacks(invocation, left, before)

    def _continues(self, order: Order, changes: Changes, left: Sequence[Replica]) -> bool:
        """Whether others are asked for those that got nothing, as they must be if there are others."""
        follows = {len(plan) > order.step + 1 for plan in order.plans}
        if not isinstance(order.answer, LaunchResult) or follows == {False}:
            return False
        opened = changes.open_intent.replica_ids if changes.open_intent else ()
        is_going_on = sorted(opened) == sorted(row.id for row in left)
        if not is_going_on and follows == {True}:
            self.broken(Rule.POOL_ORDER, f"{left} aren't asked for elsewhere, {order.plans} at {order.step}")
        return is_going_on

    def _check_retry(
        self,
        rows: Iterable[Replica],
        before: Mapping[int, Replica],
        now: datetime,
        rested: tuple[datetime, datetime] | None = None,
        *,
        is_attempt: bool = True,
    ) -> None:
        """Nothing was to be had for these, or nothing was asked: when are they tried again?"""
        for row in rows:
            attempts = before[row.id].attempts + is_attempt
            back_off_s = limits.doubled_s(attempts if is_attempt else 1, *limits.RETRY_S)
            due = now + seconds(back_off_s)
            first, last = rested or (due, due)
            is_due = row.retry_at is not None and first <= row.retry_at <= last
            if row.attempts != attempts or not is_due:
                self.broken(
                    Rule.RETRIED_AFTER_BACKOFF,
                    f"{row}: {row.attempts}, {row.retry_at}; {attempts}, {first}, {last}",
                )

    def _expect_fallbacks(
        self, invocation: Invocation, rows: Iterable[Replica], before: Mapping[int, Replica]
    ) -> None:
        """Who was refused for the first time has fallbacks asked for."""
        launching = self.by[invocation]
        for row in rows:
            wants = {s.on_demand_fallback for s in self._in_force(row.service)}
            if row.purchase_option is PurchaseOption.SPOT and not before[row.id].attempts:
                launching.fallbacks[row.service] = wants
                launching.called.discard(row.service)

    def _check_launch_note(self, order: Order, rows: Iterable[Replica], words: Iterable[str]) -> None:
        """Do the rows say why there, which pools were left out, and what EC2 answered?"""
        for row in rows:
            text = row.launch or ""
            why, _, answer = text.partition("EC2")
            is_right = bool(text) and all(word in answer for word in words)
            if len(order.plans) == 1 and order.is_certain and not isinstance(order.answer, Denied):
                asked = frozenset[CapacityPool]().union(*order.plans[0])
                is_right &= all((str(pool) in why) is (pool not in asked) for pool in order.eligible)
            if not is_right:
                self.broken(
                    Rule.LAUNCH_RESULT_RECORDED,
                    f"{row} says {text!r}, EC2 said {order.answer}, of {order.plans}",
                )

    # Calls.

    def before_launch(self, invocation: Invocation, request: LaunchRequest) -> None:
        """EC2 is about to be asked."""
        launching = self.by.setdefault(invocation, InvocationLaunches())
        order = launching.orders.get(request.launch_id)
        if order is None:
            return  # never on record: another rule's affair
        order.request = request
        option, spec = request.purchase_option, request.spec
        wanted = len(order.rows), order.intent.highest_id, {row.purchase_option for row in order.rows}
        if (request.count, request.highest_id, {option}) != wanted:
            self.broken(Rule.LAUNCH_MATCHES_ROWS, f"{request} for {order.rows}")
        if not order.plans:
            now = at(self.scheduler.now + invocation.skew_s)
            order.plans = self._plans(invocation, order, spec.service, now, spec)
        fits = [
            plan for plan in order.plans if plan[order.step : order.step + 1] == (frozenset(request.pools),)
        ]
        if not fits or len(set(request.pools)) < len(request.pools):
            self.broken(Rule.POOL_ORDER, f"{request.pools} are asked in step {order.step} of {order.plans}")
        order.plans = fits
        memory = self.cooldown_checker.of(invocation).memory.get(spec.service, PoolMemory())
        if spec.ordered:
            known = [pool for pool in _eligible(spec, memory) if pool in request.pools]
            if known != list(request.pools):
                self.broken(Rule.LAUNCH_MATCHES_ROWS, f"{request.pools} are asked, {known} is the preference")
        self._check_price_cap(request, memory)

    def _check_price_cap(self, request: LaunchRequest, memory: PoolMemory) -> None:
        share, caps = request.spec.max_price_share, request.max_prices
        if share is None or request.purchase_option is PurchaseOption.ON_DEMAND:
            if caps:
                self.broken(Rule.PRICE_CAP_SENT, f"{caps}, and nothing is to be capped")
            return
        prices = memory.survey.on_demand_prices if memory.survey else {}
        for type_ in dict.fromkeys(pool.instance_type for pool in request.pools):
            below = share * prices.get(type_, 0.0) - caps.get(type_, float("inf"))
            # EC2 takes four decimals: what is below is rounded down.
            if not -1e-9 < below < 2e-4:
                self.broken(Rule.PRICE_CAP_SENT, f"{type_}: {caps}, {share} of {prices}")

    def after_launch(self, invocation: Invocation, request: LaunchRequest, answer: Answer) -> None:
        """EC2 has answered."""
        order = self.by[invocation].orders.get(request.launch_id)
        if order is not None:
            order.answer = answer
        if isinstance(answer, LaunchResult):
            self.cooldown_checker.after_launch(invocation, request, answer)

    def before_extra_tick(self, invocation: Invocation, service: str, delay_s: float) -> None:
        """A service's tick is called for, and not as the next one in turn."""
        launching = self.by.get(invocation)
        if launching is None or not 0 < delay_s <= limits.FALLBACK_S:
            return
        launching.called.add(service)
        if True not in launching.fallbacks.get(service, ()):
            self.broken(
                Rule.FALLBACKS_IN_SECONDS, f"a tick of {service} is called for, and nothing was refused"
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
                self.broken(
                    Rule.LAUNCH_RESULT_RECORDED, f"{order.intent} is left open, the answer was {order.answer}"
                )
        wanted = {service for service, wants in launching.fallbacks.items() if wants == {True}}
        if wanted - launching.called:
            self.broken(Rule.FALLBACKS_IN_SECONDS, f"nobody asks for fallbacks of {wanted}")

    def check_progress(self, services: Collection[str], store: MemoryStore, quiet_since: float) -> None:
        """Nothing goes wrong any more: is tried again what was refused?"""
        late = at(self.scheduler.now - limits.PROGRESS_S)
        if self.scheduler.now < quiet_since + limits.PROGRESS_S:
            return
        for service in services:
            rows = store.load(service)
            serving = sum(row.serves for row in rows.replicas.values())
            specs = self.documents(service, self.scheduler.now)
            held = [rows.backoff.until, rows.backoff.fallback_until]
            # One that has just become ready ends the back-off after failures: the next tick launches.
            held += [
                r.since for r in rows.replicas.values() if r.state is ReplicaState.READY and r.since > late
            ]
            if serving >= max((s.replicas for s in specs), default=0) or any(held):
                continue  # no hurry, or another reason to wait
            for row in rows.replicas.values():
                is_late = row.retry_at is not None and row.retry_at < late
                if row.state is ReplicaState.REQUESTED and is_late and row.launch_id not in rows.intents:
                    self.broken(
                        Rule.RETRIED_AFTER_BACKOFF, f"{row} isn't tried again, due was {row.retry_at}"
                    )

    # What may be asked.

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
        """In which ways the launch may be made then, by what the invocation was told."""
        learned = self.cooldown_checker.of(invocation)
        memory, option = learned.memory.get(service, PoolMemory()), order.rows[0].purchase_option
        # What was lost is known by now; what the launch before was refused is, or isn't.
        fresh = learned.fresh[service]
        lost = [e for e in fresh if not e.words]
        taught = [_scopes(e for e in lost if e.is_owed), _scopes(lost), _scopes(fresh)]
        specs = [spec] if spec else self._in_force(service)
        eligible = [tuple(_eligible(one, memory)) for one in specs]
        order.eligible, order.is_certain = eligible[-1] if eligible else (), len(set(eligible)) <= 1
        plans = [
            _plan(one, option, memory, known, now, order, is_last_resort=is_last_resort)
            for one in specs
            for known in taught
            for is_last_resort in self._last_resorts(invocation, one, order)
        ]
        return list(dict.fromkeys(plans))

    def _last_resorts(self, invocation: Invocation, spec: ServiceSpec, order: Order) -> set[bool]:
        """Whether Spot may be asked where it would rather not be: nothing better is to be had."""
        if not spec.on_demand_fallback:
            return {True}
        refused = {r.id for r in invocation.loaded.values() if _is_refused_fallback(r)}
        if not refused:
            return {False}
        others = self.by[invocation].orders.values()
        is_together = any(row.id in refused for other in others for row in other.rows)
        return {True} if is_together and order.is_launched_again else {True, False}

    def _rest_end(
        self, invocation: Invocation, order: Order, service: str, now: datetime
    ) -> tuple[datetime, datetime] | None:
        """If nobody was asked because all cool: between when and when the first will have rested."""
        if order.request is not None:
            return None
        learned = self.cooldown_checker.of(invocation)
        memory, latest = learned.memory.get(service, PoolMemory()), now + seconds(limits.ALL_COOLING_RETRY_S)
        offerings = [Offering(pool, order.rows[0].purchase_option) for pool in order.eligible]
        if any(scope.covers(o) for scope in _scopes(learned.fresh[service]) for o in offerings):
            return now, latest  # what has just been taught ends at a time that only its lesson says
        ends = [end for o in offerings if (end := _rests_until(memory, o, now))]
        if len(ends) < len(offerings):
            return None
        rested = min(*ends, latest)
        return rested, rested


def _eligible(spec: ServiceSpec, memory: PoolMemory) -> list[CapacityPool]:
    """What EC2 said that it has in the service's zones; what the stack lists if it wasn't asked that."""
    survey, zones = memory.survey, set(spec.subnets.values())
    is_answer = survey is not None and survey.asked == spec.asked
    found = [p for p in survey.pools if p.zone in zones] if survey and is_answer else []
    return found or list(spec.pools)


def _plan(
    spec: ServiceSpec,
    option: PurchaseOption,
    memory: PoolMemory,
    taught: Collection[Scope],
    now: datetime,
    order: Order,
    *,
    is_last_resort: bool,
) -> Plan:
    """Who is asked in turn: what rests; what scores low; what cools."""
    rested, low, cooling = set(), set(), set()
    is_spot = option is PurchaseOption.SPOT
    survey = memory.survey
    scores = survey.scores if survey and survey.asked == spec.asked else {}
    for pool in _eligible(spec, memory):
        offering = Offering(pool, option)
        if is_spot and _is_too_dear(spec, pool, memory):
            continue
        if _rests_until(memory, offering, now) or any(scope.covers(offering) for scope in taught):
            cooling.add(pool)
        elif is_spot and scores.get(pool.zone, 10) <= limits.LOW_SCORE:
            low.add(pool)
        else:
            rested.add(pool)
    is_return = spec.on_demand_fallback and all(row.attempts % limits.LOW_SCORE_EVERY for row in order.rows)
    steps = [rested]
    if not is_return or is_last_resort:
        steps.append(low)
    if not is_spot or is_last_resort:
        steps.append(cooling)
    return tuple(frozenset(step) for step in steps if step)


def _is_too_dear(spec: ServiceSpec, pool: CapacityPool, memory: PoolMemory) -> bool:
    if spec.max_price_share is None:
        return False
    if memory.survey is None or pool.instance_type not in memory.survey.on_demand_prices:
        return True  # nobody knows what it may cost
    most = spec.max_price_share * memory.survey.on_demand_prices[pool.instance_type]
    return memory.survey.spot_prices.get(pool, 0.0) > most


def _rests_until(memory: PoolMemory, offering: Offering, now: datetime) -> datetime | None:
    """Until when the offering is to be left alone; None if it needn't be."""
    ends = [c.until for c in memory.cooldowns if c.until > now and c.scope.covers(offering)]
    return max(ends, default=None)


def _scopes(evidence: Iterable[Evidence]) -> set[Scope]:
    return {e.scope for e in evidence}


def _is_refused_fallback(row: Replica) -> bool:
    return row.is_fallback and row.state is ReplicaState.REQUESTED and row.attempts > 0


def _is_past(due: datetime | None, now: datetime) -> bool:
    return due is None or due <= now
